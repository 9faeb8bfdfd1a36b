"""kafka-python on a secured listener."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider

from compat.security.cases import PATIENCE_S, Secured
from compat.security.logged import Logged

_SOON_MS = 1500
_BACKOFF = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 20}
_REASON = "Connection lost: "  # in the log


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token
        super().__init__()

    def token(self) -> str:
        """Always the same."""
        return self._token


def exchange(case: Secured) -> None:
    """Produce a record, and consume one."""
    settings = _settings(case)
    producer = _producer(settings)
    try:
        producer.send(case.topic, b"secured").get(PATIENCE_S)
    finally:
        producer.close(PATIENCE_S)
    consumer = KafkaConsumer(case.topic, group_id=case.group, auto_offset_reset="earliest", **settings)
    try:
        next(consumer)
    finally:
        consumer.close()


def _producer(settings: dict[str, Any]) -> KafkaProducer:
    """The client tries again until a timeout that does not say why: the first one is short, and counts if the client has logged an error.

    It may notice the end of a connection before the answer that it has got: of several attempts, one with the answer counts.
    """
    with Logged("kafka") as logged:
        try:
            return KafkaProducer(**settings, **_BACKOFF, bootstrap_timeout_ms=_SOON_MS)
        except KafkaTimeoutError:
            reasons = [text.partition(_REASON)[2] for text in logged.texts if _REASON in text]
            if reasons:
                raise KafkaTimeoutError(next((text for text in reasons if "[Error 58]" in text), reasons[0])) from None
            return KafkaProducer(**settings)


def _settings(case: Secured) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": case.address, "security_protocol": case.protocol, "ssl_cafile": case.ca}
    if case.certificate:
        settings |= {"ssl_certfile": case.certificate, "ssl_keyfile": case.key}
    if case.token:
        settings |= {"sasl_mechanism": case.mechanism, "sasl_oauth_token_provider": _Token(case.token)}
    elif case.mechanism:
        settings |= {"sasl_mechanism": case.mechanism, "sasl_plain_username": case.user, "sasl_plain_password": case.password}
    return settings
