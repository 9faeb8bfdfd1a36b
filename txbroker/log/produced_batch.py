"""All that a produced batch needs before it is written, in one function: `prepare`.

A batch of format v2 from a client is nearly always valid, its producer's next one, and written as it is. `prepare` checks exactly that:
header and size limits, CRC-32C, decompression within the limits, a walk over the records with their timestamps and keys
(`wire/record_loops.py`), and epoch and sequence against the producer's state. Then it stamps base offset and leader epoch. It refuses
nothing: for any other batch it returns None and leaves the bytes as they are. That batch takes the readable way, `validate` and
`ProducerStates.check`, which finds its error or its duplicate, or corrects, converts or recompresses it. The readable way accepts what
`prepare` accepts, and would write the same bytes.

Cython compiles the module where a compiler is there when txbroker is installed (`setup.py`; types in `produced_batch.pxd`), and it is plain
Python otherwise. Both forms give the same results.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from txbroker.errors import BrokerError
from txbroker.log.log_config import Limits
from txbroker.log.producers import ProducerState
from txbroker.wire.batch import CODEC_MASK, HEADER, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL, crc32c_function
from txbroker.wire.codec_blocks import unlz4, unsnappy
from txbroker.wire.compression import CODECS, Codec, decompress
from txbroker.wire.record_loops import RECORDS_MAX, check_records

RECORDS_PER_BYTE_MAX = 4
"""Readers of a batch must be able to trust its count, and a bomb must be as large as the work it causes: each record has another offset
delta, so that no codec packs more than two of the smallest records into a byte (zstd, the densest, reaches 1.9)."""

# What a topic without full validation walks of the batches with several records (`validate`): uncompressed ones up to one of these sizes.
WALKED_BYTES_MAX = 4096
WALKED_RECORDS_MAX = 64

_CRC_BEGIN = 21
_KNOWN_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL
_CODECS = len(CODECS)
_SNAPPY, _LZ4 = int(Codec.SNAPPY), int(Codec.LZ4)
_NO_OFFSET = -1
_SEQUENCE_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_read_header = HEADER.unpack_from
_stamp = struct.Struct(">qii").pack_into  # base offset, length, leader epoch

_crc32c: Callable[[memoryview], int] | None = None


def _load_crc32c() -> Callable[[memoryview], int]:
    """The CRC-32C, on first use."""
    global _crc32c
    _crc32c = crc32c_function()
    return _crc32c


# Last offset delta, largest timestamp, producer id (-1: none), its epoch and its first sequence, whether the batch is transactional.
Prepared = tuple[int, int, int, int, int, bool]


def prepare(
    batch: memoryview, limits: Limits, states: dict[int, ProducerState], now_ms: int, first_offset: int, leader_epoch: int
) -> Prepared | None:
    """Check a client's batch, which must be contiguous and writable, and stamp it with its first offset and the leader epoch.

    `states`: the partition's producers, of which none waits for the verification of its transaction. None: the batch needs the readable
    way, and nothing has changed.
    """
    size_max, unpacked_max, before_max_ms, after_max_ms, keyed, topic_codec, full = limits
    size = len(batch)
    if size < HEADER_SIZE or size > size_max:
        return None
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        base_time,
        max_time,
        producer_id,
        producer_epoch,
        sequence,
        count,
    ) = _read_header(batch, 0)
    codec = attributes & CODEC_MASK
    if (
        magic != 2
        or length != size - LOG_OVERHEAD
        or base_offset != 0
        or attributes & ~_KNOWN_ATTRIBUTES
        or codec >= _CODECS
        or (topic_codec >= 0 and codec != topic_codec)
        or count < 1
        or count != last_delta + 1
        or count > RECORDS_MAX
        or count > size * RECORDS_PER_BYTE_MAX
        or now_ms < 0
        or base_time < 0
        or max_time < 0
        or max_time - now_ms > after_max_ms
        or last_delta > _OFFSET_MAX - 1 - first_offset
        or not (full or count == 1 or (codec == 0 and (size <= WALKED_BYTES_MAX or count <= WALKED_RECORDS_MAX)))
    ):
        return None
    state: Any = None
    transactional = attributes & TRANSACTIONAL != 0
    if producer_id >= 0:
        if sequence < 0:
            return None
        state = states.get(producer_id)
        if state is not None:
            epoch = state.epoch
            if producer_epoch == epoch:
                expected = (state.last_sequence + 1) & _SEQUENCE_MAX
            elif producer_epoch > epoch:
                expected = 0
            else:
                return None
            if sequence != expected or (not transactional and state.txn_first_offset != _NO_OFFSET):
                return None
    elif transactional:
        return None
    if crc != (_crc32c or _load_crc32c())(batch[_CRC_BEGIN:]):
        return None
    try:
        if codec == 0:
            earliest, latest, _, keyless = check_records(batch, HEADER_SIZE, size, count, True)
        else:
            compressed = batch[HEADER_SIZE:]
            unpacked = None
            if codec == _SNAPPY:
                unpacked = unsnappy(compressed, unpacked_max)
            elif codec == _LZ4:
                unpacked = unlz4(compressed, unpacked_max)
            if unpacked is None:
                unpacked = decompress(CODECS[codec], compressed, unpacked_max, produced=True)
            earliest, latest, _, keyless = check_records(unpacked, 0, len(unpacked), count, True)
    except (BrokerError, IndexError):
        return None
    if latest != max_time - base_time or base_time + earliest < now_ms - before_max_ms or (keyed and keyless >= 0):
        return None
    _stamp(batch, 0, first_offset, length, leader_epoch)
    return last_delta, max_time, producer_id, producer_epoch, sequence, transactional
