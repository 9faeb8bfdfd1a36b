"""The rounds of a crash test: load, kill, damage, start, compare; after some rounds Apache Kafka's dump tool reads the files."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Timer
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from tests.crash.damage import Damage, damage
from tests.crash.ledger import Lost, OffsetLedger, PartitionLedger, Settled, TopicsLedger
from tests.crash.load import Administrator, Committer, IdempotentProducer, Ledgers, PlainProducer, RealProducer, Worker
from tests.support.broker import BrokerProcess
from tests.support.dump import dump_directory
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, find_coordinator, until_leaders
from tests.support.raw_log import fetch_request, fetched
from tests.support.server import ServerFailed
from tests.support.waiting import PATIENCE_S

PARTITIONS = 3
# Small segments and indexes, and frequent checkpoints, so that recovery has as much to do as after long real load.
OVERRIDES = {
    "log.segment.bytes": "262144",
    "log.index.interval.bytes": "512",
    "log.flush.offset.checkpoint.interval.ms": "150",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
    "num.recovery.threads.per.data.dir": "2",
}
# Topics with different flushing, compression and timestamps.
TOPICS = {
    "plain": {"retention.ms": "-1"},
    "synced": {"retention.ms": "-1", "flush.messages": "20"},
    "recompressed": {"retention.ms": "-1", "compression.type": "zstd"},
    "stamped": {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"},
}
REAL_TOPIC = "librdkafka"
KILLED_WHILE_STARTING = 0.2  # share of the rounds
STOPPED_CLEANLY = 0.1


@dataclass
class Plan:
    """How a crash test runs. `load_s`: seconds of load in a round, min and max; `dump_every`: rounds between two dumps of the files."""

    seed: str
    rounds: int
    damage: bool = False
    dump_every: int = 10
    load_s: tuple[float, float] = (0.1, 1.5)
    say: Callable[[str], None] = print


@dataclass
class State:
    """Everything that must survive."""

    partitions: Ledgers = field(default_factory=dict)
    offsets: dict[tuple[str, int], OffsetLedger] = field(default_factory=dict)
    topics: TopicsLedger = field(default_factory=TopicsLedger)


class CrashTest:
    """One broker, killed again and again. `run` raises Lost, Unacceptable or ServerFailed."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._server = BrokerProcess(directory, OVERRIDES)
        self._state = State()
        self._workers: list[Worker] = []
        self._real: RealProducer | None = None

    def run(self) -> None:
        """Run all rounds and the final comparison."""
        plan = self._plan
        try:
            self._set_up()
            for number in range(1, plan.rounds + 1):
                self._round(number)
                if number % plan.dump_every == 0 or number == plan.rounds:
                    self._check_files()
            self._finish()
        finally:
            self._server.close()

    def _set_up(self) -> None:
        server, state, seed = self._server, self._state, self._plan.seed
        server.start()
        for topic, configs in {**TOPICS, REAL_TOPIC: TOPICS["plain"]}.items():
            create_topic(server, topic, PARTITIONS, configs)
            for partition in range(PARTITIONS):
                state.partitions[topic, partition] = PartitionLedger(f"{topic}-{partition}")
        find_coordinator(server, "any")
        ids: set[int] = set()
        for topic in TOPICS:
            self._workers += [
                PlainProducer(f"one-by-one-{topic}", seed, state.partitions, topic, acks=1, depth=1),
                PlainProducer(f"pipelined-{topic}", seed, state.partitions, topic, acks=-1, depth=8),
                IdempotentProducer(f"idempotent-{topic}", seed, state.partitions[topic, 0], topic, 0, tolerant=self._plan.damage, ids=ids),
            ]
        self._workers += [
            PlainProducer("old-format", seed, state.partitions, "plain", acks=1, depth=2, legacy=True),
            Committer("committer", seed, "plain", PARTITIONS, state.offsets),
            Administrator("administered", seed, state.topics, lambda: self._chance.uniform(0, 0.05)),
        ]
        self._real = RealProducer("librdkafka", seed, state.partitions[REAL_TOPIC, 0], REAL_TOPIC, 0, server.address)

    def _round(self, number: int) -> None:
        plan, server, chance = self._plan, self._server, self._chance
        before = self._acknowledged()
        load_s = chance.uniform(*plan.load_s)
        clean = chance.random() < STOPPED_CLEANLY
        self._load(load_s, clean)
        damages = [] if clean else self._damage()
        log_start = server.log_size()
        tries = self._start()
        started = time.monotonic()
        self._after_start(damages, server.log(log_start))
        settled = self._compare(whole=False)
        self._check_others()
        plan.say(
            f"round {number:3}/{plan.rounds}: {'stopped' if clean else 'killed '} after {load_s:4.2f} s, "
            f"{self._acknowledged() - before:6} acknowledged ({self._acknowledged()} in all), {settled.kept} of "
            f"{settled.kept + settled.dropped} unacknowledged were stored"
            + (f"; killed {tries} more times while starting" if tries else "")
            + "".join(f"\n    {done.what}" for done in damages)
            + (f"; compared in {time.monotonic() - started:.1f} s" if plan.damage else "")
        )

    def _acknowledged(self) -> int:
        return sum(ledger.acknowledged_count for ledger in self._state.partitions.values())

    def _load(self, load_s: float, clean: bool) -> None:
        stop = Event()
        for worker in self._workers:
            worker.start(self._server.address, stop)
        stop.wait(load_s)
        if clean:
            self._server.stop()
        else:
            self._server.kill()
        stop.set()
        for worker in self._workers:
            worker.join()
        assert self._real is not None
        self._real.check()

    def _start(self) -> int:
        """Start the broker; in some rounds it is killed while it starts, up to three times. How often."""
        tries = 0
        while self._chance.random() < KILLED_WHILE_STARTING and tries < 3:
            tries += 1
            with _killed_after(self._server, self._chance.uniform(0.05, 0.8)):
                try:
                    self._server.start()
                except ServerFailed:
                    if "Traceback" in self._server.log_tail():
                        raise
            self._server.kill()
        self._server.start()
        for topic in (*TOPICS, REAL_TOPIC):
            until_leaders(self._server, topic, PARTITIONS)
        return tries

    # --- damage ---

    def _damage(self) -> list[Damage]:
        if not self._plan.damage:
            return []
        names = [f"{topic}-{partition}" for topic in TOPICS for partition in range(PARTITIONS)]
        chosen = self._chance.sample(names, self._chance.randint(1, 3))
        return [damage(self._server.data, name, self._chance) for name in chosen]

    def _after_start(self, damages: list[Damage], log: str) -> None:
        if "Traceback (most recent call last)" in log:
            raise Lost(f"the broker logged a traceback:\n{log[-6000:]}")
        for done in damages:
            if done.cut and not re.search(rf"{re.escape(done.partition)}: removing \d+ bytes of \S+, from offset \d+ on", log):
                raise Lost(f"the broker did not log a truncation of {done.partition} after this damage: {done.what}\n\n{log[-6000:]}")
            if done.lost_from is not None:
                topic, _, partition = done.partition.rpartition("-")
                self._state.partitions[topic, int(partition)].forget_from(done.lost_from)

    # --- comparing ---

    def _compare(self, *, whole: bool) -> Settled:
        """Read every partition, or only the records since the last read, and compare."""
        total = Settled()
        with RawConnection(self._server.address) as connection:
            for (topic, partition), ledger in self._state.partitions.items():
                start = 0 if whole else ledger.verified_to
                expected_end = ledger.end
                settled = ledger.check(start, expected_end, read(connection, topic, partition, start))
                total.checked += settled.checked
                total.kept += settled.kept
                total.dropped += settled.dropped
        return total

    def _check_others(self) -> None:
        with RawConnection(self._server.address) as connection:
            for (group, partition), ledger in self._state.offsets.items():
                ledger.check(f"{group}, partition {partition}", committed(connection, group, "plain", partition))
            for name, (topic_id, retention) in self._state.topics.created.items():
                self._check_topic(connection, name, topic_id, retention)
            for name in self._state.topics.deleted:
                if _describe(connection, name).error_code == 0:
                    raise Lost(f"the deleted topic {name} exists again")

    def _check_topic(self, connection: RawConnection, name: str, topic_id: object, retention: str) -> None:
        found = _describe(connection, name)
        if found.error_code or found.topic_id != topic_id:
            raise Lost(f"the topic {name} was created with the id {topic_id}; its metadata is now {found}")
        request = DescribeConfigsRequest(resources=[DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=name, configuration_keys=["retention.ms"])])
        (answer,) = connection.call(request, 1).results
        if [config.value for config in answer.configs] != [retention]:
            raise Lost(f"{name} was configured with retention.ms={retention}; now it has {answer.configs}")

    def _check_files(self) -> None:
        """Compare everything from the beginning, and read the files with Apache Kafka's tool."""
        self._compare(whole=True)
        self._server.stop()
        started = time.monotonic()
        dumped = dump_directory(self._server.data)
        self._plan.say(f"    Apache Kafka's dump tool accepts {len(dumped)} logs ({time.monotonic() - started:.0f} s)")
        self._server.start()
        for topic in (*TOPICS, REAL_TOPIC):
            until_leaders(self._server, topic, PARTITIONS)

    def _finish_batches(self) -> None:
        """Let the idempotent producers receive the outstanding responses."""
        stop = Event()
        stop.set()
        for worker in self._workers:
            worker.start(self._server.address, stop)
        for worker in self._workers:
            worker.join()

    def _finish(self) -> None:
        """Compare everything and stop."""
        assert self._real is not None
        self._real.close()
        self._finish_batches()
        self._compare(whole=True)
        status = self._server.stop()
        if status != 0:
            raise Lost(f"the broker ended with {status}")


