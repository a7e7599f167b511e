// Package lint holds the house rules that a program can check, as tests: go test
// ./internal/lint. It has no code of its own to ship. The rules come from design.md
// and CONTRIBUTING.md; floors_test.go is the table of who may import whom, and
// exceptions_test.go lists every place that may break a rule, with the reason. A
// finding says what to do about it; an exception nothing needs is a finding too.
package lint
