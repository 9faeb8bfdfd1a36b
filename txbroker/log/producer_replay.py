"""Updating the state of producers from batches in the log."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.errors import BrokerError
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.markers import read_marker
from txbroker.log.producers import ProducerStates
from txbroker.log.segment import Segment
from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.entries import EntryHeader


def replay_batch(producers: ProducerStates, buffer: Buffer, position: int, header: EntryHeader) -> AbortedTransaction | None:
    """Update the state with one batch, which was checked when it was appended; returns the transaction that it aborted, if any."""
    if header.producer_id < 0 or not isinstance(header, BatchHeader):
        return None
    if not header.control:
        producers.update(header, header.base_offset)
        return None
    if not header.count:
        producers.take_epoch_of_cleaned_marker(header)
        return None
    try:
        marker = read_marker(buffer, position, header)
    except BrokerError:
        return None  # its CRC is right, so a producer wrote it like this: recovery goes on
    return producers.end_transaction(marker, header.base_offset) if marker is not None else None


def replay_range(producers: ProducerStates, segments: Sequence[Segment], start: int, end: int) -> None:
    """Update the state with all batches that end in [start, end)."""
    for at, segment in enumerate(segments):
        segment_end = segments[at + 1].base_offset if at + 1 < len(segments) else end
        if segment_end <= start or segment.base_offset >= end:
            continue
        for _, buffer, position, header in segment.batches_from(start):
            if header.last_offset >= end:
                return
            replay_batch(producers, buffer, position, header)
