"""The codecs of record batches: gzip, snappy, lz4 and zstd, as Kafka's Java client writes and reads them. All decompression is bounded."""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    """Compression codecs by their ids in a batch's attributes (`org.apache.kafka.common.record.CompressionType`)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS = tuple(Codec)


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data` compressed at `level` (Kafka's `compression.<codec>.level`; None: Kafka's default). `magic`: of the batch that it is for."""
    raise NotImplementedError


def decompress(codec: Codec, data: bytes | bytearray | memoryview, size_max: int, *, magic: int = 2) -> bytes:
    """What `data` decompresses to, at most `size_max` bytes (else MESSAGE_TOO_LARGE); CorruptRecords when `data` is not whole and sound."""
    raise NotImplementedError
