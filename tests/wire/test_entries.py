from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.record_samples import PLENTY, client_records, golden_bytes, mutations, value_or_error
from txbroker.errors import CorruptRecords
from txbroker.wire import entries, legacy
from txbroker.wire.compression import Codec
from txbroker.wire.entries import Scan, Stop
from txbroker.wire.records import Record, build

# A log with all three formats, as one that was started with Kafka 0.8.
MIXED = b"".join(
    golden_bytes(f"kafka-3.9.1_v{magic}_{codec}")
    for magic, codec in [(0, "gzip"), (0, "none"), (1, "lz4"), (1, "none"), (2, "zstd"), (2, "none")]
)
SMALL = legacy.build(client_records(0)[:2], magic=0) + legacy.build(client_records(1)[:2], magic=1) + build(client_records(2)[:2])


def test_a_scan_walks_entries_of_every_magic() -> None:
    scan = Scan(MIXED, check_crc=True)
    found = list(scan)
    assert (scan.position, scan.stop, scan.problem, scan.needed) == (len(MIXED), Stop.END, "", 0)
    scan.raise_if_corrupt()
    assert [header.magic for _, header in found] == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2]
    assert [position for position, _ in found] == [sum(header.size for _, header in found[:i]) for i in range(len(found))]
    counts = [len(list(entries.read_records(MIXED, position, header, PLENTY))) for position, header in found]
    assert counts == [37, 1, 1, 1, 1, 1, 37, 1, 1, 1, 1, 1, 37, 37]
    assert all(header.leader_epoch in (-1, 0) and header.producer_id == -1 and not header.control for _, header in found)


def test_a_scan_starts_at_a_position() -> None:
    second = entries.size_of(MIXED)
    assert second == 2167
    assert next(iter(Scan(MIXED, second)))[0] == second
    assert list(Scan(MIXED, len(MIXED))) == []


def test_a_scan_reports_how_many_bytes_of_the_last_entry_are_missing() -> None:
    starts = [position for position, _ in Scan(SMALL)]
    ends = [*starts[1:], len(SMALL)]
    for end in range(len(SMALL)):
        scan = Scan(SMALL[:end])
        found = [position for position, _ in scan]
        whole = [start for start, stop in zip(starts, ends, strict=True) if stop <= end]
        assert found == whole
        assert scan.position == (ends[len(whole) - 1] if whole else 0)
        if scan.position == end:
            assert scan.stop is Stop.END
        else:
            assert scan.stop is Stop.TORN
            assert scan.problem
            assert scan.needed == (ends[len(whole)] - scan.position if end - scan.position >= 12 else 12)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_wrong_crc_ends_a_scan_that_checks_it(magic: int) -> None:
    good = build([Record(0, 0, None, b"v")])
    bad = bytearray(build([Record(1, 0, None, b"v")]) if magic == 2 else legacy.build([Record(1, 0, None, b"v")], magic=magic))
    bad[-2] ^= 1
    scan = Scan(good + bad + good, check_crc=True)
    assert [position for position, _ in scan] == [0]
    assert (scan.position, scan.stop) == (len(good), Stop.CORRUPT)
    with pytest.raises(CorruptRecords, match="CRC"):
        scan.raise_if_corrupt()
    blind = Scan(good + bad + good)
    assert len(list(blind)) == 3
    assert blind.stop is Stop.END


@pytest.mark.parametrize(
    "junk", [bytes(100), b"\xff" * 100, bytes(11) + b"\x40" + bytes(4) + b"\x03" + bytes(90), bytes(11) + b"\x1e\0\0\0\0\x02" + bytes(90)]
)
def test_an_invalid_entry_ends_a_scan(junk: bytes) -> None:
    scan = Scan(SMALL + junk)
    assert len(list(scan)) == 5
    assert (scan.position, scan.stop) == (len(SMALL), Stop.CORRUPT)
    with pytest.raises(CorruptRecords):
        scan.raise_if_corrupt()


def test_the_size_of_an_entry_is_read_from_its_first_bytes() -> None:
    one = build([Record(0, 0, None, bytes(1000))])
    assert entries.size_of(one[:12]) == entries.size_of(one[:17]) == len(one)
    assert entries.size_of(one[:11]) is None
    with pytest.raises(CorruptRecords):
        entries.size_of(bytes(12))


def walk(data: bytes) -> None:
    scan = Scan(data, check_crc=True)
    for position, header in scan:
        assert position + header.size <= len(data)
        list(entries.read_records(data, position, header, PLENTY))
    assert 0 <= scan.position <= len(data)
    assert (scan.stop is Stop.END) == (scan.position == len(data))


@given(st.binary(max_size=150))
def test_any_bytes_end_a_scan_somewhere(junk: bytes) -> None:
    value_or_error(walk, junk)
    value_or_error(walk, SMALL + junk)


def test_a_changed_byte_ends_a_scan_somewhere() -> None:
    for changed in mutations(SMALL + build(client_records(2)[:2], codec=Codec.GZIP)):
        value_or_error(walk, changed)
