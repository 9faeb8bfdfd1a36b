"""ZooKeeper's MultiRead, which reads many nodes with one request; kazoo does not have it.

Since ZooKeeper 3.6. An older server answers that it does not implement the request, and closes the connection. Sets no watches.
"""

from __future__ import annotations

from typing import Any, ClassVar

from kazoo.exceptions import EXCEPTIONS, KazooException, NoNodeError
from kazoo.protocol.serialization import GetData, MultiHeader, int_struct, stat_struct

from txbroker.lazy_dataclass import lazy_dataclass

_ERROR = -1
_END = MultiHeader(_ERROR, True, -1)

Node = tuple[bytes | None, Any]
"""A node's data, and its stat as kazoo's ZnodeStat."""


@lazy_dataclass(frozen=True, slots=True)
class MultiRead:
    """A request in the form of `kazoo.protocol.serialization`. Its result: each node, None where there is none, or the error."""

    paths: tuple[str, ...]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """The request without its header."""
        header = MultiHeader(GetData.type, False, -1).serialize()
        return b"".join([*(header + GetData(path, None).serialize() for path in self.paths), _END.serialize()])

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Node | KazooException | None]:
        """The response."""
        results: list[Node | KazooException | None] = []
        while True:
            header, offset = MultiHeader.deserialize(data, offset)
            if header.done:
                return results
            if header.type == _ERROR:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                results.append(None if code == NoNodeError.code else EXCEPTIONS[code]())
            else:
                node: Node = GetData.deserialize(data, offset)
                results.append(node)
                offset += int_struct.size + len(node[0] or b"") + stat_struct.size
