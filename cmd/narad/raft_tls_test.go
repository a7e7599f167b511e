package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// raftTLS writes a certificate that is its own CA, valid until notAfter, and returns
// the variables that point a node to it.
func raftTLS(t *testing.T, notAfter time.Time) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "narad"}, DNSNames: []string{"narad-cluster.local"},
		NotBefore: notAfter.Add(-48 * time.Hour), NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var env []string
	for name, block := range map[string]*pem.Block{
		"CERT": {Type: "CERTIFICATE", Bytes: cert}, "CA": {Type: "CERTIFICATE", Bytes: cert}, "KEY": {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		env = append(env, "NARAD_CLUSTER_TLS_"+name+"_FILE="+file)
	}
	return env
}

// H-4: Raft TLS from the settings; once expired the node stays ready and says so.
func TestH4RaftTLS(t *testing.T) {
	for _, tc := range []struct {
		name     string
		notAfter time.Time
		ready    string
		logged   string
	}{
		{"valid", time.Now().Add(24 * 365 * time.Hour), `{"status":"ready"}`, "raft TLS certificate in use"},
		{"expired", time.Now().Add(-time.Hour), `{"status":"ready","degraded":["raft_tls_certificate_expired","raft_tls_ca_expired"]}`, "raft TLS certificate has expired"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := testutil.NewNode(t, t.TempDir())
			node.Env = raftTLS(t, tc.notAfter)
			node.Start()
			if got := strings.TrimSpace(get(t, node.URL+"/readyz")); got != tc.ready {
				t.Errorf("/readyz: got %s, want %s", got, tc.ready)
			}
			for _, text := range []string{"raft metadata transport secured with mutual TLS", tc.logged} {
				if !node.Logged(text) {
					t.Errorf("the log lacks %q", text)
				}
			}
			if metrics := get(t, node.URL+"/metrics"); strings.Count(metrics, "\nnarad_raft_tls_cert_not_after_seconds{") != 2 {
				t.Error("the expiry of leaf and CA is not exported")
			}
		})
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
