"""The addresses of brokers in responses: each broker's advertised address on the listener that the client is connected to.

For a listener that is bound to a wildcard address and has no advertised one, the address is the one that the client itself has connected
to. It is known to work, unlike a guessed host name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from txbroker.api.request_context import RequestContext
from txbroker.cluster.image import BrokerImage, ClusterImage
from txbroker.errors import ErrorCode


class Node(NamedTuple):
    """A broker as one client sees it."""

    id: int
    host: str
    port: int
    rack: str | None


NO_NODE = Node(-1, "", -1, None)


class Endpoints:
    """Endpoints by broker, listener and connection. `reached`: the listeners of this broker whose address is the one that was reached."""

    def __init__(self, broker_id: int, image: ClusterImage, reached: Iterable[str]) -> None:
        self._broker_id = broker_id
        self._image = image
        self._reached = frozenset(reached)

    def node(self, broker_id: int, context: RequestContext) -> Node:
        """The broker, or NO_NODE when it is not alive or does not have the client's listener."""
        broker = self._image.brokers.get(broker_id)
        return NO_NODE if broker is None else self._of(broker, context)

    def leader_errors(self, context: RequestContext) -> dict[int, ErrorCode]:
        """The live brokers by id: NONE, or LISTENER_NOT_FOUND if one lacks the client's listener. A leader not in it is not available."""
        listener, brokers = context.listener, self._image.brokers.values()
        return {b.id: ErrorCode.NONE if listener in b.endpoints else ErrorCode.LISTENER_NOT_FOUND for b in brokers}

    def nodes(self, context: RequestContext) -> list[Node]:
        """All live brokers that have the client's listener."""
        return [node for node in (self._of(b, context) for b in self._image.brokers.values()) if node is not NO_NODE]

    def _of(self, broker: BrokerImage, context: RequestContext) -> Node:
        endpoint = broker.endpoints.get(context.listener)
        if endpoint is None:
            return NO_NODE
        host = endpoint.host
        if broker.id == self._broker_id and context.listener in self._reached:
            host = context.local_host
        return Node(broker.id, host, endpoint.port, broker.rack)
