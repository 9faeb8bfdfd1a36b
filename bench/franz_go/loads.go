package main

import (
	"fmt"
	"math/rand"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	webClients     = 40
	streamClients  = 4
	pubsubClients  = 20
	groups         = 3
	membersOfGroup = 2
	streamLinger   = 5 * time.Millisecond
	streamBuffered = 2000 // records of a client that are not acknowledged yet
)

func (r *run) clientsOr(usual int) int {
	if r.clients > 0 {
		return r.clients
	}
	return usual
}

// web: the handlers of a web service, each of which waits until its record is stored.
func web(r *run) {
	for number := range r.clientsOr(webClients) {
		latencies := r.newLatencies()
		r.produce(number, func(client *kgo.Client, chance *rand.Rand) {
			for !r.stopping.Load() {
				r.produceAndWait(client, chance, latencies)
			}
		}, kgo.ProducerLinger(0))
	}
}

// stream: services that send as much as the broker takes.
func stream(r *run) {
	for number := range r.clientsOr(streamClients) {
		r.produce(number, func(client *kgo.Client, chance *rand.Rand) {
			for !r.stopping.Load() {
				client.Produce(r.ctx, r.record(chance), r.acknowledged)
			}
		}, kgo.ProducerLinger(streamLinger), kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.MaxBufferedRecords(streamBuffered))
	}
}

// pubsub: a fixed rate of records, each of which goes to several groups. The latencies are those of the consumers.
func pubsub(r *run) {
	for group := range groups {
		for range membersOfGroup {
			if err := r.consume(fmt.Sprintf("%s-group-%d", r.topics[0], group)); err != nil {
				r.fail(err)
				return
			}
		}
	}
	if err := r.untilAssigned(); err != nil {
		r.fail(err)
		return
	}
	clients := r.clientsOr(pubsubClients)
	interval := time.Second * time.Duration(clients) / time.Duration(r.rate)
	for number := range clients {
		r.produce(number, func(client *kgo.Client, chance *rand.Rand) {
			next := time.Now().Add(time.Duration(chance.Int63n(int64(interval))))
			for !r.stopping.Load() {
				time.Sleep(time.Until(next))
				r.produceAndWait(client, chance, nil)
				next = next.Add(interval)
			}
		}, kgo.ProducerLinger(0))
	}
}

func (r *run) produceAndWait(client *kgo.Client, chance *rand.Rand, latencies *latencies) {
	measured, begun := latencies != nil && r.measuring.Load(), time.Now()
	sent, err := client.ProduceSync(r.ctx, r.record(chance)).First()
	if measured {
		latencies.add(begun)
	}
	r.acknowledged(sent, err)
}
