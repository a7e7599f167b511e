package access

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

func TestAUTH2Header(t *testing.T) {
	enc := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct {
		header, username, password string
		err                        error
	}{
		"plain":               {header: basic("ada", "pw"), username: "ada", password: "pw"},
		"scheme in any case":  {header: "bAsIc " + enc([]byte("ada:pw")), username: "ada", password: "pw"},
		"colon in password":   {header: basic("ada", "p:w:"), username: "ada", password: "p:w:"},
		"empty password":      {header: basic("ada", ""), username: "ada"},
		"empty username":      {header: basic("", "pw"), password: "pw"},
		"bytes that are text": {header: basic("ada", "\x00\xff"), username: "ada", password: "\x00\xff"},
		"missing":             {err: model.CredentialsRequired},
		"scheme alone":        {header: "Basic", err: model.CredentialsRequired},
		"nothing after it":    {header: "Basic ", err: model.CredentialsRequired},
		"another scheme":      {header: "Bearer " + enc([]byte("ada:pw")), err: model.CredentialsRequired},
		"no space":            {header: "Basic" + enc([]byte("ada:pw")), err: model.CredentialsRequired},
		"two spaces":          {header: "Basic  " + enc([]byte("ada:pw")), err: model.CredentialsRequired},
		"no colon":            {header: "Basic " + enc([]byte("adapw")), err: model.CredentialsRequired},
		"not base64":          {header: "Basic $$$", err: model.CredentialsRequired},
		"url alphabet":        {header: "Basic " + base64.URLEncoding.EncodeToString([]byte("a:\xff\xfe\xfd")), err: model.CredentialsRequired},
		"no padding":          {header: "Basic " + base64.RawStdEncoding.EncodeToString([]byte("ada:pww")), err: model.CredentialsRequired},
		"at the bound":        {header: basic("a", strings.Repeat("p", 766)), username: "a", password: strings.Repeat("p", 766)},
		"past the bound":      {header: basic("a", strings.Repeat("p", 767)), err: model.CredentialsInvalid},
	} {
		var s scratch
		got, err := s.parseBasic(c.header)
		if err != c.err || string(got.username) != c.username || string(got.password) != c.password {
			t.Errorf("%s: got %q %q %v", name, got.username, got.password, err)
		}
		if err != nil && !errors.Is(err, model.ErrUnauthenticated) {
			t.Errorf("%s: %v is not a 401", name, err)
		}
		if err == nil && string(got.text) != c.username+":"+c.password {
			t.Errorf("%s: text %q", name, got.text)
		}
	}
}

func TestClaimIsWhatAHeaderDecodesTo(t *testing.T) {
	var s, h scratch
	claimed := s.claim("ada", "p:w")
	parsed, err := h.parseBasic(basic("ada", "p:w"))
	if err != nil || string(claimed.text) != string(parsed.text) || string(claimed.username) != "ada" || string(claimed.password) != "p:w" {
		t.Fatalf("%q %q %v", claimed.text, parsed.text, err)
	}
}

// FuzzBasic holds the parser against that of net/http.
func FuzzBasic(f *testing.F) {
	for _, seed := range []string{"", "Basic ", basic("ada", "pw"), "basic " + basic("a", "b")[6:], "Basic YQ==", "Basic \n", "Basic Og==", strings.Repeat("B", 70000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		var s scratch
		got, err := s.parseBasic(header)
		r := http.Request{Header: http.Header{"Authorization": {header}}}
		username, password, ok := r.BasicAuth()
		if len(header) > len("Basic ")+basicMax {
			if err == nil {
				t.Fatal("accepted a header past the bound")
			}
			return
		}
		if ok != (err == nil) {
			t.Fatalf("net/http says %v, we say %v", ok, err)
		}
		if ok && (string(got.username) != username || string(got.password) != password) {
			t.Fatalf("got %q %q, net/http %q %q", got.username, got.password, username, password)
		}
	})
}
