"""Between record batches and the older message sets: up for old producers, down for old consumers."""

from __future__ import annotations

from txbroker.wire.batch import Buffer
from txbroker.wire.compression import Codec


def to_v2(
    buffer: Buffer,
    *,
    bytes_max: int,
    codec: Codec | None = None,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    log_append_time: int | None = None,
) -> bytes:
    """A produced message set (magic 0 or 1) as one record batch, offsets counted from `base_offset`; b"" when it has no whole message."""
    raise NotImplementedError


def from_v2(buffer: Buffer, magic: int, *, first_offset: int, bytes_max: int) -> bytes:
    """What a fetch that knows `magic` (0 or 1) at most gets for the log bytes in `buffer`."""
    raise NotImplementedError
