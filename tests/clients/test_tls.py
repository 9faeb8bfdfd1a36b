"""Real clients over TLS and mutual TLS, and each client's own error where a certificate or a protocol is wrong."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.certificates import PASSWORD, Authority, Issued
from tests.support.java import ToolFailed, run
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import PATIENCE_S, until

VALUES = [b"%06d" % number + bytes(number % 3000) for number in range(400)]


class Secured:
    """A broker with a listener of TLS, and one of mutual TLS. Certificates are for localhost."""

    def __init__(self, start: Callable[[dict[str, str]], Server], folder: Path, names: tuple[str, ...] = ("localhost",)) -> None:
        self.authority = Authority(folder)
        self.client = self.authority.issue("client", [])
        plain, one, both = free_port(), free_port(), free_port()
        self.one, self.both = f"localhost:{one}", f"localhost:{both}"
        self.server = start(
            {
                "listeners": f"PLAINTEXT://{HOST}:{plain},ONE://{HOST}:{one},BOTH://{HOST}:{both}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},ONE://{self.one},BOTH://{self.both}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ONE:SSL,BOTH:SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.authority.issue("server", names).pem()),
                "listener.name.both.ssl.client.auth": "required",
                "listener.name.both.ssl.truststore.type": "PEM",
                "listener.name.both.ssl.truststore.location": str(self.authority.pem()),
            }
        )

    def log(self) -> str:
        return self.server.log_path.read_text()


@pytest.fixture
def secured(start_broker: Callable[[dict[str, str]], Server], tmp_path: Path) -> Secured:
    return Secured(start_broker, tmp_path)


@pytest.fixture(params=["one", "both"])
def addressed(secured: Secured, request: pytest.FixtureRequest) -> Iterator[tuple[str, Secured]]:
    """With TLS, and with mutual TLS."""
    yield (secured.one if request.param == "one" else secured.both), secured


def librdkafka(secured: Secured, address: str, own: Issued | None = None, **more: str) -> dict[str, Any]:
    own = own or secured.client
    return {
        "bootstrap.servers": address, "security.protocol": "ssl", "ssl.ca.location": str(secured.authority.pem()),
        "ssl.certificate.location": str(own.chain_file()), "ssl.key.location": str(own.key_file()), **more,
    }  # fmt: skip


def test_librdkafka(addressed: tuple[str, Secured], name: str) -> None:
    address, secured = addressed
    settings = librdkafka(secured, address)
    producer = confluent_kafka.Producer({**settings, "linger.ms": 5})
    for value in VALUES:
        producer.produce(name, value)
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    found: list[bytes] = []

    def all_came() -> bool:
        found.extend(message.value() or b"" for message in consumer.consume(100, 0.2) if message.error() is None)
        return len(found) >= len(VALUES)

    until(all_came, "all records are consumed")
    consumer.close()
    assert found == VALUES


def test_kafka_python(addressed: tuple[str, Secured], name: str) -> None:
    address, secured = addressed
    settings: dict[str, Any] = {
        "bootstrap_servers": address, "security_protocol": "SSL", "ssl_cafile": str(secured.authority.pem()),
        "ssl_certfile": str(secured.client.pem()),
    }  # fmt: skip
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(name, value)
    producer.close()
    consumer = KafkaConsumer(name, **settings, auto_offset_reset="earliest", group_id=name)
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert found == VALUES


def test_aiokafka(addressed: tuple[str, Secured], name: str) -> None:
    address, secured = addressed
    context = ssl.create_default_context(cadata=secured.authority.text())
    context.load_cert_chain(secured.client.pem())

    async def exchange() -> list[bytes | None]:
        settings: dict[str, Any] = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(name, value)
        async with AIOKafkaConsumer(name, **settings, auto_offset_reset="earliest") as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(exchange()) == VALUES


def java_properties(secured: Secured, kind: str, folder: Path) -> Path:
    """client.properties with stores of a type."""
    client, authority = secured.client, secured.authority
    stores = {
        "PEM": (client.pem(), authority.pem()),
        "JKS": (client.jks(), authority.truststore("JKS")),
        "PKCS12": (client.pkcs12(), authority.truststore("PKCS12")),
    }[kind]
    lines = ["security.protocol=SSL", f"ssl.keystore.type={kind}", f"ssl.truststore.type={kind}",
             f"ssl.keystore.location={stores[0]}", f"ssl.truststore.location={stores[1]}"]  # fmt: skip
    if kind != "PEM":
        lines += [f"ssl.keystore.password={PASSWORD}", f"ssl.truststore.password={PASSWORD}"]
    path = folder / f"{kind}.properties"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(("release", "kind"), [(KAFKA_OLD, "JKS"), (KAFKA_NEW, "PKCS12"), (KAFKA_NEW, "PEM")])
def test_javas_console_clients(addressed: tuple[str, Secured], name: str, tmp_path: Path, release: str, kind: str) -> None:
    address, secured = addressed
    properties = str(java_properties(secured, kind, tmp_path))
    lines = "".join(f"line {number}\n" for number in range(500))
    producer = "--command-config" if release == KAFKA_NEW else "--producer.config"
    consumer = "--command-config" if release == KAFKA_NEW else "--consumer.config"
    server = ("--bootstrap-server", address, "--topic", name)
    run("kafka-console-producer", *server, producer, properties, stdin=lines, release=release)
    read = run("kafka-console-consumer", *server, consumer, properties, "--from-beginning", "--max-messages", "500", release=release)
    assert read == lines


def test_kcat_and_large_fetches(secured: Secured, name: str) -> None:
    program = shutil.which("kcat")
    assert program is not None
    common = [program, "-b", secured.one, "-X", "security.protocol=ssl", "-X", f"ssl.ca.location={secured.authority.pem()}", "-t", name]
    lines = "".join(f"{number:09d}{'x' * 1000}\n" for number in range(20_000))
    subprocess.run([*common, "-P"], input=lines, text=True, check=True, timeout=PATIENCE_S)
    read = subprocess.run([*common, "-C", "-e", "-q", "-X", "fetch.message.max.bytes=10000000"], capture_output=True, text=True,
                          check=True, timeout=PATIENCE_S)  # fmt: skip
    assert read.stdout == lines


# What does not fit


def librdkafka_error(settings: dict[str, Any]) -> str:
    """The first error that the client reports."""
    errors: list[str] = []
    producer = confluent_kafka.Producer({**settings, "error_cb": lambda error: errors.append(error.str())})
    until(lambda: (producer.poll(0.05), errors)[1], "the client reports an error")
    return errors[0]


def test_a_client_with_sasl_is_told_the_protocol_of_the_listener(secured: Secured) -> None:
    sasl = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert "SASL Handshake not supported by broker" in librdkafka_error(librdkafka(secured, secured.one) | sasl)
    port = secured.one.rpartition(":")[2]
    until(lambda: f"listener ONE://{HOST}:{port} is SSL: set security.protocol=SSL in the client" in secured.log(), "the broker logs it")


def test_clients_report_what_is_wrong(secured: Secured, tmp_path: Path) -> None:
    foreign = Authority(tmp_path, "foreign")
    wrong_authority = librdkafka(secured, secured.one) | {"ssl.ca.location": str(foreign.pem())}
    assert "certificate verify failed" in librdkafka_error(wrong_authority)
    assert "wrong version number" in librdkafka_error(librdkafka(secured, secured.server.address))
    assert "brokers are down" in librdkafka_error({"bootstrap.servers": secured.one})
    # The broker's reason is in its log; the client reports an alert.
    for own in (foreign.issue("mallory"), secured.authority.issue("expired", days=(-9, -2)), secured.authority.issue("early", days=(2, 9))):
        assert "SSL" in librdkafka_error(librdkafka(secured, secured.both, own))
    for reason in (
        "the client does not trust the issuer of this listener's certificate",
        "the client does not speak TLS: set security.protocol=SSL or SASL_SSL in the client",
        "the client's certificate is not accepted: unable to get local issuer certificate",
        "the client's certificate is not accepted: certificate has expired",
        "the client's certificate is not accepted: certificate is not yet valid",
    ):
        until(lambda: reason in secured.log(), reason)  # noqa: B023
    assert "requires TLS; listener PLAINTEXT" in secured.log()


def test_java_reports_a_certificate_with_another_name(
    start_broker: Callable[[dict[str, str]], Server], tmp_path: Path, name: str
) -> None:
    secured = Secured(start_broker, tmp_path, ("other.example",))
    properties = java_properties(secured, "PEM", tmp_path)
    with pytest.raises(ToolFailed) as failed:
        run("kafka-topics", "--bootstrap-server", secured.one, "--command-config", properties, "--list")
    assert "No subject alternative DNS name matching localhost found" in str(failed.value)
    assert "the client does not accept this listener's certificate" in secured.log()


def test_kafka_python_without_tls_ends_with_its_own_error(secured: Secured) -> None:
    with pytest.raises(KafkaError):
        KafkaProducer(bootstrap_servers=secured.one, bootstrap_timeout_ms=2000)


# Logins


def test_a_login_over_tls_is_the_user_and_not_the_certificate(
    start_broker: Callable[[dict[str, str]], Server], tmp_path: Path, name: str
) -> None:
    authority, plain, port = Authority(tmp_path), free_port(), free_port()
    address = f"localhost:{port}"
    server = start_broker(
        {
            "listeners": f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{HOST}:{port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{address}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("server").pem()),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config":
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";',
        }
    )  # fmt: skip
    settings = {
        "bootstrap.servers": address, "security.protocol": "sasl_ssl", "ssl.ca.location": str(authority.pem()),
        "sasl.mechanism": "PLAIN", "sasl.username": "alice",
    }  # fmt: skip
    assert "authentication" in librdkafka_error(settings | {"sasl.password": "wrong"}).lower()
    assert "as 'alice' with PLAIN on listener SASL_SSL" in server.log_path.read_text()
    producer = confluent_kafka.Producer(settings | {"sasl.password": "secret"})
    producer.produce(name, b"value")
    assert producer.flush(PATIENCE_S) == 0
    sasl: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "secret"}
    consumer = KafkaConsumer(
        name, bootstrap_servers=address, security_protocol="SASL_SSL", ssl_cafile=str(authority.pem()), auto_offset_reset="earliest", **sasl
    )
    assert next(consumer).value == b"value"
    consumer.close()
