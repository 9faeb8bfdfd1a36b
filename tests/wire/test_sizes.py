"""Counting records and their bytes agrees with reading them; invalid records are an error."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.wire.record_samples import PLENTY, client_records, golden, golden_bytes, mutations, record_lists, value_or_error
from txbroker.errors import BrokerError
from txbroker.wire import batch
from txbroker.wire.batch import BatchHeader
from txbroker.wire.compression import Codec
from txbroker.wire.entries import EntryHeader, Scan, read_header, read_records
from txbroker.wire.records import Record, build
from txbroker.wire.sizes import content_size


def as_read(data: bytes, position: int, header: EntryHeader) -> tuple[int, int]:
    if isinstance(header, BatchHeader) and header.control:
        return 0, 0
    found = list(read_records(data, position, header, PLENTY))
    return len(found), sum(len(record.key or b"") + len(record.value or b"") for record in found)


@pytest.mark.parametrize("name", golden("*"))
def test_sizes_of_records_of_other_clients(name: str) -> None:
    data = golden_bytes(name)
    entries = list(Scan(data))
    assert entries
    for position, header in entries:
        assert content_size(data, position, header, PLENTY) == as_read(data, position, header)


@given(record_lists())
def test_sizes_of_any_records(records: list[Record]) -> None:
    data = build(records)
    assert content_size(data, 0, read_header(data), PLENTY) == as_read(data, 0, read_header(data))


@pytest.mark.parametrize("length", [0, 1, 62, 63, 64, 8190, 8191, 8192, 70_000])
def test_lengths_of_one_two_and_three_bytes(length: int) -> None:
    records = [Record(0, 0, bytes(length), None), Record(1, 2**40, None, bytes(length)), Record(300, 0, bytes(length), bytes(length))]
    data = build(records)
    assert content_size(data, 0, read_header(data), PLENTY) == (3, 4 * length)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_corrupted_records_give_a_size_or_an_error(codec: Codec) -> None:
    good = build(client_records(2)[:6], codec=codec)
    refused = 0
    for corrupted in mutations(good):
        header = value_or_error(batch.read_header, corrupted)
        if isinstance(header, BatchHeader):
            refused += isinstance(value_or_error(content_size, corrupted, 0, header, PLENTY), BrokerError)
    assert refused > 50


def test_too_large_decompressed_records_are_refused() -> None:
    data = build([Record(0, 0, None, bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(BrokerError, match="more than 50000 bytes"):
        content_size(data, 0, read_header(data), 50_000)
