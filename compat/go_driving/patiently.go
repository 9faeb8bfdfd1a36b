package driving

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const retrying = 30 * time.Second

// patiently retries a request of an admin client while leaders and coordinators move: these clients use their cached metadata, and leave
// retries to the application. It returns the last error when they last longer than that.
func patiently(ctx context.Context, step func() error) error {
	var problem error
	limited, cancel := context.WithTimeout(ctx, retrying)
	defer cancel()
	err := until(limited, "a request of the admin client succeeds", func() (bool, error) {
		problem = step()
		if errors.Is(problem, errLacks) || errors.Is(problem, errFault) {
			return false, problem
		}
		return problem == nil, nil
	})
	if err != nil && problem != nil && !errors.Is(err, problem) {
		return fmt.Errorf("after %v: %w", retrying, problem)
	}
	return err
}

func (d driver) firstAndLast(ctx context.Context, topic string, partition int32) (first, last int64, err error) {
	err = patiently(ctx, func() (err error) {
		first, last, err = d.FirstAndLast(ctx, topic, partition)
		return err
	})
	return first, last, err
}

func (d driver) offsetAt(ctx context.Context, topic string, partition int32, timestamp int64) (offset int64, err error) {
	err = patiently(ctx, func() (err error) {
		offset, err = d.OffsetAt(ctx, topic, partition, timestamp)
		return err
	})
	return offset, err
}
