"""Which fetched batches the mirror copies and which it drops."""

from __future__ import annotations

from txbroker.log.aborted_transactions import UNKNOWN_END
from txbroker.log.log_results import AbortedTransaction
from txbroker.mirror.batches import Rules, Run, Tally, prepare
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.records import Record, build

PRODUCER = 7


def data(offset: int, *, producer_id: int = PRODUCER, transactional: bool = True) -> bytes:
    """A batch of two records."""
    records = [Record(offset + index, 1, b"k", b"v") for index in range(2)]
    return build(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional)


def marker(offset: int, *, committed: bool) -> bytes:
    return build_marker(Marker(committed, 0), producer_id=PRODUCER, producer_epoch=0, timestamp=1, base_offset=offset)


def aborted(first_offset: int) -> AbortedTransaction:
    return AbortedTransaction(PRODUCER, first_offset, UNKNOWN_END, -1)


def test_batches_of_aborted_transactions_and_markers_are_dropped() -> None:
    first = data(0) + data(2, producer_id=8) + data(4, transactional=False) + marker(6, committed=False)
    second = data(7) + marker(9, committed=True)
    tally = Tally()
    ready, position = prepare(first + second, [aborted(0)], 0, Rules(), tally)
    assert [batch.runs for batch in ready] == [(Run(2, 2),), (Run(4, 2),), (Run(7, 2),)]
    assert position == 10
    assert (tally.passed, tally.aborted, tally.aborted_records, tally.control) == (3, 1, 2, 2)


def test_a_fetch_that_begins_at_an_abort_marker_copies_what_the_producer_committed_after_it() -> None:
    """The broker names the transaction, because its marker is in the response; its data were in the response before."""
    tally = Tally()
    ready, position = prepare(marker(6, committed=False) + data(7) + marker(9, committed=True), [aborted(0)], 6, Rules(), tally)
    assert [batch.runs for batch in ready] == [(Run(7, 2),)]
    assert position == 10
    assert (tally.passed, tally.aborted, tally.control) == (1, 0, 2)
