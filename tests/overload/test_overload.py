"""The short form of `make overload`: other clients are served, memory stays within its limit, and refusals are counted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.overload.abuses import ABUSES, Abuse
from tests.overload.others import Others, prepare
from tests.overload.watch import Watch, broker_for, under
from tests.support.broker import BrokerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.process
SERVED = 50  # round trips of each other client during the abuse


@pytest.fixture
def start(server_directory: Path) -> Iterator[Callable[[Abuse], BrokerProcess]]:
    """Starts a broker for an abuse."""
    started: list[BrokerProcess] = []

    def start(abuse: Abuse) -> BrokerProcess:
        made = broker_for(abuse, server_directory / f"overload-{abuse.name}")
        started.append(made)
        made.start()
        prepare(made)
        return made

    yield start
    for made in started:
        made.close()
        shutil.rmtree(made.directory, ignore_errors=True)


@pytest.mark.parametrize("abuse", ABUSES, ids=lambda abuse: abuse.name)
def test_other_clients_are_served(start: Callable[[Abuse], BrokerProcess], abuse: Abuse, name: str) -> None:
    server = start(abuse)
    others = Others(server, name)
    until(lambda: others.count > 10, "other clients are served before")
    watch = Watch(server)
    with under(abuse, server):
        before = others.count
        until(lambda: others.count >= before + SERVED, "other clients are served during the abuse")
        until(lambda: not watch.missing(abuse), "refusals are counted", every_s=0.2)
    others.close()
    assert watch.grown_mib < abuse.memory_mib, abuse.why
    assert server.stop() == server.stopped_status
    assert "Traceback" not in server.log()
