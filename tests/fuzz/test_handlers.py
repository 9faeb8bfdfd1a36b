"""Random requests and corrupted frames through the handlers of a broker in this process; `inprocess.py` has the checks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import frames
from tests.fuzz.inprocess import InProcessBroker
from tests.support.examples import examples
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    made = InProcessBroker()
    yield made
    made.close()


def check_answers(output: bytes, sent: dict[int, tuple[type, int]]) -> None:
    """Check that responses are in the order of the requests and can be decoded."""
    position, last = 0, -1
    while position < len(output):
        end = position + 4 + int.from_bytes(output[position : position + 4], "big")
        correlation_id = int.from_bytes(output[position + 4 : position + 8], "big")
        assert last < correlation_id
        last = correlation_id
        cls, version = sent[correlation_id]
        header = 9 if version in cls.flexible and cls.api_key != 18 else 8  # type: ignore[attr-defined]
        decode(frames.readable_answer(cls), version, output[position + header : end])
        position = end


@pytest.mark.parametrize("seed", range(3))
def test_every_api_and_version(broker: InProcessBroker, seed: int) -> None:
    pick = Random(seed).randrange
    for number, (cls, version) in enumerate(broker.served.pairs):
        output, _ = broker.send([frames.request_frame(cls, version, number, pick)])
        check_answers(output, {number: (cls, version)})


@pytest.mark.parametrize("names", [("x" * 32_767,), ("y" * 32_767,) * 2])
def test_the_longest_names_of_users_in_errors(broker: InProcessBroker, names: tuple[str, ...]) -> None:
    """The texts that name them are not longer than a string of a response may be."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    body = encode_bytes(request, 0)
    output, _ = broker.send([request_prefix(DescribeUserScramCredentialsRequest, 0, 1, "fuzz", len(body)) + body])
    assert output
    check_answers(output, {1: (DescribeUserScramCredentialsRequest, 0)})


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=200)), min_size=1, max_size=4))
def test_random_requests(broker: InProcessBroker, each: list[tuple[int, bytes]]) -> None:
    sent, data = {}, []
    for number, (which, choices) in enumerate(each):
        cls, version = broker.served.pairs[which % len(broker.served.pairs)]
        sent[number] = cls, version
        data.append(frames.request_frame(cls, version, number, frames.pick_from(choices)))
    check_answers(broker.send(data)[0], sent)


@settings(max_examples=examples(400))
@given(st.integers(0, 1 << 16), st.binary(max_size=200), st.binary(max_size=20))
def test_corrupted_frames(broker: InProcessBroker, which: int, choices: bytes, spoiling: bytes) -> None:
    cls, version = broker.served.pairs[which % len(broker.served.pairs)]
    frame = frames.request_frame(cls, version, 1, frames.pick_from(choices))
    broker.send([frames.mutated_frame(frame, frames.pick_from(spoiling))])
