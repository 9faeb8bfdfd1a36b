from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.groups.subscription import all_topics, read_topics
from txbroker.wire.codec import encode_bytes
from txbroker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription


@pytest.mark.parametrize("version", range(4))
def test_topics_of_every_version(version):
    body = encode_bytes(ConsumerProtocolSubscription(topics=["a", "größe"]), version)
    metadata = version.to_bytes(2, "big") + body
    assert read_topics(metadata) == {"a", "größe"}
    assert read_topics(metadata + b"of a later version") == {"a", "größe"}


@pytest.mark.parametrize(
    "metadata",
    [
        b"", b"\x00", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x05ab", b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_nonsense_is_no_subscription(metadata):
    assert read_topics(metadata) is None
    assert all_topics([b"\x00\x00\x00\x00\x00\x00", metadata]) is None


def test_together():
    assert all_topics([]) == frozenset()
    assert all_topics([b"\x00\x00\x00\x00\x00\x01\x00\x01a", b"\x00\x00\x00\x00\x00\x01\x00\x01b"]) == {"a", "b"}


@given(st.binary(max_size=40))
def test_any_bytes(metadata):
    read_topics(metadata)
