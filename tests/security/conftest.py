"""A broker without sockets for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.in_process import SaslBroker


@pytest.fixture(scope="module")
def anonymous() -> Iterator[SaslBroker]:
    """Its connections do not log in."""
    broker = SaslBroker()
    broker.user = ""
    yield broker
    broker.close()
