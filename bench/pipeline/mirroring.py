"""The mirror beside MirrorMaker 2: both copy the same topic from the same source to the same target, in turn.

The second half of the records is measured, so that a JVM has compiled its code by then: rates, and CPU of the copying process from /proc.
"""

from __future__ import annotations

import itertools
import random
import string
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.brokers import KAFKA, TXBROKER, make
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.pipeline.copiers import Copier, MirrorMaker, TxbrokerMirror
from bench.process_tree import cpu_seconds, rss_mb
from bench.requests import FIRST_TIMESTAMP, LATEST, BrokerClient, Refused, offset_at
from bench.turns import in_turn
from tests.support.server import Server
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build

RECORDS = 1_500_000
PARTITIONS = 6
VALUE_BYTES = 1000
RECORD_BYTES = 1012  # with the key
DISTINCT_BATCHES = 16
TOPIC = "copied"
POLL_S = 0.01
WAIT_S = 600.0
TICK_S = 0.01  # of the times in /proc
FIGURES = (
    Figure("MB/s a core", "MB/s", target=3.0),
    Figure("MB/s", "MB/s"),
    Figure("CPU per GB", "s", less=True, digits=2),
    Figure("start", "s", less=True, digits=1),
    Figure("memory", "MB", less=True),
)


class Case(NamedTuple):
    """Both sides are this kind of broker; records in a batch of the source, and their codec."""

    broker: str
    codec: Codec
    batch_records: int


CASES = (
    Case(KAFKA, Codec.NONE, 128),
    Case(KAFKA, Codec.NONE, 16),
    Case(KAFKA, Codec.LZ4, 128),
    Case(TXBROKER, Codec.NONE, 128),
)
WORKS = {
    case: Work(
        f"mirror-{case.broker}-{case.codec.name.lower()}-{case.batch_records}",
        f"{RECORDS / 1e6:.1f} million records of 1 KB in {PARTITIONS} partitions, in batches of {case.batch_records}, "
        f"{'uncompressed' if case.codec is Codec.NONE else case.codec.name.lower()}; "
        f"source and target are {'txbroker' if case.broker == TXBROKER else 'Apache Kafka'}",
        FIGURES,
    )
    for case in CASES
}  # fmt: skip


class Pair(NamedTuple):
    """Two clusters of one broker each."""

    source: Server
    target: Server


def copies(settings: Settings, directory: Path) -> Iterator[Outcome]:
    """Copies by both programs, in turn. A short run (`scale` below 1) has the last case only."""
    for case in CASES[-1 if settings.scale < 1 else 0 :]:
        yield _compared(case, settings, directory / WORKS[case].name)


def _compared(case: Case, settings: Settings, directory: Path) -> Outcome:
    outcome = Outcome(WORKS[case])
    with pair(case.broker, directory) as (source, target):
        records = fill(source, case, int(RECORDS * settings.scale))
        numbers = itertools.count(1)

        def ours() -> Sample:
            return measure(TxbrokerMirror(source, target, TOPIC, directory / f"mirror{next(numbers)}"), target, records)

        def theirs() -> Sample:
            codec = case.codec.name.lower()
            return measure(MirrorMaker(source, target, TOPIC, codec, directory / f"maker{next(numbers)}"), target, records)

        in_turn(outcome, {TXBROKER: ours, KAFKA: theirs}, settings.rounds, [source.pid, target.pid])
    return outcome


@contextmanager
def pair(broker: str, directory: Path) -> Iterator[Pair]:
    """Start two brokers."""
    found = Pair(make(broker, directory / "source"), make(broker, directory / "target"))
    with ExitStack() as stack:
        for server in found:
            stack.callback(server.close)
            server.start()
        yield found


def batches(codec: Codec, records: int) -> list[bytes]:
    """Some batches of records that look like text."""
    chance = random.Random(1)
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(2000)]

    def value() -> bytes:
        return " ".join(chance.choices(words, k=VALUE_BYTES // 3)).encode()[:VALUE_BYTES]

    return [
        build([Record(n, FIRST_TIMESTAMP + n, b"key-%08d" % chance.randrange(10**8), value()) for n in range(records)], codec=codec)
        for _ in range(DISTINCT_BATCHES)
    ]


def fill(source: Server, case: Case, records: int) -> int:
    """Make the topic; the number of its records."""
    some = batches(case.codec, case.batch_records)
    count = max(records // PARTITIONS // case.batch_records, 1)
    with BrokerClient(source.address) as client:
        topic_id = client.create_topic(TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            client.append(topic_id, partition, (some[number % len(some)] for number in range(count)))
        return copied(client, TOPIC)


def copied(client: BrokerClient, topic: str) -> int:
    """The sum of the end offsets; 0 while there is no such topic."""
    found = client.call(offset_at(topic, dict.fromkeys(range(PARTITIONS), LATEST))).topics[0].partitions
    return sum(max(one.offset, 0) for one in found if not one.error_code)


class Mark(NamedTuple):
    """A moment of a run: seconds of the monotonic clock, CPU seconds of the process, and records in the target."""

    at_s: float
    cpu_s: float
    records: int


def measure(copier: Copier, target: Server, records: int) -> Sample:
    """Copy the topic; the figures of the second half."""
    with BrokerClient(target.address) as client:
        begun_s = time.monotonic()
        copier.start()
        try:
            (first, half, end) = marks(copier, client, [1, records // 2, records])
            memory_mb = rss_mb(copier.pid)
        finally:
            copier.stop()
        if copied(client, copier.copy) != records:
            raise Refused(f"{copier.copy} has {copied(client, copier.copy)} records instead of {records}")
        client.delete_topic(copier.copy)
    # A short run can end before the second half was seen to begin.
    size_mb = max(end.records - half.records, 1) * RECORD_BYTES / 1e6
    cpu_s = max(end.cpu_s - half.cpu_s, TICK_S)
    return {
        "MB/s a core": size_mb / cpu_s,
        "MB/s": size_mb / max(end.at_s - half.at_s, TICK_S),
        "CPU per GB": cpu_s / size_mb * 1e3,
        "start": first.at_s - begun_s,
        "memory": memory_mb,
    }


def marks(copier: Copier, client: BrokerClient, wanted: Sequence[int]) -> Iterator[Mark]:
    """The moments at which the target has so many records."""
    deadline_s = time.monotonic() + WAIT_S
    for count in wanted:
        while (there := copied(client, copier.copy)) < count:
            if not copier.running or time.monotonic() > deadline_s:
                raise Refused(f"{there} of {count} records are copied, and no more:\n{copier.log_tail()}")
            time.sleep(POLL_S)
        yield Mark(time.monotonic(), cpu_seconds(copier.pid), there)
