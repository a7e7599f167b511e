// Package httpapi is the HTTP front door of a node: routes, decoding, limits and
// the one table that turns errors into statuses, texts and codes.
//
// The core knows nothing of sockets. API.Serve takes a Request value and answers
// through a Response; API.Handler adapts net/http, and another HTTP front can be
// put before the core the same way. Handlers are thin: decode, call one floor
// down, encode. Each returns an error and never writes one; errors.go is the only
// place where an error becomes a status, refusal.go holds the answers this
// package gives on its own account (docs/errors.md is the public form of both).
//
// Reading order: api.go (assembly, phases, pipeline), route.go, then one file per
// route family. jsonscan.go and jsonwalk.go are the JSON scanner that hot bodies
// go through; nethttp.go and server.go are all that knows of sockets.
package httpapi
