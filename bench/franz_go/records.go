package main

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	valueBytesMin  = 50
	valueBytesMean = 350
	valueBytesMax  = 8000
	users          = 100_000
	timeBytes      = 8
)

// text is what values are cut from: JSON, which compresses as JSON does.
var text = func() string {
	chance := rand.New(rand.NewSource(7))
	names := []string{"order", "customer", "item", "price", "currency", "status", "created_at", "address"}
	states := []string{"open", "paid", "shipped", "returned", "EUR", "USD", "Main Street"}
	var made strings.Builder
	for made.Len() < 20*valueBytesMax {
		name, state := names[chance.Intn(len(names))], states[chance.Intn(len(states))]
		fmt.Fprintf(&made, `{"%s": %d, "%s": "%s %x"}, `, name, chance.Intn(1_000_000), names[chance.Intn(len(names))], state, chance.Uint32())
	}
	return made.String()
}()

// record has a key, a header, and a value with the time of its creation, mostly short and sometimes long.
func (r *run) record(chance *rand.Rand) *kgo.Record {
	size := min(valueBytesMin+int(chance.ExpFloat64()*(valueBytesMean-valueBytesMin)), valueBytesMax)
	from := chance.Intn(len(text) - size)
	value := []byte(text[from : from+size])
	binary.BigEndian.PutUint64(value, uint64(time.Now().UnixNano()))
	return &kgo.Record{
		Topic:   r.topics[chance.Intn(len(r.topics))],
		Key:     fmt.Appendf(nil, "user-%d", chance.Intn(users)),
		Value:   value,
		Headers: []kgo.RecordHeader{{Key: "trace-id", Value: fmt.Appendf(nil, "%016x", chance.Uint64())}},
	}
}

func sentAt(record *kgo.Record) time.Time {
	return time.Unix(0, int64(binary.BigEndian.Uint64(record.Value[:timeBytes])))
}
