"""Record batches for a load: the records are built once, the headers for each batch.

Offsets and timestamps of records are relative to their batch, so that the first n records of a template are a valid batch of n records
at any offset and time. Each batch costs only a header of 61 bytes, one copy, and the CRC.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from txbroker.cli.perf.settings import ProducerSettings
from txbroker.wire.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL, seal
from txbroker.wire.compression import Codec, compress
from txbroker.wire.records import Record, build
from txbroker.wire.varint import read_varint

# Several templates, so that a codec does not get the same content each time; few, so that the start is fast.
TEMPLATES = 16
TEMPLATE_BYTES_TOTAL = 8 * 1024 * 1024
# Of one batch before compression: as in Java's producer it may be more than batch.size, but here it is bounded.
UNCOMPRESSED_MAX = 4 * 1024 * 1024
KEPT_BYTES_MAX = 64 * 1024 * 1024

# 26 letters for 256 byte values, almost equally distributed.
_LETTERS = bytes(65 + byte % 26 for byte in range(256))


class Payload(NamedTuple):
    """The records section of a batch, compressed, and the number of its records and of the bytes of their values."""

    data: bytes | memoryview
    records: int
    value_bytes: int


class Source(Protocol):
    """The source of records."""

    def capacity(self, number: int) -> int:
        """The number of records of a full batch, for the `number`-th batch."""

    def payload(self, number: int, first: int, count: int) -> Payload:
        """The first `count` records of that batch; the first of them is number `first` of the whole load."""


class _Template:
    """The records of a full batch, and the position after each."""

    def __init__(self, values: Sequence[bytes]) -> None:
        built = build([Record(number, 0, None, value) for number, value in enumerate(values)])
        self.data = memoryview(built)[HEADER_SIZE:]
        self.ends = [0]
        self.value_bytes = [0]
        position = HEADER_SIZE
        for value in values:
            length, position = read_varint(built, position)
            position += length
            self.ends.append(position - HEADER_SIZE)
            self.value_bytes.append(self.value_bytes[-1] + len(value))


class Templates:
    """Records with random or given values, built before the load starts."""

    def __init__(self, next_value: Callable[[], bytes], settings: ProducerSettings) -> None:
        self._codec = Codec[settings.codec.upper()]
        self._level = settings.level
        self._kept: dict[tuple[int, int], bytes] = {}
        self._kept_bytes = 0
        room = max(settings.batch_bytes - HEADER_SIZE, 0)
        first = self._template(next_value, min(room, UNCOMPRESSED_MAX))
        if self._codec is not Codec.NONE:
            # As in Java's producer, an estimate of the compression ratio decides how many records fit.
            ratio = len(compress(self._codec, first.data, self._level)) / len(first.data)
            room = min(int(room / max(ratio, 0.001)), UNCOMPRESSED_MAX)
            first = self._template(next_value, room)
        count = max(1, min(TEMPLATES, TEMPLATE_BYTES_TOTAL // max(len(first.data), 1)))
        self._templates = [first, *(self._template(next_value, min(room, UNCOMPRESSED_MAX)) for _ in range(count - 1))]

    def _template(self, next_value: Callable[[], bytes], room: int) -> _Template:
        """As many records as fit, at least one."""
        values: list[bytes] = []
        taken = 0
        while True:
            value = next_value()
            taken += len(value) + _overhead(len(value), len(values))
            if values and taken > room:
                return _Template(values)
            values.append(value)
            if taken >= room:
                return _Template(values)

    def capacity(self, number: int) -> int:
        return len(self._templates[number % len(self._templates)].ends) - 1

    def payload(self, number: int, first: int, count: int) -> Payload:
        index = number % len(self._templates)
        template = self._templates[index]
        plain = template.data[: template.ends[count]]
        data = plain if self._codec is Codec.NONE else self._compressed(index, count, plain)
        return Payload(data, count, template.value_bytes[count])

    def _compressed(self, index: int, count: int, data: memoryview) -> bytes:
        kept = self._kept.get((index, count))
        if kept is None:
            kept = compress(self._codec, data, self._level)
            if self._kept_bytes + len(kept) > KEPT_BYTES_MAX:
                self._kept.clear()
                self._kept_bytes = 0
            self._kept[index, count] = kept
            self._kept_bytes += len(kept)
        return kept


class Numbers:
    """Records with the values 0, 1, 2 … as digits (--payload-monotonic); each batch is built when it is sent."""

    def __init__(self, records: int, settings: ProducerSettings) -> None:
        self._codec = Codec[settings.codec.upper()]
        self._level = settings.level
        digits = len(str(records))
        self._capacity = max(1, min(settings.batch_bytes, UNCOMPRESSED_MAX) // (digits + _overhead(digits, 1000)))

    def capacity(self, number: int) -> int:
        return self._capacity

    def payload(self, number: int, first: int, count: int) -> Payload:
        values = [b"%d" % value for value in range(first, first + count)]
        built = build([Record(index, 0, None, value) for index, value in enumerate(values)], codec=self._codec, level=self._level)
        return Payload(memoryview(built)[HEADER_SIZE:], count, sum(map(len, values)))


def _overhead(value_bytes: int, index: int) -> int:
    """Bytes of a record without its value: attributes, timestamp delta, null key and no headers take one each, the others are varints."""
    inner = 4 + _varint_size(index) + _varint_size(value_bytes)
    return inner + _varint_size(inner + value_bytes)


def _varint_size(value: int) -> int:
    return 1 + max(0, (value << 1).bit_length() - 1) // 7


def random_values(size: int) -> Callable[[], bytes]:
    """Values of random capital letters, as in Kafka's tool; the same in every run."""
    chance = random.Random(0)
    return lambda: chance.randbytes(size).translate(_LETTERS)


def given_values(values: Sequence[bytes]) -> Callable[[], bytes]:
    """Values chosen at random from these; the same choice in every run."""
    chance = random.Random(0)
    return lambda: chance.choice(values)


def batch(
    payload: Payload, codec: Codec, now_ms: int, producer_id: int, producer_epoch: int, sequence: int, *, transactional: bool = False
) -> bytearray:
    """A complete record batch (magic 2); all its records have the timestamp `now_ms`."""
    size = HEADER_SIZE + len(payload.data)
    batch_bytes = bytearray(size)
    HEADER.pack_into(
        batch_bytes, 0, 0, size - LOG_OVERHEAD, -1, 2, 0, int(codec) | (TRANSACTIONAL if transactional else 0), payload.records - 1,
        now_ms, now_ms,
        producer_id, producer_epoch, sequence, payload.records,
    )  # fmt: skip
    batch_bytes[HEADER_SIZE:] = payload.data
    seal(batch_bytes, 0, size)
    return batch_bytes
