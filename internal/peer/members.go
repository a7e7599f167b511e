package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// MemberReport is a heartbeat: what a member says of itself.
type MemberReport struct {
	ID, APIAddr, RaftAddr string
	Build                 string // release; "" = not reported
	EntryTypes            int    // newest Raft entry type it applies; 0 = not reported
}

// JoinRequest asks to be admitted, or to be made a voter.
type JoinRequest struct {
	ID, RaftAddr string
	Empty        bool // its volume holds no metastore: a new node
	EntryTypes   int  // newest Raft entry type it applies; 0 = not reported
}

// JoinAnswer is what a node says to a join.
type JoinAnswer struct {
	Status               int    // 200, 400, 409, 412, 421 or 503
	Admission            string // of a 200: staged, deferred, promoted, voter, or joined by an older leader
	Reason               string // why a 200 is deferred; of any other status the text
	Code                 string // of a refusal
	LeaderID, LeaderAddr string // of a 421; either may be empty
	Body                 string // as received; a server leaves it empty
}

// Members admits nodes and takes their heartbeats: on the leader. Elsewhere Register fails
// with model.ErrNotLeader, and Join answers 421, or 412 on a node no cluster has admitted.
type Members interface {
	Register(ctx context.Context, m MemberReport) error
	Join(ctx context.Context, j JoinRequest) JoinAnswer
}

func (m *MemberReport) encode(e *noderpc.Encoder) (end int) {
	e.AppendStr(m.ID)
	e.AppendStr(m.APIAddr)
	e.AppendStr(m.RaftAddr)
	end = len(*e)
	if m.Build != "" || m.EntryTypes != 0 {
		e.AppendStr(m.Build)
		e.AppendU32(uint32(m.EntryTypes))
	}
	return end
}

func decodeReport(d *noderpc.Decoder, level model.ReleaseLevel) (m MemberReport, err error) {
	m.ID, m.APIAddr, m.RaftAddr = d.Str(), d.Str(), d.Str()
	var types uint32
	if knows(level, featureReport) && d.More() {
		m.Build = d.Str()
		if d.More() {
			types = d.U32()
		}
	}
	if err := d.Done(); err != nil {
		return m, err
	}
	if m.EntryTypes, err = entryTypes(types); err != nil {
		return m, err
	}
	return m, errors.Join(memberID(m.ID), address("api address", m.APIAddr), address("raft address", m.RaftAddr),
		bounded("build", m.Build, buildBytesMax))
}

func (j *JoinRequest) encode(e *noderpc.Encoder) (end int) {
	e.AppendStr(j.ID)
	e.AppendStr(j.RaftAddr)
	e.AppendBool(j.Empty)
	end = len(*e)
	if j.EntryTypes != 0 {
		e.AppendU32(uint32(j.EntryTypes))
	}
	return end
}

func decodeJoin(d *noderpc.Decoder, level model.ReleaseLevel) (j JoinRequest, err error) {
	j.ID, j.RaftAddr, j.Empty = d.Str(), d.Str(), d.Bool()
	var types uint32
	if knows(level, featureReport) && d.More() {
		types = d.U32()
	}
	if err := d.Done(); err != nil {
		return j, err
	}
	if j.EntryTypes, err = entryTypes(types); err != nil {
		return j, err
	}
	return j, errors.Join(memberID(j.ID), address("raft address", j.RaftAddr))
}

// entryTypesMax bounds a reported entry type: they are numbered by a byte.
const entryTypesMax = 255

func entryTypes(n uint32) (int, error) {
	if n > entryTypesMax {
		return 0, fmt.Errorf("%w: entry type %d, at most %d", model.ErrInvalid, n, entryTypesMax)
	}
	return int(n), nil
}

func memberID(id string) error {
	if id == "" {
		return fmt.Errorf("%w: no member id", model.ErrInvalid)
	}
	return bounded("member id", id, nameBytesMax)
}

