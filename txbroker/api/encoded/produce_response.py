"""Responses to produces to one topic that succeeded: nearly all responses of a busy broker, alike but for their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txbroker.api.encoded.encoded_response import EncodedResponse
from txbroker.log.log_results import Appended
from txbroker.wire import template
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse
from txbroker.wire.template import Template

NUMBERS_VERSION = 5  # from here on the base offset, the append time and the log start offset are side by side

# There is a template for each number of partitions up to this one.
PARTITIONS_MAX = 16

_PARTITION_FIELDS = ("i", "qqq")


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
    """`numbers`: four for each partition."""
    partitions = [success(*numbers[at : at + 4]) for at in range(0, len(numbers), 4)]
    return ProduceResponse(
        responses=[TopicProduceResponse(name=template.TOPIC_NAME, topic_id=template.TOPIC_ID, partition_responses=partitions)]
    )


def _make(version: int, partitions: int) -> Template:
    return Template(ProduceRequest, version, ("topic", *_PARTITION_FIELDS * partitions), _response)


class ProduceResponses:
    """Encoded responses, from one template per version and number of partitions."""

    def __init__(self) -> None:
        self._templates: dict[int, Template] = {}  # for one partition
        self._several: dict[tuple[int, int], Template] = {}

    def _template(self, version: int) -> Template | None:
        """None for a version without all of the fields."""
        made = self._templates.get(version)
        if made is None and version >= NUMBERS_VERSION:
            made = self._templates[version] = _make(version, 1)
        return made

    def encoded(self, version: int, correlation_id: int, topic: TopicProduceData, index: int, appended: Appended) -> EncodedResponse | None:
        """The response; None for a version without all of the fields, and for a duplicate of unknown offsets."""
        made = self._templates.get(version) or self._template(version)
        if made is None or appended.first_offset < 0:
            return None
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

    def encoded_partitions(
        self, version: int, correlation_id: int, topic: TopicProduceData, results: Sequence[tuple[int, Appended]]
    ) -> EncodedResponse | None:
        """The response to a request for several partitions, by their indexes; None as `encoded`, and for more than PARTITIONS_MAX."""
        partitions = len(results)
        made = self._several.get((version, partitions))
        if made is None:
            if version < NUMBERS_VERSION or partitions > PARTITIONS_MAX:
                return None
            made = self._several[version, partitions] = _make(version, partitions)
        name = topic.name.encode() if made.by_name else topic.topic_id
        pack, size, (start, *between, end) = made.layouts[len(name)]
        values: list[Any] = [size, correlation_id, start, name]
        fixed = iter(between)
        for index, appended in results:
            if appended.first_offset < 0:
                return None
            values += (
                next(fixed),
                index,
                next(fixed),
                appended.first_offset,
                appended.append_time_ms,
                appended.log_start_offset,
            )
        return EncodedResponse([pack(*values, end)], size + 4)

