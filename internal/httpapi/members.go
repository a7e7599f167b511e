package httpapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// Members is the cluster as this node's replica knows it: package metastore.
type Members interface {
	Members() []model.Member
	Servers() []metastore.Server
	Leader() (id, addr string)
	OwnedPartitions(member string) int
}

// Nodes reaches nodes by more than the replica knows of them.
type Nodes interface {
	// NodeStatus asks the node whose API is at addr about itself.
	NodeStatus(ctx context.Context, addr string) (peer.NodeStatus, error)
	// Forget has the leader, here or elsewhere, remove a Raft server that never became a
	// member, on behalf of caller. Its errors are as those of Forward.Change, and a
	// refusal is one too.
	Forget(ctx context.Context, id, caller string) (voter bool, err error)
}

// statusWait is what all members together get to tell their status (spec/http-api section
// 12.1).
const statusWait = 2 * time.Second

// memberView is a member as the listing shows it.
type memberView struct {
	ID              string           `json:"id"`
	Addr            string           `json:"addr"`
	Status          string           `json:"status"`
	Draining        bool             `json:"draining"`
	OwnedPartitions int              `json:"owned_partitions"`
	OutboundMoves   int              `json:"outbound_moves"`
	Voter           bool             `json:"voter"`
	Leader          bool             `json:"leader"`
	HeartbeatAge    float64          `json:"heartbeat_age_seconds"`
	NodeStatus      *peer.NodeStatus `json:"node_status,omitempty"`
	StatusError     string           `json:"status_error,omitempty"`
}

// listMembers serves GET /v1/cluster/members (spec/http-api section 12.1).
func (a *API) listMembers(c *call, be *Backends) error {
	detail, err := a.clusterRead(c)
	if err != nil {
		return err
	}
	outbound := map[string]int{}
	for _, m := range moves(be) {
		outbound[m.From]++
	}
	voters := map[string]bool{}
	for _, s := range be.Members.Servers() {
		voters[s.ID] = s.Voter
	}
	leader, _ := be.Members.Leader()
	now := a.clock.Now().UnixMilli()
	list := []memberView{}
	for _, m := range be.Members.Members() {
		age := time.Duration(max(0, now-m.HeartbeatAt)) * time.Millisecond
		list = append(list, memberView{
			ID: m.ID, Addr: m.Addr, Status: memberStatus(&m), Draining: m.Draining,
			OwnedPartitions: be.Members.OwnedPartitions(m.ID), OutboundMoves: outbound[m.ID],
			Voter: voters[m.ID], Leader: m.ID == leader, HeartbeatAge: float64(age.Milliseconds()) / 1000,
		})
	}
	slices.SortFunc(list, func(a, b memberView) int { return cmp.Compare(a.ID, b.ID) })
	if detail {
		askStatus(c.req.Ctx, be.Nodes, list)
	}
	return a.sendJSON(c, 200, struct {
		Members []memberView `json:"members"`
	}{list})
}

// clusterRead is what the reads of the cluster routes share: who may (AZ-11), and detail.
func (a *API) clusterRead(c *call) (detail bool, err error) {
	if err := c.caller.MayAdminister(); err != nil {
		return false, err
	}
	names := [...]string{"detail"}
	var p [len(names)]param
	if err := queryParams(c.req.Query, names[:], p[:]); err != nil {
		return false, err
	}
	return boolParam("detail", p[0])
}

// memberStatus is alive or dead.
func memberStatus(m *model.Member) string {
	if m.Status == model.MemberAlive {
		return "alive"
	}
	return "dead"
}

// askStatus fills in what each member says of itself, all asked at once.
func askStatus(ctx context.Context, nodes Nodes, list []memberView) {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	var wg sync.WaitGroup
	for i := range list {
		if nodes == nil {
			list[i].StatusError = "this node has no way to ask others"
			continue
		}
		wg.Go(func() {
			status, err := nodes.NodeStatus(ctx, list[i].Addr)
			switch {
			case err == nil && status.Node != list[i].ID: // it moved, and another one took its address
				list[i].StatusError = "another member answers at its address"
			case err == nil:
				list[i].NodeStatus = &status
			case errors.Is(err, peer.ErrUnsupported):
				list[i].StatusError = "the member runs a release that reports no status"
			case errors.Is(err, context.DeadlineExceeded):
				list[i].StatusError = "no answer within " + statusWait.String()
			default:
				list[i].StatusError = err.Error()
			}
		})
	}
	wg.Wait()
}

// moveView is a partition on its way to another member.
type moveView struct {
	Topic      string `json:"topic"`
	Partition  int    `json:"partition"`
	From       string `json:"from"`
	To         string `json:"to"`
	FromStatus string `json:"from_status"`
	ToStatus   string `json:"to_status"`
	Blocked    string `json:"blocked,omitempty"`
}

// listMoves serves GET /v1/cluster/moves (spec/http-api section 12.2).
func (a *API) listMoves(c *call, be *Backends) error {
	if _, err := a.clusterRead(c); err != nil {
		return err
	}
	return a.sendJSON(c, 200, struct {
		Moves []moveView `json:"moves"`
	}{moves(be)})
}

// notMember is the status of an id without a member record.
const notMember = "not_a_member"

// moves are the partitions that have a target, by topic and partition.
func moves(be *Backends) []moveView {
	status := map[string]string{}
	for _, m := range be.Members.Members() {
		status[m.ID] = memberStatus(&m)
		if m.Draining && m.Status == model.MemberAlive {
			status[m.ID] = "draining"
		}
	}
	of := func(id string) string { return cmp.Or(status[id], notMember) }
	list := []moveView{}
	for after, more := "", true; more; {
		var page []*model.TopicView
		page, more = be.Directory.ListTopics(after, pageMax)
		for _, v := range page {
			after = v.Name
			for p, target := range v.Targets {
				if target == "" {
					continue
				}
				m := moveView{Topic: v.Name, Partition: p, From: v.OwnerOf(p), To: target}
				m.FromStatus, m.ToStatus = of(m.From), of(m.To)
				m.Blocked = m.blocked()
				list = append(list, m)
			}
		}
		more = more && len(page) > 0
	}
	return list
}

// blocked is why a move cannot go on; "" = it can.
func (m *moveView) blocked() string {
	switch {
	case m.ToStatus == notMember:
		return "target_not_member"
	case m.ToStatus == "dead":
		return "target_dead"
	case m.FromStatus == "dead":
		return "source_dead"
	}
	return ""
}

// forgetServer serves POST /v1/cluster/members/{id}/forget (spec/http-api section 12.4).
func (a *API) forgetServer(c *call, be *Backends) error {
	if err := c.caller.MayAdminister(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.req.Ctx, changeBudget)
	defer cancel()
	voter, err := a.forget(ctx, c, be)
	if err := a.audited(c, "cluster.forget", c.user, 200, err); err != nil {
		return err
	}
	return a.sendJSON(c, 200, struct {
		ID    string `json:"id"`
		Voter bool   `json:"voter"`
	}{c.user, voter})
}

func (a *API) forget(ctx context.Context, c *call, be *Backends) (voter bool, err error) {
	if be.Nodes == nil {
		return false, model.ErrUnavailable
	}
	elsewhere := c.elsewhere(be)
	voter, err = be.Nodes.Forget(ctx, c.user, c.caller.Username())
	var refused *peer.StatusError
	if err == nil || !elsewhere || errors.As(err, &refused) {
		return voter, err
	}
	return false, unanswered(ctx, err)
}
