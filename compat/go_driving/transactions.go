package driving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Transactions is a transactional producer, initialized, that is open until it is closed.
type Transactions interface {
	Begin() error
	// Send returns when all records are acknowledged, or the first that is not.
	Send(ctx context.Context, topic string, records []Record) error
	// SendOffsets commits offsets of a group in the transaction.
	SendOffsets(ctx context.Context, group, topic string, offsets map[int32]int64) error
	End(ctx context.Context, commit bool) error
	Close() error
}

// TransactionalClient is a client with transactions.
type TransactionalClient interface {
	OpenTransactions(ctx context.Context, transactionalID string) (Transactions, error)
}

// GroupTransactionalClient commits, in transactions, the offsets of what the producer itself has read as a member of a group.
type GroupTransactionalClient interface {
	// OpenSession opens a producer whose SendOffsets reads up to these offsets, the end of what was written.
	OpenSession(ctx context.Context, transactionalID, group, topic string) (Transactions, error)
}

// committed is how a read_committed consumer fetches.
var committed = Fetching{MaxWait: prompt.MaxWait, MaxBytes: prompt.MaxBytes, Committed: true}

func (d driver) transactions(ctx context.Context, id string) (Transactions, error) {
	client, can := d.Client.(TransactionalClient)
	if !can {
		return nil, Lacks("it has no transactions")
	}
	return client.OpenTransactions(ctx, id)
}

