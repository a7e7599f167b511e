package access

import (
	"errors"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

// The cast: every kind of caller the tables below are about.
func cast() map[string]*Caller {
	user := func(name string, grants ...model.Grant) *Caller {
		return NewCaller(model.User{Username: name, Grants: grants, Root: name == "root"})
	}
	return map[string]*Caller{
		"nobody":   nil,
		"zero":     {},
		"off":      SecurityOff(),
		"root":     user("root"),
		"admin":    user("ada", model.Grant{Action: model.ActionAdmin}),
		"owner":    user("olga"),
		"producer": user("pia", model.Grant{Action: model.ActionProduce, Patterns: []string{"t*"}}),
		"consumer": user("carl", model.Grant{Action: model.ActionConsume, Patterns: []string{"t"}}),
		"creator":  user("cleo", model.Grant{Action: model.ActionCreate, Patterns: []string{"t*"}}),
		"nothing":  user("nora"),
	}
}

func TestRightsByCaller(t *testing.T) {
	topic := &model.Topic{Name: "t", Owner: "olga"}
	other := &model.Topic{Name: "other", Owner: "otto"}
	unowned := &model.Topic{Name: "nobodys"}
	all := []string{"off", "root", "admin"}
	remote := []string{"root", "admin"}
	for _, c := range []struct {
		id    string
		right func(*Caller) error
		who   []string
		text  model.Forbidden
	}{
		{"P-6 produce", func(c *Caller) error { return c.MayProduce("t") }, append(all[:3:3], "producer"), "produce not allowed on this topic"},
		{"C-8 consume", func(c *Caller) error { return c.MayConsume("t") }, append(all[:3:3], "consumer"), "consume not allowed on this topic"},
		{"TC-5 create", func(c *Caller) error { return c.MayCreate("tt", nil) }, append(all[:3:3], "creator"), "create not allowed for this topic name"},
		{"AZ-1 read", func(c *Caller) error { return c.MayRead(topic) }, append(all[:3:3], "owner", "producer", "consumer", "creator"), "no grant on this topic"},
		{"AZ-1 read other", func(c *Caller) error { return c.MayRead(other) }, all, "no grant on this topic"},
		{"AZ-1 read a topic without owner", func(c *Caller) error { return c.MayRead(unowned) }, all, "no grant on this topic"},
		{"AZ-2 manage", func(c *Caller) error { return c.MayManage(topic) }, append(all[:3:3], "owner"), "only the topic owner or an admin may modify this topic"},
		{"AZ-2 manage a topic without owner", func(c *Caller) error { return c.MayManage(unowned) }, all, "only the topic owner or an admin may modify this topic"},
		{"AZ-4 create under own parent", func(c *Caller) error { return c.MayCreate("tt", topic) }, all, ""},
		{"AZ-5 attach", func(c *Caller) error { return c.MayAttach(topic, other) }, all, "only the topic owner or an admin may modify this topic"},
		{"AZ-5 attach own", func(c *Caller) error { return c.MayAttach(topic, topic) }, append(all[:3:3], "owner"), "only the topic owner or an admin may modify this topic"},
		{"AZ-6 detach from own parent", func(c *Caller) error { return c.MayDetach(topic, other) }, append(all[:3:3], "owner"), "only the topic owner or an admin may modify this topic"},
		{"AZ-6 detach own child", func(c *Caller) error { return c.MayDetach(other, topic) }, append(all[:3:3], "owner"), "only the topic owner or an admin may modify this topic"},
		{"AZ-6 detach others'", func(c *Caller) error { return c.MayDetach(other, other) }, all, "only the topic owner or an admin may modify this topic"},
		{"AZ-7 remotes", (*Caller).MayUseRemotes, remote, ""},
		{"AZ-8 AZ-9 remote child", func(c *Caller) error { return c.MayManageRemote(topic) }, append(remote[:2:2], "owner"), ""},
		{"AZ-10 AZ-11 administer", (*Caller).MayAdminister, all, "admin privileges required"},
		{"ESC-7 own password", func(c *Caller) error { return c.MayAdministerOrBe("nora") }, append(all[:3:3], "nothing"), "admin privileges required"},
		{"AZ-21 manage still", func(c *Caller) error { return c.MayManageStill(topic) }, append(all[:3:3], "owner"), `only the owner of topic "t" or an admin may modify it`},
	} {
		allowed := map[string]bool{}
		for _, who := range c.who {
			allowed[who] = true
		}
		for who, caller := range cast() {
			err := c.right(caller)
			switch {
			case (err == nil) != allowed[who]:
				t.Errorf("%s: %s got %v", c.id, who, err)
			case err != nil && !errors.Is(err, model.ErrForbidden):
				t.Errorf("%s: %s got %v, which is not a refusal", c.id, who, err)
			case err != nil && c.text != "" && err.Error() != string(c.text):
				t.Errorf("%s: %s got %q, want %q", c.id, who, err, c.text)
			}
		}
	}
}

func TestAZ4TheRefusalNamesWhatIsMissing(t *testing.T) {
	parent := &model.Topic{Name: "parent", Owner: "olga"}
	if err := cast()["creator"].MayCreate("t1", parent); err != DeniedManage {
		t.Fatalf("TC-6: %v", err)
	}
	if err := cast()["owner"].MayCreate("t1", parent); err != DeniedCreate {
		t.Fatalf("TC-5: %v", err)
	}
}

func TestAZ7AZ9SecurityOffHasNoRemotes(t *testing.T) {
	off := SecurityOff()
	for _, err := range []error{off.MayUseRemotes(), off.MayManageRemote(&model.Topic{Name: "t"})} {
		if err == nil || err.Error() != "remotes require security" {
			t.Fatal(err)
		}
	}
	if err := cast()["owner"].MayUseRemotes(); err != DeniedAdmin {
		t.Fatal(err)
	}
}

func TestAUTH13SecurityOff(t *testing.T) {
	off := SecurityOff()
	if off.Username() != "" || !off.Root() || !off.Admin() || off.Secured() {
		t.Fatalf("%+v", off)
	}
	if c := cast()["nothing"]; !c.Secured() || c.Root() || c.Admin() || c.Username() != "nora" {
		t.Fatalf("%+v", c)
	}
	var nobody *Caller
	if nobody.Secured() || nobody.Root() || nobody.Admin() || nobody.Username() != "" {
		t.Fatal("nobody has rights")
	}
}

func TestESCRules(t *testing.T) {
	root := &model.User{Username: "root", Root: true}
	ada := &model.User{Username: "ada", Grants: []model.Grant{{Action: model.ActionAdmin}}}
	nora := &model.User{Username: "nora"}
	admin := []model.Grant{{Action: model.ActionProduce, Patterns: []string{"*"}}, {Action: model.ActionAdmin}}
	harmless := admin[:1]
	for _, c := range []struct {
		id, who string
		right   func(*Caller) error
		want    error
	}{
		{"ESC-1 root gives admin", "root", func(c *Caller) error { return c.MayGive(admin) }, nil},
		{"ESC-1 off gives admin", "off", func(c *Caller) error { return c.MayGive(admin) }, nil},
		{"ESC-1 admin gives admin", "admin", func(c *Caller) error { return c.MayGive(admin) }, DeniedEscalation},
		{"ESC-1 admin gives less", "admin", func(c *Caller) error { return c.MayGive(harmless) }, nil},
		{"ESC-1 admin replaces", "admin", func(c *Caller) error { return c.MayReplaceGrants(nora, admin) }, DeniedEscalation},
		{"U-9 admin replaces", "admin", func(c *Caller) error { return c.MayReplaceGrants(nora, harmless) }, nil},
		{"U-9 root replaces", "root", func(c *Caller) error { return c.MayReplaceGrants(nora, admin) }, nil},
		{"U-10 others replace", "nothing", func(c *Caller) error { return c.MayReplaceGrants(ada, harmless) }, DeniedAdmin},
		{"ESC-2 own", "admin", func(c *Caller) error { return c.MayReplaceGrants(ada, harmless) }, DeniedOwnGrants},
		{"ESC-2 root's own", "root", func(c *Caller) error { return c.MayReplaceGrants(root, nil) }, DeniedOwnGrants},
		{"ESC-3 by admin", "admin", func(c *Caller) error { return c.MayReplaceGrants(root, nil) }, DeniedRootGrants},
		{"ESC-3 security off", "off", func(c *Caller) error { return c.MayReplaceGrants(root, nil) }, DeniedRootGrants},
		{"ESC-4 by admin", "admin", func(c *Caller) error { return c.MayDelete(root) }, DeniedRootDelete},
		{"ESC-4 by root", "root", func(c *Caller) error { return c.MayDelete(root) }, DeniedRootDelete},
		{"ESC-4 security off", "off", func(c *Caller) error { return c.MayDelete(root) }, DeniedRootDelete},
		{"ESC-5 own", "admin", func(c *Caller) error { return c.MayDelete(ada) }, DeniedOwnDelete},
		{"U-7 other", "admin", func(c *Caller) error { return c.MayDelete(nora) }, nil},
		{"U-7 by nobody", "nothing", func(c *Caller) error { return c.MayDelete(nora) }, DeniedAdmin},
		{"ESC-6 by admin", "admin", func(c *Caller) error { return c.MayReplacePassword(root) }, DeniedRootPassword},
		{"ESC-6 by root", "root", func(c *Caller) error { return c.MayReplacePassword(root) }, nil},
		{"U-11 admin on other", "admin", func(c *Caller) error { return c.MayReplacePassword(nora) }, nil},
		{"U-12 self", "nothing", func(c *Caller) error { return c.MayReplacePassword(nora) }, nil},
		{"U-14 non-admin on other", "nothing", func(c *Caller) error { return c.MayReplacePassword(ada) }, DeniedAdmin},
		{"U-14 non-admin on root", "nothing", func(c *Caller) error { return c.MayReplacePassword(root) }, DeniedAdmin},
		{"U-15 admin on self", "admin", func(c *Caller) error { return c.MayReplacePassword(ada) }, nil},
	} {
		if err := c.right(cast()[c.who]); err != c.want {
			t.Errorf("%s: got %v, want %v", c.id, err, c.want)
		}
	}
}

func TestESCTexts(t *testing.T) {
	for got, want := range map[model.Forbidden]string{
		DeniedEscalation:    "cannot grant permissions you do not hold",
		DeniedOwnGrants:     "cannot modify your own grants",
		DeniedRootGrants:    "cannot modify the root admin's grants",
		DeniedRootDelete:    "cannot delete the root admin",
		DeniedOwnDelete:     "cannot delete your own account",
		DeniedRootPassword:  "only the root admin may change its password",
		DeniedPassword:      "current password is incorrect",
		DeniedAdmin:         "admin privileges required",
		DeniedUnknownCaller: "caller unknown to the leader",
	} {
		if got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAZ22LeaderCaller(t *testing.T) {
	users := newReplica()
	users.set(t, "ada", "pw", model.Grant{Action: model.ActionAdmin})
	if c, err := LeaderCaller(users, "ada"); err != nil || !c.Admin() || c.Username() != "ada" {
		t.Fatal(c, err)
	}
	for _, name := range []string{"", "eve"} {
		if c, err := LeaderCaller(users, name); err != DeniedUnknownCaller || c != nil {
			t.Fatal(c, err)
		}
	}
	broken := errors.New("disk on fire")
	users.breakWith(broken)
	if _, err := LeaderCaller(users, "ada"); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

func TestAllowsAllocatesNothing(t *testing.T) {
	c := NewCaller(model.User{Username: "u", Grants: []model.Grant{{Action: model.ActionProduce, Patterns: []string{"a", "b", "orders-*"}}}})
	if n := testing.AllocsPerRun(100, func() {
		if c.MayProduce("orders-1") != nil || c.MayConsume("orders-1") == nil {
			t.Fatal("wrong answer")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
