package access

import (
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

// The refusals of spec/http-api section 4 and the texts of its routes.
const (
	DeniedProduce       model.Forbidden = "produce not allowed on this topic"
	DeniedConsume       model.Forbidden = "consume not allowed on this topic"
	DeniedCreate        model.Forbidden = "create not allowed for this topic name"
	DeniedRead          model.Forbidden = "no grant on this topic"                                 // AZ-1
	DeniedManage        model.Forbidden = "only the topic owner or an admin may modify this topic" // AZ-2
	DeniedAdmin         model.Forbidden = "admin privileges required"                              // AZ-7, AZ-10, AZ-11, ESC-7
	DeniedRemotes       model.Forbidden = "remotes require security"                               // AZ-7, AZ-9
	DeniedUnknownCaller model.Forbidden = "caller unknown to the leader"                           // AZ-22
	DeniedEscalation    model.Forbidden = "cannot grant permissions you do not hold"               // ESC-1
	DeniedOwnGrants     model.Forbidden = "cannot modify your own grants"                          // ESC-2
	DeniedRootGrants    model.Forbidden = "cannot modify the root admin's grants"                  // ESC-3
	DeniedRootDelete    model.Forbidden = "cannot delete the root admin"                           // ESC-4
	DeniedOwnDelete     model.Forbidden = "cannot delete your own account"                         // ESC-5
	DeniedRootPassword  model.Forbidden = "only the root admin may change its password"            // ESC-6
	DeniedPassword      model.Forbidden = "current password is incorrect"                          // ESC-7
)

// deny returns nil when a right is there.
func deny(allowed bool, refusal model.Forbidden) error {
	if allowed {
		return nil
	}
	return refusal
}

// MayProduce is the right to produce to a topic, existing or not (P-6).
func (c *Caller) MayProduce(topic string) error {
	return deny(c.Allows(model.ActionProduce, topic), DeniedProduce)
}

// MayConsume is the right to consume, replay and settle on a topic, existing or
// not (C-8, A-6).
func (c *Caller) MayConsume(topic string) error {
	return deny(c.Allows(model.ActionConsume, topic), DeniedConsume)
}

// CanRead is AZ-1 for a page of topics, which drops what it refuses (AZ-3).
func (c *Caller) CanRead(t *model.Topic) bool {
	if c == nil {
		return false
	}
	return c.admin || c.owns(t) || matchAny(c.produce, t.Name) || matchAny(c.consume, t.Name) || matchAny(c.create, t.Name)
}

// MayRead is AZ-1: describe, schema and children of a topic that exists.
func (c *Caller) MayRead(t *model.Topic) error { return deny(c.CanRead(t), DeniedRead) }

// MayManage is AZ-2: alter, delete, attach and detach.
func (c *Caller) MayManage(t *model.Topic) error {
	return deny(c.Admin() || c.owns(t), DeniedManage)
}

// MayManageStill is AZ-2 as the leader checks it again, against the topic as it
// stands (AZ-21).
func (c *Caller) MayManageStill(t *model.Topic) error {
	if c.MayManage(t) == nil {
		return nil
	}
	return model.Forbidden(fmt.Sprintf("only the owner of topic %q or an admin may modify it", t.Name))
}

// MayCreate is the right to create a topic, and AZ-4 with the parent it names; nil
// for none.
func (c *Caller) MayCreate(name string, parent *model.Topic) error {
	if !c.Allows(model.ActionCreate, name) {
		return DeniedCreate
	}
	if parent == nil {
		return nil
	}
	return c.MayManage(parent)
}

// MayAttach is AZ-5: both ends of a local link.
func (c *Caller) MayAttach(parent, child *model.Topic) error {
	if err := c.MayManage(parent); err != nil {
		return err
	}
	return c.MayManage(child)
}

// MayDetach is AZ-6: either end of a local link.
func (c *Caller) MayDetach(parent, child *model.Topic) error {
	if c.MayManage(parent) == nil {
		return nil
	}
	return c.MayManage(child)
}

// MayUseRemotes is AZ-7: the remotes plane.
func (c *Caller) MayUseRemotes() error {
	if c != nil && c.off {
		return DeniedRemotes
	}
	return c.MayAdminister()
}

// MayManageRemote is AZ-8 and AZ-9: detach a remote child, delete its stub, delete
// a parent that has one. The stub has no owner, the parent's counts.
func (c *Caller) MayManageRemote(parent *model.Topic) error {
	if c != nil && c.off {
		return DeniedRemotes
	}
	return c.MayManage(parent)
}

// MayAdminister is AZ-10 and AZ-11: users and cluster routes.
func (c *Caller) MayAdminister() error { return deny(c.Admin(), DeniedAdmin) }

// MayAdministerOrBe is the part of AZ-10 and ESC-7 that the path alone decides: a
// password is changed by an admin or by its user.
func (c *Caller) MayAdministerOrBe(username string) error {
	return deny(c.Admin() || c.is(username), DeniedAdmin)
}

// is reports whether the caller is the named user.
func (c *Caller) is(username string) bool {
	return c != nil && c.username != "" && c.username == username
}

// MayGive is ESC-1: only root gives admin. Keeping it on a user counts as giving.
func (c *Caller) MayGive(grants []model.Grant) error {
	return deny(c.Root() || !givesAdmin(grants), DeniedEscalation)
}

// MayReplaceGrants is AZ-10 with ESC-1 to ESC-3, on a user that exists.
func (c *Caller) MayReplaceGrants(target *model.User, grants []model.Grant) error {
	switch {
	case !c.Admin():
		return DeniedAdmin
	case c.is(target.Username):
		return DeniedOwnGrants
	case target.Root:
		return DeniedRootGrants
	}
	return c.MayGive(grants)
}

// MayDelete is AZ-10 with ESC-4 and ESC-5, on a user that exists.
func (c *Caller) MayDelete(target *model.User) error {
	switch {
	case !c.Admin():
		return DeniedAdmin
	case target.Root:
		return DeniedRootDelete
	case c.is(target.Username):
		return DeniedOwnDelete
	}
	return nil
}

// MayReplacePassword is AZ-10 with ESC-6 and ESC-7, on a user that exists. Whether
// a non-admin knows its current password is for the node it called to find out.
func (c *Caller) MayReplacePassword(target *model.User) error {
	if err := c.MayAdministerOrBe(target.Username); err != nil {
		return err
	}
	return deny(c.Root() || !target.Root, DeniedRootPassword)
}
