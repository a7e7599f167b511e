package httpapi

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Handler adapts the API to net/http.
func (a *API) Handler() http.Handler { return &adapter{api: a} }

// OpsHandler is the handler of the separate metrics listener: /metrics, /healthz
// and /readyz alone.
func (a *API) OpsHandler() http.Handler { return &adapter{api: a, ops: true} }

// adapter presents net/http requests to the core.
type adapter struct {
	api  *API
	ops  bool
	pool sync.Pool // *exchange
}

// exchange is one net/http request and its answer, as the core sees them.
type exchange struct {
	req Request
	w   http.ResponseWriter
	r   *http.Request
}

func (h *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, _ := h.pool.Get().(*exchange)
	if x == nil {
		x = new(exchange)
	}
	path, query := target(r)
	*x = exchange{w: w, r: r, req: Request{
		Ctx: r.Context(), Method: r.Method, Path: path, Query: query, Header: r.Header,
		ContentLength: r.ContentLength, Identity: remoteHost(r.RemoteAddr),
	}}
	if r.ContentLength != 0 {
		x.req.Body = r.Body
	}
	h.api.serve(&x.req, x, h.ops)
	*x = exchange{}
	h.pool.Put(x)
}

// target is the request target as sent, split at the query.
func target(r *http.Request) (path, query string) {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, query, _ = strings.Cut(r.RequestURI, "?")
		return path, query
	}
	return r.URL.EscapedPath(), r.URL.RawQuery // absolute form, or none
}

// remoteHost is the address of the connection's other end without its port.
func remoteHost(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// SetHeader implements Response.
func (x *exchange) SetHeader(name, value string) { x.w.Header().Set(name, value) }

// jsonHeader is shared by all answers; net/http does not write to it.
var jsonHeader = []string{typeJSON}

// Send implements Response. An answer with a body is flushed, because an error
// of the write would otherwise pass unseen; it costs no system call, the
// connection's buffer is written then instead of after the handler. net/http
// itself sets the Content-Length of an empty body.
func (x *exchange) Send(status int, contentType string, body []byte) error {
	if len(body) == 0 {
		x.w.WriteHeader(status)
		return nil
	}
	h := x.w.Header()
	if contentType == typeJSON {
		h["Content-Type"] = jsonHeader
	} else if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	if x.r.Method == http.MethodHead {
		return nil
	}
	if _, err := x.w.Write(body); err != nil {
		return err
	}
	return http.NewResponseController(x.w).Flush()
}
