// Test programs over Apache's Go client: the same arguments and JSON lines as the Java ones in ../java.
//
// produce, consume and transact run once with their arguments. serve runs many in one process: each line of standard input is
// tab-separated, "start ID PROGRAM ARG..." or "stop ID", every line printed carries its id, and the end of standard
// input ends the process.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type line map[string]any

var (
	printing sync.Mutex
	stdout   = json.NewEncoder(os.Stdout)
)

func init() {
	stdout.SetEscapeHTML(false)
}

// run is what a program is given: where its lines go, and whether it was told to stop.
type run struct {
	id      string
	stopped chan struct{}
	once    sync.Once
}

func newRun(id string) *run {
	return &run{id: id, stopped: make(chan struct{})}
}

func (r *run) print(l line) {
	if r.id != "" {
		l["id"] = r.id
	}
	printing.Lock()
	defer printing.Unlock()
	_ = stdout.Encode(l)
}

func (r *run) stop() {
	r.once.Do(func() { close(r.stopped) })
}

// sleep waits for d; true when told to stop meanwhile.
func (r *run) sleep(d time.Duration) bool {
	select {
	case <-r.stopped:
		return true
	case <-time.After(d):
		return false
	}
}

func (r *run) execute(words []string) bool {
	var err error
	switch {
	case len(words) > 0 && words[0] == "produce":
		err = produce(r, words[1:])
	case len(words) > 0 && words[0] == "consume":
		err = consume(r, words[1:])
	case len(words) > 0 && words[0] == "transact":
		err = transact(r, words[1:])
	default:
		err = fmt.Errorf("program %q: expected produce, consume, transact or serve", words)
	}
	if err != nil {
		r.print(line{"op": "failed", "error": err.Error()})
	}
	return err == nil
}

func serve() {
	running := map[string]*run{}
	var lock sync.Mutex
	newRun("").print(line{"op": "serving"})
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	for input.Scan() {
		words := strings.Split(input.Text(), "\t")
		lock.Lock()
		switch {
		case words[0] == "stop" && len(words) == 2:
			if r := running[words[1]]; r != nil {
				r.stop()
			}
		case words[0] == "start" && len(words) > 2:
			r := newRun(words[1])
			running[r.id] = r
			go func() {
				r.execute(words[2:])
				lock.Lock()
				delete(running, r.id)
				lock.Unlock()
			}()
		default:
			newRun("").print(line{"op": "failed", "error": "line not understood: " + input.Text()})
		}
		lock.Unlock()
	}
}

func main() {
	rlog.SetLogLevel("warn")
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		serve()
		return
	}
	r := newRun("")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		r.stop()
	}()
	if !r.execute(os.Args[1:]) {
		os.Exit(1)
	}
}
