package noderpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/quic-go/quic-go"
)

// Settings of connections (spec/cluster-and-network section 3).
const (
	alpnV2 = "narad-cluster-quic-v2"
	alpnV1 = "narad-cluster-quic-v1" // the legacy bridge, section 4.3

	serverName         = "narad" // says nothing; without one it would be the peer's address
	certLifetime       = 365 * 24 * time.Hour
	sessionCacheSize   = 2 // sessions kept per peer address
	idleTimeout        = 30 * time.Second
	keepAlive          = 10 * time.Second
	streamWindow       = 1 << 20
	streamWindowMax    = 16 << 20
	connWindow         = 4 << 20
	connWindowMax      = 64 << 20
	incomingStreams    = 256 // per connection
	connectionIDLength = 8

	resetContext = "narad-quic-stateless-reset-v1"
)

// Codes a connection is closed with.
const (
	closeDone     quic.ApplicationErrorCode = 0 // the end that closes is done with it
	closeRejected quic.ApplicationErrorCode = 1 // a stream did not prove the cluster secret
	closeBusy     quic.ApplicationErrorCode = 2 // the server holds as many connections as it may
	closeSilent   quic.ApplicationErrorCode = 3 // no answer to a ping, and nothing else came
)

// Codes a stream is reset with.
const (
	streamDone     quic.StreamErrorCode = 0
	streamPartial  quic.StreamErrorCode = 1 // half a frame was written
	streamProtocol quic.StreamErrorCode = 2 // what came is no frame
)

// ErrNoSecret: a secured node has no cluster secret, and so may not speak to others
// (spec/cluster-and-network section 1.1).
var ErrNoSecret = errors.New("node RPC of a secured node needs NARAD_CLUSTER_SECRET")

// security is what both ends of a node know of the cluster secret.
type security struct {
	secret      []byte // empty: streams are open
	allowLegacy bool
}

func newSecurity(secret []byte, secured, allowLegacy bool) (security, error) {
	if secured && len(secret) == 0 {
		return security{}, ErrNoSecret
	}
	return security{secret: secret, allowLegacy: allowLegacy}, nil
}

// protocols are the ALPN names offered, the preferred first. Without a secret there is
// nothing a legacy peer could show.
func (s security) protocols() []string {
	if s.allowLegacy && len(s.secret) > 0 {
		return []string{alpnV2, alpnV1}
	}
	return []string{alpnV2}
}

// resetKey makes the tokens by which a peer believes a restarted node that it no longer
// knows a connection (RFC 9000 section 10.3).
func (s security) resetKey() *quic.StatelessResetKey {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(resetContext))
	key := quic.StatelessResetKey(mac.Sum(nil))
	return &key
}

// serverTLS is the configuration of a listener with a certificate of its own.
func (s security) serverTLS(now time.Time) (*tls.Config, error) {
	cert, err := selfSigned(now)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of node RPC: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: s.protocols(), MinVersion: tls.VersionTLS13}, nil
}

// clientTLS is the configuration for one peer address, with a session cache of its own:
// all peers go by the same name, and one's sessions are of no use with another.
func (s security) clientTLS() *tls.Config {
	return &tls.Config{
		ServerName: serverName,
		NextProtos: s.protocols(),
		MinVersion: tls.VersionTLS13,
		// Neither issuer nor dates mean anything here: trust is the proof of the secret,
		// which is bound to the session (spec/cluster-and-network section 4.1).
		InsecureSkipVerify: true,
		ClientSessionCache: tls.NewLRUClientSessionCache(sessionCacheSize),
	}
}

// quicConfig is that of either end; streams is how many the peer may open.
func quicConfig(streams int64) *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		MaxIdleTimeout:                 idleTimeout,
		KeepAlivePeriod:                keepAlive,
		InitialStreamReceiveWindow:     streamWindow,
		MaxStreamReceiveWindow:         streamWindowMax,
		InitialConnectionReceiveWindow: connWindow,
		MaxConnectionReceiveWindow:     connWindowMax,
		MaxIncomingStreams:             streams,
		MaxIncomingUniStreams:          -1, // none
	}
}

// selfSigned makes the certificate of this process.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: serverName},
		NotBefore:    now,
		NotAfter:     now.Add(certLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{serverName},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
