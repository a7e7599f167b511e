package httpapi

import _ "embed" // openapi.yaml

// openAPI describes every route of this package. tests/conformance holds it to the
// running server.
//
//go:embed openapi.yaml
var openAPI []byte

const typeYAML = "application/yaml"

// describeAPI serves GET /v1/openapi.yaml.
func (a *API) describeAPI(c *call) error {
	_ = c.send(200, typeYAML, openAPI)
	return nil
}
