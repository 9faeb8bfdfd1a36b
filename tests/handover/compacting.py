"""The same input for the log cleaners of both brokers, and waiting until they have cleaned it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.handover.feeding import CODECS
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, until_leaders
from tests.support.raw_log import batch, produce
from tests.support.records import Sample
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.log.checkpoints import CLEANER_OFFSETS, parse_offsets
from txbroker.names import TopicPartition

SEGMENT_BYTES = 16_384
TRANSACTIONS = "keyed-transactions"
TOPICS = (*(f"keyed-{codec}" for codec in CODECS), TRANSACTIONS)
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01", "retention.ms": "-1",
           "file.delete.delay.ms": "100"}


def changes(count: int, *, start: int, keys: int, began_ms: int) -> list[Sample]:
    """Changes of keys, some frequent and some rare; every seventh is a tombstone. Values compress by half."""
    chance = random.Random(start)
    return [
        Sample(
            b"key-%d" % min(chance.randrange(keys), chance.randrange(keys)),
            None if i % 7 == 6 else b"value-%d " % i * 8 + chance.randbytes(60),
            (("number", b"%d" % i),) if i % 3 else (),
            began_ms + i,
        )
        for i in range(start, start + count)
    ]


def fill(server: Server, began_ms: int, *, delete_retention_ms: int, records: int = 1200, transactions: int = 30) -> None:
    """Create a compacted topic for every codec, and one with transactions of two producers, a third of them aborted."""
    for topic in TOPICS:
        create_topic(server, topic, 1, {**CONFIGS, "delete.retention.ms": str(delete_retention_ms)})
    for codec in CODECS:
        _send(_producer(server, codec), f"keyed-{codec}", changes(records, start=0, keys=60, began_ms=began_ms))
    for number in range(transactions):
        producer = _producer(server, CODECS[number % len(CODECS)], **{"transactional.id": f"keyed-{number % 2}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        # Some aborted transactions would have the last values of their keys.
        _send(producer, TRANSACTIONS, changes(40, start=number * 100, keys=25, began_ms=began_ms))
        if number % 3 == 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
        if number % 5 == 4:
            _send(_producer(server, "none"), TRANSACTIONS, changes(20, start=10_000 + number * 100, keys=40, began_ms=began_ms))


def fill_varied(server: Server, seed: int, count: int) -> dict[str, dict[str, str]]:
    """Create random compacted topics: all codecs, concurrent transactions that are committed and aborted, tombstones.

    The last topic has an open transaction. Returns the topics and their configurations.
    """
    chance = random.Random(seed)
    began_ms = now_ms()
    plain = [_producer(server, codec) for codec in CODECS]
    paying = [
        _producer(server, codec, **{"transactional.id": f"varied-{seed}-{codec}", "transaction.timeout.ms": 900_000, "batch.size": 2048})
        for codec in CODECS[::2]
    ]
    for producer in paying:
        producer.init_transactions(60)
    topics: dict[str, dict[str, str]] = {}
    for number in range(count):
        topic = f"varied-{number}"
        configs = topics[topic] = {
            **CONFIGS,
            "segment.bytes": str(chance.choice((4096, 8192, SEGMENT_BYTES, 65_536))),
            "delete.retention.ms": str(chance.choice((0, 86_400_000))),
            "message.timestamp.type": chance.choice(("CreateTime", "LogAppendTime")),
            "cleanup.policy": chance.choice(("compact", "compact", "compact,delete")),
            "index.interval.bytes": str(chance.choice((256, 4096))),
        }
        create_topic(server, topic, 1, configs)
        keys, aborts, deletions = chance.choice((5, 40, 400)), chance.choice((0.2, 0.8)), chance.choice((0.05, 0.5))
        opened: list[Producer] = []
        for step in range(chance.randrange(30, 90)):
            producer = chance.choice(plain if chance.random() < 0.4 else paying)
            if producer in paying and producer not in opened:
                producer.begin_transaction()
                opened.append(producer)
            records = [
                Sample(
                    b"k%d" % min(chance.randrange(keys), chance.randrange(keys)),
                    None if chance.random() < deletions else b"%d " % step * 10 + chance.randbytes(chance.randrange(120)),
                    (("step", b"%d" % step),),
                    began_ms + step,
                )
                for _ in range(chance.randrange(1, 25))
            ]
            _send(producer, topic, records)
            if opened and chance.random() < 0.3:
                _end(opened.pop(chance.randrange(len(opened))), abort=chance.random() < aborts)
        while len(opened) > (number == count - 1):
            _end(opened.pop(), abort=chance.random() < aborts)
    return topics


def _end(producer: Producer, *, abort: bool) -> None:
    if abort:
        producer.abort_transaction(60)
    else:
        producer.commit_transaction(60)


def append_more(server: Server, began_ms: int) -> None:
    """Append more changes, with equal batches for each broker: of a third of the keys, and more than a segment."""
    with RawConnection(server.address) as connection:
        for topic in TOPICS:
            until_leaders(server, topic, 1)
            records = changes(240, start=20_000, keys=20, began_ms=began_ms)
            for at in range(0, len(records), 8):
                answer = produce(connection, topic, batch(records[at : at + 8]))
                assert answer.error_code == 0, answer


def until_clean(server: Server, topics: Iterable[str] = TOPICS, stable: Mapping[str, int] | None = None) -> dict[str, int]:
    """Wait until the cleaner checkpoint reaches the active segment of each topic; its offsets.

    `stable`: where a topic's last stable offset lies lower than that, beyond which nothing is cleaned; the checkpoint may then name the
    segment's beginning, or any offset up to it.
    """
    wanted = {topic: active_base(server.partition_directory(topic)) for topic in topics}
    for topic, offset in (stable or {}).items():
        bases = [base for base in segment_bases(server.partition_directory(topic)) if base <= offset]
        wanted[topic] = min(wanted[topic], max(bases))
    found: dict[TopicPartition, int] = {}

    def clean() -> bool:
        path = server.data / CLEANER_OFFSETS
        found.update(parse_offsets(path.read_bytes()) if path.exists() else {})
        return all(found.get(TopicPartition(topic, 0), 0) >= base for topic, base in wanted.items())

    until(clean, f"{server.kind} has compacted its topics up to {wanted}", every_s=0.2)
    return {topic: found.get(TopicPartition(topic, 0), 0) for topic in wanted}


def segment_bases(directory: Path) -> list[int]:
    """The base offsets of all segments."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def active_base(directory: Path) -> int:
    """The base offset of the last segment."""
    return segment_bases(directory)[-1]


def table(records: Sequence[tuple[Any, ...]]) -> dict[bytes, tuple[bytes, Any]]:
    """The final state of a consumer: the last value of each key with its headers, without removed keys."""
    latest: dict[bytes, tuple[bytes, Any]] = {}
    for _, _, key, value, headers in records:
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = (value, headers)
    return latest


def now_ms() -> int:
    """The current time: producers of old records would expire, and their last batches would be removed."""
    return int(time.time() * 1000)


def _producer(server: Server, codec: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": server.address, "compression.type": codec, "linger.ms": 5, "batch.size": 4096, "acks": "all",
                     "enable.idempotence": True, "log_level": 0, **settings})


def _send(producer: Producer, topic: str, records: list[Sample]) -> None:
    failures: list[Any] = []
    for record in records:
        producer.produce(topic, record.value, record.key, partition=0, timestamp=record.timestamp, headers=list(record.headers),
                         on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0
    assert not failures, failures[0]
