"""Fixtures of the tests of the test kit. A module whose broker needs settings has a fixture `kafka` of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txbroker.testing import Kafka, Namespace


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as running:
        yield running


@pytest.fixture
def names(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Names of the test's own. Its rules end with it."""
    with kafka.namespace(request.node.name) as names:
        yield names
        kafka.end_rules(check=False)  # before consumers are closed
