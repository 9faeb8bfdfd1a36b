"""Templates: the filled-in bytes are those of the encoder, in every version that has one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.wire.codec import encode_bytes, encoder
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from txbroker.wire.template import Template, make_template

ID = bytes(range(16))
int64 = st.integers(-(2**63), 2**63 - 1)


def response(numbers: Sequence[int]) -> ProduceResponse:
    base, append_time, start = numbers
    answer = PartitionProduceResponse(index=3, error_code=0, base_offset=base, log_append_time_ms=append_time, log_start_offset=start)
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", topic_id=ID, partition_responses=[answer])])


def template(version: int) -> Template | None:
    return make_template(response, "qqq", encoder(ProduceResponse, version))


@pytest.mark.parametrize("version", range(5, 14))
@given(numbers=st.tuples(int64, int64, int64))
def test_it_is_what_the_encoder_makes(version: int, numbers: tuple[int, int, int]) -> None:
    made = template(version)
    assert made is not None
    assert made.fill(*numbers) == encode_bytes(response(numbers), version)


@pytest.mark.parametrize("version", range(5))
def test_there_is_none_where_the_numbers_are_not_all_there(version: int) -> None:
    assert template(version) is None
