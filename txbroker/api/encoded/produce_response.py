"""Responses to produces of one partition that succeeded: nearly all responses of a busy broker, alike but for their offsets."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.api.encoded.encoded_response import EncodedResponse
from txbroker.log.log_results import Appended
from txbroker.wire import template
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse
from txbroker.wire.template import Template

NUMBERS_VERSION = 5  # from here on the base offset, the append time and the log start offset are side by side

_FIELDS = ("topic", "i", "qqq")


def success(index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> PartitionProduceResponse:
    """The response for a partition that took its records."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )


def _response(numbers: Sequence[int]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(name=template.TOPIC_NAME, topic_id=template.TOPIC_ID, partition_responses=[success(*numbers)])
        ]
    )


class ProduceResponses:
    """Encoded responses, from one template per version."""

    def __init__(self) -> None:
        self._templates: dict[int, Template] = {}

    def encoded(self, version: int, correlation_id: int, topic: TopicProduceData, index: int, appended: Appended) -> EncodedResponse | None:
        """The response; None for a version without all of the fields."""
        made = self._templates.get(version)
        if made is None:
            if version < NUMBERS_VERSION:
                return None
            made = self._templates[version] = Template(ProduceRequest, version, _FIELDS, _response)
        name = topic.name.encode() if made.by_name else topic.topic_id
        pack, size, (start, before_index, before_offsets, end) = made.layouts[len(name)]
        frame = pack(
            size,
            correlation_id,
            start,
            name,
            before_index,
            index,
            before_offsets,
            appended.first_offset,
            appended.append_time_ms,
            appended.log_start_offset,
            end,
        )
        return EncodedResponse([frame], size + 4)
