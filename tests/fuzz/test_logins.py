"""Corrupted frames in each state of a login, corrupted requests for ACLs, and corrupted TLS handshakes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import frames, handshakes, logins
from tests.security.in_process import SaslBroker
from tests.support.examples import examples


@pytest.fixture(scope="module")
def broker() -> Iterator[SaslBroker]:
    made = logins.new_broker()
    yield made
    made.close()


@pytest.mark.parametrize("state", range(len(logins.STATES)))
def test_frames_in_a_state_of_the_connection(broker: SaslBroker, state: int) -> None:
    random = Random(state)
    for _ in range(60):
        logins.run(broker, frames.pick_from(bytes([state]) + random.randbytes(120)))


@settings(max_examples=examples(150))
@given(st.binary(min_size=3, max_size=120))
def test_any_frames_before_and_after_the_login(broker: SaslBroker, choices: bytes) -> None:
    logins.run(broker, frames.pick_from(choices))


@given(st.binary(max_size=40))
def test_corrupted_handshakes_and_certificates(choices: bytes) -> None:
    handshakes.run(frames.pick_from(choices))
