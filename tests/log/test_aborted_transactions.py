"""Aborted transactions found in batches, and batches looked up in them, beside a model that knows each transaction's outcome."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from txbroker.log.aborted_transactions import UNKNOWN_END, AbortedBatches, TransactionScan, aborted_in
from txbroker.log.log_results import AbortedTransaction
from txbroker.wire.batch import read_header
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.messages import fetch
from txbroker.wire.records import Record, build


@dataclass(slots=True)
class Batch:
    """`transaction`: a number, -1 without one; `marker`: how it ended."""

    data: bytes
    producer_id: int
    transaction: int
    marker: Marker | None


def random_log(random: Random) -> tuple[list[Batch], dict[int, bool | None]]:
    """Batches of some producers, and of each transaction whether it was committed; None: it is open."""
    batches: list[Batch] = []
    outcomes: dict[int, bool | None] = {}
    current: dict[int, int] = {}
    offset = random.randrange(3)
    for _ in range(random.randrange(60)):
        producer_id = random.randrange(4)
        transaction = current.get(producer_id)
        if transaction is not None and random.random() < 0.4:
            marker = Marker(random.random() < 0.5, 0)
            data = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=offset)
            outcomes[current.pop(producer_id)] = marker.committed
            batches.append(Batch(data, producer_id, transaction, marker))
            offset += 1
            continue
        count, transactional = 1 + random.randrange(3), random.random() < 0.8 or transaction is not None
        if transactional and transaction is None:
            transaction = current[producer_id] = len(outcomes)
            outcomes[transaction] = None
        records = [Record(offset + i, 1, b"k", b"v") for i in range(count)]
        data = build(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional)
        batches.append(Batch(data, producer_id, -1 if transaction is None else transaction, None))
        offset += count + random.randrange(2)
    return batches, outcomes


def scanned(batches: list[Batch]) -> TransactionScan:
    scan = TransactionScan()
    for batch in batches:
        scan.add(batch.data, 0, read_header(batch.data))
    return scan


def test_a_scan_finds_the_aborted_and_the_open_transactions() -> None:
    for seed in range(150):
        batches, outcomes = random_log(Random(seed))
        scan = scanned(batches)
        expected = set()
        for transaction, committed in outcomes.items():
            if committed is False:
                mine = [read_header(batch.data) for batch in batches if batch.transaction == transaction]
                expected.add(AbortedTransaction(mine[0].producer_id, mine[0].base_offset, mine[-1].last_offset, -1))
        assert set(scan.aborted) == expected
        open_now = {batch.producer_id for batch in batches if outcomes.get(batch.transaction, True) is None}
        assert scan.open.keys() == open_now


def test_batches_are_found_in_their_aborted_transaction() -> None:
    for seed in range(150):
        random = Random(seed)
        batches, outcomes = random_log(random)
        left_out = {number for number in range(len(batches)) if random.random() < 0.3}
        aborted = AbortedBatches(scanned(batches).hidden())
        for number, batch in enumerate(batches):
            header = read_header(batch.data)
            if number in left_out or not header.transactional:
                continue
            found = aborted.find(batch.producer_id, header.base_offset, header.last_offset)
            hidden = outcomes[batch.transaction] in (False, None)
            assert (found is not None) == hidden, (seed, number)


def test_transactions_of_a_fetch_response_end_with_their_markers() -> None:
    for seed in range(150):
        batches, outcomes = random_log(Random(seed))
        named = [
            fetch.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in scanned(batches).aborted
        ]
        known = aborted_in(fetch.PartitionData(partition_index=0, error_code=0, high_watermark=0, aborted_transactions=named, records=None))
        assert {one.last_offset for one in known} <= {UNKNOWN_END}
        aborted = AbortedBatches(known)
        for batch in batches:
            header = read_header(batch.data)
            if not header.transactional:
                continue
            found = aborted.find(batch.producer_id, header.base_offset, header.last_offset)
            assert (found is not None) == (outcomes[batch.transaction] is False)
            if batch.marker is not None and not batch.marker.committed:
                aborted.end(batch.producer_id)


def test_a_fetch_response_without_aborted_transactions_names_none() -> None:
    without = fetch.PartitionData(partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=None)
    assert aborted_in(without) == []


def test_other_control_batches_end_no_transaction() -> None:
    scan = TransactionScan()
    data = build([Record(0, 1, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    leader_change = build([Record(1, 1, b"\0\0\0\2", b"\0" * 8)], producer_id=1, producer_epoch=0, transactional=True, control=True)
    nonsense = build([Record(2, 1, b"\0", None)], producer_id=1, producer_epoch=0, transactional=True, control=True)
    for batch in (data, leader_change, nonsense):
        scan.add(batch, 0, read_header(batch))
    assert scan.open == {1: 0} and not scan.aborted
