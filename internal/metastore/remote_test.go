package metastore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

const remoteID = "00000000000000ee"

func salt(b byte) []byte { return bytes.Repeat([]byte{b}, model.RemoteSaltBytes) }

func sealedBy(key string) model.Sealed {
	return model.Sealed{Version: 1, KeyVersion: key, Nonce: []byte("n"), Ciphertext: []byte("c-" + key)}
}

func credential(key string) *NewCredential {
	return &NewCredential{Sealed: sealedBy(key), Fingerprint: "f-" + key, At: 9, By: "ops"}
}

func remoteNamed(name string) model.Remote {
	return model.Remote{
		Name: name, ID: remoteID, URL: "https://dr.example.com", Username: "narad", Sealed: sealedBy("k1"), Fingerprint: "f", PasswordSetAtMS: 5,
		PasswordSetBy: "admin", Limits: model.RemoteLimits{MaxInFlight: 16, Compression: "none"}, CreatedAtMS: 5, CreatedBy: "admin",
	}
}

// attach links remote child to parent p (idA) through remote dr.
func attach(child, topic string) AttachRemote {
	return AttachRemote{
		Parent: "p", ParentID: idA, Child: child, ChildID: idB, RemoteID: remoteID, Epoch: "e",
		Remote: model.RemoteChild{Name: "dr", Topic: topic, Lanes: 1}, Offsets: []int64{1, 2, 3},
	}
}

func parentKeeping(ms int64) CreateTopic {
	c := CreateTopic{Topic: topicOf("p", idA, 3)}
	c.Topic.RetentionMS = ms
	return c
}

// remoteScripts scripts types 33 and 34, and what stubs change in the types before.
func remoteScripts() map[string][]step {
	with := func(edit func(*AttachRemote)) AttachRemote {
		c := attach("r2", "there2")
		edit(&c)
		return c
	}
	return map[string][]step{
		"33 remote child attach": {
			{parentKeeping(model.RemoteRetentionMin), nil}, newTopic("other", idB),
			{attach("r", "there"), model.ErrRemoteNotFound},
			{CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, nil},
			{with(func(c *AttachRemote) { c.Parent = "nope" }), model.ErrTopicNotFound},
			{with(func(c *AttachRemote) { c.ParentID = idB }), model.ErrTopicChanged},
			{with(func(c *AttachRemote) { c.Child = "a/b" }), model.ErrInvalid},
			{with(func(c *AttachRemote) { c.ChildID = "x" }), model.ErrInvalid},
			{with(func(c *AttachRemote) { c.Remote.Lanes = 0 }), model.ErrInvalid},
			{with(func(c *AttachRemote) { c.Remote.Lanes = model.RemoteLanesMax + 1 }), model.ErrInvalid},
			{with(func(c *AttachRemote) { c.Remote.Topic = "" }), model.ErrInvalid},
			{with(func(c *AttachRemote) { c.Child = "other" }), model.ErrTopicExists},
			{with(func(c *AttachRemote) { c.Child = "OTHER" }), model.ErrNameTaken},
			{with(func(c *AttachRemote) { c.RemoteID = "00000000000000ff" }), model.ErrRemoteChanged},
			{attach("r", "there"), nil},
			{attach("r3", "there"), model.ErrConflict}, // the same target topic
			{with(func(c *AttachRemote) { c.Parent, c.ParentID = "r", idB }), model.ErrConflict},
			{with(func(*AttachRemote) {}), nil},
			{AttachChild{Parent: "r", Child: "other"}, model.ErrConflict},
			{AttachChild{Parent: "other", Child: "r"}, model.ErrConflict},
			{UnlinkChild{Parent: "p", ParentID: idA, Child: "r", ChildID: idB}, model.ErrConflict},
			{PutSchemaVersion{Topic: "p", ID: idA, Version: 1, Schema: schema(1)}, nil}, // not the stubs'
			{AlterTopic{Name: "r", ID: idB, MaxInFlight: ptr(1)}, model.ErrConflict},
			{AlterTopic{Name: "p", ID: idA, RetentionMS: ptr(model.RemoteRetentionMin - 1)}, model.ErrConflict},
			{AlterTopic{Name: "p", ID: idA, RetentionMS: ptr(int64(0))}, nil},
			{AlterTopic{Name: "p", ID: idA, RetentionMS: ptr(model.RemoteRetentionMin - 1)}, model.ErrConflict},
			{AlterTopic{Name: "p", ID: idA, RetentionMS: ptr(model.RemoteRetentionMin)}, nil},
			{RemoveTopic{Name: "r", ID: idB}, nil}, // unlinks it
			{attach("r", "there"), nil},
			{RemoveTopic{Name: "p", ID: idA}, nil}, // and its stubs
			{RemoveTopic{Name: "r", ID: idB}, model.ErrTopicNotFound},
			{parentKeeping(model.RemoteRetentionMin - 1), nil},
			{attach("r", "there"), model.ErrConflict},
			{AlterTopic{Name: "p", ID: idA, RetentionMS: ptr(model.RetentionMSMin)}, nil},
		},
		"34 remote child state": {
			{parentKeeping(0), nil}, newTopic("plain", idB),
			{CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, nil},
			{attach("r", "there"), nil},
			{ChangeRemoteChild{Parent: "p", Child: "nope", Epoch: "e", Resume: true}, model.ErrTopicNotFound},
			{ChangeRemoteChild{Parent: "p", Child: "plain", Epoch: "e", Resume: true}, model.ErrTopicNotFound},
			{ChangeRemoteChild{Parent: "q", Child: "r", Epoch: "e", Resume: true}, model.ErrTopicNotFound},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "f", Resume: true}, model.ErrTopicChanged},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e"}, model.ErrInvalid},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Resume: true, Pause: &PauseMark{}}, model.ErrInvalid},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", TargetID: ptr("x")}, model.ErrInvalid},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Pause: &PauseMark{Reason: "why", By: "ops", At: 5}}, nil},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Resume: true, TargetID: ptr("id2")}, nil},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Skip: &SkipMark{Partition: 3}}, model.ErrInvalid},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Skip: &SkipMark{Partition: -1}}, model.ErrInvalid},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Skip: &SkipMark{Offset: -1}}, model.ErrInvalid},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Skip: &SkipMark{Partition: 2, Offset: 7}}, nil},
			{ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Skip: &SkipMark{Partition: 2, Offset: 7}}, nil},
		},
	}
}

