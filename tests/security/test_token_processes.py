"""Delegation tokens at the processes of one machine, which share their metadata without ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.security.test_sasl_brokers import LOGIN_FAILED, log_in
from tests.support.processes import PROCESSES, Processes
from tests.support.raw import RawConnection
from tests.support.sasl import broker_settings
from tests.support.server import HOST, free_port
from tests.support.tokens import ask, token_log_in
from tests.support.waiting import until
from txbroker.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from txbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

pytestmark = [pytest.mark.process, pytest.mark.extended]

CREATE = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1)


class Secured(Processes):
    """`sasl`: the addresses of the listeners with SASL, one of each process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"delegation.token.secret.key": "of all", **broker_settings()})
        self.port, first = free_port(), free_port()
        while abs(self.port - first) < PROCESSES:
            first = free_port()
        self.sasl = [f"{HOST}:{first + number}" for number in range(PROCESSES)]
        self.overrides["listeners"] = f"PLAINTEXT://{self.address},SASL_PLAINTEXT://{self.sasl[0]}"


@pytest.fixture
def secured(server_directory: Path, name: str) -> Iterator[Secured]:
    server = Secured(server_directory / name)
    server.start()
    yield server
    server.close()
    assert "Traceback" not in server.log(), server.log()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_of_one_process_counts_at_all(secured: Secured, mechanism: str) -> None:
    def has_outcome(address: str, error_code: int) -> bool:
        with RawConnection(address) as connection:
            return bool(token_log_in(connection, made.token_id, made.hmac, mechanism).error_code == error_code)

    with RawConnection(secured.sasl[0]) as alice:
        assert log_in(alice, "PLAIN").error_code == 0
        made = ask(alice, CREATE, 3)
        assert made.error_code == 0
        for address in secured.sasl:
            until(partial(has_outcome, address, 0), "the process takes the token")
        assert ask(alice, ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2).error_code == 0
    for address in secured.sasl:
        until(partial(has_outcome, address, LOGIN_FAILED), "the token is gone")
