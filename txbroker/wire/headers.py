"""Request and response headers, and the frame around them.

A frame is an int32 size and that many bytes. A request header (v1) is api key, api version, correlation id and a nullable client
id; v2, for flexible versions, adds a tag section, and v0, for ControlledShutdown v0 only, has no client id. A response header
is the correlation id (v0), with a tag section in flexible versions (v1), except for ApiVersions, whose response must be readable by a
client that does not know the broker's versions yet (KIP-511).
"""

from __future__ import annotations

import struct

from txbroker.errors import ProtocolError
from txbroker.wire.primitives import read_uvarint
from txbroker.wire.schema import Request

CONTROLLED_SHUTDOWN_KEY = 7
SASL_HANDSHAKE_KEY = 17
API_VERSIONS_KEY = 18
SASL_AUTHENTICATE_KEY = 36

# What every request starts with: api key, api version, correlation id.
FIXED_REQUEST_HEADER = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_CORRELATION_NO_TAGS = struct.Struct(">iiB")

# No header tag is defined yet.
HEADER_TAGS_MAX = 64


FLEXIBLE_HEADER = 2  # the request header of flexible versions, which ends with tags


def request_header_version(request: type[Request], version: int) -> int:
    """0, 1 or 2: which header precedes this request."""
    if version in request.flexible:
        return FLEXIBLE_HEADER
    return 0 if request.api_key == CONTROLLED_SHUTDOWN_KEY and version == 0 else 1


def response_header_version(request: type[Request], version: int) -> int:
    """0 or 1: which header precedes the response to this request."""
    return 1 if version in request.flexible and request.api_key != API_VERSIONS_KEY else 0


def read_client_id(frame: memoryview, header_version: int) -> tuple[str | None, int]:
    """The client id of a request and the position of its body; `frame` starts at the api key. ProtocolError when it is malformed."""
    if header_version == 0:
        return None, FIXED_REQUEST_HEADER.size
    try:
        (length,) = _LENGTH.unpack_from(frame, 8)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise ProtocolError("the client id does not fit into the frame")
            client_id = str(frame[10:position], "utf-8")
        if header_version == 2:
            if frame[position] == 0:
                position += 1
            else:
                position = _skip_tags(frame, position, "request")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError("the request header is incomplete or malformed") from error
    return client_id, position


def _skip_tags(frame: memoryview, position: int, kind: str) -> int:
    count, position = read_uvarint(frame, position)
    if count > HEADER_TAGS_MAX:
        raise ProtocolError(f"the {kind} header has {count} tags, more than {HEADER_TAGS_MAX}")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise ProtocolError("a header tag does not fit into the frame")
    return position


def response_body_position(frame: memoryview, header_version: int) -> int:
    """Where the body of a response begins; `frame` starts at the correlation id. ProtocolError when the header is malformed."""
    if header_version == 0:
        return 4
    try:
        return _skip_tags(frame, 4, "response")
    except IndexError as error:
        raise ProtocolError("the response header is incomplete") from error


def response_prefix(header_version: int, body_size: int, correlation_id: int) -> bytes:
    """The frame's size and the response header, to be put before `body_size` bytes."""
    if header_version == 0:
        return _SIZE_AND_CORRELATION.pack(body_size + 4, correlation_id)
    return _SIZE_CORRELATION_NO_TAGS.pack(body_size + 5, correlation_id, 0)


def request_prefix(request: type[Request], version: int, correlation_id: int, client_id: str | None, body_size: int) -> bytes:
    """The frame's size and the request header, to be put before `body_size` bytes."""
    header_version = request_header_version(request, version)
    header = FIXED_REQUEST_HEADER.pack(request.api_key, version, correlation_id)
    if header_version > 0:
        text = b"" if client_id is None else client_id.encode()
        header += _LENGTH.pack(-1 if client_id is None else len(text)) + text
    if header_version == 2:
        header += b"\0"
    return struct.pack(">i", len(header) + body_size) + header
