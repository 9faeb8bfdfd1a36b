package driving

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

var (
	answers     = bufio.NewReader(os.Stdin)
	errNoAnswer = errors.New("a requested change of the brokers was not confirmed")
	// coordinatorsMove: there are several brokers. Some clients then join their group again, and read again what they had not committed.
	coordinatorsMove = len(os.Args) > 1 && strings.Contains(os.Args[1], ",")
)

// restarted: the broker was restarted; of several brokers, the leader of the topic's first partition after kill -9.
func restarted(ctx context.Context, topic string) error {
	err := requested(ctx, map[string]any{"restart": topic})
	if errors.Is(err, io.EOF) {
		return Lacks("the broker cannot be restarted here")
	}
	return err
}

// moved: the leaders of the topic, and of internal topics, are other brokers, if there are several.
func moved(ctx context.Context, topic string) error {
	err := requested(ctx, map[string]any{"move": topic})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// requested asks the process that runs the driver with a line, and waits for its answer.
func requested(ctx context.Context, line map[string]any) error {
	say(line)
	answer := make(chan error, 1)
	go func() {
		_, err := answers.ReadString('\n')
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return errNoAnswer
	}
}
