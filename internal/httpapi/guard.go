package httpapi

import "strings"

// clientHeader is the header a browser page cannot send across sites without a
// preflight, which is never approved.
const clientHeader = "X-Narad-Client"

// crossSite reports whether a state-changing request carries none of the marks
// that a page on another site cannot put on one (spec/http-api section 2.1).
func crossSite(r *Request) bool {
	switch r.Method {
	case "POST", "PUT", "PATCH":
	default:
		return false
	}
	return !trustedType(r.Header.Get("Content-Type")) && r.Header.Get(clientHeader) == ""
}

// trustedType reports whether a media type, parameters aside, is one that an
// HTML form cannot send.
func trustedType(v string) bool {
	if v == "application/octet-stream" || v == typeJSON {
		return true
	}
	v, _, _ = strings.Cut(v, ";")
	v = strings.Trim(v, " \t")
	return strings.EqualFold(v, "application/octet-stream") || strings.EqualFold(v, typeJSON)
}
