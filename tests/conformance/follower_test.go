package conformance

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// elsewhereFamilies are the ids whose answers another node has a part in: changes, which
// the leader makes, and what they show right afterwards on the node that was asked.
var elsewhereFamilies = []string{"TC", "TA", "TD", "TL", "U", "AC", "DC", "RT", "F"}

// A node that does not lead takes changes, and answers them, as one that is alone.
func TestConformanceOfAFollower(t *testing.T) {
	if testing.Short() || os.Getenv(envURL) != "" {
		t.Skip("runs three nodes of its own")
	}
	s := &suite{t: t, external: startFollower(t), nodes: map[string]*server{}, results: map[string]string{}}
	all := checks()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		family, _, _ := strings.Cut(id, "-")
		if !slices.Contains(elsewhereFamilies, family) {
			continue
		}
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			p := &probe{T: t, suite: s, id: id}
			t.Cleanup(p.record)
			all[id](p)
		})
	}
}

// startFollower forms a secured cluster of three and returns a member that does not lead.
func startFollower(t *testing.T) *server {
	t.Helper()
	ports := freePorts(t, 6)
	var peers []string
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("n%d@127.0.0.1:%d/%d", i+1, ports[2*i+1], ports[2*i]))
	}
	var nodes []*testutil.Node
	for i := range 3 {
		n := testutil.NewNode(t, t.TempDir())
		n.ID, n.Addr = fmt.Sprint("n", i+1), fmt.Sprintf("127.0.0.1:%d", ports[2*i])
		n.Env = []string{
			"NARAD_SECURITY_ENABLED=true", "NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT=true", "NARAD_CLUSTER_SECRET=conformance",
			"NARAD_ADMIN_PASSWORD=" + rootPassword, "NARAD_CLUSTER_PEERS=" + strings.Join(peers, ","),
			fmt.Sprintf("NARAD_CLUSTER_ADDR=127.0.0.1:%d", ports[2*i+1]),
		}
		if !n.Launch() {
			t.Fatalf("%s ended with exit code %d", n.ID, n.ExitCode())
		}
		nodes = append(nodes, n)
	}
	c := nodes[0].Client(client.WithBasicAuth("admin", rootPassword))
	var follower string
	testutil.Eventually(t, time.Minute, func() bool {
		members, err := c.Members(context.Background(), false)
		if err != nil || len(members) != 3 {
			return false
		}
		for _, m := range members {
			if !m.Leader {
				follower = m.Addr
			}
		}
		return nodes[0].Ready() && nodes[1].Ready() && nodes[2].Ready() && slices.ContainsFunc(members, func(m client.Member) bool { return m.Leader })
	}, "a cluster of three")
	own, err := client.New("http://"+follower, client.WithBasicAuth("admin", rootPassword))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	testutil.Eventually(t, time.Minute, func() bool {
		_, err := own.Users(context.Background())
		return err == nil
	}, "the follower to know the root user")
	return &server{base: &url.URL{Scheme: "http", Host: follower}, user: "admin", password: rootPassword}
}

// freePorts are ports that nobody listened on a moment ago.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
