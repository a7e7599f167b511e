package cluster

import (
	"flag"
	"os"
	"testing"
)

// sideBySide is how many clusters run at a time unless -parallel says otherwise: nodes wait
// for elections, leases and each other most of the time.
const sideBySide = "3"

func TestMain(m *testing.M) {
	if code, done := isolate(); done {
		os.Exit(code)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", sideBySide); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
