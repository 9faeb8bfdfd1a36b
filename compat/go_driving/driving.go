// Package driving has the features that compat/README.md lists, written once for the clients that are driven from Go.
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

const patience = 30 * time.Second

// ErrUnsupported is returned by steps that a client has no way to do.
var ErrUnsupported = errors.New("the client has no such thing")

// How records are sent. Codec is one of Kafka's names, Acks "0", "1" or "all".
type How struct {
	Codec      string
	Acks       string
	Idempotent bool
}

// Member is a consumer of a group that lives on.
type Member interface {
	Assignment() []int32
	Close()
}

// Client is what an adapter says of its client.
type Client interface {
	CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error
	Topics(ctx context.Context) ([]string, error)
	// PartitionsWithLeaders is 0 for a topic that is not there.
	PartitionsWithLeaders(ctx context.Context, topic string) (int, error)
	DeleteTopic(ctx context.Context, topic string) error
	Produce(ctx context.Context, topic string, records []Record, how How) error
	// Read reads n records from the first offsets of all partitions on, without a group.
	Read(ctx context.Context, topic string, partitions, n int) ([]Record, error)
	// ReadInGroup: a new member reads n records, commits what it read and leaves.
	ReadInGroup(ctx context.Context, topic, group string, n int) ([]Record, error)
	Join(ctx context.Context, topic, group string) (Member, error)
	FirstAndLast(ctx context.Context, topic string, partition int32) (int64, int64, error)
	OffsetAt(ctx context.Context, topic string, partition int32, timestamp int64) (int64, error)
	DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error
	Config(ctx context.Context, topic, key string) (string, error)
	SetConfig(ctx context.Context, topic, key, value string) error
	Groups(ctx context.Context) ([]string, error)
	GroupState(ctx context.Context, group string) (string, error)
	DeleteGroup(ctx context.Context, group string) error
	// EmptyIsNull: whether the client reads an empty key or value as null.
	EmptyIsNull() bool
}

type feature struct {
	name string
	run  func(driver, context.Context, string) error
}

type driver struct{ Client }

var features = []feature{
	{"topics", driver.topics}, {"none", codec("none")}, {"gzip", codec("gzip")}, {"snappy", codec("snappy")}, {"lz4", codec("lz4")},
	{"zstd", codec("zstd")}, {"acks", driver.acks}, {"idempotence", driver.idempotence}, {"group", driver.group},
	{"eager", driver.rebalance}, {"offsets", driver.offsets}, {"delete_records", driver.deleteRecords}, {"configs", driver.configs},
	{"groups", driver.groups},
}

// Drive runs the features named on the command line (HOST:PORT [FEATURE ...]), or all, and prints a line of JSON for each. `module` is the
// client's Go module, whose version is told.
func Drive(name, module string, open func(address string) (Client, error)) {
	client, err := open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	print(map[string]any{"client": name, "version": version(module)})
	wanted := os.Args[2:]
	for _, f := range features {
		if len(wanted) == 0 || slices.Contains(wanted, f.name) {
			topic := fmt.Sprintf("compat-%s-%s-%d", name, f.name, time.Now().UnixMilli())
			report(f.name, attempt(f, driver{client}, topic))
		}
	}
	for _, unknown := range wanted {
		if !slices.ContainsFunc(features, func(f feature) bool { return f.name == unknown }) {
			report(unknown, ErrUnsupported)
		}
	}
}

func attempt(f feature, d driver, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	return f.run(d, ctx, topic)
}

func report(name string, err error) {
	line := map[string]any{"feature": name, "ok": err == nil, "detail": ""}
	if err != nil {
		line["detail"] = err.Error()
	}
	if errors.Is(err, ErrUnsupported) {
		line["ok"] = nil
	}
	print(line)
}

