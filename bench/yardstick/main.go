// Command yardstick is what Narad's produce path is measured against: the least that
// an HTTP server can do and still keep a promise. Its handler reads the body and
// answers 202 once a group commit has appended the body to one file and synced it.
//
//	yardstick -addr 127.0.0.1:7900 -file yardstick.log
//	narad bench produce -s http://127.0.0.1:7900 --topic any
package main

import (
	"flag"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/narad-mq/narad/internal/disk"
)

// group is the bodies waiting for one sync.
type group struct {
	bytes []byte
	done  chan struct{}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:7900", "listen address")
	name := flag.String("file", "yardstick.log", "file to append to; truncated at start")
	flag.Parse()
	file, err := disk.OS{}.Open(*name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		log.Fatal(err)
	}
	open := make(chan *group, 1) // holds the group that takes bodies; empty while it is being added to
	open <- &group{done: make(chan struct{})}
	wake := make(chan struct{}, 1)
	go commit(file, open, wake)
	log.Fatal(http.ListenAndServe(*addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // narad bench looks its topic up
			io.WriteString(w, "{}")
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		g := <-open
		g.bytes = append(g.bytes, body...)
		open <- g
		select {
		case wake <- struct{}{}:
		default:
		}
		<-g.done
		w.WriteHeader(http.StatusAccepted)
	})))
}

func commit(file disk.File, open chan *group, wake chan struct{}) {
	var end int64
	var spare []byte // the last group's buffer, used again so that appending allocates nothing
	for range wake {
		g := <-open
		open <- &group{bytes: spare[:0], done: make(chan struct{})}
		if _, err := file.WriteAt(g.bytes, end); err != nil {
			log.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			log.Fatal(err)
		}
		end += int64(len(g.bytes))
		spare = g.bytes
		close(g.done)
	}
}
