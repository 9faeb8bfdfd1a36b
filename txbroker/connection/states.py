"""The states of a connection, and which requests it takes in each of them.

A connection that has nothing to prove is ready with its first request. With SASL a client sends ApiVersions once, if it likes, then
SaslHandshake, and SaslAuthenticate until it is authenticated (Kafka's SaslServerAuthenticator). If its session has a lifetime, it is then
limited: it takes every request, and each is checked, because one that comes too late ends it, and SaslHandshake begins another login.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from txbroker.errors import ProtocolError
from txbroker.wire.headers import API_VERSIONS_KEY, SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY


class OutOfTurn(ProtocolError):
    """A request that may not be sent in the state of its connection."""


class State(Enum):
    """What a connection is doing."""

    NEW = "no request was received"
    HANDSHAKE = "the client has asked for ApiVersions, and for nothing else"
    AUTHENTICATING = "the client proves who it is"
    LIMITED = "requests are handled until the session has expired"
    READY = "requests are handled"
    CLOSING = "no more requests are taken; those in flight are answered"
    CLOSED = "nothing more is sent"


class RequestKind(Enum):
    """What the state of a connection depends on."""

    API_VERSIONS = API_VERSIONS_KEY
    SASL_HANDSHAKE = SASL_HANDSHAKE_KEY
    SASL_AUTHENTICATE = SASL_AUTHENTICATE_KEY
    OTHER = -1

    @property
    def api(self) -> str:
        """The name of its API."""
        return self.name.title().replace("_", "")


# The next state by state and request. What is missing is refused: the connection ends.
States: TypeAlias = Mapping[State, Mapping[RequestKind, State]]

_READY = dict.fromkeys(RequestKind, State.READY)

ANONYMOUS_STATES: States = {
    State.NEW: {**_READY, RequestKind.API_VERSIONS: State.HANDSHAKE},
    State.HANDSHAKE: {**_READY, RequestKind.API_VERSIONS: State.HANDSHAKE},
    State.READY: _READY,
}

SASL_STATES: States = {
    State.NEW: {RequestKind.API_VERSIONS: State.HANDSHAKE, RequestKind.SASL_HANDSHAKE: State.AUTHENTICATING},
    State.HANDSHAKE: {RequestKind.SASL_HANDSHAKE: State.AUTHENTICATING},
    State.AUTHENTICATING: {RequestKind.SASL_AUTHENTICATE: State.AUTHENTICATING},  # ready when the mechanism says so
    State.LIMITED: {**dict.fromkeys(RequestKind, State.LIMITED), RequestKind.SASL_HANDSHAKE: State.AUTHENTICATING},
    State.READY: _READY,
}


def expected(states: States, state: State) -> str:
    """Which requests a state takes, for people."""
    return " or ".join(kind.api for kind in states[state])


def request_kind(api_key: int) -> RequestKind:
    """The kind of a request."""
    try:
        return RequestKind(api_key)
    except ValueError:
        return RequestKind.OTHER
