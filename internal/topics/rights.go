package topics

import (
	"fmt"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/model"
)

// A change is authorized twice: by the node that was called, against its replica, and
// here, under the topic's lock, against the topic as it stands and the caller as the
// leader knows it (spec/http-api section 4, AZ-20 to AZ-22).

// caller is who a username stands for on the leader.
func (m *Manager) caller(username string) (*access.Caller, error) {
	if m.users == nil {
		return access.SecurityOff(), nil
	}
	c, err := access.LeaderCaller(m.users, username)
	if err != nil {
		return nil, fmt.Errorf("caller %q: %w", username, err)
	}
	return c, nil
}

func (m *Manager) mayCreate(r CreateRequest) error {
	c, err := m.caller(r.Caller)
	if err != nil {
		return err
	}
	return c.MayCreate(r.Name, nil)
}

func (m *Manager) mayAttach(username string, parent, child *model.TopicView) error {
	return m.mayLink(username, parent, child, (*access.Caller).MayAttach)
}

func (m *Manager) mayDetach(username string, parent, child *model.TopicView) error {
	return m.mayLink(username, parent, child, (*access.Caller).MayDetach)
}

func (m *Manager) mayLink(username string, parent, child *model.TopicView, may func(c *access.Caller, p, t *model.Topic) error) error {
	c, err := m.caller(username)
	if err != nil {
		return err
	}
	if may(c, &parent.Topic, &child.Topic) != nil {
		return model.Forbidden(fmt.Sprintf("only the owner of topic %q and topic %q or an admin may change their fan-out link", parent.Name, child.Name))
	}
	return nil
}

func (m *Manager) mayManage(username string, v *model.TopicView) error {
	c, err := m.caller(username)
	if err != nil {
		return err
	}
	return c.MayManageStill(&v.Topic)
}
