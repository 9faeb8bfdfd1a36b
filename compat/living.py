"""The features of consumers and producers that stay open during a change, also of leaders."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import groupby

from compat.adapter import COOPERATIVE, EAGER, KEEP, PATIENCE_S, Client, Consumer, Producer, Unsupported, until
from compat.changing import move_leaders, restart_broker
from compat.samples import ANY_TIME, Record, check_records, equal
from compat.simple import ready_topic, until_ready

_SHARED = 4  # partitions of a group's topic
_WAIT_MS = 20_000
_LONGER_WAIT_MS = 60_000
_BEFORE_SENDING_S = 0.3  # time for a fetch to reach the broker and wait there
_PACE_S = 0.02


def _collect(count: int, *consumers: Consumer) -> list[Record]:
    read: list[Record] = []

    def enough() -> bool:
        for consumer in consumers:
            read.extend(consumer.take())
        return len(read) >= count

    until(enough, f"{count} records")
    return read


def _shared_topic(client: Client, topic: str) -> None:
    client.create_shared(topic, _SHARED)
    until_ready(client, topic, _SHARED)


def _until_shared(*members: Consumer) -> None:
    def shared() -> bool:
        owned = [member.assignment() for member in members]
        return all(owned) and sum(map(len, owned)) == _SHARED and set().union(*owned) == set(range(_SHARED))

    try:
        until(shared, f"{len(members)} members share {_SHARED} partitions")
    except AssertionError as problem:
        raise AssertionError(f"{problem}; they have {[sorted(member.assignment()) for member in members]}") from None


def _parted(records: Sequence[Record], parts: int) -> list[Sequence[Record]]:
    size = len(records) // parts
    return [records[size * i:size * (i + 1)] for i in range(parts)]


def _sharing(protocol: str) -> Callable[[Client, str], None]:
    def feature(client: Client, topic: str) -> None:
        _shared_topic(client, topic)
        records = client.records(3 * 5 * _SHARED, _SHARED)
        alone, together, again = _parted(records, 3)
        with ExitStack() as stack:
            producer = stack.enter_context(closing(client.producer(topic)))
            first = stack.enter_context(closing(client.join(topic, topic, protocol=protocol)))
            _until_shared(first)
            producer.send(alone)
            read = _collect(len(alone), first)
            with closing(client.join(topic, topic, protocol=protocol)) as second:
                _until_shared(first, second)
                moved = second.assignment()
                move_leaders(topic)
                producer.send(together)
                read += _collect(len(together), first, second)
            _until_shared(first)
            producer.send(again)
            read += _collect(len(again), first)
            if protocol == COOPERATIVE:
                equal(sorted(first.revoked), sorted(moved), "partitions revoked from the remaining member")
        check_records(read, records)

    return feature


def _static(client: Client, topic: str) -> None:
    _shared_topic(client, topic)
    records = client.records(2 * 5 * _SHARED, _SHARED)
    before, away = _parted(records, 2)
    with ExitStack() as stack:
        producer = stack.enter_context(closing(client.producer(topic)))
        first = stack.enter_context(closing(client.join(topic, topic, instance="one")))
        with closing(client.join(topic, topic, instance="two")) as second:
            _until_shared(first, second)
            producer.send(before)
            read = _collect(len(before), first, second)
            owned, seen = second.assignment(), first.rebalances
        move_leaders(topic)
        producer.send(away)
        second = stack.enter_context(closing(client.join(topic, topic, instance="two")))
        read += _collect(len(away), first, second)
        until(lambda: second.assignment() == owned, f"the returned member has {sorted(owned)} again")
        equal(first.rebalances, seen, "rebalances of the other member")
    check_records(read, records)


def _topic_ids(client: Client, topic: str) -> None:
    client.create_topic(topic, client.partitions, KEEP)
    until_ready(client, topic, client.partitions)
    with ExitStack() as stack:
        producer = stack.enter_context(closing(client.producer(topic)))
        consumer = stack.enter_context(closing(client.consumer(topic)))
        _through(client, producer, consumer, client.records(33))
        old = _topic_id(client, topic)
        equal(_topic_id(client, topic), old, "the id, requested again")
        client.delete_topic(topic)
        until(lambda: _recreated(client, topic), "the topic is recreated")
        until_ready(client, topic, client.partitions)
        # Fewer than before: a consumer that has not noticed the change is past the end.
        again = client.records(12)
        _through(client, producer, consumer, again[:6])
        move_leaders(topic)
        _through(client, producer, consumer, again[6:])
    if old is None:
        raise Unsupported("it does not show topic ids; producer and consumer go on with a recreated topic")
    assert _topic_id(client, topic) != old, "the recreated topic has the id of the old one"


def _recreated(client: Client, topic: str) -> bool:
    """Whether the topic was created. It cannot be while the old one exists, and an open client may create it with a metadata request."""
    try:
        client.create_topic(topic, client.partitions, KEEP)
    except Exception:
        with suppress(Exception):
            client.delete_topic(topic)
        return False
    return True


def _topic_id(client: Client, topic: str) -> str | None:
    try:
        return client.topic_id(topic)
    except Unsupported:
        return None


def _through(client: Client, producer: Producer, consumer: Consumer, records: Sequence[Record]) -> None:
    producer.send(records)
    check_records(_collect(len(records), consumer), records)


def _begin_fetch(address: str, topic: str, wait_ms: int) -> socket.socket:
    """A connection with a Fetch v4 of partition 0, which the broker answers after `wait_ms`: it requires more bytes than there will be."""
    name = topic.encode()
    partitions = struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, 0, 0, 1)
    body = struct.pack(">hhihiiiib", 1, 4, 1, -1, -1, wait_ms, 2**31 - 1, 2**31 - 1, 0) + partitions
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), PATIENCE_S)
    connection.sendall(struct.pack(">i", len(body)) + body)
    return connection


def _is_answered(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def _long_poll(client: Client, topic: str) -> None:
    """If fetches waited in vain, the last record would arrive after several of their waits, which together are longer than another one."""
    ready_topic(client, topic)
    records = client.records(5)
    read = []
    with ExitStack() as stack:
        producer = stack.enter_context(closing(client.producer(topic)))
        producer.send(records[:1])
        consumer = stack.enter_context(closing(client.consumer(topic, max_wait_ms=_WAIT_MS)))
        read += _collect(1, consumer)
        leader = move_leaders(topic) or client.address  # now the topic exists
        waiting = stack.enter_context(_begin_fetch(leader, topic, _LONGER_WAIT_MS))
        for record in records[1:]:
            time.sleep(_BEFORE_SENDING_S)
            producer.send([record])
            read += _collect(1, consumer)
        assert not _is_answered(waiting), f"records arrive only when fetches of {_WAIT_MS} ms end"
    check_records(read, records)


def _reconnect(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(3000)
    with closing(client.join(topic, topic)) as consumer:
        with closing(client.producer(topic, idempotent=True)) as producer:
            producer.send(records[:30])
            read = _collect(30, consumer)
            load = _Load(producer, records[30:])
            try:
                restart_broker(topic)
                load.wait_for(30)
            finally:
                sent = records[:30 + load.stop()]
        until(lambda: _all_read(read, consumer, sent), "all acknowledged records are read")


def _all_read(read: list[Record], consumer: Consumer, sent: Sequence[Record]) -> bool:
    """Check that each partition has the records that were sent to it, in that order, and nothing else.

    A record may occur twice in a row: Kafka can append a record again whose response was lost in a restart.
    """
    read += consumer.take()
    wanted = _contents(sent)
    got = {partition: [content for content, _ in groupby(contents)] for partition, contents in _contents(read, sent).items()}
    for partition, contents in got.items():
        equal(contents, wanted[partition][:len(contents)], f"the records of partition {partition}")
    return got == wanted


def _contents(records: Sequence[Record], like: Sequence[Record] = ()) -> dict[int, list[Record]]:
    """The records of each partition without offsets, and without timestamps where the client cannot set them."""
    chosen = (like or records)[0].timestamp != ANY_TIME
    found: dict[int, list[Record]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record._replace(offset=0, timestamp=record.timestamp if chosen else ANY_TIME))
    return found


class _Load:
    """Sends one record after the other from its own thread."""

    def __init__(self, producer: Producer, records: Sequence[Record]) -> None:
        self._producer = producer
        self._records = records
        self._sent = 0
        self._problem: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for record in self._records:
                if self._stop.wait(_PACE_S):
                    return
                self._producer.send([record])
                self._sent += 1
        except Exception as problem:
            self._problem = problem

    def wait_for(self, more: int) -> None:
        """Wait for `count` more acknowledgements."""
        enough = min(self._sent + more, len(self._records))
        until(lambda: self._sent >= enough or self._problem, "records are acknowledged again")
        if self._problem is not None:
            raise self._problem

    def stop(self) -> int:
        """The number of acknowledged records."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        return self._sent


LIVING: dict[str, Callable[[Client, str], None]] = {
    "eager": _sharing(EAGER), "cooperative": _sharing(COOPERATIVE), "static": _static, "topic_ids": _topic_ids, "long_poll": _long_poll,
    "reconnect": _reconnect,
}
