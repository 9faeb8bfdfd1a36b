// Package driving has the features that compat/README.md lists, for the clients with Go drivers.
package driving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	patience = 180 * time.Second // for a feature
	grace    = 5 * time.Second   // for one that ignores its context
)

type feature struct {
	name string
	run  func(driver, context.Context, string) error
}

type driver struct{ Client }

var features = []feature{
	{"topics", driver.topics}, {"none", codec("none")}, {"gzip", codec("gzip")}, {"snappy", codec("snappy")}, {"lz4", codec("lz4")},
	{"zstd", codec("zstd")}, {"acks", driver.acks}, {"idempotence", driver.idempotence}, {"group", driver.group}, {"eager", driver.eager},
	{"cooperative", driver.cooperative}, {"static", driver.static}, {"offsets", driver.offsets}, {"delete_records", driver.deleteRecords},
	{"configs", driver.configs}, {"groups", driver.groups}, {"reset", driver.reset}, {"topic_ids", driver.topicIDs},
	{"long_poll", driver.longPoll}, {"large", driver.large}, {"reconnect", driver.reconnect},
	{"commit", driver.commit}, {"abort", driver.abort}, {"read_committed", driver.readCommitted}, {"txn_offsets", driver.txnOffsets},
	{"fencing", driver.fencing},
}

// Drive runs the features named on the command line (HOST:PORT,... [FEATURE ...]), or all, and prints a line of JSON for each. `module` is the
// client's Go module, whose version is printed.
func Drive(name, module string, open func(addresses []string) (Client, error)) {
	client, err := open(strings.Split(os.Args[1], ","))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say(map[string]any{"client": name, "version": version(module)})
	wanted := os.Args[2:]
	for _, f := range features {
		if len(wanted) == 0 || slices.Contains(wanted, f.name) {
			topic := fmt.Sprintf("compat-%s-%s-%d", name, f.name, time.Now().UnixMilli())
			report(f.name, attempt(f, driver{client}, topic))
		}
	}
	for _, unknown := range wanted {
		if !slices.ContainsFunc(features, func(f feature) bool { return f.name == unknown }) {
			report(unknown, Lacks("the driver does not know this feature"))
		}
	}
}

func attempt(f feature, d driver, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		defer func() {
			if panicked := recover(); panicked != nil {
				fmt.Fprintf(os.Stderr, "%v\n%s", panicked, debug.Stack())
				result <- fmt.Errorf("panic: %v", panicked)
			}
		}()
		result <- f.run(d, ctx, topic)
	}()
	select {
	case err := <-result:
		return err
	case <-time.After(patience + grace):
		return fmt.Errorf("not done after %v", patience+grace)
	}
}

func report(name string, err error) {
	line := map[string]any{"feature": name, "ok": err == nil, "detail": ""}
	switch {
	case errors.Is(err, errLacks):
		line["ok"], line["detail"] = nil, err.Error()
	case errors.Is(err, errFault):
		line["ok"], line["fault"] = nil, err.Error()
	case err != nil:
		line["detail"] = err.Error()
	}
	say(line)
}

func say(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func version(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dependency := range build.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "unknown"
}
