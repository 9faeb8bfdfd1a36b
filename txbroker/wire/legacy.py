"""Message sets, the record formats before Kafka 0.11: magic 0, and magic 1 with timestamps (KIP-32)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from txbroker.wire.batch import LOG_APPEND_TIME, Buffer
from txbroker.wire.compression import CODECS, Codec
from txbroker.wire.records import Record


@dataclass(slots=True)
class MessageHeader:
    """One entry of a message set; has every attribute that a BatchHeader has and a log may ask for.

    `last_offset` is the entry's offset field: of the last inner message if it is a wrapper (a compressed message set).
    """

    last_offset: int
    size: int
    magic: int
    crc: int
    attributes: int
    max_timestamp: int  # ms; -1 in magic 0

    leader_epoch: ClassVar[int] = -1
    producer_id: ClassVar[int] = -1
    producer_epoch: ClassVar[int] = -1
    base_sequence: ClassVar[int] = -1
    transactional: ClassVar[bool] = False
    control: ClassVar[bool] = False
    delete_horizon: ClassVar[None] = None

    @property
    def codec(self) -> Codec:
        """What a wrapper's inner message set is compressed with; NONE: this is a plain message."""
        return CODECS[self.attributes & 0x07]

    @property
    def log_append_time(self) -> bool:
        """Whether the broker set the timestamp (magic 1 only); a wrapper's is then that of its inner messages."""
        return self.magic == 1 and self.attributes & LOG_APPEND_TIME != 0


def read_header(buffer: Buffer, position: int = 0) -> MessageHeader:
    """The header of the message at `position`, all of which must be in `buffer`; CorruptRecords otherwise."""
    raise NotImplementedError


def check_crc(buffer: Buffer, position: int, header: MessageHeader) -> None:
    """Raise CorruptRecords unless the message's CRC-32 is that of its bytes."""
    raise NotImplementedError


def iterate(buffer: Buffer) -> Iterator[tuple[int, MessageHeader]]:
    """The whole messages (wrappers unopened) of a set as (position, header); a torn tail ends it, nonsense raises CorruptRecords."""
    raise NotImplementedError


def read_records(buffer: Buffer, position: int, header: MessageHeader, bytes_max: int) -> Iterator[Record]:
    """The record of the message at `position`, or those inside the wrapper; errors as `records.read_records`."""
    raise NotImplementedError


def build(
    records: Sequence[Record], *, magic: int, codec: Codec = Codec.NONE, level: int | None = None, log_append_time: int | None = None
) -> bytes:
    """A message set of `records` (headers are dropped, magic 0 drops timestamps), in one wrapper unless `codec` is NONE."""
    raise NotImplementedError
