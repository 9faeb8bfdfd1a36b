"""A plugin of pytest for the tests of other projects: all of them use the fixture `txbroker`.

Those that would start a container get the address of the broker instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from txbroker.testing import Kafka


@pytest.fixture(scope="session", autouse=True)
def broker_instead_of_a_container(txbroker: Kafka) -> Iterator[None]:
    """Replaces the classes and functions that start a container, in the modules of tests that have been imported."""
    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            if getattr(module, "KafkaDockerConnection", None) is not None:  # adc-streaming
                patch.setattr(module, "KafkaDockerConnection", lambda: _Connection(txbroker.bootstrap_servers))
        yield


class _Connection:
    """What adc-streaming's tests use of their container. `auth`: none is needed."""

    auth = None

    def __init__(self, address: str) -> None:
        self.address = address

    def close(self) -> None:
        """The broker ends with the session."""
