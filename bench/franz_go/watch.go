package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

const problemsMax = 5

// watch counts what a client reports besides its results: lines of its log, failed requests, the ends of its memberships.
type watch struct {
	counting        atomic.Bool
	errors, retries atomic.Int64
	lock            sync.Mutex
	problems        []string
}

func (w *watch) note(count *atomic.Int64, text string) {
	if !w.counting.Load() {
		return
	}
	count.Add(1)
	w.lock.Lock()
	defer w.lock.Unlock()
	if len(w.problems) < problemsMax {
		w.problems = append(w.problems, text)
	}
}

func (w *watch) first() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return append([]string{}, w.problems...)
}

// Level is that of messages about requests that are sent again.
func (w *watch) Level() kgo.LogLevel { return kgo.LogLevelInfo }

func (w *watch) Log(level kgo.LogLevel, message string, values ...any) {
	text := message + " " + fmt.Sprint(values...)
	switch {
	case level <= kgo.LogLevelWarn:
		w.note(&w.errors, text)
	case strings.Contains(text, "retr") || strings.Contains(text, "fail") || strings.Contains(text, "errored"):
		w.note(&w.retries, text)
	}
}

func (w *watch) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if err := e2e.Err(); err != nil {
		w.note(&w.errors, fmt.Sprintf("request with key %d: %v", key, err))
	}
}

func (w *watch) OnGroupManageError(err error) { w.note(&w.errors, fmt.Sprintf("group: %v", err)) }
