"""Which Host headers the metrics port serves."""

from __future__ import annotations

import pytest

from txbroker.metrics.host_names import HostNames

OWN = ["localhost", "LOCALHOST:9308", "localhost.", "127.0.0.1", "127.0.0.1:9308", "[::1]", "[::1]:9308", "10.1.2.3:1"]
FOREIGN = ["evil.example", "evil.example:9308", "127.0.0.1.evil.example", "localhost.evil.example", "127.1", "", "[evil.example]", "a:b"]


@pytest.mark.parametrize("bound", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_on_this_machine_only_its_own_names_are_served(bound: str) -> None:
    names = HostNames(bound)
    assert [host for host in OWN if not names.allow([host])] == []
    assert [host for host in FOREIGN if names.allow([host])] == []
    assert names.allow([]), "HTTP/1.0"
    assert not names.allow(["localhost", "evil.example"]), "every header counts"


@pytest.mark.parametrize("bound", ["0.0.0.0", "", "::", "10.1.2.3", "kafka"])
def test_other_machines_use_names_that_the_broker_does_not_know(bound: str) -> None:
    names = HostNames(bound)
    assert all(names.allow([host]) for host in OWN + FOREIGN)
    configured = HostNames(bound, ["Kafka", "metrics.example"])
    assert all(configured.allow([host]) for host in [*OWN, "kafka:9308", "METRICS.example"])
    assert [host for host in FOREIGN if configured.allow([host])] == []
