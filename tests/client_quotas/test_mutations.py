"""The quota of changes of topics: the tokens of an entity, and what strict and older requests get."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from txbroker.client_quotas.mutations import PAUSE_MAX_MS, Mutations
from txbroker.client_quotas.quotas import MUTATION_RATE, RATES_MAX, ClientQuotas
from txbroker.cluster.node_paths import Entity
from txbroker.errors import BrokerError, ErrorCode

USER = "User:ANONYMOUS"
BURST_S = 11


class Changes:
    """Clients that change topics at a controller."""

    def __init__(self, **limits: str) -> None:
        self.clock = Clock()
        self.quotas = ClientQuotas(self.clock, sample_count=11, sample_s=1, burst_s=BURST_S)
        for path, limit in limits.items():
            self.configure(Entity("clients", path), limit)

    def configure(self, node: Entity, limit: str | None) -> None:
        self.quotas.configure(node, {} if limit is None else {MUTATION_RATE: limit})

    def request(self, *, strict: bool = True, client_id: str | None = "c", principal: str = USER) -> Mutations:
        return self.quotas.mutations(principal, client_id, strict=strict)

    def pause_ms(self, count: int, *, strict: bool = True, client_id: str | None = "c", principal: str = USER) -> int:
        """Change this many partitions with one request."""
        made = self.request(strict=strict, client_id=client_id, principal=principal)
        try:
            made.spend(count)
        except BrokerError as error:
            assert (error.code, error.message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            assert strict and made.throttle_ms()
        return made.throttle_ms()


def test_one_request_may_spend_more_than_there_is_and_the_next_one_is_refused() -> None:
    changes = Changes(c="2")
    assert changes.quotas.active
    assert changes.pause_ms(22 + 8) == 0, "the burst is 2 x 11"
    assert changes.pause_ms(1) == 4000
    changes.clock.advance(3)
    assert changes.pause_ms(1) == 1000, "what was refused was not spent"
    changes.clock.advance(1)
    assert changes.pause_ms(1) == 0
    assert changes.quotas.throttled == {MUTATION_RATE: 2}


def test_unused_tokens_are_saved_up_to_the_burst() -> None:
    changes = Changes(c="2")
    assert changes.pause_ms(22) == 0
    changes.clock.advance(10_000)
    assert changes.pause_ms(23) == 0
    assert changes.pause_ms(1) == 500


def test_older_requests_are_not_refused_and_pause() -> None:
    changes = Changes(c="2")
    assert changes.pause_ms(22, strict=False) == 0
    assert changes.pause_ms(8, strict=False) == 4000
    assert changes.pause_ms(2, strict=False) == 5000, "it was spent"
    assert changes.pause_ms(2) == 5000


def test_the_topics_of_a_request_are_refused_one_by_one_and_its_pause_gets_shorter() -> None:
    changes = Changes(c="2")
    request = changes.request()
    request.spend(20)
    request.spend(6)
    assert request.throttle_ms() == 0, "nothing was refused"
    with pytest.raises(BrokerError):
        request.spend(1)
    changes.clock.advance(0.5)
    assert request.throttle_ms() == 1500
    changes.clock.advance(5)
    assert request.throttle_ms() == 0


def test_a_limit_is_found_in_the_order_of_the_other_quotas() -> None:
    changes = Changes()
    changes.configure(Entity("users", "ANONYMOUS/clients/c"), "1")
    changes.configure(Entity("users", "ANONYMOUS"), "10")
    changes.configure(Entity("clients", "<default>"), "100")
    assert changes.pause_ms(12) == 0 and changes.pause_ms(1) == 1000
    assert changes.pause_ms(120, client_id="d") == 0 and changes.pause_ms(1, client_id="e") == 1000, "the ids of a user share the tokens"
    assert changes.pause_ms(1200, principal="User:u") == 0 and changes.pause_ms(1, principal="User:v") == 1000
    assert changes.pause_ms(1200, principal="User:u", client_id="d") == 0, "each id has the default alone"


def test_a_limit_that_changes_keeps_the_tokens() -> None:
    changes = Changes(c="2")
    assert changes.pause_ms(30) == 0
    changes.configure(Entity("clients", "c"), "4")
    assert changes.pause_ms(1) == 2000
    changes.configure(Entity("clients", "c"), None)
    assert changes.pause_ms(10**9) == 0 and not changes.quotas.active


def test_a_pause_fits_into_a_response() -> None:
    changes = Changes(c="1e-9")
    assert changes.pause_ms(10) == 0
    assert changes.pause_ms(1) == PAUSE_MAX_MS


def test_the_buckets_are_those_of_the_last_clients() -> None:
    changes = Changes()
    changes.configure(Entity("clients", "<default>"), "1")
    for number in range(RATES_MAX + 1):
        assert changes.pause_ms(100, client_id=f"c{number}") == 0
    assert changes.pause_ms(1, client_id=f"c{RATES_MAX}") and changes.pause_ms(1, client_id="c0") == 0
