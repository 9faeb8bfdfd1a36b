"""Templates of topic lists: a version without the fields, or with another order of fields, has no template."""

from __future__ import annotations

import pytest

from txbroker.api.produce_response import _response
from txbroker.wire.messages.produce import ProduceRequest
from txbroker.wire.topic_lists import TopicListTemplate


@pytest.mark.parametrize("version", range(5))
def test_there_is_no_template_without_all_numbers(version: int) -> None:
    with pytest.raises(ValueError, match=f"v{version} does not have"):
        TopicListTemplate(ProduceRequest, version, (), ("i", "qqq"), _response)


def test_there_is_no_template_for_another_order() -> None:
    with pytest.raises(ValueError, match="in this order"):
        TopicListTemplate(ProduceRequest, 9, (), ("qqq", "i"), lambda head, n, *counts: _response(head, [n[3], *n[:3]], *counts))
    with pytest.raises(ValueError, match="between topics and partitions"):
        TopicListTemplate(ProduceRequest, 9, (), ("qqq",), lambda head, n, *counts: _response(head, [7, *n], *counts))
