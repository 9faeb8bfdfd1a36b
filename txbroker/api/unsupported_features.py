"""Features of Kafka that clients request and this broker does not have: counted, and logged once per client.

A handler raises `UnsupportedFeature`; the connection answers with its error code. A client that does not speak Kafka's protocol
(TLS, HTTP) is recognised by the connection itself.

A client that misses an API in the response to ApiVersions can close its connection without another request. librdkafka, kafka-python and
aiokafka do so if SASL is configured. Other clients sometimes close a second connection in the same way, for example when they end: a
client that has sent other requests may do so a few times.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import Enum
from typing import TypeVar

from txbroker.api.request_context import Session
from txbroker.errors import BrokerError, ErrorCode

log = logging.getLogger("txbroker.clients")

# Clients that are remembered; beyond this many the oldest is forgotten and may be logged again.
LOGGED_CLIENTS_MAX = 1000

# A client that has sent other requests may close this many connections in a row after ApiVersions.
UNUSED_CONNECTIONS_MAX = 3

# The software name that txbroker's commands and brokers send (`client/client_machine.py`).
OWN_SOFTWARE = "txbroker "

# At most this much of a client id is logged.
LOGGED_CLIENT_ID_MAX = 100


class Feature(Enum):
    """What a client may require. `unsupported_` and the name are the reason in the metric `txbroker_refusals_total`."""

    TLS = "requires TLS; listener {listener} is {protocol}: set security.protocol={protocol} in the client"
    HTTP = "sent an HTTP request to listener {listener}, which serves Kafka's protocol: metrics are served on txbroker.metrics.port"
    SASL = "requires SASL; listener {listener} is {protocol}: set security.protocol={protocol} in the client"
    MISSING_API = (
        "sent only ApiVersions and closed its connection: if it fails, it requires an API that this broker does not have, "
        "or another security protocol; listener {listener} is {protocol}: set security.protocol={protocol} in the client"
    )
    CONSUMER_PROTOCOL = (
        "requires the consumer group protocol of KIP-848, which this broker does not support: set group.protocol=classic in the consumer"
    )


class UnsupportedFeature(BrokerError):
    """A request needs a feature that this broker does not have."""

    def __init__(self, feature: Feature, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.feature = feature


class UnsupportedFeatures:
    """How often clients required each feature (`counts`), and which clients were logged."""

    def __init__(self) -> None:
        self.counts: Counter[Feature] = Counter()
        self._logged: dict[tuple[str, str | None, Feature], None] = {}  # in the order of their first request
        self._unused: dict[tuple[str, str | None], int] = {}  # connections closed after ApiVersions; below 0: further ones are allowed

    def required(self, feature: Feature, session: Session, client_id: str | None) -> None:
        """Count a request for `feature`; log the first one of each client, which is an address and a client id."""
        self.counts[feature] += 1
        client_id = _shortened(client_id)
        client = (session.peer_host, client_id, feature)
        if client in self._logged:
            return
        _put(self._logged, client, None)
        details = ([] if client_id is None else [f"client id {client_id!r}"]) + ([session.software] if session.software else [])
        log.warning(
            "client %s:%d%s %s",
            session.peer_host,
            session.peer_port,
            f" ({', '.join(details)})" if details else "",
            feature.value.format(
                listener=f"{session.listener}://{session.local_host}:{session.local_port}",
                protocol=session.protocol,
            ),
        )

    def used(self, session: Session, client_id: str | None) -> None:
        """A client has sent another request than ApiVersions."""
        _put(self._unused, (session.peer_host, _shortened(client_id)), -UNUSED_CONNECTIONS_MAX)

    def closed_unused(self, session: Session, client_id: str | None) -> None:
        """A client has closed a connection on which it has sent ApiVersions only.

        txbroker's own clients are exempt: they say themselves what they miss, and a broker that stops closes such connections.
        """
        if session.software.startswith(OWN_SOFTWARE):
            return
        client = (session.peer_host, _shortened(client_id))
        count = self._unused.get(client, 0) + 1
        _put(self._unused, client, count)
        if count > 0:
            self.required(Feature.MISSING_API, session, client_id)


def _shortened(client_id: str | None) -> str | None:
    return None if client_id is None else client_id[:LOGGED_CLIENT_ID_MAX]


_Client = TypeVar("_Client")
_Known = TypeVar("_Known")


def _put(clients: dict[_Client, _Known], client: _Client, known: _Known) -> None:
    """Set what is known of a client, and forget the one that was set first if there are too many."""
    if client not in clients and len(clients) >= LOGGED_CLIENTS_MAX:
        del clients[next(iter(clients))]
    clients[client] = known
