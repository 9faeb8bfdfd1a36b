"""Brokers with a listener of SASL_PLAINTEXT beside the one of PLAINTEXT: txbroker, and Apache Kafka with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaOldProcess, KafkaProcess
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import PATIENCE_S, until

PASSWORDS = {"alice": "alice-secret", "bob": 'b;"o=b, \\x'}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PREFIX = "listener.name.sasl_plaintext"
MODULES = {"PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
           **dict.fromkeys(MECHANISMS[1:], "org.apache.kafka.common.security.scram.ScramLoginModule")}  # fmt: skip


def quoted(text: str) -> str:
    """A value in a login configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def client_jaas(mechanism: str, user: str, password: str) -> str:
    """A client's login configuration."""
    return f"{MODULES[mechanism]} required username={quoted(user)} password={quoted(password)};"


def client_properties(mechanism: str, user: str, password: str) -> dict[str, str]:
    """The properties of a Java client."""
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": client_jaas(mechanism, user, password)}


def properties_file(path: Path, properties: Mapping[str, str]) -> Path:
    """A file of properties."""
    path.write_text("".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items()))
    return path


def broker_settings() -> dict[str, str]:
    """The settings of SASL: each mechanism, and the users of PLAIN."""
    users = " ".join(f"user_{user}={quoted(password)}" for user, password in PASSWORDS.items())
    jaas = {mechanism: f"{module} required;" for mechanism, module in MODULES.items()}
    jaas["PLAIN"] = f"{MODULES['PLAIN']} required {users};"
    return {"sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **{f"{PREFIX}.{mechanism.lower()}.sasl.jaas.config": text for mechanism, text in jaas.items()}}  # fmt: skip


def sasl_server(
    kind: str, directory: Path, overrides: Mapping[str, str] | None = None, others: Mapping[str, str] | None = None
) -> tuple[Server, str]:
    """A broker of this kind, not started, and the address of its listener with SASL. `others`: more of these, addresses by name."""
    address = f"{HOST}:{free_port()}"
    kinds: dict[str, type[_Broker | _Kafka | _KafkaOld]] = {
        BrokerProcess.kind: _Broker, KafkaProcess.kind: _Kafka, KafkaOldProcess.kind: _KafkaOld,
    }  # fmt: skip
    server = kinds[kind](directory, {**broker_settings(), **(overrides or {})})
    server.sasl = address
    server.others = others or {}
    if others:
        server.overrides["listener.security.protocol.map"] = ",".join(
            ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{name}:SASL_PLAINTEXT" for name in ("SASL_PLAINTEXT", *others)))
        )
    return server, address


class _WithSasl:
    sasl = ""
    others: Mapping[str, str] = MappingProxyType({})

    @property
    def listeners(self) -> str:
        """Those with SASL."""
        return ",".join(f"{name}://{address}" for name, address in {"SASL_PLAINTEXT": self.sasl, **self.others}.items())


class _Broker(_WithSasl, BrokerProcess):
    def _command(self) -> list[str]:
        command = super()._command()
        return [*command, "--log-level", "debug", "--override", f"listeners=PLAINTEXT://{self.address},{self.listeners}"]


class _Kafka(_WithSasl, KafkaProcess):

    def _properties(self) -> dict[str, str]:
        found = super()._properties()
        for key in ("listeners", "advertised.listeners"):
            found[key] += f",{self.listeners}"
        if not self.others:
            found["listener.security.protocol.map"] += ",SASL_PLAINTEXT:SASL_PLAINTEXT"
        return {key: value.replace("\\", "\\\\") for key, value in found.items()}


class _KafkaOld(_WithSasl, KafkaOldProcess):

    def _properties(self) -> dict[str, str]:
        found = super()._properties()
        found["listeners"] += f",{self.listeners}"
        return {key: value.replace("\\", "\\\\") for key, value in found.items()}


def produce_and_consume(topic: str, value: bytes, settings: Mapping[str, Any]) -> None:
    """A record by kafka-python's producer, received by its consumer."""
    with KafkaProducer(**settings) as producer:
        sent = producer.send(topic, value).get(PATIENCE_S)
    with KafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        until(lambda: sent.offset in {record.offset for part in consumer.poll(500).values() for record in part}, "the record is consumed")
