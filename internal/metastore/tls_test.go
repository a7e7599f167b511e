package metastore

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
)

// authority is a CA of the tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func issue(t testing.TB, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (der []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	if signer == nil {
		parent, signer = template, key
	}
	der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	return der, key
}

func newAuthority(t testing.TB, notAfter time.Time) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: notAfter.Add(-365 * day), NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, key := issue(t, template, nil, nil)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// files writes a leaf of this CA with the name, valid until notAfter, beside a
// bundle of the given CAs.
func (a authority) files(t testing.TB, name string, notAfter time.Time, bundle ...authority) *TLS {
	t.Helper()
	der, key := issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotBefore: notAfter.Add(-90 * day), NotAfter: notAfter,
		DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	var cas []byte
	for _, ca := range bundle {
		cas = append(cas, ca.pem...)
	}
	dir := t.TempDir()
	f := &TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CAFile: filepath.Join(dir, "ca.pem")}
	must(t, os.WriteFile(f.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(f.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}), 0o600))
	must(t, os.WriteFile(f.CAFile, cas, 0o600))
	return f
}

// handshakeBetween opens a TLS connection from one node's files to another's and
// sends a byte each way: under TLS 1.3 a client learns of its refusal by reading.
func handshakeBetween(t *testing.T, from, to *TLS) error {
	t.Helper()
	client, err := loadTLS(from)
	must(t, err)
	server, err := loadTLS(to)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		secure := tls.Server(conn, server.server)
		_, err = io.CopyN(secure, secure, 1)
		done <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	conn, err := client.dial(raw, testWait)
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
	}
	return errors.Join(err, <-done)
}

// Chain and name are checked on both sides, at TLS 1.3, and at the time of the
// connection.
func TestRaftTLSWhoMayConnect(t *testing.T) {
	now := time.Now()
	ours, theirs := newAuthority(t, now.Add(300*day)), newAuthority(t, now.Add(300*day))
	good := ours.files(t, clusterName, now.Add(80*day), ours)
	both := ours.files(t, clusterName, now.Add(80*day), ours, theirs) // a CA being rotated
	rotated := theirs.files(t, clusterName, now.Add(80*day), ours, theirs)
	for _, c := range []struct {
		name     string
		from, to *TLS
		refused  string
	}{
		{"the same CA", good, good, ""},
		{"while the CA is rotated", both, rotated, ""},
		{"the other way round", rotated, both, ""},
		{"client of another CA", theirs.files(t, clusterName, now.Add(80*day), ours), good, "unknown authority"},
		{"server of another CA", good, theirs.files(t, clusterName, now.Add(80*day), ours), "unknown authority"},
		{"client of another name", ours.files(t, "elsewhere.local", now.Add(80*day), ours), good, "not narad-cluster.local"},
		{"server of another name", good, ours.files(t, "elsewhere.local", now.Add(80*day), ours), "not narad-cluster.local"},
		{"expired client", ours.files(t, clusterName, now.Add(-time.Minute), ours), good, "expired"},
		{"expired server", good, ours.files(t, clusterName, now.Add(-time.Minute), ours), "expired"},
	} {
		err := handshakeBetween(t, c.from, c.to)
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		}
	}
	loaded, err := loadTLS(good)
	must(t, err)
	if loaded.server.MinVersion != tls.VersionTLS13 || loaded.client.MinVersion != tls.VersionTLS13 {
		t.Error("older TLS is spoken")
	}
}

func TestRaftTLSFiles(t *testing.T) {
	ca := newAuthority(t, time.Now().Add(day))
	good := ca.files(t, clusterName, time.Now().Add(day), ca)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	must(t, os.WriteFile(empty, []byte("no pem"), 0o600))
	for _, c := range []struct {
		files TLS
		text  string
	}{
		{TLS{CertFile: good.CertFile, KeyFile: good.KeyFile}, "all or none"},
		{TLS{CAFile: good.CAFile}, "all or none"},
		{TLS{CertFile: good.CertFile, KeyFile: good.KeyFile, CAFile: good.CAFile + "x"}, "no such file"},
		{TLS{CertFile: good.CertFile, KeyFile: good.CertFile, CAFile: good.CAFile}, "raft TLS"},
		{TLS{CertFile: good.CertFile, KeyFile: good.KeyFile, CAFile: empty}, "no certificate"},
	} {
		if _, err := loadTLS(&c.files); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, want %q", c.files, err, c.text)
		}
	}
	if secure, err := loadTLS(nil); secure != nil || err != nil {
		t.Errorf("no files: %v, %v", secure, err)
	}
}