// remoteRecordScripts scripts types 35 to 37.
func remoteRecordScripts() map[string][]step {
	remote := func(edit func(*model.Remote)) model.Remote {
		r := remoteNamed("dr2")
		edit(&r)
		return r
	}
	return map[string][]step{
		"35 remote create": {
			{CreateRemote{Remote: remoteNamed("dr")}, model.ErrInvalid}, // the first brings a salt
			{CreateRemote{Remote: remoteNamed("DR"), Salt: salt(1)}, model.ErrInvalid},
			{CreateRemote{Remote: remote(func(r *model.Remote) { r.ID = "x" }), Salt: salt(1)}, model.ErrInvalid},
			{CreateRemote{Remote: remote(func(r *model.Remote) { r.Sealed.KeyVersion = "" }), Salt: salt(1)}, model.ErrInvalid},
			{CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, nil},
			{CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, model.ErrRemoteExists},
			{CreateRemote{Remote: remoteNamed("dr2"), Salt: salt(2)}, model.ErrConflict}, // two first creates
			{CreateRemote{Remote: remoteNamed("dr2"), Salt: salt(1)}, nil},
			{CreateRemote{Remote: remoteNamed("dr3")}, nil},
		},
		"36 and 37 remote change and delete": {
			{parentKeeping(0), nil},
			{CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, nil},
			{ChangeRemote{Name: "nope", ID: remoteID, Revision: 1}, model.ErrRemoteNotFound},
			{ChangeRemote{Name: "dr", ID: "00000000000000ff", Revision: 1}, model.ErrRemoteChanged},
			{ChangeRemote{Name: "dr", ID: remoteID, Revision: 2}, model.ErrRemoteChanged},
			{ChangeRemote{Name: "dr", ID: remoteID, Revision: 1, URL: ptr("https://x")}, model.ErrInvalid},
			{ChangeRemote{Name: "dr", ID: remoteID, Revision: 1, Credential: &NewCredential{}}, model.ErrInvalid},
			{ChangeRemote{Name: "dr", ID: remoteID, Revision: 1, Limits: &model.RemoteLimits{MaxInFlight: 3}}, nil},
			{ChangeRemote{Name: "dr", ID: remoteID, Revision: 2, URL: ptr("https://x"), Credential: credential("k2")}, nil},
			{ChangeRemote{Name: "dr", ID: remoteID, CredentialVersion: 1, Reencrypt: true, Credential: credential("k3")}, model.ErrRemoteChanged},
			{ChangeRemote{Name: "dr", ID: remoteID, CredentialVersion: 2, Reencrypt: true}, model.ErrInvalid},
			{ChangeRemote{Name: "dr", ID: remoteID, CredentialVersion: 2, Reencrypt: true, Credential: credential("k3"), URL: ptr("u")}, model.ErrInvalid},
			{ChangeRemote{Name: "dr", ID: remoteID, CredentialVersion: 2, Reencrypt: true, Credential: credential("k3")}, nil},
			{attach("r", "there"), nil},
			{DeleteRemote{Name: "dr", ID: "00000000000000ff"}, model.ErrRemoteChanged},
			{DeleteRemote{Name: "dr", ID: remoteID}, model.ErrRemoteInUse},
			{DeleteRemote{Name: "dr", ID: remoteID, Force: true}, nil},
			{DeleteRemote{Name: "dr", ID: remoteID}, model.ErrRemoteNotFound},
			{CreateRemote{Remote: remoteNamed("dr"), Salt: salt(2)}, model.ErrConflict}, // the salt outlives every remote
			{CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, nil},
		},
	}
}

