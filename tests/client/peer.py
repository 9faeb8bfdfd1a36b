"""What a broker sends: responses to the requests that a client machine has sent, made with `txbroker.wire`."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from txbroker.client.client_machine import ClientMachine, ClientSettings
from txbroker.wire.codec import encode
from txbroker.wire.headers import response_header_version, response_prefix
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from txbroker.wire.schema import Request, Response

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
VERSIONS = {ApiVersionsRequest.api_key: (0, 4), HeartbeatRequest.api_key: (0, 4)}


class Sent(NamedTuple):
    """A request as the broker sees it."""

    api_key: int
    version: int
    correlation_id: int


def take_requests(machine: ClientMachine[Any]) -> list[Sent]:
    """The requests that the machine has to send; they count as sent."""
    data = b""
    while machine.unsent:
        part = b"".join(machine.outgoing())
        machine.sent(len(part))
        data += part
    return requests_in(data)


def requests_in(data: bytes) -> list[Sent]:
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        found.append(Sent(*struct.unpack_from(">hhi", data, 4)))
        data = data[4 + size :]
    return found


def response_bytes(kind: type[Request], version: int, correlation_id: int, response: Response) -> bytes:
    body = b"".join(encode(response, version))
    return response_prefix(response_header_version(kind, version), len(body), correlation_id) + body


def versions_response(sent: Sent, versions: dict[int, tuple[int, int]] = VERSIONS, error_code: int = 0) -> bytes:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()]
    response = ApiVersionsResponse(error_code=error_code, api_keys=keys)
    return response_bytes(ApiVersionsRequest, 0 if error_code else sent.version, sent.correlation_id, response)


def heartbeat_response(sent: Sent, error_code: int = 0) -> bytes:
    return response_bytes(HeartbeatRequest, sent.version, sent.correlation_id, HeartbeatResponse(error_code=error_code))


def connecting_machine(now_s: float = 0.0, **settings: Any) -> ClientMachine[Any]:
    """A machine whose connection is there, and whose ApiVersions request is not answered."""
    machine: ClientMachine[Any] = ClientMachine("broker:9092", ClientSettings(**settings), lambda: 0.5)
    machine.connect_started(now_s)
    machine.connected(now_s)
    return machine


def ready_machine(now_s: float = 0.0, versions: dict[int, tuple[int, int]] = VERSIONS, **settings: Any) -> ClientMachine[Any]:
    """A machine that has negotiated these versions."""
    machine = connecting_machine(now_s, **settings)
    (sent,) = take_requests(machine)
    assert machine.feed(versions_response(sent, versions)) == []
    assert machine.ready
    return machine
