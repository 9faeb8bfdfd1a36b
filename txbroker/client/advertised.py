"""The addresses that brokers advertise: clients use them after their first request, so that a wrong one makes every request fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from txbroker.client.client_errors import AdvertisedUnreachable, NameUnknown, Unreachable, address_text
from txbroker.client.topic_leaders import Broker
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

NO_BROKERS = MetadataRequest(topics=[], allow_auto_topic_creation=False)
# Of more brokers than these, the first ones are tried.
TRIED_MAX = 5
Try = Callable[[str, int], object]


def unreachable(broker: Broker, error: Unreachable) -> AdvertisedUnreachable:
    """The error for a broker whose advertised address cannot be reached from this machine."""
    cause = error.error
    if isinstance(cause, NameUnknown):
        why = "does not resolve here"
    elif isinstance(cause, ConnectionRefusedError):
        why = "refuses connections"
    elif isinstance(cause, TimeoutError):
        why = "does not answer"
    else:
        why = f"cannot be reached from here ({cause or error})"
    return AdvertisedUnreachable(broker.node_id, address_text(broker.host, broker.port), why, cause)


def brokers_in(response: MetadataResponse) -> list[Broker]:
    """The brokers of a response, by id."""
    return sorted(Broker(each.node_id, each.host, each.port) for each in response.brokers)


def problems(brokers: Iterable[Broker], attempt: Try) -> list[AdvertisedUnreachable]:
    """What is wrong with each broker's address, as far as there is something. `attempt` connects, and raises Unreachable."""
    found = []
    for broker in brokers:
        try:
            attempt(broker.host, broker.port)
        except Unreachable as error:
            found.append(unreachable(broker, error))
    return found


def needs_check(brokers: Sequence[Broker], connected_to: str) -> bool:
    """Whether none of the brokers advertises the address that answered."""
    return bool(brokers) and all(address_text(broker.host, broker.port) != connected_to for broker in brokers)


def check(response: MetadataResponse, connected_to: str, attempt: Try) -> None:
    """AdvertisedUnreachable if no broker can be reached at the address that it advertises.

    `connected_to`: the address that answered; it needs no second connection if it is advertised. `attempt`: see `problems`.
    """
    brokers = brokers_in(response)
    if not needs_check(brokers, connected_to):
        return
    first: AdvertisedUnreachable | None = None
    for broker in brokers[:TRIED_MAX]:
        try:
            attempt(broker.host, broker.port)
        except Unreachable as error:
            first = first or unreachable(broker, error)
        else:
            return
    assert first is not None
    raise first
