"""Answers to fetches that tell of one partition, and of no error: most answers that consumers get, alike but for offsets and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txbroker.api.fetch_sessions import FetchItem
from txbroker.wire.codec import encoder
from txbroker.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from txbroker.wire.schema import shared_default
from txbroker.wire.template import RecordsTemplate, make_records_template

# Of so many partitions in a version templates are kept: some 700 bytes each.
TEMPLATES_MAX = 20_000

SESSION_VERSION = 7  # from here on an answer has a session id

_NUMBERS = "qqq"  # high watermark, last stable offset, log start offset: side by side from v5 on
_NO_DIVERGENCE = shared_default(EpochEndOffset)


class FetchAnswers:
    """Encoded answers, by version, topic and partition."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, str, bytes, int, bool], RecordsTemplate | None] = {}

    def parts(self, version: int, session_id: int, item: FetchItem, data: PartitionData) -> list[Any] | None:
        """The whole answer's parts; None where it cannot be made this way."""
        aborted = data.aborted_transactions
        if version < SESSION_VERSION:
            return None
        if data.error_code or aborted or data.diverging_epoch is not _NO_DIVERGENCE or data.records is None:
            return None
        key = (version, item.topic, item.topic_id, item.partition, aborted is None)
        try:
            template = self._templates[key]
        except KeyError:
            template = self._make(version, item, data)
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            self._templates[key] = template
        if template is None:
            return None
        return template.fill_records(data.records, session_id, data.high_watermark, data.last_stable_offset, data.log_start_offset)

    def _make(self, version: int, item: FetchItem, data: PartitionData) -> RecordsTemplate | None:
        def response(records: bytes, numbers: Sequence[int]) -> FetchResponse:
            session_id, high_watermark, last_stable_offset, log_start_offset = numbers
            partition = PartitionData(
                partition_index=item.partition,
                error_code=0,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
                aborted_transactions=data.aborted_transactions,
                records=records,
            )
            topics = [FetchableTopicResponse(topic=item.topic, topic_id=item.topic_id, partitions=[partition])]
            return FetchResponse(session_id=session_id, responses=topics)

        return make_records_template(response, _NUMBERS, encoder(FetchResponse, version), flexible=version in FetchResponse.flexible)
