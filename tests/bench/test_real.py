"""Each load of real clients, for a moment, on a broker: everything is acknowledged and delivered, and the clients report no errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import javaperf, real
from bench.__main__ import REAL, main
from bench.measures import ERRORS, RETRIES, Bench, Outcome, Settings
from bench.report import conditions
from bench.requests import BrokerClient
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S
from txbroker.wire.messages.metadata import MetadataRequest

SETTINGS = Settings(seconds=0.5, warmup_s=0.2, first_warmup_s=0.2, rounds=1, scale=0.002)


# A JVM for each measurement takes seconds: one load with Java is in the short tier.
LOADS = [pytest.param(bench, id=bench.name, marks=[pytest.mark.extended] if bench in javaperf.BENCHES[1:] else []) for bench in REAL]


@pytest.mark.process
@pytest.mark.parametrize("bench", LOADS)
def test_a_load(broker: Server, bench: Bench) -> None:
    with bench.ready(broker, SETTINGS) as measure:
        sample = measure()
    for figure in bench.figures:
        if not figure.key.startswith("CPU"):  # which is measured in hundredths of a second
            assert sample[figure.key] > 0, figure.key
    assert (sample.get(ERRORS, 0), sample.get(RETRIES, 0)) == (0, 0)


@pytest.mark.process
def test_a_client_that_fails_is_named_with_its_message(broker: Server) -> None:
    with pytest.raises(real.ClientFailed, match=r' -load wbe on .*: no such load: "wbe"$'):
        real.run_client(broker, [real.franz_go(), "-brokers", broker.address, "-load", "wbe"])


@pytest.mark.process
def test_records_that_are_refused_end_the_load(broker: Server) -> None:
    command = [real.franz_go(), "-brokers", broker.address, "-load", "web", "-warmup", "0s", "-duration", "600s"]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert client.stdout is not None and client.stdout.readline() == "begin\n"
        with BrokerClient(broker.address) as admin:
            for topic in admin.call(MetadataRequest(topics=None)).topics:
                if topic.name.startswith("web-"):
                    admin.delete_topic(topic.name)
        _, problem = client.communicate(timeout=PATIENCE_S)
    finally:
        client.kill()
        client.communicate()
    assert client.returncode == 1
    assert problem.startswith("a record was not acknowledged: UNKNOWN_TOPIC")


@pytest.mark.process
@pytest.mark.extended
def test_the_command_prints_the_figures_of_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--rounds", "1", "--seconds", "0.5", "--warm", "0.2", "--only", "txbroker", "--directory", str(tmp_path)]
    assert main(["web", *short, "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for figure in ("records/s", "p50", "p99", "CPU per record"):
        assert f"web   {figure}" in printed
    assert "no errors and no retries of clients" in printed
    assert '"bench": "web", "broker": "txbroker", "round": 0' in (tmp_path / "results.jsonl").read_text()
    assert not list(tmp_path.glob("txbroker-bench-*")), "the brokers' data is deleted"


def test_errors_and_retries_of_all_rounds_are_reported() -> None:
    rounds = [{ERRORS: 1.0, RETRIES: 2.0}, {ERRORS: 0.0, RETRIES: 3.0}]
    outcome = Outcome(REAL[0], {"txbroker": rounds, "kafka": [{ERRORS: 0.0, RETRIES: 0.0}]})
    assert conditions(outcome) == "2 measurements; clients' errors: txbroker 1, kafka 0; clients' retries: txbroker 5, kafka 0"
    del outcome.samples["txbroker"]
    assert conditions(outcome) == "no errors and no retries of clients"
