"""Writing records to a topic and reading them from its log, with txbroker's own client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import RequestFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_reader import READ_COMMITTED, TopicReader
from txbroker.log.aborted_transactions import AbortedBatches, aborted_in
from txbroker.names import amount
from txbroker.testing.errors import KitError
from txbroker.wire import entries, records
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import Scan
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

ACKS_ALL = -1
TIMEOUT_MS = 30_000
PRODUCE_VERSION_MAX = 12  # with topic names
BATCH_RECORDS_MAX = 1000
BATCH_BYTES_MAX = 512 * 1024  # without headers; max.message.bytes is 1 MiB by default
UNPACKED_BYTES_MAX = 256 * 1024 * 1024
LOOK_S = 0.02


@dataclass(frozen=True, init=False)
class Record:
    """A record. Text becomes UTF-8: `Record("value", key="key")`.

    To be written: `timestamp` in milliseconds since 1970, None for now; `partition` None for 0. `offset` is that of a record that was
    read; it is ignored when a record is written. KitError for values of other types.
    """

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None
    partition: int | None
    offset: int | None

    def __init__(
        self,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] = (),
        timestamp: int | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        __tracebackhide__ = True  # by pytest
        for name, number in (("timestamp", timestamp), ("partition", partition), ("offset", offset)):
            if number is not None and not isinstance(number, int):
                raise KitError(f"the {name} of a record is {number!r}; it must be a whole number or None")
        fields = {
            "value": _as_bytes(value),
            "key": _as_bytes(key),
            "headers": tuple((name, _as_bytes(content)) for name, content in headers),
            "timestamp": timestamp,
            "partition": partition,
            "offset": offset,
        }
        for name, content in fields.items():
            object.__setattr__(self, name, content)


def _as_bytes(content: bytes | str | None) -> bytes | None:
    __tracebackhide__ = True  # by pytest
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    raise KitError(f"a record has {content!r:.200} as content; it must be text, bytes or None")


def produce(
    addresses: Sequence[tuple[str, int]], topic: str, written: Iterable[Record | bytes | str], settings: ClientSettings, ahead_ms: int = 0
) -> list[int]:
    """Write records, and return their offsets, in the same order; ClientError. The topic must exist.

    Records without a timestamp get that of the wall clock, and `ahead_ms` more.
    """
    given = [each if isinstance(each, Record) else Record(each) for each in written]
    by_partition: dict[int, list[int]] = {}
    for index, record in enumerate(given):
        by_partition.setdefault(record.partition or 0, []).append(index)
    offsets = [-1] * len(given)
    reader = TopicReader(addresses, topic, settings, READ_COMMITTED)
    try:
        for partition, indexes in by_partition.items():
            if partition not in reader.partitions:
                raise KitError(f"topic {topic} has no partition {partition}; its partitions are {', '.join(map(str, reader.partitions))}")
            for some in _batches(given, indexes):
                first = _append(reader, topic, partition, [given[index] for index in some], ahead_ms)
                for distance, index in enumerate(some):
                    offsets[index] = first + distance
    finally:
        reader.close()
    return offsets


def _batches(given: Sequence[Record], indexes: Sequence[int]) -> Iterator[list[int]]:
    """The indexes of one partition's records, batch by batch."""
    some: list[int] = []
    size = 0
    for index in indexes:
        record_bytes = len(given[index].key or b"") + len(given[index].value or b"")
        if some and (len(some) == BATCH_RECORDS_MAX or size + record_bytes > BATCH_BYTES_MAX):
            yield some
            some, size = [], 0
        some.append(index)
        size += record_bytes
    if some:
        yield some


def _append(reader: TopicReader, topic: str, partition: int, some: Sequence[Record], ahead_ms: int) -> int:
    """Write one batch; the offset of its first record."""
    now_ms = time.time_ns() // 1_000_000 + ahead_ms
    encoded = [
        records.Record(index, now_ms if record.timestamp is None else record.timestamp, record.key, record.value, record.headers)
        for index, record in enumerate(some)
    ]
    data = PartitionProduceData(index=partition, records=records.build(encoded, base_offset=0))
    request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])])

    def ask(leader: BlockingConnection) -> tuple[int, int]:
        answer: ProduceResponse = leader.call(request, version_max=PRODUCE_VERSION_MAX)
        (found,) = answer.responses[0].partition_responses
        if found.error_code and found.error_message:
            raise RequestFailed(f"partition {partition} of {topic} cannot be written", found.error_code, found.error_message)
        return found.error_code, found.base_offset

    return reader.ask_leader(partition, ask, "cannot be written")


class Reading:
    """Reads a topic from its beginning, as a read_committed consumer without a group. ClientError, CorruptRecords."""

    def __init__(self, addresses: Sequence[tuple[str, int]], topic: str, settings: ClientSettings) -> None:
        self._topic = topic
        self._reader = TopicReader(addresses, topic, settings, READ_COMMITTED)
        self._positions: dict[int, int] = {}

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read(self) -> list[Record]:
        """The records up to the end, or up to the first open transaction, without those that were read before: by partition and offset."""
        found: list[Record] = []
        for partition in self._reader.partitions:
            if partition not in self._positions:
                self._positions[partition] = self._reader.offset(partition, EARLIEST)
            end = self._reader.offset(partition, LATEST)
            while self._positions[partition] < end:
                start = self._positions[partition]
                found += self._fetched(partition, start)
                if self._positions[partition] == start:
                    break
        return found

    def wait(self, count: int, timeout_s: float) -> list[Record]:
        """`count` records or more, as soon as there are as many; KitError if there are fewer after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        found = self.read()
        while len(found) < count:
            if time.monotonic() > deadline_s:
                raise KitError(f"topic {self._topic} has {len(found)} of {amount(count, 'record')} after {timeout_s:g} s: {_shown(found)}")
            time.sleep(LOOK_S)
            found += self.read()
        return found

    def _fetched(self, partition: int, start: int) -> Iterator[Record]:
        data = self._reader.fetch(partition, start)
        if data.error_code:
            raise RequestFailed(f"partition {partition} of {self._topic} cannot be read at offset {start}", data.error_code)
        buffer: Any = b"" if data.records is None else data.records
        aborted = AbortedBatches(aborted_in(data))
        scan = Scan(buffer, check_crc=True)
        for at, header in scan:
            hidden = isinstance(header, BatchHeader) and (aborted.hides(buffer, at, header) or header.control)
            if not hidden:
                for record in entries.read_records(buffer, at, header, UNPACKED_BYTES_MAX):
                    if record.offset >= start:
                        yield Record(record.value, record.key, record.headers, record.timestamp, partition, record.offset)
            self._positions[partition] = header.last_offset + 1
        scan.raise_if_corrupt()


def _shown(found: Sequence[Record]) -> str:
    """The values of the last records, for an error."""
    return ", ".join(repr(record.value) for record in found[-5:]) or "none"
