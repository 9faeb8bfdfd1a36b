"""Histories without anomalies: clients on a model of the brokers, which chance decides."""

from __future__ import annotations

from random import Random

from simulation.histories import Assign, Commit, Complete, End, FetchedCommit, Operation, Outcome, Poll, Send

TOPIC = "t"
PARTITIONS = 2
MARKER = ""


class Consumer:
    """Reads all partitions from the start."""

    def __init__(self, name: str, read_committed: bool) -> None:
        self.name, self.read_committed = name, read_committed
        self.next = [0] * PARTITIONS


class ModelRun:
    """Two producers, one of them with transactions, two consumers, and a group. `operations` is the history so far."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.operations: list[Operation] = []
        self.logs: list[list[tuple[str, str | None]]] = [[] for _ in range(PARTITIONS)]  # (value or MARKER, its transaction)
        self.ended: dict[str, bool] = {}  # transaction -> whether it was committed
        self.stored = -1  # the group's offset
        self.consumers = [Consumer("every", False), Consumer("committed", True)]
        self._open: str | None = None
        self._now = 0
        self._number = 0
        for consumer in self.consumers:
            self._assign(consumer)

    def step(self) -> None:
        """One operation."""
        steps = (self._send, self._send, self._send_in_transaction, self._end, self._poll, self._poll, self._commit, self._fetch)
        self.chance.choice(steps)()

    def finish(self) -> list[Operation]:
        """End the transaction, and read everything; the history."""
        self._end()
        for read_committed in (False, True):
            fresh = Consumer(f"final-{read_committed}", read_committed)
            self._assign(fresh)
            began = self._time()
            for partition, log in enumerate(self.logs):
                while fresh.next[partition] < len(log):
                    self._read(fresh, partition)
                self.operations.append(Complete((fresh.name,), TOPIC, partition, began, read_committed))
        return self.operations

    def _time(self) -> int:
        self._now += 1
        return self._now

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _assign(self, consumer: Consumer) -> None:
        self.operations += [Assign(consumer.name, self._next(), TOPIC, partition, 0) for partition in range(PARTITIONS)]

    def _send(self, client: str = "plain", transaction: str | None = None) -> None:
        number, began, partition = self._next(), self._time(), self.chance.randrange(PARTITIONS)
        outcome = self.chance.choice((Outcome.OK, Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.FAILED))
        log = self.logs[partition]
        value, offset = f"{client}-{number}", -1
        if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and self.chance.random() < 0.5):
            log.append((value, transaction))
            offset = len(log) - 1 if outcome is Outcome.OK and self.chance.random() < 0.8 else -1
        self.operations.append(
            Send(client, number, TOPIC, partition, value, began, self._time(), outcome, offset, transaction=transaction))

    def _send_in_transaction(self) -> None:
        self._open = self._open or f"transaction-{self._next()}"
        self._send("transactional", self._open)

    def _end(self) -> None:
        if self._open is None:
            return
        number, began, asked = self._next(), self._time(), self.chance.random() < 0.7
        outcome = self.chance.choice((Outcome.OK, Outcome.UNKNOWN))
        done = asked and (outcome is Outcome.OK or self.chance.random() < 0.5)
        for log in self.logs:
            if any(transaction == self._open for _, transaction in log):
                log.append((MARKER, None))
        self.ended[self._open] = done
        self.operations.append(End("transactional", number, self._open, asked, began, self._time(), outcome))
        self._open = None

    def _poll(self) -> None:
        self._read(self.chance.choice(self.consumers), self.chance.randrange(PARTITIONS))

    def _read(self, consumer: Consumer, partition: int) -> None:
        number, began, log = self._next(), self._time(), self.logs[partition]
        start = consumer.next[partition]
        records = []
        for offset in range(start, min(len(log), start + self.chance.randint(1, 5))):
            value, transaction = log[offset]
            if consumer.read_committed and transaction is not None and transaction == self._open:
                break  # the last stable offset
            consumer.next[partition] = offset + 1
            aborted = transaction is not None and not self.ended.get(transaction, False)
            if value != MARKER and not (consumer.read_committed and aborted):
                records.append((offset, value))
        self.operations.append(
            Poll(consumer.name, number, TOPIC, partition, tuple(records), began, self._time(), consumer.read_committed))

    def _commit(self) -> None:
        number, began, offset = self._next(), self._time(), self.chance.randrange(5)
        outcome = self.chance.choice((Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.FAILED))
        if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and self.chance.random() < 0.5):
            self.stored = offset
        self.operations.append(Commit("member", number, "g", TOPIC, 0, offset, began, self._time(), outcome))

    def _fetch(self) -> None:
        number, began = self._next(), self._time()
        self.operations.append(FetchedCommit("member", number, "g", TOPIC, 0, self.stored, began, self._time()))