func print(line map[string]any) {
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

func until(ctx context.Context, what string, condition func() (bool, error)) error {
	deadline := time.Now().Add(patience)
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("after %v still not: %s", patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// either is the error that there was, or else what was wrong without one.
func either(err error, format string, values ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf(format, values...)
}

func (d driver) readyTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	all := map[string]string{"retention.ms": "-1"} // the sample records have old timestamps
	for key, value := range configs {
		all[key] = value
	}
	if err := d.CreateTopic(ctx, topic, partitions, all); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	err := until(ctx, "partitions with leaders", func() (bool, error) {
		found, err := d.PartitionsWithLeaders(ctx, topic)
		return found == partitions, err
	})
	if err != nil {
		return err
	}
	// Kafka tells clients who leads before it has told all leaders.
	return until(ctx, "every leader answers", func() (bool, error) {
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
	return records, d.Produce(ctx, topic, records, how)
}

func (d driver) readBack(ctx context.Context, topic string, expected []Record) error {
	read, err := d.Read(ctx, topic, partitions, len(expected))
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return check(read, expected, d.EmptyIsNull())
}

func codec(name string) func(driver, context.Context, string) error {
	return func(d driver, ctx context.Context, topic string) error {
		records, err := d.sent(ctx, topic, count, How{Codec: name, Acks: "all"})
		if err != nil {
			return err
		}
		return d.readBack(ctx, topic, records)
	}
}

func (d driver) topics(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, 3, map[string]string{"segment.bytes": "1048576"}); err != nil {
		return err
	}
	if there, err := d.listed(ctx, topic); !there || err != nil {
		return either(err, "the topic is not in the list")
	}
	if err := d.expectConfig(ctx, topic, "segment.bytes", "1048576"); err != nil {
		return err
	}
	if err := d.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return until(ctx, "the topic goes", func() (bool, error) {
		there, err := d.listed(ctx, topic)
		return !there, err
	})
}

func (d driver) listed(ctx context.Context, topic string) (bool, error) {
	all, err := d.Topics(ctx)
	return slices.Contains(all, topic), err
}

func (d driver) acks(ctx context.Context, topic string) error {
	records, err := samples(66)
	if err != nil {
		return err
	}
	if err := d.readyTopic(ctx, topic, partitions, nil); err != nil {
		return err
	}
	if err := d.Produce(ctx, topic, records[:33], How{Codec: "none", Acks: "1"}); err != nil {
		return err
	}
	if err := d.Produce(ctx, topic, records[33:], How{Codec: "none", Acks: "0"}); err != nil {
		return err
	}
	return d.readBack(ctx, topic, records)
}

func (d driver) idempotence(ctx context.Context, topic string) error {
	records, err := d.sent(ctx, topic, 3*count, How{Codec: "none", Acks: "all", Idempotent: true})
	if err != nil {
		return err
	}
	return d.readBack(ctx, topic, records)
}

func (d driver) group(ctx context.Context, topic string) error {
	records, err := d.sent(ctx, topic, 99, How{Codec: "none", Acks: "all"})
	if err != nil {
		return err
	}
	first, err := d.ReadInGroup(ctx, topic, topic, 40)
	if err != nil {
		return fmt.Errorf("first member: %w", err)
	}
	second, err := d.ReadInGroup(ctx, topic, topic, len(records)-40)
	if err != nil {
		return fmt.Errorf("second member: %w", err)
	}
	return check(append(first, second...), records, d.EmptyIsNull())
}

func (d driver) rebalance(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, 4, nil); err != nil {
		return err
	}
	first, err := d.Join(ctx, topic, topic)
	if err != nil {
		return err
	}
	defer first.Close()
	second, err := d.Join(ctx, topic, topic)
	if err != nil {
		return err
	}
	err = untilShared(ctx, first, second)
	second.Close()
	if err != nil {
		return err
	}
	return untilShared(ctx, first)
}

func untilShared(ctx context.Context, members ...Member) error {
	return until(ctx, fmt.Sprintf("%d members share four partitions", len(members)), func() (bool, error) {
		var owned []int32
		for _, member := range members {
			mine := member.Assignment()
			if len(mine) == 0 {
				return false, nil
			}
			owned = append(owned, mine...)
		}
		slices.Sort(owned)
		return slices.Equal(owned, []int32{0, 1, 2, 3}), nil
	})
}

func (d driver) offsets(ctx context.Context, topic string) error {
	if _, err := d.sent(ctx, topic, 99, How{Codec: "none", Acks: "all"}); err != nil {
		return err
	}
	first, last, err := d.FirstAndLast(ctx, topic, 0)
	if err != nil || first != 0 || last != 33 {
		return either(err, "first and last are %d and %d", first, last)
	}
	tenth := baseTimestamp + 10*partitions*stepMs
	for timestamp, want := range map[int64]int64{tenth: 10, tenth + 1: 11} {
		if at, err := d.OffsetAt(ctx, topic, 0, timestamp); err != nil || at != want {
			return either(err, "at %d is %d, not %d", timestamp, at, want)
		}
	}
	return nil
}

func (d driver) deleteRecords(ctx context.Context, topic string) error {
	records, err := d.sent(ctx, topic, 99, How{Codec: "none", Acks: "all"})
	if err != nil {
		return err
	}
	if err := d.DeleteRecords(ctx, topic, 0, 20); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	left := slices.DeleteFunc(records, func(r Record) bool { return r.Partition == 0 && r.Offset < 20 })
	return d.readBack(ctx, topic, left)
}

func (d driver) configs(ctx context.Context, topic string) error {
	const key = "max.message.bytes"
	if err := d.readyTopic(ctx, topic, partitions, map[string]string{key: "500000"}); err != nil {
		return err
	}
	for _, entry := range [][2]string{{key, "500000"}, {"cleanup.policy", "delete"}} {
		if err := d.expectConfig(ctx, topic, entry[0], entry[1]); err != nil {
			return err
		}
	}
	if err := d.SetConfig(ctx, topic, key, "600000"); err != nil {
		return fmt.Errorf("alter: %w", err)
	}
	return until(ctx, "the changed config", func() (bool, error) {
		value, err := d.Config(ctx, topic, key)
		return value == "600000", err
	})
}

func (d driver) expectConfig(ctx context.Context, topic, key, want string) error {
	if value, err := d.Config(ctx, topic, key); err != nil || value != want {
		return either(err, "%s is %q, not %q", key, value, want)
	}
	return nil
}

func (d driver) groups(ctx context.Context, topic string) error {
	if _, err := d.sent(ctx, topic, 9, How{Codec: "none", Acks: "all"}); err != nil {
		return err
	}
	if _, err := d.ReadInGroup(ctx, topic, topic, 9); err != nil {
		return err
	}
	listed := func() (bool, error) {
		all, err := d.Groups(ctx)
		return slices.Contains(all, topic), err
	}
	if there, err := listed(); !there || err != nil {
		return either(err, "the group is not in the list")
	}
	err := until(ctx, "the group is empty", func() (bool, error) {
		state, err := d.GroupState(ctx, topic)
		return strings.EqualFold(state, "empty"), err
	})
	if err != nil {
		return err
	}
	if err := d.DeleteGroup(ctx, topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return until(ctx, "the group goes", func() (bool, error) {
		there, err := listed()
		return !there, err
	})
}
