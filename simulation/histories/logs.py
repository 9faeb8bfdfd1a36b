"""What may be in a log at all: one value at an offset, one offset of a value, and nothing that failed."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.histories.anomaly import Anomaly
from simulation.histories.index import History, Partition
from simulation.histories.operations import Outcome, Poll, Send


def check(history: History) -> Iterator[Anomaly]:
    """inconsistent-offsets, duplicate, unexpected, G1a, precommitted-read."""
    for of, log in history.logs.items():
        name = f"{of[0]}-{of[1]}"
        for offset in log.others:
            yield Anomaly("inconsistent-offsets", name, f"offset {offset} had {' and '.join(sorted(log.values_at(offset)))}")
        for value, offsets in log.repeats.items():
            send = history.sends.get(value)
            if send is not None and send.exact:
                every = sorted({log.offsets[value], *offsets})
                yield Anomaly("duplicate", name, f"{value} is at the offsets {', '.join(map(str, every))}")
        for value in log.polled:
            send = history.sends.get(value)
            if send is None:
                yield Anomaly("unexpected", name, f"{value!r} at offset {log.offsets[value]} was not sent by a client")
            elif (send.topic, send.partition) != of:
                yield Anomaly("unexpected", name, f"{value} at offset {log.offsets[value]} was sent to {send.topic}-{send.partition}")
            elif send.outcome is Outcome.FAILED:
                yield Anomaly("G1a", name, f"{value}, which failed, was received at offset {log.offsets[value]}")
        if any(value in history.sends and history.sends[value].transaction is not None for value in log.polled_committed):
            yield from _uncommitted(history, of, name)


def _uncommitted(history: History, of: Partition, name: str) -> Iterator[Anomaly]:
    for poll in history.polls[of]:
        if poll.read_committed:
            for offset, value in poll.records:
                send = history.sends.get(value)
                if send is not None and send.transaction is not None and send.outcome is not Outcome.FAILED:
                    yield from _read_before_commit(history, poll, offset, send, name)


def _read_before_commit(history: History, poll: Poll, offset: int, send: Send, name: str) -> Iterator[Anomaly]:
    assert send.transaction is not None
    end = history.ends.get(send.transaction)
    if end is None:
        yield Anomaly("precommitted-read", name, f"{poll.client} received {send.value} at offset {offset}, "
                                                 f"and transaction {send.transaction} never ended")
    elif history.outcome(send) is Outcome.FAILED:
        yield Anomaly("G1a", name, f"{poll.client} received {send.value} at offset {offset}, "
                                   f"and transaction {send.transaction} was not committed")
    elif poll.ended < end.began:
        yield Anomaly("precommitted-read", name, f"{poll.client} received {send.value} at offset {offset} at {poll.ended}, "
                                                 f"and transaction {send.transaction} was asked to commit at {end.began}")
