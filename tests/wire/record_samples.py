"""Records and batches for the tests of record formats: files of other implementations (`tests/golden/records`), and strategies."""

from __future__ import annotations

import hashlib
import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from txbroker.errors import BrokerError, CorruptRecords
from txbroker.wire import batch, legacy, records
from txbroker.wire.compression import Codec, compress
from txbroker.wire.entries import Scan
from txbroker.wire.records import Record

GOLDEN = Path(__file__).parents[1] / "golden" / "records"
BASE_TIMESTAMP = 1_700_000_000_000
PLENTY = 10**7


def golden(pattern: str) -> list[str]:
    """Names (without `.bin`) of the golden files that match a glob pattern; at least one must match."""
    names = sorted(path.stem for path in GOLDEN.glob(f"{pattern}.bin"))
    assert names, pattern
    return names


def golden_bytes(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


def golden_entries(name: str) -> list[dict[str, Any]]:
    """The output of Apache Kafka's dump tool and consumer for the entries of an excerpt of its log."""
    return [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines()]


def as_golden(record: Record) -> list[Any]:
    """A record in the form of the golden files: hex, and a digest for long values."""
    value = None if record.value is None else record.value.hex()
    if record.value is not None and len(record.value) > 32:
        value = "sha256:" + hashlib.sha256(record.value).hexdigest()[:16]
    headers = [[name.encode().hex(), None if content is None else content.hex()] for name, content in record.headers]
    return [record.offset, record.timestamp, None if record.key is None else record.key.hex(), value, headers]


def client_records(magic: int) -> list[Record]:
    """The twenty records that every client wrote for its golden files."""
    text = b"the same words again and again, "
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (None, b""),
        (b"", b"v"),
        (b"key-2", None),
        (b"key-3", text * 8),
        (b"key-4", bytes(range(256))),
    ]
    pairs += [(b"key-%d" % i, text * (i % 4) + b"%d" % i) for i in range(5, 20)]
    return [
        Record(
            i,
            BASE_TIMESTAMP + i * 7 if magic else -1,
            key,
            value,
            (("h1", b"v%d" % i), ("h1", None), ("ü", b"")) if magic == 2 and i % 5 == 4 else (),
        )
        for i, (key, value) in enumerate(pairs)
    ]


content = st.none() | st.binary(max_size=200)
header_lists: st.SearchStrategy[Any] = st.lists(st.tuples(st.text("aé\x00\U0001f600", max_size=3), content), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**48) | st.just(-1)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Records of one batch: ascending offsets with gaps."""
    offset = draw(st.integers(0, 2**40))
    drawn = []
    for _ in range(draw(st.integers(1, 8))):
        drawn.append(Record(offset, draw(timestamps), draw(content), draw(content), draw(header_lists)))
        offset += draw(st.integers(1, 3) | st.integers(1, 200))
    return drawn


def value_or_error(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of the call, or its BrokerError; any other exception fails the test."""
    try:
        return function(*args, **kwargs)
    except BrokerError as error:
        return error


def mutations(valid: bytes, every: int = 1) -> Iterator[bytes]:
    """`valid` with one byte changed, at every `every`-th position and in several ways."""
    for place in range(0, len(valid), every):
        for changed in {valid[place] ^ 0xFF, valid[place] ^ 0x01, 0x00, 0x7F, 0xFF} - {valid[place]}:
            yield b"%b%c%b" % (valid[:place], changed, valid[place + 1 :])


@contextmanager
def allocations_below(limit: int) -> Iterator[None]:
    """Fail when Python's allocations inside peak at `limit` bytes or more."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, peak


def batches(data: batch.Buffer) -> Iterator[tuple[int, batch.BatchHeader]]:
    """The complete batches in `data` as (position, header); CorruptRecords for anything else."""
    scan = Scan(data)
    for position, header in scan:
        if not isinstance(header, batch.BatchHeader):
            raise CorruptRecords(f"magic {header.magic}")
        yield position, header
    scan.raise_if_corrupt()


def read_batches(data: bytes, bytes_max: int = PLENTY) -> list[Record]:
    """All records of the batches in `data`, CRCs checked."""
    found: list[Record] = []
    for position, header in batches(data):
        batch.check_crc(data, position, header)
        found += records.read_records(data, position, header, bytes_max)
    return found


def read_set(data: bytes, bytes_max: int = PLENTY) -> list[Record]:
    """All records of a message set, CRCs checked."""
    found: list[Record] = []
    for position, header in legacy.iterate(data):
        legacy.check_crc(data, position, header)
        found += legacy.read_records(data, position, header, bytes_max)
    return found


def as_kept(record: Record, magic: int) -> Record:
    """The record as a message set of this magic stores it."""
    return record._replace(headers=(), timestamp=record.timestamp if magic else -1)


def message(
    offset: int, attributes: int = 0, key: bytes | None = None, value: bytes | None = b"v", *, magic: int = 1, timestamp: int = 5
) -> bytes:
    """Build one message without the product's code."""
    fields = b"".join(struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field for field in (key, value))
    covered = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"") + fields
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def wrapper(offset: int, inner: bytes, *, magic: int = 1, attributes: int = 0, timestamp: int = 5) -> bytes:
    return message(offset, Codec.GZIP | attributes, value=compress(Codec.GZIP, inner), magic=magic, timestamp=timestamp)
