package httpapi

import (
	"net/url"
	"strings"
)

// route is one row of the route index (spec/http-api section 6).
type route uint8

const (
	routeUnmatched route = iota
	routeTopicCreate
	routeTopicList
	routeTopicGet
	routeTopicAlter
	routeTopicDelete
	routeChildAttach
	routeChildList
	routeChildDetach
	routeProduce
	routeProduceBatch
	routeConsume
	routeAck
	routeTopicSchema
	routeUserCreate
	routeUserList
	routeUserGet
	routeUserDelete
	routeUserGrants
	routeUserPassword
	routeMembers
	routeForget
	routeMoves
	routeOpenAPI
	routeHealthz
	routeReadyz
	routeMetrics
	routeCount
)

// label is the route label of the HTTP metrics.
func (r route) label() string {
	switch r {
	case routeTopicCreate:
		return "POST /v1/topics"
	case routeTopicList:
		return "GET /v1/topics"
	case routeTopicGet:
		return "GET /v1/topics/{topic}"
	case routeTopicAlter:
		return "PATCH /v1/topics/{topic}"
	case routeTopicDelete:
		return "DELETE /v1/topics/{topic}"
	case routeChildAttach:
		return "POST /v1/topics/{parent}/children"
	case routeChildList:
		return "GET /v1/topics/{parent}/children"
	case routeChildDetach:
		return "DELETE /v1/topics/{parent}/children/{child}"
	case routeProduce:
		return "POST /v1/topics/{topic}/produce"
	case routeProduceBatch:
		return "POST /v1/topics/{topic}/produce/batch"
	case routeConsume:
		return "GET /v1/topics/{topic}/consume"
	case routeAck:
		return "POST /v1/topics/{topic}/ack"
	case routeTopicSchema:
		return "GET /v1/topics/{topic}/schema"
	case routeUserCreate:
		return "POST /v1/users"
	case routeUserList:
		return "GET /v1/users"
	case routeUserGet:
		return "GET /v1/users/{username}"
	case routeUserDelete:
		return "DELETE /v1/users/{username}"
	case routeUserGrants:
		return "PUT /v1/users/{username}/grants"
	case routeUserPassword:
		return "PUT /v1/users/{username}/password"
	case routeMembers:
		return "GET /v1/cluster/members"
	case routeForget:
		return "POST /v1/cluster/members/{id}/forget"
	case routeMoves:
		return "GET /v1/cluster/moves"
	case routeOpenAPI:
		return "GET /v1/openapi.yaml"
	case routeHealthz:
		return "GET /healthz"
	case routeReadyz:
		return "GET /readyz"
	case routeMetrics:
		return "GET /metrics"
	}
	return "unmatched"
}

// op names the route in log lines and in the text of its 500 (E-500).
func (r route) op() string {
	switch r {
	case routeTopicCreate:
		return "create topic"
	case routeTopicList:
		return "list topics"
	case routeTopicGet:
		return "get topic"
	case routeTopicAlter:
		return "alter topic"
	case routeTopicDelete:
		return "delete topic"
	case routeChildAttach:
		return "attach child"
	case routeChildList:
		return "list children"
	case routeChildDetach:
		return "detach child"
	case routeProduce:
		return "produce"
	case routeProduceBatch:
		return "produce" // the text of a latched WAL is the same on both routes
	case routeConsume:
		return "consume"
	case routeAck:
		return "ack"
	case routeTopicSchema:
		return "get schema"
	case routeUserCreate:
		return "create user"
	case routeUserList:
		return "list users"
	case routeUserGet:
		return "get user"
	case routeUserDelete:
		return "delete user"
	case routeUserGrants:
		return "set grants"
	case routeUserPassword:
		return "set password"
	case routeMembers:
		return "list members"
	case routeForget:
		return "forget server"
	case routeMoves:
		return "list moves"
	case routeOpenAPI:
		return "api description"
	case routeHealthz:
		return "health check"
	case routeReadyz:
		return "readiness check"
	case routeMetrics:
		return "metrics"
	}
	return "request"
}

// resource is a path of the API; the methods it takes lead to its routes.
type resource uint8

const (
	resNone resource = iota
	resTopics
	resTopic
	resProduce
	resProduceBatch
	resConsume
	resAck
	resSchema
	resUsers
	resUser
	resGrants
	resPassword
	resMembers
	resForget
	resMoves
	resOpenAPI
	resChildren
	resChild
	resHealthz
	resReadyz
	resMetrics
)

const (
	topicsPrefix  = "/v1/topics"
	usersPrefix   = "/v1/users"
	membersPrefix = "/v1/cluster/members"
)

