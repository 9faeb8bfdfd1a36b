"""Clients on secured listeners: what works on Kafka works, and what fails shows the client's own error that it shows for Kafka.

`compat/security_records.json` has what each client said on Apache Kafka; `--broker=kafka` compares Kafka with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat.clients import CLIENTS
from compat.security.brokers import SecuredBroker, secured_broker
from compat.security.cases import CASES, WORKING
from compat.security.records import DIFFERENT, KAFKA, OURS, PAGE, Recorded, differences, load, to_markdown
from compat.security.trying import ABSENT, OK, normal, outcomes, same

RECORDS = load()
process = pytest.mark.process
# The others are tried by `python -m compat.security`.
TRIED = ("kafka_python", "aiokafka", "confluent_kafka", "kcat", "java_2_8_2", "java_4_3_1", "kafkajs", "franz_go")


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[SecuredBroker]:
    with secured_broker(server_directory / "secured", request.config.getoption("--broker")) as broker:
        yield broker
        if broker.server.kind == OURS:
            assert "Traceback (most recent call last)" not in broker.server.log()


@process
@pytest.mark.extended
@pytest.mark.parametrize("client", TRIED)
def test_what_a_client_says(secured: SecuredBroker, client: str) -> None:
    _, said = outcomes(CLIENTS[client], secured, list(CASES))
    assert list(differences(client, said, RECORDS)) == []


@pytest.mark.parametrize("client", RECORDS)
def test_the_records_are_complete(client: str) -> None:
    """Every client and case has been tried on both brokers, and what works on Kafka, works."""
    for kind in (OURS, KAFKA):
        said = RECORDS[client].said[kind]
        assert list(said) == list(CASES), kind
        for case, found in said.items():
            if (client, case) not in DIFFERENT and not found[0].startswith(f"{ABSENT} "):
                assert (found == [OK]) == (case in WORKING), (kind, case, found)
    for case, outcome in RECORDS[client].said[OURS].items():
        assert list(differences(client, {case: outcome[0]}, RECORDS)) == []


def test_the_page_is_generated_from_the_records() -> None:
    clients = {client.title for name, client in CLIENTS.items() if client.kind == "clients" and client.folder != "spark"}
    assert {CLIENTS[name].title for name in RECORDS} == clients
    assert PAGE.read_text(encoding="utf-8") == to_markdown(RECORDS)


def test_what_differs_from_run_to_run_is_left_out() -> None:
    text = "localhost:9092 at 2026-11-27T12:55:04Z after 12.5ms in group-7 (_ssl.c:992): no group"
    assert normal(text) == "HOST:PORT at DATE after TIME in GROUP: no group"


def test_alerts_about_a_certificate_are_the_same_and_other_errors_are_not() -> None:
    openssl, java = "Received fatal alert: certificate_required", "Received fatal alert: bad_certificate"
    assert same(openssl, java)
    assert not same(openssl, "Received fatal alert: handshake_failure")
    assert same("error:0A000418:SSL routines::tlsv1 alert unknown ca: SSL alert number 48",
                "error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42")  # fmt: skip
    assert not same("remote error: tls: bad certificate", "EOF")


def test_every_difference_is_found() -> None:
    records = {"a client": Recorded("1", {KAFKA: {"plain": [OK], "expired": ["Expired", "Closed"], "tls": [f"{ABSENT} it has none"]}})}
    assert list(differences("a client", {"plain": OK, "expired": "Closed", "tls": f"{ABSENT} it has none"}, records)) == []
    assert list(differences("a client", {"plain": "No", "expired": OK, "tls": OK}, records)) == [
        "plain: No\n    on Kafka: ok", "expired: ok\n    on Kafka: Expired or Closed", "tls: ok\n    on Kafka: - it has none",
    ]  # fmt: skip
    assert list(differences("a client", {"no_read": OK}, records)) == ["no_read: ok\n    on Kafka: nothing recorded"]
