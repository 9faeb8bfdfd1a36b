"""The features of transactions, for all clients with Python drivers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from compat.adapter import Client, until
from compat.samples import Record, equal
from compat.simple import ready_topic


def _commit(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(99)
    producer = client.transactional(topic, topic)
    for part in (records[:66], records[66:]):
        producer.begin()
        producer.send(part)
        producer.commit()
    producer.close()
    _check(client.read(topic, len(records), committed=True), records)


def _abort(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(99)
    producer = client.transactional(topic, topic)
    producer.begin()
    producer.send(records[:33])
    producer.abort()
    producer.begin()
    producer.send(records[33:])
    producer.commit()
    producer.close()
    _check(client.read(topic, 66, committed=True), records[33:])
    _check(client.read(topic, 99), records)


def _read_committed(client: Client, topic: str) -> None:
    """What follows an open transaction in its partition is not read before its end, however it ends; other partitions are read."""
    ready_topic(client, topic)
    records = client.records(66)
    opened = [record for record in records[:33] if record.partition == 0]
    ended = records[33:]
    first, second = client.transactional(topic, f"{topic}-1"), client.transactional(topic, f"{topic}-2")
    first.begin()
    first.send(opened)
    second.begin()
    second.send(ended)
    second.commit()
    consumer = client.consumer(topic, committed=True)
    read: list[Record] = []

    def has_read(count: int) -> bool:
        read.extend(consumer.take())
        return len(read) >= count

    until(lambda: has_read(22), "the records of the other partitions")
    equal({record.partition for record in read}, {1, 2}, "the partitions without an open transaction")
    first.commit()
    until(lambda: has_read(22 + 22), "the records after the end of the transaction")
    consumer.close()
    _check(read, opened + ended)
    first.close()
    second.close()


def _txn_offsets(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(30)
    client.produce(topic, records)
    producer = client.transactional(topic, topic)
    for offset, commit in ((5, True), (8, False)):
        producer.begin()
        producer.send_offsets(topic, dict.fromkeys(range(client.partitions), offset))
        if commit:
            producer.commit()
        else:
            producer.abort()
    producer.close()
    rest = [record for record in records if record.offset >= 5]
    _check(client.read_in_group(topic, topic, len(rest)), rest)


def _fencing(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(66)
    zombie = client.transactional(topic, topic)
    zombie.begin()
    zombie.send(records[:33])
    producer = client.transactional(topic, topic)  # aborts the zombie's transaction
    producer.begin()
    producer.send(records[33:])
    producer.commit()
    try:
        zombie.commit()
    except Exception:
        pass
    else:
        raise AssertionError("a producer that was fenced commits")
    producer.close()
    _check(client.read(topic, 33, committed=True), records[33:])


def _check(read: Iterable[Record], expected: Sequence[Record]) -> None:
    """The expected records, in the order of each partition; their offsets have gaps, where markers and aborted records are."""
    found: dict[int, list[Record]] = defaultdict(list)
    wanted: dict[int, list[Record]] = defaultdict(list)
    for records, by_partition in ((read, found), (expected, wanted)):
        for record in records:
            by_partition[record.partition].append(record)
    equal({p: len(records) for p, records in found.items()}, {p: len(records) for p, records in wanted.items()}, "records by partition")
    for partition, records in found.items():
        for one, other in zip(records, wanted[partition], strict=True):
            equal(one._replace(offset=0), other._replace(offset=0), f"the record at {partition}-{one.offset}")
        offsets = [record.offset for record in records]
        equal(offsets, sorted(set(offsets)), f"the offsets of partition {partition}")


TRANSACTIONAL: dict[str, Callable[[Client, str], None]] = {
    "commit": _commit, "abort": _abort, "read_committed": _read_committed, "txn_offsets": _txn_offsets, "fencing": _fencing,
}  # fmt: skip
