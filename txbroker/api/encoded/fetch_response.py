"""Responses to fetches that have one partition and no error: most responses to consumers, alike but for offsets and records."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.api.encoded.encoded_response import EncodedResponse, Part
from txbroker.wire import template
from txbroker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from txbroker.wire.template import Template

SESSION_VERSION = 7  # from here on a response has a session id

_FIELDS = ("i", "topic", "i", "qqq", "records")


class FetchResponses:
    """Encoded responses, from one template per version and isolation level."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, bool], Template] = {}

    def encoded(
        self,
        version: int,
        correlation_id: int,
        session_id: int,
        topic: str,
        topic_id: bytes,
        index: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: Part,
        *,
        committed: bool,
    ) -> EncodedResponse | None:
        """The response; None for a version without all of the fields. `committed`: the isolation level is read_committed, and no
        transaction among the records was aborted."""
        made = self._templates.get((version, committed))
        if made is None:
            if version < SESSION_VERSION:
                return None
            made = self._templates[version, committed] = _template(version, committed)
        name = topic.encode() if made.by_name else topic_id
        pack, size, (start, before_topic, before_index, before_offsets, end) = made.layouts[len(name)]
        records_bytes = len(records)
        length = made.records_length(records_bytes)
        size += len(length) + records_bytes
        head = (
            pack(
                size,
                correlation_id,
                start,
                session_id,
                before_topic,
                name,
                before_index,
                index,
                before_offsets,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                end,
            )
            + length
        )
        return EncodedResponse([head, records, made.end] if records_bytes else [head + made.end], size + 4, records_bytes)


def _template(version: int, committed: bool) -> Template:
    def response(numbers: Sequence[int]) -> FetchResponse:
        session_id, index, high_watermark, last_stable_offset, log_start_offset = numbers
        partition = PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=[] if committed else None,
            records=template.RECORDS,
        )
        topics = [FetchableTopicResponse(topic=template.TOPIC_NAME, topic_id=template.TOPIC_ID, partitions=[partition])]
        return FetchResponse(session_id=session_id, responses=topics)

    return Template(FetchRequest, version, _FIELDS, response)
