"""Headers of frames: every version, invalid ones, and those of other clients."""

from __future__ import annotations

import struct

import pytest

from txbroker.errors import ProtocolError
from txbroker.wire.headers import read_client_id, request_header_version, request_prefix, response_header_version, response_prefix
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from txbroker.wire.messages.fetch import FetchRequest


def test_header_versions_follow_flexibility_and_its_exceptions() -> None:
    assert [request_header_version(FetchRequest, v) for v in (0, 11, 12)] == [1, 1, 2]
    assert [response_header_version(FetchRequest, v) for v in (0, 11, 12)] == [0, 0, 1]
    assert [request_header_version(ApiVersionsRequest, v) for v in (2, 3)] == [1, 2]
    assert response_header_version(ApiVersionsRequest, 3) == 0, "a client decodes it before it knows the broker's versions"
    assert [request_header_version(ControlledShutdownRequest, v) for v in (0, 1, 3)] == [0, 1, 2]


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ü"])
@pytest.mark.parametrize("version", [11, 12])
def test_headers_are_decoded_as_encoded(client_id: str | None, version: int) -> None:
    frame = request_prefix(FetchRequest, version, 7, client_id, 3)
    size, key, api_version, correlation_id = struct.unpack_from(">ihhi", frame)
    assert (size, key, api_version, correlation_id) == (len(frame) - 4 + 3, 1, version, 7)
    read, position = read_client_id(memoryview(frame)[4:], request_header_version(FetchRequest, version))
    assert (read, position) == (client_id, len(frame) - 4)


def test_response_prefixes() -> None:
    assert response_prefix(0, 10, 5) == b"\0\0\0\x0e\0\0\0\x05"
    assert response_prefix(1, 10, 5) == b"\0\0\0\x0f\0\0\0\x05\0"


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = b"\0\1\0\x0c\0\0\0\1" + b"\0\1c" + b"\2" + b"\0\2ab" + b"\5\0" + b"body"
    client_id, position = read_client_id(memoryview(frame), 2)
    assert client_id == "c"
    assert frame[position:] == b"body"


@pytest.mark.parametrize(
    "after",
    [b"", b"\0", b"\x7f\xff", b"\0\5abc", b"\0\1\xff\0", b"\0\0", b"\0\0\xff\xff\xff\xff\xff\xff", b"\0\0\1\0\x7fab", b"\0\0\x7f"],
)
def test_invalid_headers_are_protocol_errors(after: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_client_id(memoryview(b"\0\1\0\x0c\0\0\0\1" + after), 2)