// introduce sends a heartbeat or join, and again at once without what an older release
// does not know. Nothing is remembered: the next one may go to an upgraded leader
// (spec/cluster-and-network section 8).
func (c *Client) introduce(ctx context.Context, addr string, op noderpc.Op, body []byte, end int) (noderpc.Response, error) {
	if !knows(c.level, featureReport) {
		body = body[:end]
	}
	res, err := c.send(ctx, addr, op, body)
	if err == nil && end < len(body) && refusedTrailing(res) {
		return c.send(ctx, addr, op, body[:end])
	}
	return res, err
}

// Register is a heartbeat to the leader. ErrMemberRemoved when the id was decommissioned,
// ErrNotLeader with a hint from any other node.
func (c *Client) Register(ctx context.Context, addr string, m MemberReport) error {
	ctx, cancel := context.WithTimeout(ctx, registerBudget)
	defer cancel()
	var e noderpc.Encoder
	end := m.encode(&e)
	_, err := accepted(c.introduce(ctx, addr, noderpc.OpRegisterMember, e, end))
	return err
}

// joinAnswer is the JSON of a 200 to op 21.
type joinAnswer struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// Join asks a node to be admitted. A status is not an error: only what is lost on the way
// is.
func (c *Client) Join(ctx context.Context, addr string, j JoinRequest) (JoinAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, joinBudget)
	defer cancel()
	var e noderpc.Encoder
	end := j.encode(&e)
	res, err := c.introduce(ctx, addr, noderpc.OpJoinCluster, e, end)
	if err != nil {
		return JoinAnswer{}, err
	}
	if len(res.Body) > refusalBytesMax {
		res.Body = nil
	}
	a := JoinAnswer{Status: res.Status, Body: string(res.Body)}
	if res.Status == http.StatusOK {
		var ok joinAnswer
		if err := json.Unmarshal(res.Body, &ok); err != nil {
			return JoinAnswer{}, fmt.Errorf("%s at %s: answer: %w", noderpc.OpJoinCluster, addr, err)
		}
		a.Admission, a.Reason = ok.Status, ok.Reason
		return a, nil
	}
	r := refusalOf(res)
	a.Reason, a.Code, a.LeaderID, a.LeaderAddr = r.Text, r.Code, r.LeaderID, r.LeaderAddr
	return a, nil
}

// response encodes the answer.
func (a *JoinAnswer) response(hint Hint) noderpc.Response {
	if a.Status == http.StatusOK {
		return jsonResponse(a.Status, joinAnswer{a.Admission, a.Reason})
	}
	e := StatusError{Status: a.Status, Text: a.Reason, Code: a.Code, LeaderID: a.LeaderID, LeaderAddr: a.LeaderAddr}
	if e.Text == "" {
		e.Text = joinText(a.Status)
	}
	if a.Status == http.StatusMisdirectedRequest {
		e.Code = codeNotLeader
		if e.LeaderID == "" && e.LeaderAddr == "" && hint != nil {
			e.LeaderID, e.LeaderAddr = hint()
		}
	}
	return e.response()
}

func joinText(status int) string {
	switch status {
	case http.StatusMisdirectedRequest:
		return "not the metastore leader"
	case http.StatusPreconditionFailed:
		return "this node has no raft configuration"
	case http.StatusConflict:
		return model.ErrMemberRemoved.Error()
	}
	return model.ErrUnavailable.Error()
}

// ServeMembers serves ops 9 and 21.
func ServeMembers(s Server, level model.ReleaseLevel, m Members, hint Hint) {
	serve(s, noderpc.OpRegisterMember, nil, hint, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		r, err := decodeReport(d, level)
		if err == nil {
			err = m.Register(ctx, r)
		}
		return empty(), err
	})
	serve(s, noderpc.OpJoinCluster, nil, hint, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		j, err := decodeJoin(d, level)
		if err != nil {
			return noderpc.Response{}, err
		}
		a := m.Join(ctx, j)
		return a.response(hint), nil
	})
}
