package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/users"
)

// Router reaches whatever node owns a partition: package router.
type Router interface {
	Consumer
	Settler
	Describer
}

// Backends is what the routes work on. Every field is required, Auth only while
// security is on, Forward and Nodes only with peers: without them this node decides.
type Backends struct {
	Auth      Authenticator
	Directory Directory
	Topics    Topics
	Schemas   Schemas
	Users     Users
	Links     Links
	Children  Children
	Router    Router
	Produce   Producer
	Health    Health
	Members   Members
	Nodes     Nodes
	Forward   Forward
	Authority users.Leader // decides changes of users while this node leads
}

// Options is what an API is made of.
type Options struct {
	Config   config.HTTP
	Secured  bool // security.enabled: requests need credentials
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer // nil = metrics are kept but not exported
	Metrics  http.Handler          // serves /metrics; nil = 404
}

// API is the HTTP interface of a node. It answers from the moment it is made:
// until Begin, health is served and every other route is 503 "not ready"; after
// Stop, /healthz turns 503 and requests are still served, so that a drain can
// finish (spec/http-api section 15). It starts no goroutine.
type API struct {
	clock   clock.Clock
	log     *slog.Logger
	limiter *telemetry.Limiter
	metrics *metrics
	scraping
	door

	maxWait     time.Duration
	writeBudget time.Duration // of a metadata change, see changeContext
	consumeCap  *identityCap
	produceCap  *identityCap
	batchBudget byteBudget

	serving  atomic.Pointer[Backends] // nil until Begin
	stopping atomic.Bool
	memory
}

// scraping is where /metrics is served.
type scraping struct {
	scrape     http.Handler // nil = nowhere
	scrapeOnly bool         // on the separate listener alone
}

// memory is what requests reuse of each other.
type memory struct {
	calls    sync.Pool // *call
	buffers  buffers
	decoders decoders
}

// writeMargin is how long before http.write_timeout a handler that waits must
// have answered (spec/http-api section 1).
const writeMargin = 2 * time.Second

// errorLogPeriod limits the log lines about 5xx answers: one per operation and
// code in this time. All of them are counted.
const errorLogPeriod = time.Second

// New makes an API that is not ready yet; see Begin.
func New(o Options) *API {
	a := &API{
		clock: o.Clock, log: o.Logger,
		limiter:     telemetry.NewLimiter(o.Clock, errorLogPeriod),
		metrics:     newMetrics(o.Registry),
		scraping:    scraping{scrape: o.Metrics, scrapeOnly: o.Config.MetricsAddr != ""},
		door:        door{secured: o.Secured, openMetrics: o.Config.MetricsUnauthenticated && o.Config.MetricsAddr == ""},
		maxWait:     o.Config.MaxConsumeWait,
		writeBudget: max(o.Config.WriteTimeout-writeMargin, writeMargin),
		consumeCap:  newIdentityCap(o.Config.MaxConsumeInFlightPerID, "consume"),
		produceCap:  newIdentityCap(o.Config.MaxProduceInFlightPerID, "produce"),
	}
	if a.maxWait == 0 {
		a.maxWait = waitCeiling
	}
	if !a.secured {
		a.everybody = access.SecurityOff()
	}
	a.batchBudget.max = o.Config.MaxBatchBodyBytesInFlight
	a.batchBudget.rejected = a.metrics.budgetRejections.Inc
	a.calls.New = func() any { return new(call) }
	return a
}

// Begin opens the routes: the node's startup work is done.
func (a *API) Begin(be Backends) { a.serving.Store(&be) }

// Stop marks the beginning of a graceful stop. Requests are served on, each
// answer closing its connection.
func (a *API) Stop() { a.stopping.Store(true) }

// Serve answers one request on the API port.
func (a *API) Serve(req *Request, resp Response) { a.serve(req, resp, false) }

func (a *API) serve(req *Request, resp Response, ops bool) {
	c := a.calls.Get().(*call)
	*c = call{req: req, resp: resp, stopping: &a.stopping, start: a.clock.Now()}
	a.metrics.inFlight.Inc()
	defer a.finish(c)
	if err := a.handle(c, ops); err != nil {
		a.refuse(c, err)
	}
}

