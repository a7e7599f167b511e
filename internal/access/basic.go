package access

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/narad-mq/narad/internal/model"
)

// basicMax bounds the encoded part of a header that is decoded. The longest
// credential that can be right takes 184 bytes: a username, a colon, a password.
const basicMax = 1024

// credential is what a header claims. The slices alias a scratch.
type credential struct {
	text     []byte // username ":" password
	username []byte
	password []byte
}

// parseBasic decodes an Authorization header (RFC 7617): the scheme in any letter
// case, one space, standard padded base64 of username, colon, password. It appends
// to s.raw. The error is a model.Unauthenticated.
func (s *scratch) parseBasic(header string) (credential, error) {
	const scheme = "Basic "
	if len(header) < len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return credential{}, model.CredentialsRequired
	}
	encoded := header[len(scheme):]
	if len(encoded) > basicMax {
		return credential{}, model.CredentialsInvalid
	}
	s.raw = append(s.raw[:0], encoded...)
	n := len(s.raw)
	var err error
	if s.raw, err = base64.StdEncoding.AppendDecode(s.raw, s.raw); err != nil {
		return credential{}, model.CredentialsRequired
	}
	c, ok := split(s.raw[n:])
	if !ok {
		return credential{}, model.CredentialsRequired
	}
	return c, nil
}

// claim makes the credential of a username and password in s.raw.
func (s *scratch) claim(username, password string) credential {
	s.raw = append(s.raw[:0], username...)
	s.raw = append(s.raw, ':')
	s.raw = append(s.raw, password...)
	return credential{text: s.raw, username: s.raw[:len(username)], password: s.raw[len(username)+1:]}
}

// split cuts at the first colon: a username holds none.
func split(text []byte) (credential, bool) {
	username, password, ok := bytes.Cut(text, []byte{':'})
	return credential{text: text, username: username, password: password}, ok
}
