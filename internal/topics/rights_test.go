package topics

import (
	"context"
	"errors"
	"testing"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// secured is a manager over the rig's store with security on.
func (g *rig) secured(t testing.TB) *Manager {
	t.Helper()
	for name, grants := range map[string][]model.Grant{
		"alice": {{Action: model.ActionCreate, Patterns: []string{"a-*"}}}, "ops": {{Action: model.ActionAdmin}}, "eve": nil,
	} {
		g.propose(t, metastore.CreateUser{Username: name, PasswordHash: "x", Grants: grants, At: 1})
	}
	m := g.over(g.store)
	m.users = g.store
	return m
}

// AZ-21 and AZ-22 as the leader applies them, whoever checked before.
func TestLeaderChecksRights(t *testing.T) {
	g := newRig(t)
	m := g.secured(t)
	ctx := context.Background()
	create := func(name, caller string) error {
		_, err := m.Create(ctx, CreateRequest{Name: name, Caller: caller})
		return err
	}
	alter := func(caller string) error {
		_, err := m.Alter(ctx, "a-1", AlterRequest{RetentionMS: ptr(int64(0)), Caller: caller})
		return err
	}
	schema := func(caller string) error {
		_, err := m.Alter(ctx, "a-1", AlterRequest{Schema: []byte("true"), Caller: caller})
		return err
	}
	const stolen = `only the owner of topic "a-1" or an admin may modify it`
	for _, tc := range []struct {
		name string
		err  error
		want model.Forbidden // "" = allowed
	}{
		{"create", create("a-1", "alice"), ""},
		{"create elsewhere", create("b-1", "alice"), "create not allowed for this topic name"},
		{"create by nobody", create("a-2", ""), "caller unknown to the leader"},
		{"create by a stranger", create("a-2", "mallory"), "caller unknown to the leader"},
		{"create without a grant", create("a-2", "eve"), "create not allowed for this topic name"},
		{"create by an admin", create("b-2", "ops"), ""},
		{"alter by the owner", alter("alice"), ""},
		{"alter by an admin", alter("ops"), ""},
		{"alter by another", alter("eve"), stolen},
		{"alter by nobody", alter(""), "caller unknown to the leader"},
		{"alter by a stranger", alter("mallory"), "caller unknown to the leader"},
		{"schema by another", schema("eve"), stolen},
		{"schema by the owner", schema("alice"), ""},
		{"delete by another", m.Delete(ctx, "a-1", "eve"), stolen},
		{"delete by nobody", m.Delete(ctx, "a-1", ""), "caller unknown to the leader"},
		{"delete by the owner", m.Delete(ctx, "a-1", "alice"), ""},
	} {
		var got model.Forbidden
		if errors.As(tc.err, &got); got != tc.want || tc.want == "" && tc.err != nil {
			t.Errorf("%s: %v, want %q", tc.name, tc.err, tc.want)
		}
	}
	if v, ok := g.store.Topic("b-2"); !ok || v.Owner != "ops" {
		t.Errorf("%+v", v)
	}
	if err := m.Delete(ctx, "a-1", "eve"); !errors.Is(err, model.ErrTopicNotFound) {
		t.Errorf("AZ-20: %v", err)
	}
}
