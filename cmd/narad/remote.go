package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

const defaultServer = "http://127.0.0.1:7942"

// remote is what the client verbs share: where to send, as whom.
type remote struct {
	stdio
	root *cobra.Command // its persistent flags are the ones below

	server, user, password, ctx string
	passwordStdin               bool
}

func newRemote(io stdio, root *cobra.Command) *remote {
	r := &remote{stdio: io, root: root}
	flags := root.PersistentFlags()
	flags.StringVarP(&r.server, "server", "s", "", "base URL of a node, or several separated by commas (environment: NARAD_ADDR; default "+defaultServer+")")
	flags.StringVarP(&r.user, "user", "u", "", "user name (environment: NARAD_USER)")
	flags.StringVarP(&r.password, "password", "p", "", "password (environment: NARAD_PASS); visible to other processes, better --password-stdin")
	flags.BoolVar(&r.passwordStdin, "password-stdin", false, "read the password from the first line of standard input")
	flags.StringVar(&r.ctx, "ctx", "", "use this saved context, and nothing of the environment")
	return r
}

// given reports whether a persistent flag stands on the command line.
func (r *remote) given(flag string) bool { return r.root.PersistentFlags().Changed(flag) }

// login is a server and the credentials for it; an empty field is not set.
type login struct {
	Server   string `json:"server"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// environment are the variables of a login, in the order of its fields.
var environment = [...]string{"NARAD_ADDR", "NARAD_USER", "NARAD_PASS"}

// login decides where to go, setting by setting: flag, then environment, then the
// selected context, then the default. --ctx names the context and shuts the
// environment out, so that a variable left over can not redirect a command.
func (r *remote) login() (login, error) {
	saved, err := loadContexts()
	if err != nil {
		return login{}, err
	}
	var l login
	if r.given("ctx") {
		for _, name := range environment {
			if os.Getenv(name) != "" {
				return l, usageError{fmt.Errorf("--ctx %s: %s is set as well; unset it", r.ctx, name)}
			}
		}
		var ok bool
		if l, ok = saved.Contexts[r.ctx]; !ok {
			return l, usageError{fmt.Errorf("--ctx %s: no such context; 'narad ctx ls' lists them", r.ctx)}
		}
	} else {
		l = saved.Contexts[saved.Current]
		for i, field := range []*string{&l.Server, &l.User, &l.Password} {
			if v := os.Getenv(environment[i]); v != "" {
				*field = v
			}
		}
	}
	if r.given("password") && r.passwordStdin {
		return l, usageError{errors.New("--password and --password-stdin exclude each other")}
	}
	if r.given("server") {
		l.Server = r.server
	}
	if r.given("user") {
		l.User = r.user
	}
	if r.given("password") {
		l.Password = r.password
	}
	if r.passwordStdin {
		if l.Password, err = readSecret(r.in); err != nil {
			return l, fmt.Errorf("--password-stdin: %w", err)
		}
	}
	if l.Server == "" {
		l.Server = defaultServer
	}
	return l, nil
}

// secretBytesMax bounds a password read from standard input.
const secretBytesMax = 4096

// readSecret reads the first line and not a byte more: what follows may be a message.
func readSecret(in io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) <= secretBytesMax {
		n, err := in.Read(b[:])
		if n == 1 && b[0] == '\n' || errors.Is(err, io.EOF) {
			secret := strings.TrimSuffix(string(line), "\r")
			if secret == "" {
				return "", errors.New("standard input has no first line")
			}
			return secret, nil
		}
		if err != nil {
			return "", err
		}
		line = append(line, b[:n]...)
	}
	return "", fmt.Errorf("the first line is longer than %d bytes", secretBytesMax)
}

// open makes the client for the chosen server.
func (r *remote) open(opts ...client.Option) (*client.Client, error) {
	l, err := r.login()
	if err != nil {
		return nil, err
	}
	return r.connect(l, opts...)
}

// openAt makes a client for another server of the same cluster, with the same login.
func (r *remote) openAt(server string, opts ...client.Option) (*client.Client, error) {
	l, err := r.login()
	if err != nil {
		return nil, err
	}
	l.Server = server
	return r.connect(l, opts...)
}

// connect makes the client for a login.
func (r *remote) connect(l login, opts ...client.Option) (*client.Client, error) {
	opts = append([]client.Option{client.WithName("narad-cli/" + version())}, opts...)
	if l.User != "" {
		r.warnPlain(l)
		opts = append(opts, client.WithBasicAuth(l.User, l.Password))
	}
	c, err := client.New(l.Server, opts...)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// warnPlain says when credentials are about to cross a network in the clear.
func (r *remote) warnPlain(l login) {
	for server := range strings.SplitSeq(l.Server, ",") {
		if !strings.Contains(server, "://") {
			server = "http://" + server
		}
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Scheme != "http" || loopback(u.Hostname()) {
			continue
		}
		fmt.Fprintf(r.err, "warning: sending credentials for %q over plain http to %s; use an https:// server URL\n", l.User, u.Host)
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
