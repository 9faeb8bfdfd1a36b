"""aiokafka on a secured listener."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from compat.security.cases import PATIENCE_S, Secured
from compat.security.logged import Logged


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        """Always the same."""
        return self._token


def exchange(case: Secured) -> None:
    """Produce a record, and consume one."""
    with Logged("aiokafka") as logged:
        try:
            asyncio.run(asyncio.wait_for(_exchange(case), PATIENCE_S))
        except KafkaConnectionError as error:  # which has the address only
            raise KafkaConnectionError(logged.texts[0] if logged.texts else str(error)) from None


async def _exchange(case: Secured) -> None:
    settings = _settings(case)
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(case.topic, b"secured")
    async with AIOKafkaConsumer(case.topic, group_id=case.group, auto_offset_reset="earliest", **settings) as consumer:
        await consumer.getone()


def _settings(case: Secured) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=case.ca)
    if case.certificate:
        context.load_cert_chain(case.certificate, case.key)
    settings: dict[str, Any] = {"bootstrap_servers": case.address, "security_protocol": case.protocol, "ssl_context": context}
    if case.token:
        settings |= {"sasl_mechanism": case.mechanism, "sasl_oauth_token_provider": _Token(case.token)}
    elif case.mechanism:
        settings |= {"sasl_mechanism": case.mechanism, "sasl_plain_username": case.user, "sasl_plain_password": case.password}
    return settings