// remoteMakers draws commands of types 33 to 37 for script.
func remoteMakers(r *rand.Rand) []func() Command {
	name := func() string { return fmt.Sprintf("t%d", r.IntN(6)) }
	remote := func() string { return []string{"dr", "dr2"}[r.IntN(2)] }
	id := func() model.Incarnation { return []model.Incarnation{idA, idB}[r.IntN(2)] }
	return []func() Command{
		func() Command {
			c := attach(name(), name())
			c.Parent, c.ParentID, c.ChildID, c.Remote.Name = name(), id(), id(), remote()
			return c
		},
		func() Command {
			return ChangeRemoteChild{Parent: name(), Child: name(), Epoch: "e", Skip: &SkipMark{Partition: r.IntN(3), Offset: r.Int64N(5)}}
		},
		func() Command { return ChangeRemoteChild{Parent: name(), Child: name(), Epoch: "e", Resume: true} },
		func() Command { return CreateRemote{Remote: remoteNamed(remote()), Salt: salt(byte(r.IntN(2)))} },
		func() Command {
			return ChangeRemote{Name: remote(), ID: remoteID, Revision: 1 + r.IntN(3), Credential: credential("k")}
		},
		func() Command { return DeleteRemote{Name: remote(), ID: remoteID, Force: r.IntN(2) == 0} },
	}
}

func TestRemoteEffects(t *testing.T) {
	m := newMachine(t, t.TempDir())
	s := &Store{fsm: m.fsm}
	before := [2]uint64{s.Version(DomainRemotes), s.Version(DomainTopics)}
	m.ok(CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, CreateRemote{Remote: remoteNamed("a-b"), Salt: salt(1)})
	if s.Version(DomainRemotes) != before[0]+2 || s.Version(DomainTopics) != before[1] {
		t.Error("a remote moves its own domain and no other")
	}
	m.ok(ChangeRemote{Name: "dr", ID: remoteID, Revision: 1, URL: ptr("https://new"), Credential: credential("k1")})
	m.ok(ChangeRemote{Name: "dr", ID: remoteID, CredentialVersion: 2, Reencrypt: true, Credential: credential("k2")})
	want := remoteNamed("dr")
	want.URL, want.Sealed, want.Fingerprint, want.PasswordSetAtMS, want.PasswordSetBy = "https://new", sealedBy("k2"), "f-k2", 9, "ops"
	want.CredentialVersion, want.Revision = 3, 3
	if got, ok, err := s.Remote("dr"); err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("remote %+v, %v; want %+v", got, err, want)
	}
	if list, err := s.Remotes(); err != nil || len(list) != 2 || list[0].Name != "a-b" || list[1].Name != "dr" {
		t.Errorf("remotes %+v, %v", list, err)
	}
	m.ok(DeleteRemote{Name: "dr", ID: remoteID}, DeleteRemote{Name: "a-b", ID: remoteID})
	keys, err := s.RemoteKeys()
	if err != nil || !bytes.Equal(keys.Salt, salt(1)) || !reflect.DeepEqual(keys.Keys, map[string]model.RemoteKey{"k1": {FirstSealedAtMS: 5, Seals: 3}, "k2": {FirstSealedAtMS: 9, Seals: 1}}) {
		t.Errorf("keys %+v, %v", keys, err)
	}
}

