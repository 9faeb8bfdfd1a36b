package driving

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	errLacks = errors.New("the client lacks this feature")
	errFault = errors.New("the client is faulty")
)

// Lacks is the error of a step for which a client has no API; `what` says which one is missing.
func Lacks(what string) error { return outcome{errLacks, what} }

// Fault is the error of a step that the client does wrong, whatever the broker answers.
func Fault(what string) error { return outcome{errFault, what} }

// outcome is one of the two kinds above; its text does not show which.
type outcome struct {
	kind error
	what string
}

func (t outcome) Error() string { return t.what }
func (t outcome) Unwrap() error { return t.kind }

// How records are sent. Codec is one of Kafka's names, Acks "0", "1" or "all".
type How struct {
	Codec      string
	Acks       string
	Idempotent bool
	BatchBytes int // the largest batch
}

// Fetching has the settings of a consumer's fetches.
type Fetching struct {
	MaxWait  time.Duration
	MaxBytes int // of a partition
	// Committed: isolation level read_committed.
	Committed bool
}

// Membership has the group settings of a consumer.
type Membership struct {
	Group       string
	Cooperative bool   // cooperative-sticky, else range
	Instance    string // group.instance.id, or none
}

// Producer is open until it is closed.
type Producer interface {
	// Send returns when all records are acknowledged or, with acks "0", sent.
	Send(ctx context.Context, topic string, records []Record) error
	// Renew: the topic was recreated. Some clients have to be notified.
	Renew(topic string)
	Close() error
}

// Consumer is the common part of both kinds.
type Consumer interface {
	// Next waits for some records.
	Next(ctx context.Context) ([]Record, error)
	Close()
}

// FreeConsumer reads without a group.
type FreeConsumer interface {
	Consumer
	// Renew: the topic was recreated, and is read from its first offsets on.
	Renew() error
}

// Member is a consumer in a group.
type Member interface {
	Consumer // Close leaves the group, unless the member is static
	Commit(ctx context.Context, read []Record) error
	Assignment() []int32
	// Revoked are the partitions revoked so far, in that order.
	Revoked() []int32
	// Rebalances is the number of assignments.
	Rebalances() int
}

// GroupDescription is an admin client's description of a group; State has Kafka's names.
type GroupDescription struct {
	State   string
	Members int
}

// Client is the interface of an adapter.
type Client interface {
	CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error
	Topics(ctx context.Context) ([]string, error)
	// PartitionsWithLeaders is 0 for a topic that does not exist.
	PartitionsWithLeaders(ctx context.Context, topic string) (int, error)
	AddPartitions(ctx context.Context, topic string, total int) error
	// TopicID in the client's notation.
	TopicID(ctx context.Context, topic string) (string, error)
	DeleteTopic(ctx context.Context, topic string) error
	OpenProducer(ctx context.Context, how How) (Producer, error)
	// OpenConsumer begins at the first offsets of all partitions.
	OpenConsumer(ctx context.Context, topic string, partitions int, how Fetching) (FreeConsumer, error)
	Join(ctx context.Context, topic string, as Membership) (Member, error)
	FirstAndLast(ctx context.Context, topic string, partition int32) (int64, int64, error)
	OffsetAt(ctx context.Context, topic string, partition int32, timestamp int64) (int64, error)
	DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error
	Config(ctx context.Context, topic, key string) (string, error)
	// SetConfig changes one key only; nil resets it to the default.
	SetConfig(ctx context.Context, topic, key string, value *string) error
	Groups(ctx context.Context) ([]string, error)
	Group(ctx context.Context, group string) (GroupDescription, error)
	DeleteGroup(ctx context.Context, group string) error
	// SetGroupOffsets of a group without members.
	SetGroupOffsets(ctx context.Context, group, topic string, offsets map[int32]int64) error
	// EmptyIsNull: whether the client reads an empty key or value as null.
	EmptyIsNull() bool
}

// either is the error if there was one, or the given problem.
func either(err error, format string, values ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf(format, values...)
}

// until waits for a condition as long as its feature has time.
func until(ctx context.Context, what string, condition func() (bool, error)) error {
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not in time: %s", what)
		}
	}
}
