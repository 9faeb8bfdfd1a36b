package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"compat/driving"

	"github.com/segmentio/kafka-go"
)

var (
	codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
	acks   = map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}
)

type producer struct{ *kafka.Writer }

func (c *client) OpenProducer(_ context.Context, how driving.How) (driving.Producer, error) {
	if how.Idempotent {
		return nil, driving.Lacks("its producer is not idempotent")
	}
	chosen := kafka.BalancerFunc(func(message kafka.Message, _ ...int) int { return message.WriterData.(int) })
	return producer{&kafka.Writer{
		Addr: kafka.TCP(c.address...), Balancer: chosen, Compression: codecs[how.Codec], RequiredAcks: acks[how.Acks], BatchSize: 50,
		BatchBytes: int64(max(how.BatchBytes, 1<<20)), BatchTimeout: 5 * time.Millisecond, Transport: &kafka.Transport{},
	}}, nil
}

func (p producer) Send(ctx context.Context, topic string, records []driving.Record) error {
	var made []kafka.Message
	for _, r := range records {
		message := kafka.Message{Topic: topic, WriterData: int(r.Partition), Key: r.Key, Value: r.Value, Time: time.UnixMilli(r.Timestamp)}
		for _, header := range r.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		made = append(made, message)
	}
	return p.WriteMessages(ctx, made...)
}

func (p producer) Renew(string) {}

// consumer has one reader per partition, because kafka-go's readers without a group read one.
type consumer struct {
	readers []*kafka.Reader
	arrived chan kafka.Message
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

func (c *client) OpenConsumer(_ context.Context, topic string, partitions int, how driving.Fetching) (driving.FreeConsumer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	made := &consumer{arrived: make(chan kafka.Message), cancel: cancel}
	for partition := range partitions {
		reader := c.reader(topic, partition, how)
		made.readers = append(made.readers, reader)
		made.work.Go(func() { forward(ctx, reader, made.arrived) })
	}
	return made, nil
}

func (c *client) reader(topic string, partition int, how driving.Fetching) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: c.address, Topic: topic, Partition: partition, MaxWait: how.MaxWait, MaxBytes: how.MaxBytes, ReadLagInterval: -1,
	})
}

// forward the records of a reader until the context ends; after an error the reader continues.
func forward(ctx context.Context, reader *kafka.Reader, arrived chan<- kafka.Message) {
	for ctx.Err() == nil {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			continue
		}
		select {
		case arrived <- message:
		case <-ctx.Done():
		}
	}
}

func next(ctx context.Context, arrived <-chan kafka.Message) ([]driving.Record, error) {
	select {
	case message := <-arrived:
		return []driving.Record{received(message)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func received(message kafka.Message) driving.Record {
	record := driving.Record{
		Partition: int32(message.Partition), Offset: message.Offset, Timestamp: message.Time.UnixMilli(), Key: message.Key, Value: message.Value,
	}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, driving.Header{Name: header.Key, Value: header.Value})
	}
	return record
}

func (c *consumer) Next(ctx context.Context) ([]driving.Record, error) { return next(ctx, c.arrived) }

func (c *consumer) Renew() error {
	var problems []error
	for _, reader := range c.readers {
		problems = append(problems, reader.SetOffset(kafka.FirstOffset))
	}
	return errors.Join(problems...)
}

func (c *consumer) Close() {
	c.cancel()
	c.work.Wait()
	for _, reader := range c.readers {
		reader.Close()
	}
}
