package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/narad-mq/narad/client"
)

func TestTopics(t *testing.T) {
	c := dial(t)
	forever := int64(0)
	made, err := c.CreateTopic(bg, client.CreateTopic{Name: "admin-a", Partitions: 4, RetentionMS: &forever, VisibilityTimeoutMS: 5000})
	if err != nil || made.Partitions != 4 || made.RetentionMS != 0 || made.VisibilityTimeoutMS != 5000 {
		t.Fatalf("created %+v, %v", made, err)
	}
	_, err = c.CreateTopic(bg, client.CreateTopic{Name: "admin-a"})
	if !errors.Is(err, client.ErrExists) || !errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrNameTaken) || client.Retryable(err) {
		t.Errorf("second create: %v", err)
	}
	in := client.CreateTopic{Name: "Admin-A"}
	if _, err = c.EnsureTopic(bg, in); !errors.Is(err, client.ErrNameTaken) || !errors.Is(err, client.ErrExists) {
		t.Errorf("another spelling: %v", err)
	}
	for _, name := range []string{"admin-a", "admin-b"} {
		if got, err := c.EnsureTopic(bg, client.CreateTopic{Name: name}); err != nil || got.Name != name {
			t.Errorf("ensure %s: %+v, %v", name, got, err)
		}
	}
	var names []string
	for topic, err := range c.Topics(bg) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, topic.Name)
	}
	if !slices.Contains(names, "admin-a") || !slices.Contains(names, "admin-b") || !slices.IsSorted(names) {
		t.Errorf("listed %v", names)
	}
	for range c.Topics(bg) {
		break
	}
	five := 5
	if got, err := c.AlterTopic(bg, "admin-a", client.AlterTopic{Partitions: &five}); err != nil || got.Partitions != 5 {
		t.Errorf("altered %+v, %v", got, err)
	}
	if got, err := c.DescribeTopic(bg, "admin-a"); err != nil || got.ID != made.ID || len(got.PartitionStats) != 5 || got.Partial {
		t.Errorf("described %+v, %v", got, err)
	}
	if err := c.DeleteTopic(bg, "admin-a"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteTopic(bg, "admin-a"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("second delete: %v", err)
	}
}

func TestReceiveReadSettle(t *testing.T) {
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{})
	if err := c.Produce(bg, topic, client.Message{Payload: []byte(`{"n":1}`), Key: []byte("k\x00"), Pin: client.Partition(1)}); err != nil {
		t.Fatal(err)
	}
	var d client.Delivery
	eventually(t, func() bool {
		ds, err := c.Receive(bg, topic, client.ReceiveOptions{Pin: client.Partition(1)})
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) == 1 {
			d = ds[0]
		}
		return len(ds) == 1
	}, "the message")
	if d.Topic != topic || d.Partition != 1 || string(d.Payload) != `{"n":1}` || string(d.Key) != "k\x00" || d.DeliveryCount != 1 || d.Timestamp.Year() < 2020 {
		t.Errorf("received %+v", d)
	}
	if got, ok, err := c.Read(bg, topic, 1, d.Offset); err != nil || !ok || string(got.Payload) != string(d.Payload) || got.Handle != "" {
		t.Errorf("read %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := c.Read(bg, topic, 1, d.Offset+1); ok || err != nil {
		t.Errorf("read past the end: %v, %v", ok, err)
	}
	if err := c.Extend(bg, topic, d.Handle); err != nil {
		t.Error(err)
	}
	errs, err := c.AckBatch(bg, topic, []string{d.Handle, d.Handle, "nonsense"})
	if err != nil || errs[0] != nil || !errors.Is(errs[1], client.ErrLeaseLost) || !errors.Is(errs[2], client.ErrBadRequest) {
		t.Errorf("batch ack: %v, %v", errs, err)
	}
	if err := c.Nack(bg, topic, d.Handle); !errors.Is(err, client.ErrLeaseLost) || client.Retryable(err) || client.Uncertain(err) {
		t.Errorf("nack after ack: %v", err)
	}
	if err := c.Ack(bg, topic, ""); !errors.Is(err, client.ErrNoLease) {
		t.Errorf("ack without a lease: %v", err)
	}
	if err := c.ProduceBatch(bg, topic, make([]client.Message, client.BatchMessagesMax+1)); !errors.Is(err, client.ErrBatchFull) {
		t.Errorf("batch of too many: %v", err)
	}
	big := slices.Repeat([]client.Message{{Payload: []byte(strings.Repeat("x", 1<<20))}}, 13)
	if err := c.ProduceBatch(bg, topic, big); !errors.Is(err, client.ErrBatchFull) {
		t.Errorf("batch of too many bytes: %v", err)
	}
}

