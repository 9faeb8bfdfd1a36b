"""Answers to produces of one partition that succeeded: nearly all answers of a busy broker, alike but for their offsets."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.log.log_results import Appended
from txbroker.wire.codec import encoder
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceData, TopicProduceResponse
from txbroker.wire.template import Template, make_template

# The partitions, in each of the versions that clients use, of which templates are kept: some 650 bytes each.
TEMPLATES_MAX = 20_000

_NUMBERS = "qqq"  # base offset, append time, log start offset: side by side from v5 on


def success(index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> PartitionProduceResponse:
    """What a partition that took its records answers."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )


class ProduceAnswers:
    """Encoded answers, by version, topic and partition."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, str, bytes, int], Template | None] = {}

    def body(self, version: int, topic: TopicProduceData, index: int, appended: Appended) -> bytes | None:
        """The whole answer's body; None for a version in which it cannot be made this way."""
        key = (version, topic.name, topic.topic_id, index)
        try:
            template = self._templates[key]
        except KeyError:
            template = self._make(version, topic, index)
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            self._templates[key] = template
        if template is None:
            return None
        return template.fill(appended.first_offset, appended.append_time_ms, appended.log_start_offset)

    def _make(self, version: int, topic: TopicProduceData, index: int) -> Template | None:
        def response(numbers: Sequence[int]) -> ProduceResponse:
            base_offset, log_append_time_ms, log_start_offset = numbers
            answers = [success(index, base_offset, log_append_time_ms, log_start_offset)]
            return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)])

        return make_template(response, _NUMBERS, encoder(ProduceResponse, version))