// A cluster on TLS replicates; a node on plaintext reaches nobody in it.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, time.Now().Add(300*day))
	files := ca.files(t, clusterName, time.Now().Add(80*day), ca)
	reg := prometheus.NewRegistry()
	c := newCluster(t, 3, func(i int, o *Options) {
		o.TLS = files
		if i == 0 {
			o.Registry = reg
		}
	})
	c.propose(c.follower(), create("t"))
	c.converge()
	if n, err := testutil.GatherAndCount(reg, "narad_raft_tls_cert_not_after_seconds"); err != nil || n != 2 {
		t.Errorf("%d expiry gauges, %v", n, err)
	}
	if d := c.nodes[0].store.Degraded(); d != nil {
		t.Errorf("degraded: %v", d)
	}
}

func TestCertificateLines(t *testing.T) {
	end := time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC)
	w := certWatch{kind: "leaf", name: "raft TLS certificate", notAfter: end}
	for _, c := range []struct {
		before time.Duration
		want   string
		level  slog.Level
	}{
		{31 * day, "", 0},
		{30 * day, "", 0},
		{30*day - 1, "raft TLS certificate expires in less than 30 days", slog.LevelWarn},
		{8 * day, "", 0},
		{7*day - 1, "raft TLS certificate expires in less than 7 days", slog.LevelWarn},
		{6 * day, "", 0},
		{day - 1, "raft TLS certificate expires in less than a day", slog.LevelError},
		{time.Hour, "", 0},
		{-time.Second, "raft TLS certificate has expired", slog.LevelError},
		{-23 * time.Hour, "", 0},
		{-25 * time.Hour, "raft TLS certificate has expired", slog.LevelError},
	} {
		line, due := w.due(end.Add(-c.before))
		if due != (c.want != "") || line.text != c.want || line.level != c.level {
			t.Errorf("%s before the end: %v, %t; want %q", c.before, line, due, c.want)
		}
	}
	late := certWatch{name: "raft TLS CA certificate", notAfter: end}
	if line, _ := late.due(end.Add(-time.Hour)); line.text != "raft TLS CA certificate expires in less than a day" {
		t.Errorf("a late start says %q", line.text)
	}
	if _, due := late.due(end.Add(-time.Minute)); due {
		t.Error("and says more after it")
	}
}

// The hourly look, on a clock that moves: an expired leaf degrades the node, a CA
// only when every one of the bundle has expired.
func TestCertificatesAreFollowed(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	early, late := newAuthority(t, start.Add(40*day)), newAuthority(t, start.Add(400*day))
	secure, err := loadTLS(early.files(t, clusterName, start.Add(20*day), early, late))
	must(t, err)
	clk := clock.NewFake(start)
	var log syncBuffer
	quit := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		secure.watchCertificates(clk, slog.New(slog.NewTextHandler(&log, nil)), quit)
	}()
	s := &Store{clock: clk, consensus: consensus{stream: &stream{tls: secure}}}
	for hour := 0; hour < 22*24; hour++ {
		waitTimers(t, clk, 1)
		clk.Advance(certCheckEvery)
	}
	waitTimers(t, clk, 1)
	close(quit)
	<-done
	for text, n := range map[string]int{
		"raft TLS certificate in use": 1, "raft TLS certificate expires in less than 30 days": 1, "raft TLS certificate expires in less than 7 days": 1,
		"raft TLS certificate expires in less than a day": 1, "raft TLS certificate has expired": 2,
		"raft TLS CA certificate expires in less than 30 days": 1, "raft TLS CA certificate has expired": 0, "not valid yet": 0,
	} {
		if got := strings.Count(log.String(), text); got != n {
			t.Errorf("%q is said %d times, want %d", text, got, n)
		}
	}
	if d := s.Degraded(); !reflect.DeepEqual(d, []string{DegradedCertificate}) {
		t.Errorf("degraded: %v", d)
	}
	clk.Advance(400 * day)
	if d := s.Degraded(); !reflect.DeepEqual(d, []string{DegradedCertificate, DegradedCA}) {
		t.Errorf("degraded: %v", d)
	}
}

func TestCertificateNotValidYet(t *testing.T) {
	now := time.Now()
	ca := newAuthority(t, now.Add(400*day))
	secure, err := loadTLS(ca.files(t, clusterName, now.Add(200*day), ca))
	must(t, err)
	var log bytes.Buffer
	quit := make(chan struct{})
	close(quit)
	secure.watchCertificates(clock.NewFake(now), slog.New(slog.NewTextHandler(&log, nil)), quit)
	for _, text := range []string{"raft TLS certificate is not valid yet", "raft TLS CA certificate is not valid yet"} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("not said: %q", text)
		}
	}
}