func TestPing(t *testing.T) {
	c := dialTo(t, addr+",127.0.0.1:1")
	if nodes := c.Nodes(); len(nodes) != 2 || nodes[0] != addr || nodes[1] != "http://127.0.0.1:1" {
		t.Errorf("nodes %v", nodes)
	}
	if err := c.Ping(bg, addr); err != nil {
		t.Error(err)
	}
	var broken *client.ConnError
	if err := c.Ping(bg, "127.0.0.1:1"); !errors.As(err, &broken) || broken.Sent || client.Uncertain(err) {
		t.Errorf("ping of nobody: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := client.New(" , "); !errors.Is(err, client.ErrNoNodes) {
		t.Errorf("no address: %v", err)
	}
	for _, a := range []string{"ftp://x", "http://", "http://h/?q=1", "http://h/#f", "http://ann:secret@h", "http://ann:secret@h:bad", "a,http://%zz"} {
		if _, err := client.New(a); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", a, err)
		}
	}
	for i, o := range []client.Option{client.WithTimeout(0), client.WithRetries(0), client.WithBackoff(0, 1), client.WithBackoff(2, 1),
		client.WithBreaker(0, 1), client.WithBreaker(1, 0), client.WithIdleConnections(0), client.WithName("")} {
		if _, err := client.New("h", o); err == nil {
			t.Errorf("option %d is accepted", i)
		}
	}
}

// What the calls of spec/http-api sections 8.4, 8.7 and 11 put on the wire.
func TestSchemaAndUserCalls(t *testing.T) {
	var got string
	answer, status := "", 200
	m := newMeddler(t, func(w http.ResponseWriter, r *http.Request, _ func()) {
		b, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s %s", r.Method, r.URL.EscapedPath(), b)
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	})
	c := dialTo(t, m.URL)
	grant := client.Grant{Action: client.ActionProduce, Patterns: []string{"orders-*"}}
	ann := client.User{Username: "ann", Grants: []client.Grant{grant}, CreatedAtMS: 1, UpdatedAtMS: 2}
	const annJSON = `{"username":"ann","grants":[{"action":"produce","patterns":["orders-*"]}],"created_at_ms":1,"updated_at_ms":2}`
	history := client.SchemaHistory{Topic: "t", Version: 1, Versions: []client.SchemaVersion{{Version: 1, Schema: json.RawMessage(`{}`)}}}
	for _, tc := range []struct {
		call   func() (any, error)
		status int
		answer string
		want   string
		result any
	}{
		{func() (any, error) { return c.Schemas(bg, "t") }, 200, `{"topic":"t","version":1,"versions":[{"version":1,"schema":{}}]}`, "GET /v1/topics/t/schema ", history},
		{func() (any, error) { return c.SetSchema(bg, "t", json.RawMessage(`{"type":"object"}`)) }, 200, `{"name":"t"}`, `PATCH /v1/topics/t {"schema":{"type":"object"}}`, client.Topic{Name: "t"}},
		{func() (any, error) { return c.SetSchemaOver(bg, "t", 0, json.RawMessage(`true`)) }, 200, `{"name":"t"}`, `PATCH /v1/topics/t {"schema":true,"schema_base_version":0}`, client.Topic{Name: "t"}},
		{func() (any, error) { return c.CreateUser(bg, "ann", "pw", grant) }, 201, annJSON, `POST /v1/users {"username":"ann","password":"pw","grants":[{"action":"produce","patterns":["orders-*"]}]}`, ann},
		{func() (any, error) { return c.Users(bg) }, 200, "[" + annJSON + "]", "GET /v1/users ", []client.User{ann}},
		{func() (any, error) { return c.DescribeUser(bg, "a/b") }, 200, annJSON, "GET /v1/users/a%2Fb ", ann},
		{func() (any, error) { return nil, c.DeleteUser(bg, "ann") }, 204, "", "DELETE /v1/users/ann ", nil},
		{func() (any, error) { return c.SetGrants(bg, "ann") }, 200, annJSON, `PUT /v1/users/ann/grants {"grants":[]}`, ann},
		{func() (any, error) { return nil, c.SetPassword(bg, "ann", "", "new") }, 204, "", `PUT /v1/users/ann/password {"new_password":"new"}`, nil},
		{func() (any, error) { return nil, c.SetPassword(bg, "ann", "old", "new") }, 204, "", `PUT /v1/users/ann/password {"new_password":"new","current_password":"old"}`, nil},
	} {
		answer, status = tc.answer, tc.status
		result, err := tc.call()
		if err != nil || got != tc.want || !reflect.DeepEqual(result, tc.result) {
			t.Errorf("sent %q, want %q; got %+v, %v", got, tc.want, result, err)
		}
	}
	answer, status = `{"error":"user already exists","code":"user_exists"}`, 409
	if _, err := c.CreateUser(bg, "ann", "pw"); !errors.Is(err, client.ErrExists) {
		t.Errorf("second user: %v", err)
	}
}

func TestCluster(t *testing.T) {
	c := dial(t)
	members, err := c.Members(bg, false)
	if err != nil || len(members) != 1 || !members[0].Leader || !members[0].Voter || members[0].Status != "alive" || members[0].NodeStatus != nil {
		t.Fatalf("members %+v, %v", members, err)
	}
	members, err = c.Members(bg, true)
	if err != nil || len(members) != 1 || members[0].NodeStatus == nil && members[0].StatusError == "" {
		t.Errorf("with detail: %+v, %v", members, err)
	}
	if moves, err := c.Moves(bg, true); err != nil || len(moves) != 0 {
		t.Errorf("moves %+v, %v", moves, err)
	}
	if _, err := c.ForgetServer(bg, members[0].ID); err == nil {
		t.Error("the only member was forgotten")
	}
}
