"""Templates: a version without the fields, or with another order of fields, has no template."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from txbroker.wire import template
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from txbroker.wire.template import Template


def response(numbers: Sequence[int]) -> ProduceResponse:
    index, base, append_time, start = numbers
    answer = PartitionProduceResponse(index=index, error_code=0, base_offset=base, log_append_time_ms=append_time, log_start_offset=start)
    return ProduceResponse(
        responses=[TopicProduceResponse(name=template.TOPIC_NAME, topic_id=template.TOPIC_ID, partition_responses=[answer])]
    )


@pytest.mark.parametrize("version", [5, 9, 13])
def test_a_layout_is_for_topics_of_one_length(version: int) -> None:
    made = Template(ProduceRequest, version, ("topic", "i", "qqq"), response)
    assert made.by_name == (version < 13)
    for length in (1, 126, 127, 249):
        pack, size, fixed = made.layouts[length]
        frame = pack(size, 1, fixed[0], b"t" * length, fixed[1], 3, fixed[2], 4, 5, 6, fixed[3])
        assert len(frame) == size + 4
        assert made.layouts[length].fixed is fixed


@pytest.mark.parametrize("version", range(5))
def test_there_is_no_template_without_all_numbers(version: int) -> None:
    with pytest.raises(ValueError, match=f"v{version} does not have topic, i, qqq"):
        Template(ProduceRequest, version, ("topic", "i", "qqq"), response)


def test_there_is_no_template_for_another_order() -> None:
    with pytest.raises(ValueError, match="in this order"):
        Template(ProduceRequest, 9, ("i", "topic", "qqq"), response)
