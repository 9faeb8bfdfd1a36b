"""Finding a producer's last batches in the log.

A snapshot, whose format is Kafka's, has one batch per producer, while a client may have several in flight. When the broker ends before it
has answered them, the client sends all of them again, and those that are in the log must be recognised as duplicates: refused as out of
order, clients take a new epoch and write them twice. So before a batch with an earlier sequence is refused, the log is searched
once for the producer's batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from txbroker.log.producers import BATCHES_REMEMBERED, ProducerBatch, ProducerState, add_sequence
from txbroker.log.scan import LOOK_CHUNK_BYTES, Walk
from txbroker.log.segment import Segment
from txbroker.wire.batch import BatchHeader

# How much of the log is read backwards: ten of the largest batches by Kafka's default, or five and as much between them.
BYTES_MAX = 10 << 20


def find_batches(state: ProducerState, segments: Sequence[Segment]) -> bool:
    """Add the batches before the known ones to `state`; False when there are none. StorageError."""
    if not state.from_snapshot:
        return False
    state.from_snapshot = False
    known = list(state.batches)
    if not known or len(known) == BATCHES_REMEMBERED:
        return False
    earlier: list[ProducerBatch] = []
    for batch in reversed(_batches_before(state, known[0].first_offset, segments)):
        if add_sequence(batch.last_sequence, 1) != (earlier or known)[0].first_sequence:
            break
        earlier.insert(0, batch)
    state.batches = (earlier + known)[-BATCHES_REMEMBERED:]
    return bool(earlier)


def _batches_before(state: ProducerState, offset: int, segments: Sequence[Segment]) -> list[ProducerBatch]:
    """The last batches of the producer, in its epoch, below `offset`, within BYTES_MAX."""
    found: list[ProducerBatch] = []
    at = bisect_right([segment.base_offset for segment in segments], offset) - 1
    left = BYTES_MAX
    while at >= 0 and left > 0 and len(found) < BATCHES_REMEMBERED:
        segment = segments[at]
        end = segment.end_position(offset)
        start = segment.offset_index.border_before(max(end - left, 0))
        found = _batches_in(segment, start, end, state) + found
        left -= end - start
        at -= 1
    return found[-BATCHES_REMEMBERED:]


def _batches_in(segment: Segment, start: int, end: int, state: ProducerState) -> list[ProducerBatch]:
    found: deque[ProducerBatch] = deque(maxlen=BATCHES_REMEMBERED)
    for entry in Walk(segment.file, start, end, check_crc=True, chunk_bytes=LOOK_CHUNK_BYTES):
        batch = entry.header
        if batch.producer_id != state.producer_id or batch.producer_epoch != state.epoch or batch.control:
            continue
        if isinstance(batch, BatchHeader):
            first, last = batch.base_sequence, add_sequence(batch.base_sequence, batch.last_offset_delta)
            found.append(ProducerBatch(first, last, batch.base_offset, batch.last_offset, batch.max_timestamp))
    return list(found)
