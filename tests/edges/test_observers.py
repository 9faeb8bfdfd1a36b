"""Observers that fail: the others are notified, and what was reported is not lost."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from tests.support.fakes.turns import Turns
from txbroker.broker.dynamic import DynamicConfigs
from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.log_dir_reports import RETRY_S, LogDirReports
from txbroker.cluster.tree.interface import ConnectionLost, NoNode, Refused, Stat, Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.operations import found
from txbroker.config.resolve import BrokerConfig
from txbroker.retrying import call_each
from txbroker.security.scram_credentials import ScramCredentials


def test_one_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    call_each(logging.getLogger("txbroker.test"), "an observer", lambda: called.append(1), lambda: 1 / 0, lambda: called.append(2))
    assert called == [1, 2]
    assert "internal error: an observer failed" in caplog.text and "ZeroDivisionError" in caplog.text


def test_listeners_that_cannot_be_reconfigured_do_not_keep_a_brokers_change_from_the_logs() -> None:
    """The error is raised in the end: the change is then reported again."""
    reconfigured: list[Collection[str] | None] = []
    fails = False

    def broker_changed() -> None:
        if fails:
            raise KeyError("max.connections")

    config = BrokerConfig({})
    dynamic = DynamicConfigs(config, ClientQuotas(Clock(), sample_count=11, sample_s=1), ConnectionRates(lambda: 0.0), ScramCredentials())
    dynamic.wire(reconfigured.append, broker_changed)
    reconfigured.clear()
    fails = True
    with pytest.raises(KeyError):
        dynamic(node_paths.ALL_BROKERS, {"log.retention.ms": "1000"})
    assert reconfigured == [None]
    assert config.value("log.retention.ms") == 1000


class Reports:
    """A broker's tree, whose creations of nodes fail with `errors`."""

    def __init__(self) -> None:
        self.clock, self.turns = Clock(), Turns()
        self.session = MemoryTrees(self.turns.call_soon).session()
        self.turns.result(create_structure(self.session))
        self.errors: list[Exception] = []
        self.reports = LogDirReports(cast(Tree, self), 3, self.clock, lambda: 0.5)

    def create(self, *arguments: Any, **options: Any) -> Deferred[Any]:
        return fail(self.errors.pop(0)) if self.errors else self.session.create(*arguments, **options)

    def written(self) -> int:
        self.turns.run()
        return len(self.turns.result(self.session.children(node_paths.LOG_DIR_EVENTS)))


def test_the_report_of_an_offline_directory_is_repeated_until_it_is_written(caplog: pytest.LogCaptureFixture) -> None:
    reports = Reports()
    reports.errors += [Refused("/"), *(ConnectionLost("/") for _ in range(10)), KeyError("a defect")]
    reports.reports.report()
    reports.reports.report()
    assert reports.written() == 0 and "cannot report an offline directory to the controller, retrying: Refused at /" in caplog.text
    for _ in range(4):
        reports.clock.advance(8 * RETRY_S)
        reports.turns.run()
    assert reports.written() == 2, "the second one came after the first had begun"
    reports.reports.report()
    assert reports.written() == 3 and not reports.clock.getDelayedCalls()


def test_the_report_of_an_offline_directory_ends_with_the_broker() -> None:
    reports = Reports()
    reports.errors += [Refused("/")]
    reports.reports.report()
    assert reports.clock.getDelayedCalls()
    reports.reports.stop()
    assert not reports.clock.getDelayedCalls()
    reports.reports.report()
    assert reports.written() == 0 and not reports.clock.getDelayedCalls()


def test_a_lost_connection_is_not_a_missing_node() -> None:
    """`found` has None for a node that does not exist, and for no other error."""
    turns = Turns()
    reads: list[Deferred[Stat]] = [fail(NoNode("/a")), fail(ConnectionLost("/b"))]
    with pytest.raises(ConnectionLost):
        turns.result(found(reads))
    missing: list[Deferred[Stat]] = [fail(NoNode("/a"))]
    assert turns.result(found(missing)) == [None]
