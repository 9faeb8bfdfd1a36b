"""What the processes of one machine and the server of their metadata tree send each other: `tree_server.py` and `served_tree.py`.

A frame is its size, four bytes, and one message. The server sends a `TreeFrame` for each `TreeRequest`, in their order, one with the id of
the session before all others, and one for each change of a watched node.
"""

from __future__ import annotations

from enum import IntEnum

from txbroker.cluster.tree.interface import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NoSpaceInStore,
    NotEmpty,
    Op,
    OpResult,
    Refused,
    SessionExpired,
    Set,
    Stat,
    TooLarge,
    TreeError,
)
from txbroker.wire.codec import decoder, encode_bytes
from txbroker.wire.schema import Bool, Bytes, Int8, Int32, Int64, Message, String, Struct

VERSION = 0
# A multi of MULTI_OPS_MAX operations, or the children of a node, fit in; a node's data is at most DATA_SIZE_MAX bytes.
FRAME_BYTES_MAX = 64 << 20
ELEMENTS_MAX = 1 << 20
NO_INDEX = -1


class RequestKind(IntEnum):
    """The kind of a request. ONE is a single operation, whose error has no position."""

    GET = 0
    EXISTS = 1
    CHILDREN = 2
    ONE = 3
    MULTI = 4
    CLOSE = 5


class MessageKind(IntEnum):
    """The kind of a frame of the server."""

    SESSION = 0
    RESULT = 1
    ERROR = 2
    EVENT = 3


class TreeOp(Struct):
    """One operation; `kind` is the index of its class."""

    kind: Int8
    path: String
    data: Bytes | None
    version: Int32
    ephemeral: Bool
    sequential: Bool


class TreeRequest(Message, versions="0", flexible="0+"):
    """`ops` of ONE and MULTI; `path` and `watch` of the others."""

    kind: Int8
    path: String
    watch: Bool
    ops: list[TreeOp]


class NodeStat(Struct):
    """A `Stat`."""

    czxid: Int64
    mzxid: Int64
    version: Int32
    ephemeral_owner: Int64
    children_count: Int32


class TreeResult(Struct):
    """Of one operation: a path, a stat, or neither."""

    path: String | None
    stats: list[NodeStat]


class TreeFrame(Message, versions="0", flexible="0+"):
    """`number`: the session's id, or the index of an error's class or an event's type. `results` also has the stat of a read."""

    kind: Int8
    number: Int64
    path: String
    index: Int32
    data: Bytes | None
    names: list[String]
    results: list[TreeResult]


_OPS = (Check, Create, Set, Delete)
_ERRORS: tuple[type[TreeError], ...] = (
    TreeError, NoNode, NodeExists, BadVersion, NotEmpty, NoChildrenForEphemerals, SessionExpired, Refused, ConnectionLost, NoSpaceInStore,
    TooLarge,
)  # fmt: skip
_EVENTS = tuple(EventType)

decode_request = decoder(TreeRequest, VERSION, elements_max=ELEMENTS_MAX)
decode_frame = decoder(TreeFrame, VERSION, elements_max=ELEMENTS_MAX)


def framed(message: TreeRequest | TreeFrame) -> bytes:
    """A message with its size."""
    body = encode_bytes(message, VERSION)
    return len(body).to_bytes(4, "big") + body


def frame(
    kind: MessageKind,
    number: int = 0,
    path: str = "",
    *,
    index: int = NO_INDEX,
    data: bytes | None = None,
    names: list[str] | None = None,
    results: list[TreeResult] | None = None,
) -> bytes:
    """A frame of the server."""
    return framed(TreeFrame(kind=kind, number=number, path=path, index=index, data=data, names=names or [], results=results or []))


def to_struct(op: Op) -> TreeOp:
    """An operation as it is sent."""
    return TreeOp(
        kind=_OPS.index(type(op)),
        path=op.path,
        data=op.data if isinstance(op, Create | Set) else None,
        version=op.version if not isinstance(op, Create) else 0,
        ephemeral=isinstance(op, Create) and op.ephemeral,
        sequential=isinstance(op, Create) and op.sequential,
    )


def to_op(sent: TreeOp) -> Op:
    """An operation that was received; ValueError."""
    data = None if sent.data is None else bytes(sent.data)
    if sent.kind == _OPS.index(Check):
        return Check(sent.path, sent.version)
    if sent.kind == _OPS.index(Create):
        return Create(sent.path, data, sent.ephemeral, sent.sequential)
    if sent.kind == _OPS.index(Set):
        return Set(sent.path, data, sent.version)
    if sent.kind == _OPS.index(Delete):
        return Delete(sent.path, sent.version)
    raise ValueError(f"there is no operation {sent.kind}")


def to_result(result: OpResult) -> TreeResult:
    """The result of an operation, or a stat, as it is sent."""
    if isinstance(result, Stat):
        return TreeResult(path=None, stats=[NodeStat(**result._asdict())])
    return TreeResult(path=result, stats=[])


def from_result(sent: TreeResult) -> OpResult:
    """The result of an operation that was received."""
    for stat in sent.stats:
        return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeral_owner, stat.children_count)
    return sent.path


def error_frame(error: TreeError) -> bytes:
    """An error as it is sent. `names` has its `problem`."""
    index = NO_INDEX if error.index is None else error.index
    return frame(MessageKind.ERROR, _kind(error), error.path, index=index, names=[error.problem])


def _kind(error: TreeError) -> int:
    """The index of its class, or of the nearest one above it that is sent."""
    return next(_ERRORS.index(each) for each in type(error).__mro__ if each in _ERRORS)


def from_error(sent: TreeFrame) -> TreeError:
    """An error that was received."""
    kind = _ERRORS[sent.number] if 0 <= sent.number < len(_ERRORS) else ConnectionLost
    if kind is NoSpaceInStore:
        return NoSpaceInStore(sent.path, "".join(sent.names))
    return kind(sent.path, None if sent.index == NO_INDEX else sent.index, "".join(sent.names))


def event_frame(kind: EventType, path: str) -> bytes:
    """A change of a watched node, as it is sent."""
    return frame(MessageKind.EVENT, _EVENTS.index(kind), path)


def from_event(sent: TreeFrame) -> EventType:
    """The kind of a change that was received; ValueError."""
    if not 0 <= sent.number < len(_EVENTS):
        raise ValueError(f"there is no event {sent.number}")
    return _EVENTS[sent.number]
