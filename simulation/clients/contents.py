"""How the unique texts that clients send are put into records: a text is its key, which may be empty, a slash, and more."""

from __future__ import annotations

from zlib import crc32

from txbroker.wire.records import Record

TEXT = "text"  # the header of a tombstone


def record(delta: int, timestamp: int, text: bytes, tombstones: float = 0.0) -> Record:
    """The record of a text, always the same one. `tombstones`: the share of texts whose record has no value."""
    key = text.partition(b"/")[0] or None
    if key is not None and crc32(text) % 1000 < tombstones * 1000:
        return Record(delta, timestamp, key, None, ((TEXT, text),))
    return Record(delta, timestamp, key, text)


def text_of(found: Record) -> bytes:
    """The text of a record."""
    return bytes(found.value if found.value is not None else dict(found.headers).get(TEXT) or b"")