// handle takes the steps of the request pipeline that all routes share
// (spec/http-api section 2). ops is the separate metrics listener, which has the
// operational routes only.
func (a *API) handle(c *call, ops bool) error {
	be := a.serving.Load()
	res, name := resolve(c.req.Path)
	asked := res
	if operational := res >= resHealthz; ops && !operational || !ops && a.scrapeOnly && res == resMetrics {
		res = resNone
	}
	if res >= resUsers && res <= resForget {
		c.user = name
	} else {
		c.topic = name
	}
	c.route, c.allow = byMethod(res, c.req.Method)
	if err := a.admit(c, asked, ops, be); err != nil {
		return err
	}
	if crossSite(c.req) {
		return errCrossSite
	}
	switch {
	case res == resNone:
		return errNoRoute
	case c.route == routeUnmatched:
		return errMethod
	}
	switch c.route {
	case routeHealthz:
		return a.healthz(c)
	case routeReadyz:
		return a.readyz(c)
	case routeMetrics:
		return a.scrapeMetrics(c)
	}
	if be == nil {
		return errNotReady
	}
	return a.dispatch(c, be)
}

func (a *API) dispatch(c *call, be *Backends) error {
	switch c.route {
	case routeProduce:
		return a.produce(c, be)
	case routeProduceBatch:
		return a.produceBatch(c, be)
	case routeConsume:
		return a.consume(c, be)
	case routeAck:
		return a.ack(c, be)
	case routeTopicCreate:
		return a.createTopic(c, be)
	case routeTopicList:
		return a.listTopics(c, be)
	case routeTopicGet:
		return a.getTopic(c, be)
	case routeTopicAlter:
		return a.alterTopic(c, be)
	case routeTopicDelete:
		return a.deleteTopic(c, be)
	case routeOpenAPI:
		return a.describeAPI(c)
	case routeTopicSchema:
		return a.getSchema(c, be)
	case routeChildAttach:
		return a.attachChild(c, be)
	case routeChildList:
		return a.listChildren(c, be)
	case routeChildDetach:
		return a.detachChild(c, be)
	}
	return a.dispatchAdmin(c, be)
}

func (a *API) dispatchAdmin(c *call, be *Backends) error {
	switch c.route {
	case routeUserCreate:
		return a.createUser(c, be)
	case routeUserList:
		return a.listUsers(c, be)
	case routeUserGet:
		return a.getUser(c, be)
	case routeUserDelete:
		return a.deleteUser(c, be)
	case routeUserGrants:
		return a.setGrants(c, be)
	case routeUserPassword:
		return a.setPassword(c, be)
	case routeMembers:
		return a.listMembers(c, be)
	case routeForget:
		return a.forgetServer(c, be)
	case routeMoves:
		return a.listMoves(c, be)
	}
	return errNoRoute
}

// finish contains a panic of the request and records it. It runs deferred, after
// every deferred release of the handlers.
func (a *API) finish(c *call) {
	if v := recover(); v != nil {
		a.log.Error("http handler panicked",
			slog.String("op", c.route.op()), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		if c.status == 0 {
			a.refuse(c, errPanic)
		}
	}
	took := a.clock.Now().Sub(c.start)
	a.metrics.observe(c, took)
	if a.log.Enabled(context.Background(), slog.LevelDebug) {
		a.log.Debug("http request", slog.String("method", c.req.Method), slog.String("route", c.route.label()),
			slog.Int("status", c.status), slog.Duration("took", took))
	}
	*c = call{}
	a.calls.Put(c)
}

// refuse answers with an error.
func (a *API) refuse(c *call, err error) {
	r := translate(c.route.op(), err)
	if r.status >= 500 {
		a.serverError(c, r)
	}
	if r.retryAfter != "" {
		c.resp.SetHeader("Retry-After", r.retryAfter)
	}
	if r.status == 401 {
		c.resp.SetHeader("WWW-Authenticate", challenge)
	}
	if r.status == statusClientGone {
		c.resp.SetHeader("Connection", "close")
	}
	if r.from != nil {
		c.relay(r.from)
		return
	}
	if r.code != "" && !r.plain {
		_ = c.send(r.status, typeJSON, r.body())
		return
	}
	if c.allow != "" {
		c.resp.SetHeader("Allow", c.allow)
	}
	c.resp.SetHeader("X-Content-Type-Options", "nosniff")
	_ = c.send(r.status, typeText, append([]byte(r.text), '\n'))
}

// serverError counts and logs a 5xx. A probe that finds a node not ready is told
// so, which is no error of the node.
func (a *API) serverError(c *call, r *refusal) {
	if r.code == codeNotReady || r.code == codeShuttingDown {
		return
	}
	if !c.onBehalf { // counted where the client arrived
		a.metrics.serverErrors.Inc()
	}
	op := c.route.op()
	if !a.limiter.Allow(op + "/" + r.code) {
		return
	}
	var err error = r
	if r.cause != nil {
		err = r.cause
	}
	attrs := []any{slog.String("op", op), slog.Any("err", err)}
	if c.topic != "" {
		attrs = append(attrs, slog.String("topic", c.topic))
	}
	a.log.Error("http server error", attrs...)
}
