"""Limits, the order in which entities apply, rates and pauses."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.task import Clock

from txbroker.client_quotas.entities import QuotaEntity, decoded, encoded, entity_of
from txbroker.client_quotas.quotas import PAUSE_MAX_MS, PRODUCE_KEY, RATES_MAX, ClientQuotas
from txbroker.cluster.node_paths import Entity

USER = "User:ANONYMOUS"
METADATA_KEY = 3


def quotas(**limits: dict[str, str]) -> tuple[ClientQuotas, Clock]:
    clock = Clock()
    made = ClientQuotas(clock, sample_count=11, sample_s=1)
    for path, properties in limits.items():
        made.configure(Entity("clients", path), properties)
    return made, clock


def produced(made: ClientQuotas, size: int, client_id: str | None = "c", principal: str = USER) -> int:
    return made.served(principal, client_id, PRODUCE_KEY, size, 0.0)


def test_a_client_pauses_for_what_the_window_has_above_the_limit() -> None:
    made, clock = quotas(c={"producer_byte_rate": "100"})
    assert made.active
    # A window of 11 samples, of which 10 are full, as in Kafka.
    assert produced(made, 1000) == 0
    assert produced(made, 500) == 5000
    clock.advance(5)
    assert produced(made, 1) == 5010, "the window of a new rate begins before it"
    clock.advance(5.5)
    assert produced(made, 1) == 4520
    assert made.served(USER, "c", METADATA_KEY, 10**6, 0.0) == 0
    clock.advance(11)
    assert produced(made, 1000) == 0
    assert made.throttled == {"producer_byte_rate": 3}


@pytest.mark.parametrize("rate", ["1", "1e-320"])
def test_a_pause_fits_into_a_response(rate: str) -> None:
    made, _ = quotas(c={"producer_byte_rate": rate})
    assert produced(made, 3_000_000) == PAUSE_MAX_MS


def test_a_fetch_beyond_the_limit_is_not_sent_and_does_not_count() -> None:
    made, clock = quotas(c={"consumer_byte_rate": "100"})
    assert (made.fetch_bytes_max(USER, "c"), made.fetch_bytes_max(USER, "d")) == (1000, None)
    assert made.fetched(USER, "c", 1000) == 0
    assert made.fetched(USER, "c", 300) == 3000
    assert made.fetched(USER, "c", 0) == 0
    clock.advance(11)
    assert made.fetched(USER, "c", 300) == 0
    assert made.fetched(USER, "d", 10**9) == 0


def test_the_time_of_requests_is_a_percentage_of_the_thread() -> None:
    made, _ = quotas(c={"request_percentage": "10"})
    assert made.served(USER, "c", METADATA_KEY, 1, 0.9) == 0
    assert made.served(USER, "c", METADATA_KEY, 1, 0.15) == 500
    assert made.served(USER, "c", METADATA_KEY, 1, 5.0) == 1000, "one sample at most, as in Kafka"
    assert made.served(USER, "d", METADATA_KEY, 1, 5.0) == 0


# From the last to the first in Kafka's order, and which other clients share the rate: another id of the user, and another user's same id.
ORDER = [
    (Entity("clients", "<default>"), False, True),
    (Entity("clients", "c"), False, True),
    (Entity("users", "<default>"), True, False),
    (Entity("users", "<default>/clients/<default>"), False, False),
    (Entity("users", "<default>/clients/c"), False, False),
    (Entity("users", "u"), True, False),
    (Entity("users", "u/clients/<default>"), False, False),
    (Entity("users", "u/clients/c"), False, False),
]


def test_the_most_specific_entity_applies() -> None:
    made, _ = quotas()
    for number, (node, _, _) in enumerate(ORDER, 1):
        made.configure(node, {"consumer_byte_rate": str(number * 100)})
        assert made.fetch_bytes_max("User:u", "c") == number * 1000
    for number, (node, _, _) in reversed(list(enumerate(ORDER, 1))):
        assert made.fetch_bytes_max("User:u", "c") == number * 1000
        made.configure(node, {})
    assert not made.active


@pytest.mark.parametrize(("node", "by_user", "by_client"), ORDER, ids=[node.entity_path for node, _, _ in ORDER])
def test_clients_of_one_entity_share_a_rate(node: Entity, by_user: bool, by_client: bool) -> None:
    for principal, client_id, shares in (("User:u", "d", by_user), ("User:v", "c", by_client)):
        made, _ = quotas()
        made.configure(node, {"producer_byte_rate": "100"})
        assert produced(made, 1001, "c", "User:u") == 10
        has_quota = made._rate("producer_byte_rate", principal, client_id) is not None
        assert (produced(made, 0, client_id, principal) > 0) == (shares and has_quota)


def test_names_are_encoded_as_in_kafka() -> None:
    assert encoded("a b*c+d/e~ü.-_") == "a%20b%2Ac%2Bd%2Fe%7E%C3%BC.-_"
    assert decoded(encoded("a b*c+d/e~ü.-_")) == "a b*c+d/e~ü.-_"
    assert (decoded("<default>"), encoded("<default>")) == (None, "%3Cdefault%3E")
    for entity in (QuotaEntity("u", None), QuotaEntity(None, "c"), QuotaEntity("<default>", "c")):
        assert entity_of(entity.node) == entity
    for node in (("topics", "t"), ("users", "u/clients"), ("users", "u/x/c"), ("users", "u/clients/c/d")):
        assert entity_of(Entity(*node)) is None
    made, _ = quotas(**{"%3Cdefault%3E": {"consumer_byte_rate": "100"}})
    assert (made.fetch_bytes_max(USER, "<default>"), made.fetch_bytes_max(USER, "c")) == (1000, None)


def test_malformed_limits_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        made, _ = quotas(c={"producer_byte_rate": "many", "consumer_byte_rate": "0", "request_percentage": "nan", "SCRAM-SHA-256": "x"})
    assert not made.active
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        f"ignoring {key} of clients/c" for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    ]
    made.configure(Entity("users", "u/clients"), {"producer_byte_rate": "1"})
    assert not made.active


def test_a_client_cannot_make_the_rates_grow() -> None:
    made, _ = quotas(**{"<default>": {"producer_byte_rate": "100"}})
    assert produced(made, 1001, "first") == 10
    for number in range(RATES_MAX):
        produced(made, 1, f"c{number}")
    assert len(made._rates["producer_byte_rate"]) == RATES_MAX
    assert produced(made, 0, "first") == 0, "forgotten"
    assert produced(made, 1001, "x" * 30_000) == 10
    assert max(len(entity.client_id or "") for entity in made._rates["producer_byte_rate"]) <= 256


def test_a_client_without_an_id_has_the_default() -> None:
    made, _ = quotas(**{"<default>": {"producer_byte_rate": "100"}})
    assert produced(made, 1001, None) == 10