@contextmanager
def _killed_after(server: BrokerProcess, delay_s: float) -> Iterator[None]:
    timer = Timer(delay_s, server.kill)
    timer.start()
    yield
    timer.cancel()
    timer.join()


def read(connection: RawConnection, topic: str, partition: int, start: int) -> list[tuple[int, bytes]]:
    """All records from offset `start` to the end, as (offset, value)."""
    found: list[tuple[int, bytes]] = []
    offset = start
    while True:
        request = fetch_request(topic, offset, bytes_max=8 << 20)
        request.topics[0].partitions[0].partition = partition
        answer = fetched(connection.call(request, 11))
        if answer.error_code:
            raise Lost(f"{topic}-{partition} cannot be read from offset {offset}: error {answer.error_code}")
        found += [(record.offset, record.value or b"") for record in answer.records if record.offset >= offset]
        if not answer.records:
            return found
        offset = answer.records[-1].offset + 1


def committed(connection: RawConnection, group: str, topic: str, partition: int) -> int:
    """The committed offset of a group, once the coordinator has loaded it."""
    topics = OffsetFetchRequest.OffsetFetchRequestTopic
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = connection.call(OffsetFetchRequest(group_id=group, topics=[topics(name=topic, partition_indexes=[partition])]), 5)
        if answer.error_code == 0:
            offset = answer.topics[0].partitions[0].committed_offset
            assert isinstance(offset, int)
            return offset
        if time.monotonic() > deadline:
            raise Lost(f"the offsets of {group} cannot be fetched: error {answer.error_code}")
        time.sleep(0.02)


def _describe(connection: RawConnection, topic: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = connection.call(request, 10).topics
    return found
