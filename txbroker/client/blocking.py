"""A blocking connection to a broker in this project's own messages: one request, one answer, and failures told apart.

For the commands that need more than a client library gives: `perf-produce` and `perf-consume` make and count record batches themselves,
and `doctor` wants to know how exactly a connection fails. It speaks PLAINTEXT.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from txbroker import __version__
from txbroker.cli.clients import addresses
from txbroker.cli.failures import CommandFailed
from txbroker.errors import ErrorCode, ProtocolError
from txbroker.wire.codec import decode, encode
from txbroker.wire.headers import request_prefix, response_header_version
from txbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.primitives import read_uvarint
from txbroker.wire.schema import Request, VersionRange, response_class

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
# As Kafka's clients take at most: metadata of a hundred thousand partitions has room in it, the letters "HTTP" as a size have not.
ANSWER_BYTES_MAX = 100 * 1024 * 1024
_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_UNREAD = b""


class LinkFailed(CommandFailed):
    """A connection was not made, or brought no answer. The sentence says which; subclasses tell the kinds apart."""


class Unreachable(LinkFailed):
    """No connection: refused, no such host, no route, or nothing came back in time."""

    def __init__(self, place: str, error: OSError) -> None:
        self.error = error
        super().__init__(f"no connection to {place} ({reason(error)})")


class Silent(LinkFailed):
    """It takes connections and says nothing."""


class Closed(LinkFailed):
    """It closed the connection instead of answering. `received` is what came before that."""

    def __init__(self, text: str, received: bytes = b"") -> None:
        self.received = received
        super().__init__(text)


class NotKafka(LinkFailed):
    """What came is no answer in Kafka's protocol. `received` is how it begins."""

    def __init__(self, text: str, received: bytes) -> None:
        self.received = received
        super().__init__(text)


class TooOld(LinkFailed):
    """The broker has no version of a request that is known here."""


def reason(error: OSError) -> str:
    """Why no connection came about."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)


def place_of(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Link:
    """One connection. Requests go out in the newest version that both sides know, which the first answer (ApiVersions) decides.

    `connect_ms` says how long the connection took.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str = "txbroker", connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self.place = place_of(host, port)
        self.client_id = client_id
        self.versions: Mapping[int, VersionRange] = {}
        self._timeout_s = answer_timeout_s
        self._correlation_id = 0
        started = time.perf_counter()
        try:
            self.socket = socket.create_connection((host, port), connect_timeout_s)
        except OSError as error:
            raise Unreachable(self.place, error) from None
        self.connect_ms = (time.perf_counter() - started) * 1000
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.versions = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def version_of(self, request: type[Request]) -> int | None:
        """The newest version of a request that both sides know; None when there is none."""
        theirs = self.versions.get(request.api_key)
        if theirs is None:
            return None
        version = min(theirs.high, request.versions.high)
        return version if version >= max(theirs.low, request.versions.low) else None

    def call(self, request: Request, *, version_max: int | None = None) -> Any:
        """The answer, decoded; LinkFailed."""
        kind = type(request)
        version = self.version_of(kind)
        if version is not None and version_max is not None:
            version = min(version, version_max)
        if version is None:
            name = kind.__name__.removesuffix("Request")
            raise TooOld(f"{self.place} has no version of {name} that is known here ({kind.versions}); use a newer broker")
        return self._call(request, version)

    def _ask_versions(self) -> dict[int, VersionRange]:
        request = ApiVersionsRequest(client_software_name="txbroker", client_software_version=__version__)
        body = self._exchange(request, request.versions.high)
        answer: ApiVersionsResponse
        if len(body) >= 2 and _ERROR.unpack_from(body)[0] == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._call(request, 0)  # the broker does not know our version, and has said so in version 0 (KIP-511)
        else:
            answer = self._decoded(request, request.versions.high, body)
        if answer.error_code:
            raise NotKafka(f"{self.place} refuses to tell its versions (error {answer.error_code})", body[:64])
        return {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}

    def _call(self, request: Request, version: int) -> Any:
        return self._decoded(request, version, self._exchange(request, version))

    def _exchange(self, request: Request, version: int) -> bytes:
        """Send a request; the body of its answer."""
        self._correlation_id += 1
        body = b"".join(encode(request, version))
        frame = request_prefix(type(request), version, self._correlation_id, self.client_id, len(body)) + body
        try:
            self.socket.settimeout(self._timeout_s)
            self.socket.sendall(frame)
        except OSError as error:
            raise Closed(f"{self.place} closed the connection ({reason(error)})") from None
        answer = self._receive()
        position = 4
        if len(answer) < 4 or _SIZE.unpack_from(answer)[0] != self._correlation_id:
            raise NotKafka(f"{self.place} does not answer in Kafka's protocol", answer[:64])
        if response_header_version(type(request), version) == 1:
            position = after_tags(answer, self.place)
        return answer[position:]

    def _decoded(self, request: Request, version: int, body: bytes) -> Any:
        try:
            return decode(response_class(type(request)), version, body)
        except ProtocolError as error:
            name = type(request).__name__.removesuffix("Request")
            raise NotKafka(f"{self.place} answers {name} version {version} with nonsense: {error}", body[:64]) from None

    def _receive(self) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        head = self._read(4, deadline, _UNREAD)
        (size,) = _SIZE.unpack(head)
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise NotKafka(f"{self.place} does not answer in Kafka's protocol", head + self._rest())
        return self._read(size, deadline, head)

    def _read(self, size: int, deadline: float, before: bytes) -> bytes:
        data = bytearray()
        try:
            while len(data) < size:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                self.socket.settimeout(left_s)
                more = self.socket.recv(min(size - len(data), 1 << 20))
                if not more:
                    raise Closed(f"{self.place} closed the connection without an answer", before + bytes(data[:60]))
                data += more
        except TimeoutError:
            raise Silent(f"{self.place} takes connections, but did not answer within {self._timeout_s:.0f} s") from None
        except OSError as error:
            raise Closed(f"{self.place} closed the connection ({reason(error)})", before + bytes(data[:60])) from None
        return bytes(data)

    def _rest(self) -> bytes:
        """What else is there of an answer that is none, for a look at it."""
        try:
            self.socket.settimeout(0.2)
            return self.socket.recv(60)
        except OSError:
            return b""


def after_tags(answer: bytes | memoryview, place: str) -> int:
    """Where the body begins behind a response header with tags."""
    position = 4
    try:
        count, position = read_uvarint(answer, position)
        for _ in range(count):
            _, position = read_uvarint(answer, position)
            size, position = read_uvarint(answer, position)
            position += size
            if position > len(answer):
                raise IndexError
    except (IndexError, ProtocolError):
        raise NotKafka(f"{place} does not answer in Kafka's protocol", bytes(answer[:64])) from None
    return position


def open_link(servers: str, client_id: str) -> Link:
    """A connection to the first of --bootstrap-server that answers; CommandFailed with what is wrong with each."""
    problems: list[str] = []
    for host, port in addresses(servers):
        try:
            return Link(host, port, client_id=client_id)
        except LinkFailed as problem:
            problems.append(str(problem))
    advice = "start a broker with `txbroker run`, correct --bootstrap-server, or ask `txbroker doctor`"
    raise CommandFailed(f"{'; '.join(problems)}; {advice}")
