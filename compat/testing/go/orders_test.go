// A test with a broker of txbroker: a rule for faults is set over HTTP, and the client and the journal are checked.
// `go test`; TXBROKER is the command `txbroker`, if it is not on the PATH.
package orders

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type broker struct {
	BootstrapServers string `json:"bootstrap_servers"`
	ControlURL       string `json:"control_url"`
}

// start starts a broker. It ends with its standard input, which this process keeps open, and so also when this process is killed.
func start(t *testing.T, topic string) broker {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready.json")
	command := exec.Command(cmp.Or(os.Getenv("TXBROKER"), "txbroker"), "test-server", "--stop-with-input", "--topic", topic, "--ready-file", ready)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	must(t, err)
	must(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() { input.Close(); <-ended })
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		content, err := os.ReadFile(ready)
		if err == nil {
			var found broker
			must(t, json.Unmarshal(content, &found))
			return found
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the broker has ended: %v", err)
		default:
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("the broker does not start")
		}
	}
}

// control sends a request to the control port, and decodes the answer.
func control[A any](t *testing.T, b broker, method, path string, body any) (answer A) {
	t.Helper()
	content, err := json.Marshal(body)
	must(t, err)
	request, err := http.NewRequest(method, b.ControlURL+"/v1"+path, bytes.NewReader(content))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	content, err = io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s", content)
	}
	must(t, json.Unmarshal(content, &answer))
	return answer
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type rule struct {
	ID, Hits int
}

type journal struct {
	Entries []struct {
		API    string
		Errors []string
	}
}

func TestAnOrderIsStoredOnceAlthoughTheFirstRequestIsRefused(t *testing.T) {
	b := start(t, "orders")
	added := control[rule](t, b, "POST", "/rules", map[string]any{"api": "Produce", "topic": "orders", "action": "error", "error": "NOT_LEADER_OR_FOLLOWER"})

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.BootstrapServers), kgo.DefaultProduceTopic("orders"), kgo.ConsumeTopics("orders"))
	must(t, err)
	defer client.Close()
	must(t, client.ProduceSync(ctx, kgo.StringRecord("order 1")).FirstErr())

	var values []string
	client.PollFetches(ctx).EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	if !reflect.DeepEqual(values, []string{"order 1"}) {
		t.Fatalf("consumed %q", values)
	}
	if state := control[rule](t, b, "GET", fmt.Sprintf("/rules/%d", added.ID), nil); state.Hits != 1 {
		t.Fatalf("the rule has acted %d times", state.Hits)
	}
	var produced [][]string
	for _, entry := range control[journal](t, b, "GET", "/journal?since=0", nil).Entries {
		if entry.API == "Produce" {
			produced = append(produced, entry.Errors)
		}
	}
	if !reflect.DeepEqual(produced, [][]string{{"NOT_LEADER_OR_FOLLOWER"}, {}}) {
		t.Fatalf("the errors of Produce are %q", produced)
	}
}