func TestStubEffects(t *testing.T) {
	m := newMachine(t, t.TempDir())
	c := attach("r", "there")
	c.Remote.Paused, c.Remote.Skip, c.At, c.DelayMS = true, map[int][]int64{0: {1}}, 17, 5
	m.ok(parentKeeping(0), CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, c)
	v, _ := m.catalog.topic("r")
	want := model.Topic{
		Name: "r", ID: idB, CreatedAt: 17, Role: model.RoleChild, Parent: "p", AttachEpoch: "e", AttachOffsets: []int64{1, 2, 3},
		FanoutDelayMS: 5, Remote: &model.RemoteChild{Name: "dr", Topic: "there", Lanes: 1},
	}
	if !reflect.DeepEqual(v.Topic, want) || len(v.Owners) != 0 {
		t.Errorf("stub %+v, want %+v", v.Topic, want)
	}
	m.ok(ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Pause: &PauseMark{Reason: "why", By: "ops", At: 6}})
	if v, _ := m.catalog.topic("r"); !v.Remote.Paused || v.Remote.PauseReason != "why" || v.Remote.PausedBy != "ops" || v.Remote.PausedAtMS != 6 {
		t.Errorf("paused %+v", v.Remote)
	}
	m.ok(ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "e", Resume: true, TargetID: ptr("id2")})
	if v, _ := m.catalog.topic("r"); v.Remote.Paused || v.Remote.PauseReason != "" || v.Remote.TargetID != "id2" {
		t.Errorf("resumed %+v", v.Remote)
	}
	m.ok(RemoveTopic{Name: "p", ID: idA})
	if _, ok := m.catalog.topic("r"); ok {
		t.Error("a stub outlived its parent")
	}
	m.sameViews()
}

// Skips ascend, repeat nothing and keep the newest at the bound.
func TestSkipsAtTheBound(t *testing.T) {
	skips := map[int][]int64{}
	for i := range int64(model.RemoteSkipsMax) {
		skips = withSkip(skips, SkipMark{Partition: 1, Offset: 10 + 2*i})
	}
	skips = withSkip(skips, SkipMark{Partition: 1, Offset: 12})
	if n := len(skips[1]); n != model.RemoteSkipsMax {
		t.Fatalf("%d skips", n)
	}
	skips = withSkip(skips, SkipMark{Partition: 1, Offset: 13})
	if got := skips[1][:3]; !reflect.DeepEqual(got, []int64{12, 13, 14}) {
		t.Errorf("the lowest did not go: %v", got)
	}
	skips = withSkip(skips, SkipMark{Partition: 1, Offset: 1})
	if got := skips[1][:3]; !reflect.DeepEqual(got, []int64{1, 13, 14}) || len(skips[1]) != model.RemoteSkipsMax {
		t.Errorf("the newest went: %v", got)
	}
}

// 16 remote children per parent, 64 remotes per cluster, and not one more.
func TestRemotesAtTheBounds(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(parentKeeping(0))
	for i := range model.RemotesMax {
		c := CreateRemote{Remote: remoteNamed(fmt.Sprintf("dr%d", i)), Salt: salt(1)}
		if i == 0 {
			c.Remote.Name = "dr"
		}
		m.ok(c)
	}
	if err := m.do(CreateRemote{Remote: remoteNamed("more"), Salt: salt(1)}); !errors.Is(err, model.ErrConflict) {
		t.Errorf("remote %d: %v", model.RemotesMax+1, err)
	}
	for i := range model.RemoteChildrenMax {
		m.ok(attach(fmt.Sprintf("r%d", i), fmt.Sprintf("there%d", i)))
	}
	if err := m.do(attach("more", "more")); !errors.Is(err, model.ErrConflict) {
		t.Errorf("remote child %d: %v", model.RemoteChildrenMax+1, err)
	}
}

func TestRemoteNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a-1": true, "": false, "1a": false, "-a": false, "A": false, "a_b": false, "a.b": false, "ä": false,
		"a" + string(bytes.Repeat([]byte("b"), 62)): true, "a" + string(bytes.Repeat([]byte("b"), 63)): false,
	} {
		if remoteName(name) != ok {
			t.Errorf("%q passes %t", name, !ok)
		}
	}
}
