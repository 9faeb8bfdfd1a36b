package driving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	batchBytes = 32 << 10 // small, so that there are several batches
	largeBytes = 10_000_000
	// The longest wait of a fetch; clients abort requests after 30 s.
	longWait = 15 * time.Second
)

var (
	plain   = How{Codec: "none", Acks: "all", BatchBytes: batchBytes}
	prompt  = Fetching{MaxWait: 200 * time.Millisecond, MaxBytes: 1 << 20}
	patient = Fetching{MaxWait: longWait, MaxBytes: 1 << 20}
)

// readyTopic makes a topic and waits until each leader serves its partition: Kafka reports leaders to clients before all leaders know.
func (d driver) readyTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	all := map[string]string{"retention.ms": "-1"} // the sample records have old timestamps
	for key, value := range configs {
		all[key] = value
	}
	if err := d.CreateTopic(ctx, topic, partitions, all); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return d.led(ctx, topic, partitions)
}

func (d driver) led(ctx context.Context, topic string, partitions int) error {
	return until(ctx, fmt.Sprintf("%d partitions whose leaders answer", partitions), func() (bool, error) {
		if found, err := d.PartitionsWithLeaders(ctx, topic); err != nil || found != partitions {
			return false, err
		}
		for partition := range int32(partitions) {
			if _, _, err := d.FirstAndLast(ctx, topic, partition); err != nil {
				return false, nil
			}
		}
		return true, nil
	})
}

// sent makes the topic and sends n sample records to it.
func (d driver) sent(ctx context.Context, topic string, n int, how How) ([]Record, error) {
	records, err := samples(n)
	if err != nil {
		return nil, err
	}
	if err := d.readyTopic(ctx, topic, partitions, nil); err != nil {
		return nil, err
	}
	return records, d.send(ctx, topic, records, how)
}

// sentAndMoved also moves the leaders after that.
func (d driver) sentAndMoved(ctx context.Context, topic string, n int) ([]Record, error) {
	records, err := d.sent(ctx, topic, n, plain)
	if err != nil {
		return nil, err
	}
	return records, moved(ctx, topic)
}

func (d driver) send(ctx context.Context, topic string, records []Record, how How) error {
	producer, err := d.OpenProducer(ctx, how)
	if err != nil {
		return err
	}
	return errors.Join(producer.Send(ctx, topic, records), producer.Close())
}

// readBack reads all records of the topic; nothing may follow them.
func (d driver) readBack(ctx context.Context, topic string, expected []Record, how Fetching) error {
	ends := map[int32]int64{}
	for _, record := range expected {
		ends[record.Partition] = max(ends[record.Partition], record.Offset+1)
	}
	for partition, end := range ends {
		if _, last, err := d.firstAndLast(ctx, topic, partition); err != nil || last != end {
			return either(err, "partition %d ends at %d instead of %d", partition, last, end)
		}
	}
	consumer, err := d.OpenConsumer(ctx, topic, len(ends), how)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	defer consumer.Close()
	read, err := take(ctx, consumer, len(expected))
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return check(read, expected, d.EmptyIsNull())
}

// take reads n records, or a few more, when more come at once.
func take(ctx context.Context, consumer Consumer, n int) ([]Record, error) {
	var read []Record
	for len(read) < n {
		some, err := consumer.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("%d of %d records arrived: %w", len(read), n, err)
		}
		read = append(read, some...)
	}
	return read, nil
}

func codec(name string) func(driver, context.Context, string) error {
	return func(d driver, ctx context.Context, topic string) error {
		how := plain
		how.Codec = name
		return d.there(ctx, topic, count, how)
	}
}

func (d driver) idempotence(ctx context.Context, topic string) error {
	how := plain
	how.Idempotent = true
	return d.there(ctx, topic, 3*count, how)
}

// there and back, through one producer; the leaders move in the middle.
func (d driver) there(ctx context.Context, topic string, n int, how How) error {
	records, err := samples(n)
	if err != nil {
		return err
	}
	if err := d.readyTopic(ctx, topic, partitions, nil); err != nil {
		return err
	}
	producer, err := d.OpenProducer(ctx, how)
	if err != nil {
		return err
	}
	half := partitions * (n / partitions / 2)
	err = producer.Send(ctx, topic, records[:half])
	if err == nil {
		err = moved(ctx, topic)
	}
	if err == nil {
		err = producer.Send(ctx, topic, records[half:])
	}
	if err := errors.Join(err, producer.Close()); err != nil {
		return err
	}
	return d.readBack(ctx, topic, records, prompt)
}

func (d driver) acks(ctx context.Context, topic string) error {
	records, err := samples(66)
	if err != nil {
		return err
	}
	if err := d.readyTopic(ctx, topic, partitions, nil); err != nil {
		return err
	}
	for i, acks := range []string{"1", "0"} {
		how := plain
		how.Acks = acks
		if err := d.send(ctx, topic, records[33*i:33*(i+1)], how); err != nil {
			return fmt.Errorf("acks=%s: %w", acks, err)
		}
		if acks == "1" {
			if err := moved(ctx, topic); err != nil {
				return err
			}
		}
	}
	for partition := range int32(partitions) {
		err = until(ctx, "records sent without acknowledgement", func() (bool, error) {
			_, last, err := d.firstAndLast(ctx, topic, partition)
			return last == 22, err
		})
		if err != nil {
			return err
		}
	}
	return d.readBack(ctx, topic, records, prompt)
}

// longPoll: records reach a waiting consumer. If responses came at the end of each wait only, ten would take ten waits.
func (d driver) longPoll(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, 1, nil); err != nil {
		return err
	}
	consumer, err := d.OpenConsumer(ctx, topic, 1, patient)
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := d.OpenProducer(ctx, plain)
	if err != nil {
		return err
	}
	defer producer.Close()
	var took time.Duration
	for i := range 10 {
		if i == 5 {
			if err := moved(ctx, topic); err != nil {
				return err
			}
		}
		begun := time.Now()
		record := Record{Offset: int64(i), Timestamp: baseTimestamp, Value: fmt.Appendf(nil, "record %d", i)}
		if err := producer.Send(ctx, topic, []Record{record}); err != nil {
			return err
		}
		read, err := take(ctx, consumer, 1)
		if err != nil {
			return err
		}
		if err := check(read, []Record{record}, d.EmptyIsNull()); err != nil {
			return err
		}
		took += time.Since(begun)
		// Meanwhile the consumer sends its next fetch.
		if _, _, err := d.firstAndLast(ctx, topic, 0); err != nil {
			return err
		}
	}
	if took >= longWait {
		return fmt.Errorf("ten records took %v, with a longest wait of %v for one", took, longWait)
	}
	return nil
}

func (d driver) large(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, partitions, map[string]string{"max.message.bytes": "12000000"}); err != nil {
		return err
	}
	chance := rand.NewChaCha8([32]byte(bytes.Repeat([]byte("large"), 7)))
	var records []Record
	for i := range int64(2 * partitions) {
		value := make([]byte, largeBytes)
		chance.Read(value)
		records = append(records, Record{Partition: int32(i % partitions), Offset: i / partitions, Timestamp: baseTimestamp, Key: []byte("large"), Value: value})
	}
	how := plain
	how.BatchBytes = 12_000_000
	if err := d.send(ctx, topic, records, how); err != nil {
		return err
	}
	if err := moved(ctx, topic); err != nil {
		return err
	}
	return d.readBack(ctx, topic, records, Fetching{MaxWait: prompt.MaxWait, MaxBytes: how.BatchBytes})
}
