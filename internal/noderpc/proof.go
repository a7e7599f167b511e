package noderpc

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
)

const (
	exporterLabel = "narad-cluster-auth-v1" // and what the legacy token is made over
	exporterSize  = 32
	macSize       = sha256.Size
	authFrameSize = headerSize + macSize
)

// role is whose proof it is: one end's is never good for the other's.
type role string

const (
	roleClient role = "client"
	roleServer role = "server"
)

// ErrProof: one of the two ends did not prove the cluster secret to the other.
var ErrProof = errors.New("invalid auth")

// proof is what one end of a session shows for the secret. It is bound to the session by
// its exporter, so that it is of no use in another (spec/cluster-and-network section 4.1).
func (s security) proof(r role, state *tls.ConnectionState) ([]byte, error) {
	ekm, err := state.ExportKeyingMaterial(exporterLabel, nil, exporterSize)
	if err != nil {
		return nil, fmt.Errorf("export keying material: %w", err)
	}
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(r))
	mac.Write(ekm)
	return mac.Sum(nil), nil
}

// legacyToken is what a release before the proofs shows, and never verifies of the other
// end (spec/cluster-and-network section 4.3).
func (s security) legacyToken() []byte {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(exporterLabel))
	return mac.Sum(nil)
}

// accept is the server's part on a new stream of a session: it reads the client's proof
// under the cap that holds before authentication, and answers with its own. It allocates
// nothing by what the client declares.
func (s security) accept(stream io.ReadWriter, state *tls.ConnectionState) error {
	if len(s.secret) == 0 {
		return nil
	}
	legacy := state.NegotiatedProtocol == alpnV1
	want := s.legacyToken()
	if !legacy {
		var err error
		if want, err = s.proof(roleClient, state); err != nil {
			return err
		}
	}
	if err := readProof(stream, frameAuthClient, want); err != nil || legacy {
		return err
	}
	own, err := s.proof(roleServer, state)
	if err != nil {
		return err
	}
	return writeProof(stream, frameAuthServer, own)
}

// show is the client's part: it sends its proof and verifies the server's, before any
// request may go out.
func (s security) show(stream io.ReadWriter, state *tls.ConnectionState) error {
	if len(s.secret) == 0 {
		return nil
	}
	if state.NegotiatedProtocol == alpnV1 {
		return writeProof(stream, frameAuthClient, s.legacyToken())
	}
	own, err := s.proof(roleClient, state)
	if err != nil {
		return err
	}
	if err := writeProof(stream, frameAuthClient, own); err != nil {
		return err
	}
	want, err := s.proof(roleServer, state)
	if err != nil {
		return err
	}
	if err := readProof(stream, frameAuthServer, want); err != nil {
		return fmt.Errorf("cluster rpc: read server auth proof: %w", err)
	}
	return nil
}

func writeProof(w io.Writer, kind frameType, mac []byte) error {
	frame := appendHead(make([]byte, 0, authFrameSize), frameHead{kind: kind, size: len(mac)})
	if _, err := w.Write(append(frame, mac...)); err != nil {
		return fmt.Errorf("cluster rpc: write auth proof: %w", err)
	}
	return nil
}

// readProof reads one frame of at most 64 bytes and holds it to kind and want, whose
// bytes it compares in constant time.
func readProof(r io.Reader, kind frameType, want []byte) error {
	var scratch [headerSize]byte
	head, err := readHead(r, &scratch, authFrameMax)
	if err != nil {
		return err
	}
	if head.kind != kind || head.id != 0 || head.size != macSize {
		return fmt.Errorf("%w: frame of type %d and %d bytes", ErrProof, head.kind, head.size)
	}
	var mac [macSize]byte
	if _, err := io.ReadFull(r, mac[:]); err != nil {
		return err
	}
	if !hmac.Equal(mac[:], want) {
		return ErrProof
	}
	return nil
}
