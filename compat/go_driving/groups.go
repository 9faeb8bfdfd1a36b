package driving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

const shared = 4 // partitions that members share

// readInGroup: a new member reads n records, commits them and leaves.
func (d driver) readInGroup(ctx context.Context, topic, group string, n int) ([]Record, error) {
	member, err := d.Join(ctx, topic, Membership{Group: group})
	if err != nil {
		return nil, err
	}
	defer member.Close()
	read, err := take(ctx, member, n)
	if err != nil {
		return nil, err
	}
	read = read[:n]
	if err := member.Commit(ctx, read); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return read, nil
}

func (d driver) group(ctx context.Context, topic string) error {
	records, err := d.sent(ctx, topic, 99, plain)
	if err != nil {
		return err
	}
	first, err := d.readInGroup(ctx, topic, topic, 40)
	if err != nil {
		return fmt.Errorf("first member: %w", err)
	}
	if err := moved(ctx, topic); err != nil {
		return err
	}
	second, err := d.readInGroup(ctx, topic, topic, len(records)-40)
	if err != nil {
		return fmt.Errorf("second member: %w", err)
	}
	return check(append(first, second...), records, d.EmptyIsNull())
}

func (d driver) reset(ctx context.Context, topic string) error {
	records, err := d.sent(ctx, topic, 99, plain)
	if err != nil {
		return err
	}
	if _, err := d.readInGroup(ctx, topic, topic, 99); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	for _, to := range []map[int32]int64{{0: 0, 1: 0, 2: 0}, {0: 20, 1: 30, 2: 33}} {
		if err := d.emptied(ctx, topic); err != nil {
			return err
		}
		if err := moved(ctx, topic); err != nil {
			return err
		}
		if err := patiently(ctx, func() error { return d.SetGroupOffsets(ctx, topic, topic, to) }); err != nil {
			return fmt.Errorf("reset to %v: %w", to, err)
		}
		var expected []Record
		for _, record := range records {
			if record.Offset >= to[record.Partition] {
				expected = append(expected, record)
			}
		}
		read, err := d.readInGroup(ctx, topic, topic, len(expected))
		if err != nil {
			return fmt.Errorf("reset to %v: %w", to, err)
		}
		if err := check(read, expected, d.EmptyIsNull()); err != nil {
			return fmt.Errorf("reset to %v: %w", to, err)
		}
	}
	return nil
}

// emptied waits until a group has no members.
func (d driver) emptied(ctx context.Context, group string) error {
	return until(ctx, "the group is empty", func() (bool, error) {
		var described GroupDescription
		err := patiently(ctx, func() (err error) {
			described, err = d.Group(ctx, group)
			return err
		})
		return strings.EqualFold(described.State, "empty") && described.Members == 0, err
	})
}

func (d driver) groups(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, shared, nil); err != nil {
		return err
	}
	member, err := d.attend(ctx, topic, Membership{Group: topic})
	if err != nil {
		return err
	}
	defer member.end()
	if err := untilShared(ctx, member); err != nil {
		return err
	}
	listed := func() (bool, error) {
		var all []string
		err := patiently(ctx, func() (err error) {
			all, err = d.Groups(ctx)
			return err
		})
		return slices.Contains(all, topic), err
	}
	if there, err := listed(); !there || err != nil {
		return either(err, "the group is not in the list")
	}
	if described, err := d.Group(ctx, topic); err != nil || described != (GroupDescription{"Stable", 1}) {
		return either(err, "the group is %v", described)
	}
	member.end()
	if err := moved(ctx, topic); err != nil {
		return err
	}
	if err := d.emptied(ctx, topic); err != nil {
		return err
	}
	if err := patiently(ctx, func() error { return d.DeleteGroup(ctx, topic) }); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return until(ctx, "the group is deleted", func() (bool, error) {
		there, err := listed()
		return !there, err
	})
}

func (d driver) eager(ctx context.Context, topic string) error {
	return d.rebalanced(ctx, topic, Membership{Group: topic}, func(first, _ []int32) error {
		if len(first) == 0 {
			return errors.New("nothing was revoked from the member that remained")
		}
		return nil
	})
}

// cooperative: partitions that remain with a member are never revoked.
func (d driver) cooperative(ctx context.Context, topic string) error {
	return d.rebalanced(ctx, topic, Membership{Group: topic, Cooperative: true}, func(first, given []int32) error {
		slices.Sort(given)
		if slices.Sort(first); !slices.Equal(first, given) {
			return fmt.Errorf("%v moved, but %v were revoked", given, first)
		}
		return nil
	})
}

// rebalanced: two members share four partitions, then one leaves and the other gets all; nothing is lost or read twice. `judge` gets the partitions revoked
// from the first member, and those of the second.
func (d driver) rebalanced(ctx context.Context, topic string, as Membership, judge func(first, given []int32) error) error {
	if err := d.readyTopic(ctx, topic, shared, nil); err != nil {
		return err
	}
	first, err := d.attend(ctx, topic, as)
	if err != nil {
		return err
	}
	defer first.end()
	if err := untilShared(ctx, first); err != nil {
		return err
	}
	if err := d.burst(ctx, topic, 0); err != nil {
		return err
	}
	if err := untilRead(ctx, 1, first); err != nil {
		return err
	}
	second, err := d.attend(ctx, topic, as)
	if err != nil {
		return err
	}
	defer second.end()
	if err := untilShared(ctx, first, second); err != nil {
		return err
	}
	given := second.Assignment()
	if err := moved(ctx, topic); err != nil {
		return err
	}
	if err := d.burst(ctx, topic, 1); err != nil {
		return err
	}
	if err := untilRead(ctx, 2, first, second); err != nil {
		return err
	}
	second.end()
	if err := untilShared(ctx, first); err != nil {
		return err
	}
	if err := d.burst(ctx, topic, 2); err != nil {
		return err
	}
	if err := untilRead(ctx, 3, first, second); err != nil {
		return err
	}
	return judge(first.Revoked(), given)
}

