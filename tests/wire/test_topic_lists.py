"""Templates of topic lists: a version without the fields, or with another order of fields, has no template."""

from __future__ import annotations

import pytest

from txbroker.api.produce_response import _response, success
from txbroker.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from txbroker.wire.topic_lists import TOPIC_ID, TOPIC_NAME, TopicListTemplate


@pytest.mark.parametrize("version", range(5))
def test_there_is_no_template_without_all_numbers(version: int) -> None:
    with pytest.raises(ValueError, match=f"v{version} does not have"):
        TopicListTemplate(ProduceRequest, version, _response)


def test_there_is_no_template_for_another_order() -> None:
    with pytest.raises(ValueError, match="in this order"):
        TopicListTemplate(ProduceRequest, 9, lambda head, n, *counts: _response(head, (n[0], n[2], n[1], n[3]), *counts))


def test_there_is_no_template_for_something_before_the_partition() -> None:
    def build(_: int, numbers: tuple[int, int, int, int], topics: int, partitions: int) -> ProduceResponse:
        results = [success(7, 1, 1, 1), success(*numbers)] * partitions
        topic = TopicProduceResponse(name=TOPIC_NAME, topic_id=TOPIC_ID, partition_responses=results)
        return ProduceResponse(responses=[topic] * topics)

    with pytest.raises(ValueError, match="between topics and partitions"):
        TopicListTemplate(ProduceRequest, 9, build)
