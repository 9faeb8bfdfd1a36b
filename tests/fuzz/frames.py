"""Requests of every served API and version, generated from their declarations, and mutations of their bytes.

All choices are made by a `Pick`, a function that returns a number below its argument, from a seed or a fuzzer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from txbroker.api.registry import Registry
from txbroker.wire.codec import encode_bytes
from txbroker.wire.compression import Codec
from txbroker.wire.fieldkinds import Kind, Resolved, resolve
from txbroker.wire.headers import request_prefix
from txbroker.wire.legacy import build as build_legacy
from txbroker.wire.records import Record, build
from txbroker.wire.schema import Request, Struct, response_class

Pick = Callable[[int], int]

TOPICS = ("known", "compacted", "stamped")  # created by the harness, with two partitions each
GROUP = "group"
TOPIC_IDS: list[bytes] = []  # the ids of TOPICS, set by the harness
_SIZE = struct.Struct(">i")

_STRINGS = ("", *TOPICS, *TOPICS, GROUP, GROUP, "consumer", "range", "a", "member-1", "t\u00e4xt", "x" * 249, "x" * 32_767, ".",
            "../../etc/passwd", "__consumer_offsets", "new-topic", "1", "0", "\0", "\U0001f511" * 40)
_CONFIGS = ("retention.ms", "cleanup.policy", "compression.type", "max.message.bytes", "segment.bytes", "message.timestamp.type", "no.such",
            "min.insync.replicas", "follower.replication.throttled.replicas", "log.retention.ms", "log.dirs", "flush.messages")
_VALUES = ("-1", "1", "100000", "compact", "compact,delete", "gzip", "zstd", "LogAppendTime", "x" * 5000, "", "1e9", "9" * 40)
_INTEGERS = (0, 0, 0, 1, 1, -1, -1, 2, 3, -2, -3, 100, 1000)
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
# Numbers that determine how much work the broker does are kept small.
_SMALL = {"num_partitions", "count"}
_COUNTS = (0, 1, 1, 1, 1, 2, 2, 3, 40)


class Served:
    """The (request class, version) pairs of a registry."""

    def __init__(self, registry: Registry, requests: dict[int, type[Request]]) -> None:
        ranges = registry.ranges()
        self.pairs = [(requests[key], version) for key, (low, high) in ranges.items() for version in range(low, high + 1)]

    def choose(self, pick: Pick) -> tuple[type[Request], int]:
        return self.pairs[pick(len(self.pairs))]


def pick_from(data: bytes) -> Pick:
    """A `Pick` that reads its choices from bytes, and returns 0 at their end; hypothesis or the fuzzer selects the bytes."""
    left = memoryview(data)

    def pick(below: int) -> int:
        nonlocal left
        size = ((below - 1).bit_length() + 7) // 8
        chosen, left = left[:size], left[size:]
        return int.from_bytes(chosen, "big") % below

    return pick


def one_of(pick: Pick, options: Sequence[Any]) -> Any:
    return options[pick(len(options))]


def request_frame(cls: type[Request], version: int, correlation_id: int, pick: Pick) -> bytes:
    """A complete frame with its size, valid in this version."""
    body = encode_bytes(make(cls, version, pick), version)
    client_id = one_of(pick, (None, "", "fuzz", "fuzz", "fuzz", "__admin_client", "\u00e4" * 100))
    return request_prefix(cls, version, correlation_id, client_id, len(body)) + body


def make(cls: type[Struct], version: int, pick: Pick, depth: int = 0) -> Any:
    """A message or struct with values for the fields of this version."""
    values = {}
    for field in resolve(cls):
        if field.tagged(version) and pick(2):
            continue
        if field.carried(version) or field.tagged(version):
            values[field.name] = _value(field, field.kind, field.nullable(version), version, pick, depth)
    return cls(**values)


def _value(field: Resolved, kind: Kind, nullable: bool, version: int, pick: Pick, depth: int) -> Any:
    if nullable and not pick(4):
        return None
    if kind.struct is not None:
        return make(kind.struct, version, pick, depth + 1)
    if kind.element is not None:
        count = one_of(pick, _COUNTS) if depth < 2 else pick(3)
        return [_value(field, kind.element, kind.element.nullable, version, pick, depth + 1) for _ in range(count)]
    return _plain(field.name, kind.name, pick)


def _plain(name: str, kind: str, pick: Pick) -> Any:
    if kind == "bool":
        return bool(pick(2))
    if kind == "float64":
        return one_of(pick, (0.0, -1.5, 1e300))
    if kind == "uuid":
        return one_of(pick, (*TOPIC_IDS, *TOPIC_IDS, bytes(16), bytes(range(16)), bytes(15) + b"\1"))
    if kind == "string":
        return _text(name, pick)
    if kind == "records":
        return one_of(pick, batches())
    if kind == "bytes":
        return one_of(pick, (b"", b"\0", b"\0\1\0\0\0\1\0\5known\xff\xff\xff\xff", b"\xff" * 30, bytes(2000)))
    return _integer(name, kind, pick)


def _text(name: str, pick: Pick) -> str:
    if name == "name" and not pick(3):
        return str(one_of(pick, _CONFIGS))
    return str(one_of(pick, _VALUES if name == "value" else _STRINGS))


def _integer(name: str, kind: str, pick: Pick) -> int:
    bits = _BITS[kind]
    how = pick(12)
    if how == 0 and name not in _SMALL:
        value = pick(1 << bits)
    elif how == 1:
        value = (1 << bits) - 1
    elif how == 2 and kind.startswith("int"):
        return -(1 << bits)
    else:
        value = _INTEGERS[pick(len(_INTEGERS))]
    if kind.startswith("u"):
        return abs(value) & ((1 << bits) - 1)
    return max(-(1 << bits), min(value, (1 << bits) - 1))


@cache
def batches() -> tuple[bytes, ...]:
    """Records of every format and codec, and some invalid ones."""
    records = [Record(i, 1_700_000_000_000 + i, b"key" if i % 2 else None, b"value" * i, (("header", b"x"),)) for i in range(5)]
    good = [build(records, codec=codec) for codec in Codec]
    good += [build(records, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (0, 5, 100)]
    good += [build(records, producer_id=8, producer_epoch=1, base_sequence=0, transactional=True), build(records, control=True)]
    good += [build_legacy(records, magic=magic, codec=codec) for magic in (0, 1) for codec in Codec if codec is not Codec.ZSTD]
    return (*good, b"", bytes(61), b"\xff" * 100, good[0] + good[1], good[2][:-3])


# --- mutations ---

_EXTREMES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff", b"\x7f\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0",
             b"\0\0\0\0", b"\0\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\1", b"\0\1\x86\xa0",
             b"\xa1\x8d\6")


def mutated(data: bytes, pick: Pick, start: int = 0) -> bytes:
    """`data` with some bytes from `start` on changed, inserted, removed or duplicated."""
    changed = bytearray(data)
    for _ in range(1 + pick(4)):
        if len(changed) <= start:
            break
        at = start + pick(len(changed) - start)
        how = pick(6)
        if how == 0:
            changed[at] ^= 1 << pick(8)
        elif how == 1:
            extreme = _EXTREMES[pick(len(_EXTREMES))]
            changed[at : at + len(extreme)] = extreme
        elif how == 2:
            changed[at:at] = _EXTREMES[pick(len(_EXTREMES))]
        elif how == 3:
            del changed[at : at + 1 + pick(16)]
        elif how == 4:
            changed[at:at] = changed[at : at + 1 + pick(64)]
        else:
            del changed[at:]
    return bytes(changed)


def mutated_frame(frame: bytes, pick: Pick) -> bytes:
    """A frame with corrupted content, mostly with a valid size."""
    changed = mutated(frame, pick, start=_SIZE.size)
    content = changed[_SIZE.size :]
    if pick(20):
        return _SIZE.pack(len(content)) + content
    return changed


def described(cls: type[Request], version: int) -> str:
    """For messages: Fetch v12."""
    return f"{cls.__name__.removesuffix('Request')} v{version}"


def readable_answer(cls: type[Request]) -> type[Any]:
    """The response class of a request."""
    return response_class(cls)
