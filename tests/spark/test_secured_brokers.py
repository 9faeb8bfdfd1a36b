"""The jobs on a listener of Apache Kafka with TLS and SASL: one properties file for Spark's consumers and the jobs' own clients."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.spark.producing import PARTITIONS, produce
from tests.support import tls
from tests.support.kafka import KafkaProcess
from tests.support.raw_admin import create_topic
from tests.support.server import HOST, free_port
from tests.support.waiting import until
from txbroker.client.client_errors import RequestFailed
from txbroker.spark.brokers import Brokers
from txbroker.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("commands_share_the_session")]

TOPIC, SALT = "secured", b"salt of a test"
HASHES = {1: "sha256", 2: "sha512"}


class SecuredKafka(KafkaProcess):
    """With a listener of SASL_SSL beside the one of PLAINTEXT."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secured = f"{HOST}:{free_port()}"

    def _properties(self) -> dict[str, str]:
        store = self.directory / "store.pem"
        store.write_text(tls.KEY.read_text() + tls.CERTIFICATE.read_text())
        found = super()._properties()
        for key in ("listeners", "advertised.listeners"):
            found[key] += f",SASL_SSL://{self.secured}"
        found["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL"
        module, prefix = "org.apache.kafka.common.security.{}LoginModule required", "listener.name.sasl_ssl"
        return found | {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{prefix}.plain.sasl.jaas.config": module.format("plain.Plain") + ' user_alice="secret of alice";',
            f"{prefix}.scram-sha-256.sasl.jaas.config": module.format("scram.Scram") + ";",
            f"{prefix}.scram-sha-512.sasl.jaas.config": module.format("scram.Scram") + ";",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store),
        }  # fmt: skip


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """With a topic, and the user alice for SCRAM too."""
    server = SecuredKafka(tmp_path_factory.mktemp("secured"))
    server.start()
    try:
        create_topic(server, TOPIC, PARTITIONS)
        produce(server, TOPIC, 30)
        for number, name in HASHES.items():
            password = hashlib.pbkdf2_hmac(name, b"secret of alice", SALT, 4096)
            alice = ScramCredentialUpsertion(name="alice", mechanism=number, iterations=4096, salt=SALT, salted_password=password)
            with Brokers.of(server.address).connect() as connection:
                answer = connection.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[alice]))
            assert [one.error_code for one in answer.results] == [0], answer
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            until(lambda mechanism=mechanism: can_log_in(server, mechanism), f"the broker knows alice for {mechanism}")
        yield server
    finally:
        server.close()


def properties(mechanism: str, password: str = "secret of alice", **more: str) -> dict[str, str]:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    jaas = f'org.apache.kafka.common.security.{module}LoginModule required username="alice" password="{password}";'
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas, "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tls.CERTIFICATE), **more}  # fmt: skip


def can_log_in(server: SecuredKafka, mechanism: str) -> bool:
    try:
        Brokers.of(server.secured, properties(mechanism)).connect().close()
    except RequestFailed:
        return False
    return True


def config(path: Path, found: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in found.items()))
    return str(path)


def test_load_and_audit(kafka: SecuredKafka, tmp_path: Path) -> None:
    """Load with PLAIN, commit the end offsets to a group, and audit the group with SCRAM."""
    table, report = tmp_path / "table", tmp_path / "report.json"
    source = ("--bootstrap-server", kafka.secured, "--topic", TOPIC, "--command-config")
    plain, scram = config(tmp_path / "plain", properties("PLAIN")), config(tmp_path / "scram", properties("SCRAM-SHA-256"))
    output, _ = run("spark", "load", *source, plain, "--table", str(table), "--commit-group", "lag", "--json", str(report))
    assert "30 rows of 30 offsets in 3 partitions loaded" in output
    assert json.loads(report.read_text())["ok"]
    assert "30 records equal in secured and" in run("spark", "audit", *source, scram, "--group", "lag")[0]


def test_scram_and_what_is_refused(kafka: SecuredKafka, tmp_path: Path) -> None:
    assert can_log_in(kafka, "SCRAM-SHA-512")
    source = ("spark", "load", "--topic", TOPIC, "--table", str(tmp_path / "table"), "--bootstrap-server")
    for servers, given, problem in (
        (kafka.secured, properties("SCRAM-SHA-256", "wrong"), "user alice could not log in: "),
        (kafka.secured, properties("PLAIN", **{"ssl.truststore.location": str(tmp_path / "none.pem")}), "No such file"),
        (kafka.secured, {name: value for name, value in properties("PLAIN").items() if "truststore" not in name},
         "is not accepted: self-signed certificate; add the certificate of its issuer to ssl.truststore.location"),
        (kafka.secured, {}, "answers in TLS"),
        (kafka.secured, properties("PLAIN", **{"ssl.truststore.type": "JKS"}), "it is neither JKS nor PKCS12"),
        (kafka.address, properties("PLAIN"), f"TLS with {kafka.address} failed"),
    ):  # fmt: skip
        _, complaint = run(*source, servers, "--command-config", config(tmp_path / "config", given), status=2)
        assert problem in complaint
    assert not (tmp_path / "table").exists()
