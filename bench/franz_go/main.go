// The loads web, stream and pubsub: applications with franz-go. bench/real.py builds and runs this program.
//
// It prints "begin" when the measured time begins and "end" when it ends, so that the caller can read the broker's CPU time at both, and
// then one line of JSON. It fails if a record was not acknowledged, or not delivered to each group.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is for the preparation of a load and its end, on a busy machine.
const patience = 5 * time.Minute

type settings struct {
	brokers []string
	clients int
	rate    int
	trusted *x509.CertPool // of the connections' certificates; without, connections are not encrypted
	watch   *watch
}

// result is what the caller gets. Latencies are in milliseconds.
type result struct {
	Records  int64    `json:"records"`
	Bytes    int64    `json:"bytes"`
	Seconds  float64  `json:"seconds"`
	P50      float64  `json:"p50"`
	P99      float64  `json:"p99"`
	Errors   int64    `json:"errors"`
	Retries  int64    `json:"retries"`
	Problems []string `json:"problems"`
}

func main() {
	brokers := flag.String("brokers", "", "host:port, comma-separated")
	load := flag.String("load", "", "web, stream or pubsub")
	clients := flag.Int("clients", 0, "producing clients; 0: those of the load")
	trust := flag.String("trust", "", "a file with the certificate to trust: connect over TLS")
	rate := flag.Int("rate", 4000, "records per second of pubsub")
	warmup := flag.Duration("warmup", time.Second, "before the measured time")
	duration := flag.Duration("duration", 6*time.Second, "the measured time")
	flag.Parse()
	start, known := map[string]func(*run){"web": web, "stream": stream, "pubsub": pubsub}[*load]
	if !known {
		fmt.Fprintf(os.Stderr, "no such load: %q\n", *load)
		os.Exit(2)
	}
	limit := *warmup + *duration + patience
	time.AfterFunc(limit, func() {
		fmt.Fprintf(os.Stderr, "the load has not ended after %s: the broker does not respond\n", limit)
		os.Exit(1)
	})
	trusted, err := certificates(*trust)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	given := settings{strings.Split(*brokers, ","), *clients, *rate, trusted, &watch{}}
	measured, err := measure(*load, given, start, *warmup, *duration)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	line, _ := json.Marshal(measured)
	fmt.Println(string(line))
}

func certificates(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return pool, nil
}

func measure(load string, given settings, start func(*run), warmup, duration time.Duration) (*result, error) {
	ctx := context.Background()
	topics, err := createTopics(ctx, given, load)
	if err != nil {
		return nil, err
	}
	defer topics.remove(ctx)
	work := newRun(ctx, given, topics.names)
	start(work)
	if err := work.sleepUntil(warmup, func() bool { return work.records.Load() > 0 }); err != nil {
		return nil, err
	}
	given.watch.counting.Store(true)
	fmt.Println("begin")
	work.measuring.Store(true)
	records, bytes, begun := work.records.Load(), work.bytes.Load(), time.Now()
	err = work.sleepUntil(duration, func() bool {
		return work.records.Load() > records && (len(work.latencies) == 0 || work.measured.Load() > 0)
	})
	seconds := time.Since(begun).Seconds()
	records, bytes = work.records.Load()-records, work.bytes.Load()-bytes
	work.measuring.Store(false)
	fmt.Println("end")
	if err == nil {
		err = work.finish()
	}
	if err != nil {
		return nil, err
	}
	p50, p99 := work.quantiles()
	watched := given.watch
	return &result{records, bytes, seconds, p50, p99, watched.errors.Load(), watched.retries.Load(), watched.first()}, nil
}

// client has franz-go's defaults besides the given options.
func (given *settings) client(options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.SeedBrokers(given.brokers...), kgo.WithLogger(given.watch), kgo.WithHooks(given.watch))
	return kgo.NewClient(append(options, given.security()...)...)
}

func (given *settings) security() []kgo.Opt {
	if given.trusted == nil {
		return nil
	}
	return []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: given.trusted})}
}
