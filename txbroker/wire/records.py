"""The records inside a batch (magic 2): reading them, bounded, and building batches from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.compression import Codec


class Record(NamedTuple):
    """One record. Header names are UTF-8; bytes that are not survive as surrogate escapes, so that a rebuilt batch is the same."""

    offset: int
    timestamp: int  # ms; -1: none (magic 0)
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_records(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> Iterator[Record]:
    """The records of the batch at `position`; its CRC is the caller's matter (`check_crc`).

    CorruptRecords when any length, count or delta does not hold, also in the middle of the iteration; MESSAGE_TOO_LARGE when the
    records take more than `bytes_max` bytes once decompressed.
    """
    raise NotImplementedError


def keys_present(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> bool:
    """Whether every record of the batch has a key (a compacted topic demands it). Errors as `read_records`."""
    raise NotImplementedError


def build(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """One batch of `records` (at least one, offsets ascending from `base_offset`, which is the first record's unless given).

    With `log_append_time` (ms) that is every record's timestamp; their own stay readable in the deltas, as Kafka leaves them.
    """
    raise NotImplementedError


def recompress(buffer: Buffer, position: int, header: BatchHeader, codec: Codec, bytes_max: int, *, level: int | None = None) -> bytes:
    """The batch at `position` with its records compressed by another codec, nothing else changed (topic config `compression.type`)."""
    raise NotImplementedError
