package metastore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"
)

// clusterName is the DNS name every Raft certificate carries: a certificate of the
// CA is the identity, so one may serve all nodes (spec/cluster-and-network 9.1).
const clusterName = "narad-cluster.local"

// TLS names the PEM files of Raft's mutual TLS. They are read once, when the store
// opens; a restart is the reload.
type TLS struct {
	CertFile string // leaf first, then any intermediates
	KeyFile  string
	CAFile   string // bundle every peer's certificate must chain to
}

// raftTLS is what the files hold.
type raftTLS struct {
	server, client *tls.Config
	leaf           *x509.Certificate
	cas            []*x509.Certificate
}

// loadTLS reads the files; nil stays nil.
func loadTLS(files *TLS) (*raftTLS, error) {
	if files == nil {
		return nil, nil
	}
	if slices.Contains([]string{files.CertFile, files.KeyFile, files.CAFile}, "") {
		return nil, errors.New("raft TLS: certificate, key and CA file go together: all or none")
	}
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("raft TLS: %w", err)
	}
	bundle, err := os.ReadFile(files.CAFile)
	if err != nil {
		return nil, fmt.Errorf("raft TLS: %w", err)
	}
	t := &raftTLS{leaf: pair.Leaf}
	if t.cas, err = parseCertificates(bundle); err != nil {
		return nil, fmt.Errorf("raft TLS: %s: %w", files.CAFile, err)
	}
	pool := x509.NewCertPool()
	for _, ca := range t.cas {
		pool.AddCert(ca)
	}
	t.server = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, VerifyConnection: verifyPeerName,
	}
	t.client = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: clusterName,
	}
	return t, nil
}

func parseCertificates(bundle []byte) (out []*x509.Certificate, err error) {
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in the bundle")
	}
	return out, nil
}

// verifyPeerName holds a client to the name too; its chain is verified already.
func verifyPeerName(state tls.ConnectionState) error {
	return state.PeerCertificates[0].VerifyHostname(clusterName)
}

// dial runs the client side of the handshake on a connection, within timeout.
func (t *raftTLS) dial(conn net.Conn, timeout time.Duration) (net.Conn, error) {
	secure := tls.Client(conn, t.client)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("raft TLS handshake with %s: %w", conn.RemoteAddr(), err), conn.Close())
	}
	return secure, nil
}

// earliestCA is the CA that expires first, and whether every one of them has by now.
func (t *raftTLS) earliestCA(now time.Time) (first *x509.Certificate, allExpired bool) {
	first, allExpired = t.cas[0], true
	for _, ca := range t.cas {
		if ca.NotAfter.Before(first.NotAfter) {
			first = ca
		}
		allExpired = allExpired && now.After(ca.NotAfter)
	}
	return first, allExpired
}
