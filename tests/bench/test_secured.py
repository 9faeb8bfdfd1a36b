"""Each load over TLS, for a moment, on a broker; and the cost of ACLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import authorizing, secured
from bench.brokers import TXBROKER, make
from bench.measures import ERRORS, RETRIES, Bench, Settings
from tests.metrics.scraping import ON, Scrape
from tests.support.server import Server

SETTINGS = Settings(seconds=0.5, warmup_s=0.2, first_warmup_s=0.2, rounds=1, scale=0.1)
NO_LABELS: frozenset[tuple[str, str]] = frozenset()


@pytest.fixture(scope="module")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    broker = make(TXBROKER, tmp_path_factory.mktemp("secured") / "broker")
    secured.add_listener(broker)
    broker.overrides |= ON
    broker.start()
    yield broker
    broker.kill()


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize("bench", [pytest.param(bench, id=bench.name) for bench in secured.BENCHES])
def test_a_load(secured_broker: Server, bench: Bench) -> None:
    before = Scrape(secured_broker).samples["txbroker_tls_handshakes_total"][NO_LABELS]
    with bench.ready(secured_broker, SETTINGS) as measure:
        sample = measure()
    for figure in bench.figures:
        if not figure.key.startswith("CPU"):  # which is measured in hundredths of a second
            assert sample[figure.key] > 0, figure.key
    assert (sample.get(ERRORS, 0), sample.get(RETRIES, 0)) == (0, 0)
    assert Scrape(secured_broker).samples["txbroker_tls_handshakes_total"][NO_LABELS] > before, "the load is over TLS"


def test_acls_cost_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    authorizing.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["no authorizer", "10", "1,000", "10,000"]