// written writes records in a transaction.
func written(ctx context.Context, producer Transactions, topic string, records []Record, commit bool) error {
	if err := producer.Begin(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := producer.Send(ctx, topic, records); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return producer.End(ctx, commit)
}

// made has a new topic, sample records and a transactional producer.
func (d driver) made(ctx context.Context, topic string, n int) ([]Record, Transactions, error) {
	if _, can := d.Client.(TransactionalClient); !can {
		return nil, nil, Lacks("it has no transactions")
	}
	records, err := samples(n)
	if err != nil {
		return nil, nil, err
	}
	if err := d.readyTopic(ctx, topic, partitions, nil); err != nil {
		return nil, nil, err
	}
	producer, err := d.transactions(ctx, topic)
	return records, producer, err
}

func (d driver) commit(ctx context.Context, topic string) error {
	records, producer, err := d.made(ctx, topic, 99)
	if err != nil {
		return err
	}
	err = errors.Join(written(ctx, producer, topic, records[:66], true), written(ctx, producer, topic, records[66:], true), producer.Close())
	if err != nil {
		return err
	}
	return d.readWith(ctx, topic, records, committed)
}

func (d driver) abort(ctx context.Context, topic string) error {
	records, producer, err := d.made(ctx, topic, 99)
	if err != nil {
		return err
	}
	err = errors.Join(written(ctx, producer, topic, records[:33], false), written(ctx, producer, topic, records[33:], true), producer.Close())
	if err != nil {
		return err
	}
	return errors.Join(d.readWith(ctx, topic, records[33:], committed), d.readWith(ctx, topic, records, prompt))
}

// readCommitted: what follows an open transaction in its partition is not read before its end; other partitions are read.
func (d driver) readCommitted(ctx context.Context, topic string) error {
	records, first, err := d.made(ctx, topic, 66)
	if err != nil {
		return err
	}
	second, err := d.transactions(ctx, topic+"-2")
	if err != nil {
		return err
	}
	var opened []Record
	for _, record := range records[:33] {
		if record.Partition == 0 {
			opened = append(opened, record)
		}
	}
	if err := errors.Join(first.Begin(), first.Send(ctx, topic, opened), written(ctx, second, topic, records[33:], true)); err != nil {
		return err
	}
	consumer, err := d.OpenConsumer(ctx, topic, partitions, committed)
	if err != nil {
		return err
	}
	defer consumer.Close()
	read, err := take(ctx, consumer, 22)
	if err != nil {
		return err
	}
	for _, record := range read {
		if record.Partition == 0 {
			return fmt.Errorf("the record at offset %d was read behind an open transaction", record.Offset)
		}
	}
	if err := first.End(ctx, true); err != nil {
		return err
	}
	rest, err := take(ctx, consumer, 44-len(read))
	if err != nil {
		return err
	}
	return errors.Join(inOrder(append(read, rest...), append(opened, records[33:]...)), first.Close(), second.Close())
}

func (d driver) txnOffsets(ctx context.Context, topic string) error {
	if _, can := d.Client.(TransactionalClient); !can {
		return Lacks("it has no transactions")
	}
	records, err := samples(30)
	if err != nil {
		return err
	}
	if err := d.readyTopic(ctx, topic, partitions, nil); err != nil {
		return err
	}
	var producer Transactions
	if sessions, can := d.Client.(GroupTransactionalClient); can {
		producer, err = sessions.OpenSession(ctx, topic, topic, topic)
	} else {
		producer, err = d.transactions(ctx, topic)
	}
	if err != nil {
		return err
	}
	for _, one := range []struct {
		from, to int64
		commit   bool
	}{{0, 5, true}, {5, 8, false}} {
		if err := d.send(ctx, topic, between(records, one.from, one.to), plain); err != nil {
			return err
		}
		if err := producer.Begin(); err != nil {
			return err
		}
		offsets := map[int32]int64{0: one.to, 1: one.to, 2: one.to}
		if err := errors.Join(producer.SendOffsets(ctx, topic, topic, offsets), producer.End(ctx, one.commit)); err != nil {
			return err
		}
	}
	if err := errors.Join(producer.Close(), d.send(ctx, topic, between(records, 8, 10), plain)); err != nil {
		return err
	}
	rest := between(records, 5, 10)
	read, err := d.readInGroup(ctx, topic, topic, len(rest))
	if err != nil {
		return err
	}
	return check(read, rest, d.EmptyIsNull())
}

// between has the records with these offsets.
func between(records []Record, from, to int64) []Record {
	var found []Record
	for _, record := range records {
		if from <= record.Offset && record.Offset < to {
			found = append(found, record)
		}
	}
	return found
}

func (d driver) fencing(ctx context.Context, topic string) error {
	records, zombie, err := d.made(ctx, topic, 66)
	if err != nil {
		return err
	}
	if err := errors.Join(zombie.Begin(), zombie.Send(ctx, topic, records[:33])); err != nil {
		return err
	}
	producer, err := d.transactions(ctx, topic) // aborts the zombie's transaction
	if err != nil {
		return err
	}
	if err := errors.Join(written(ctx, producer, topic, records[33:], true), producer.Close()); err != nil {
		return err
	}
	if zombie.End(ctx, true) == nil {
		return errors.New("a producer that was fenced commits")
	}
	zombie.Close()
	return d.readWith(ctx, topic, records[33:], committed)
}

func (d driver) readWith(ctx context.Context, topic string, expected []Record, how Fetching) error {
	consumer, err := d.OpenConsumer(ctx, topic, partitions, how)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	defer consumer.Close()
	read, err := take(ctx, consumer, len(expected))
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return inOrder(read, expected)
}

// inOrder: these are the expected records, in the order of each partition; their offsets have gaps, where markers and aborted records are.
func inOrder(read, expected []Record) error {
	wanted := map[int32][]Record{}
	for _, record := range expected {
		wanted[record.Partition] = append(wanted[record.Partition], record)
	}
	for _, record := range read {
		here := wanted[record.Partition]
		if len(here) == 0 {
			return fmt.Errorf("%v is unexpected", record.place())
		}
		want := here[0]
		wanted[record.Partition] = here[1:]
		if record.Timestamp != want.Timestamp || !bytes.Equal(record.Value, want.Value) || !bytes.Equal(record.Key, want.Key) {
			return fmt.Errorf("%v has another timestamp, key or value", record.place())
		}
	}
	for partition, left := range wanted {
		if len(left) > 0 {
			return fmt.Errorf("%d records of partition %d were not read", len(left), partition)
		}
	}
	return nil
}