// resolve finds the resource of a raw path and the topic, user or member it names. Only
// exact, clean paths match: an empty, "." or ".." segment or a trailing slash names
// nothing, and nothing is ever redirected. The name alone is percent-decoded,
// after the path was split, so that an encoded slash stays within the name.
func resolve(path string) (resource, string) {
	switch path {
	case "/healthz":
		return resHealthz, ""
	case "/readyz":
		return resReadyz, ""
	case "/metrics":
		return resMetrics, ""
	case topicsPrefix:
		return resTopics, ""
	case "/v1/openapi.yaml":
		return resOpenAPI, ""
	case usersPrefix:
		return resUsers, ""
	case membersPrefix:
		return resMembers, ""
	case "/v1/cluster/moves":
		return resMoves, ""
	}
	res, below := resTopic, topicResource
	rest, ok := strings.CutPrefix(path, topicsPrefix+"/")
	if !ok {
		if rest, ok = strings.CutPrefix(path, usersPrefix+"/"); ok {
			res, below = resUser, userResource
		} else if rest, ok = strings.CutPrefix(path, membersPrefix+"/"); ok {
			res, below = resNone, memberResource
		} else {
			return resNone, ""
		}
	}
	name, tail, more := strings.Cut(rest, "/")
	if name == "" || name == "." || name == ".." {
		return resNone, ""
	}
	if more {
		if res = below(tail); res == resNone {
			return resNone, ""
		}
	}
	if strings.IndexByte(name, '%') < 0 {
		return res, name
	}
	name, err := url.PathUnescape(name)
	if err != nil {
		return resNone, ""
	}
	return res, name
}

func topicResource(tail string) resource {
	switch tail {
	case "produce":
		return resProduce
	case "consume":
		return resConsume
	case "ack":
		return resAck
	case "schema":
		return resSchema
	case "produce/batch":
		return resProduceBatch
	}
	return childResource(tail)
}

func userResource(tail string) resource {
	switch tail {
	case "grants":
		return resGrants
	case "password":
		return resPassword
	}
	return resNone
}

func memberResource(tail string) resource {
	if tail == "forget" {
		return resForget
	}
	return resNone
}

// byMethod finds the route of a method on a resource; HEAD goes wherever GET
// goes, and the consume handler refuses it itself, after its header check. When
// there is none, allow is the Allow header of the 405.
func byMethod(res resource, method string) (r route, allow string) {
	switch res {
	case resTopics:
		switch method {
		case "POST":
			return routeTopicCreate, ""
		case "GET", "HEAD":
			return routeTopicList, ""
		}
		return routeUnmatched, "GET, HEAD, POST"
	case resTopic:
		switch method {
		case "GET", "HEAD":
			return routeTopicGet, ""
		case "PATCH":
			return routeTopicAlter, ""
		case "DELETE":
			return routeTopicDelete, ""
		}
		return routeUnmatched, "DELETE, GET, HEAD, PATCH"
	case resProduce:
		return only(method, "POST", routeProduce)
	case resProduceBatch:
		return only(method, "POST", routeProduceBatch)
	case resAck:
		return only(method, "POST", routeAck)
	case resConsume:
		if method == "HEAD" {
			return routeConsume, ""
		}
		return only(method, "GET", routeConsume)
	case resSchema:
		return readOnly(method, routeTopicSchema)
	case resUsers:
		switch method {
		case "POST":
			return routeUserCreate, ""
		case "GET", "HEAD":
			return routeUserList, ""
		}
		return routeUnmatched, "GET, HEAD, POST"
	case resUser:
		switch method {
		case "DELETE":
			return routeUserDelete, ""
		case "GET", "HEAD":
			return routeUserGet, ""
		}
		return routeUnmatched, "DELETE, GET, HEAD"
	case resGrants:
		return only(method, "PUT", routeUserGrants)
	case resPassword:
		return only(method, "PUT", routeUserPassword)
	case resMembers:
		return readOnly(method, routeMembers)
	case resForget:
		return only(method, "POST", routeForget)
	case resMoves:
		return readOnly(method, routeMoves)
	case resOpenAPI:
		return readOnly(method, routeOpenAPI)
	case resChildren:
		if method == "POST" {
			return routeChildAttach, ""
		}
		if r, _ := readOnly(method, routeChildList); r != routeUnmatched {
			return r, ""
		}
		return routeUnmatched, "GET, HEAD, POST"
	case resChild:
		return only(method, "DELETE", routeChildDetach)
	case resHealthz:
		return readOnly(method, routeHealthz)
	case resReadyz:
		return readOnly(method, routeReadyz)
	case resMetrics:
		return readOnly(method, routeMetrics)
	}
	return routeUnmatched, ""
}

func only(method, want string, r route) (route, string) {
	if method == want {
		return r, ""
	}
	return routeUnmatched, want
}

func readOnly(method string, r route) (route, string) {
	if method == "GET" || method == "HEAD" {
		return r, ""
	}
	return routeUnmatched, "GET, HEAD"
}