// static: a member that returns gets its partitions back, and the other sees no rebalance.
func (d driver) static(ctx context.Context, topic string) error {
	if err := d.readyTopic(ctx, topic, shared, nil); err != nil {
		return err
	}
	var members []*attendee
	for _, instance := range []string{"one", "two"} {
		member, err := d.attend(ctx, topic, Membership{Group: topic, Instance: instance})
		if err != nil {
			return err
		}
		defer member.end()
		members = append(members, member)
	}
	if err := untilShared(ctx, members...); err != nil {
		return err
	}
	all := slices.Clone(members)
	for i, instance := range []string{"one", "two"} {
		leaver, stayer := members[i], members[1-i]
		had, before := leaver.Assignment(), stayer.Rebalances()
		leaver.end()
		if err := moved(ctx, topic); err != nil {
			return err
		}
		back, err := d.attend(ctx, topic, Membership{Group: topic, Instance: instance})
		if err != nil {
			return err
		}
		defer back.end()
		all = append(all, back)
		members[i] = back
		if err := untilShared(ctx, members...); err != nil {
			return fmt.Errorf("%s returned: %w", instance, err)
		}
		if has := back.Assignment(); !slices.Equal(has, had) {
			return fmt.Errorf("%s had %v and has %v", instance, had, has)
		}
		// Both continue; by then a rebalance would have been noticed.
		if err := d.burst(ctx, topic, i); err != nil {
			return err
		}
		if err := untilRead(ctx, i+1, all...); err != nil {
			return err
		}
		if now := stayer.Rebalances(); now != before {
			return fmt.Errorf("when %s returned, the other was rebalanced %d times", instance, now-before)
		}
	}
	return nil
}

const burstSize = 5 // records to each shared partition

// burst sends the n-th few records to each partition.
func (d driver) burst(ctx context.Context, topic string, n int) error {
	var records []Record
	for partition := range int32(shared) {
		for i := range burstSize {
			offset := int64(n*burstSize + i)
			records = append(records, Record{Partition: partition, Offset: offset, Timestamp: baseTimestamp, Value: bursting(partition, offset)})
		}
	}
	return d.send(ctx, topic, records, plain)
}

func bursting(partition int32, offset int64) []byte {
	return fmt.Appendf(nil, "record %d of partition %d", offset, partition)
}

// attendee is a member that reads and commits continuously.
type attendee struct {
	Member
	lock    sync.Mutex
	read    map[place]string
	problem error
	cancel  context.CancelFunc
	ended   chan struct{}
	once    sync.Once
}

func (d driver) attend(ctx context.Context, topic string, as Membership) (*attendee, error) {
	member, err := d.Join(ctx, topic, as)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	made := &attendee{Member: member, read: map[place]string{}, cancel: cancel, ended: make(chan struct{})}
	go made.goOn(ctx)
	return made, nil
}

func (a *attendee) goOn(ctx context.Context) {
	defer close(a.ended)
	for {
		some, err := a.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil && len(some) > 0 {
			// Some clients leave retries to the application, for example when the coordinator has moved.
			err = patiently(ctx, func() error { return a.Commit(ctx, some) })
		}
		a.note(some, err)
		if err != nil {
			return
		}
	}
}

// note what is read and committed. Records arrive and are committed while there is no rebalance, so none may arrive twice, unless the
// coordinator moves.
func (a *attendee) note(some []Record, err error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, record := range some {
		if _, twice := a.read[record.place()]; twice && !coordinatorsMove {
			err = errors.Join(err, fmt.Errorf("%v arrived twice", record.place()))
		}
		a.read[record.place()] = string(record.Value)
	}
	a.problem = errors.Join(a.problem, err)
}

// end the member: it leaves the group, unless it is static.
func (a *attendee) end() {
	a.once.Do(func() {
		a.cancel()
		<-a.ended
		a.Close()
	})
}

// Assignment in order.
func (a *attendee) Assignment() []int32 { return slices.Sorted(slices.Values(a.Member.Assignment())) }

func untilShared(ctx context.Context, members ...*attendee) error {
	return until(ctx, fmt.Sprintf("%d members share four partitions", len(members)), func() (bool, error) {
		var owned []int32
		for _, member := range members {
			mine := member.Assignment()
			if len(mine) == 0 {
				return false, member.failed()
			}
			owned = append(owned, mine...)
		}
		slices.Sort(owned)
		return slices.Equal(owned, []int32{0, 1, 2, 3}), nil
	})
}

func (a *attendee) failed() error {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.problem
}

// untilRead waits until the members together have read that many bursts.
func untilRead(ctx context.Context, bursts int, members ...*attendee) error {
	return until(ctx, fmt.Sprintf("%d bursts are read", bursts), func() (_ bool, err error) {
		read := map[place]string{}
		for _, member := range members {
			if err := member.failed(); err != nil {
				return false, err
			}
			member.lock.Lock()
			for where, value := range member.read {
				if _, twice := read[where]; twice && !coordinatorsMove {
					err = fmt.Errorf("%v arrived at two members", where)
				}
				read[where] = value
			}
			member.lock.Unlock()
		}
		for where, value := range read {
			if value != string(bursting(where.partition, where.offset)) {
				return false, fmt.Errorf("%v is %q", where, value)
			}
		}
		return len(read) == bursts*burstSize*shared, err
	})
}
