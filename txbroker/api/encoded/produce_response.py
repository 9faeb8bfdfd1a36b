"""Responses to produces that succeeded in all partitions: nearly all responses of a busy broker, alike but for their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txbroker.api.encoded.response_frame import Frame
from txbroker.log.log_results import Appended
from txbroker.wire import topic_lists
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse
from txbroker.wire.topic_lists import TopicListTemplate

NUMBERS_VERSION = 5  # from here on the base offset, the append time and the log start offset are side by side

_PARTITION = ("i", "qqq")


def success(index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> PartitionProduceResponse:
    """The response for a partition that took its records."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )


def _response(head: Sequence[int], numbers: Sequence[int], topics: int, partitions: int) -> ProduceResponse:
    topic = TopicProduceResponse(
        name=topic_lists.TOPIC_NAME, topic_id=topic_lists.TOPIC_ID, partition_responses=[success(*numbers)] * partitions
    )
    return ProduceResponse(responses=[topic] * topics)


class ProduceResponses:
    """Encoded responses, from one template per version."""

    def __init__(self) -> None:
        self._templates: dict[int, TopicListTemplate] = {}

    def encoded(
        self, version: int, correlation_id: int, topics: Sequence[tuple[TopicProduceData, Sequence[tuple[Any, tuple[Any, Appended]]]]]
    ) -> Frame | None:
        """The response to a request whose partitions all took their records. `topics`: with the results of their partitions, each after
        the part of the request with its index, and beside anything.

        None for a version without all of the fields, and for a duplicate of unknown offsets.
        """
        template = self._templates.get(version)
        if template is None:
            if version < NUMBERS_VERSION:
                return None
            template = self._templates[version] = TopicListTemplate(ProduceRequest, version, (), _PARTITION, _response)
        pack = template.pack_partition
        after_index, after_numbers = template.partition_fixed
        by_name, one = template.by_name, template.count_of_one
        parts = [one if len(topics) == 1 else template.count(len(topics))]
        for topic, partitions in topics:
            parts.append(template.topic(topic.name) if by_name else topic.topic_id)
            parts.append(one if len(partitions) == 1 else template.count(len(partitions)))
            for data, (_, (first_offset, _, append_time_ms, log_start_offset, _)) in partitions:
                if first_offset < 0:
                    return None
                parts.append(pack(data.index, after_index, first_offset, append_time_ms, log_start_offset, after_numbers))
            parts.append(template.topic_end)
        parts.append(template.end)
        body = b"".join(parts)
        size = template.head_bytes + len(body)
        return [template.pack_head(size, correlation_id, *template.head_fixed) + body], size + 4
