package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// Health says whether this node can do its part in the cluster.
type Health interface {
	// Ready returns nil, or an error whose text is the reason of
	// spec/http-api section 15.
	Ready() error
	// Degraded names what is wrong and does not make the node not ready.
	Degraded() []string
}

func (a *API) healthz(c *call) error {
	if a.stopping.Load() {
		return errStopping
	}
	_ = c.send(200, typeJSON, []byte("{\"status\":\"ok\"}\n"))
	return nil
}

func (a *API) readyz(c *call) error {
	if a.stopping.Load() {
		return errStopping
	}
	be := a.serving.Load()
	if be == nil {
		return errNotReady
	}
	if err := be.Health.Ready(); err != nil {
		return &refusal{status: 503, code: codeNotReady, text: err.Error(), cause: err}
	}
	body := []byte("{\"status\":\"ready\"}\n")
	if wrong := be.Health.Degraded(); len(wrong) > 0 {
		list, err := json.Marshal(wrong)
		if err != nil {
			return err
		}
		body = fmt.Appendf(nil, "{\"status\":\"ready\",\"degraded\":%s}\n", list)
	}
	_ = c.send(200, typeJSON, body)
	return nil
}

// scrapeMetrics serves /metrics through the handler of the Prometheus library.
// The exposition is collected in memory first, as every answer is.
func (a *API) scrapeMetrics(c *call) error {
	if a.scrape == nil {
		return errNoRoute
	}
	header := http.Header{}
	for _, name := range []string{"Accept", "Accept-Encoding"} {
		if v := c.req.Header.Get(name); v != "" {
			header.Set(name, v)
		}
	}
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/metrics"}, Header: header, Body: http.NoBody}
	w := scrapeWriter{header: http.Header{}, status: 200}
	a.scrape.ServeHTTP(&w, r.WithContext(c.req.Ctx))
	if enc := w.header.Get("Content-Encoding"); enc != "" {
		c.resp.SetHeader("Content-Encoding", enc)
	}
	_ = c.send(w.status, w.header.Get("Content-Type"), w.body.Bytes())
	return nil
}

// scrapeWriter is an http.ResponseWriter that keeps the answer.
type scrapeWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *scrapeWriter) Header() http.Header { return w.header }

func (w *scrapeWriter) WriteHeader(status int) { w.status = status }

func (w *scrapeWriter) Write(p []byte) (int, error) { return w.body.Write(p) }
