"""Responses to fetches without errors: nearly all, whatever their topics and partitions. They are alike but for offsets and records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from txbroker.api.encoded.response_frame import Frame, Part
from txbroker.api.fetch_item import FetchItem, PartitionRead
from txbroker.errors import StorageError
from txbroker.log.region import Region
from txbroker.wire import topic_lists
from txbroker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from txbroker.wire.topic_lists import TopicListTemplate

SESSION_VERSION = 7  # from here on a response has a session id

_HEAD = ("i",)
_PARTITION = ("i", "qqq")

# One partition: the bytes before its records, and the records if they are not among these.
_Block = tuple[bytes, Region | None]


class FetchResponses:
    """Encoded responses, from one template per version and isolation level."""

    def __init__(self, share: Callable[[tuple[object, ...], PartitionRead], None]) -> None:
        """`share(key, read)`: keep what several fetches wait for."""
        self._share = share
        self._templates: dict[tuple[int, bool], TopicListTemplate] = {}

    def encoded(
        self, version: int, correlation_id: int, session_id: int, reads: Mapping[FetchItem, PartitionRead]
    ) -> Frame | None:
        """The response; None if a read is unusual or has aborted transactions, and for a version without all of the fields."""
        template = self._templates.get((version, False)) or self._template(version, False)
        if template is None:
            return None
        first, last = template.head_fixed
        parts: list[Part]
        topic: str | bytes
        if len(reads) == 1:  # as below, in few steps: one partition has changed
            ((item, read),) = reads.items()
            if read.aborted or read.unusual is not None:
                return None
            kept = read.block
            before, region = self._block(version, item.wanted.partition, read) if kept is None or kept[0] != version else (kept[1], None)
            count, ends = template.count_of_one, template.topic_end + template.end
            body = count + (template.topic(item.topic) if template.by_name else item.topic_id) + count + before
            if region is None:
                body += ends
                size = template.head_bytes + len(body)
                parts = [template.pack_head(size, correlation_id, first, session_id, last) + body]
            else:
                ends = template.partition_end + ends
                size = template.head_bytes + len(body) + read.size + len(ends)
                parts = [template.pack_head(size, correlation_id, first, session_id, last) + body, region, ends]
            if read.size and item.counts is not None:
                item.counts.bytes_out += read.size
            return parts, size + 4
        topics: dict[str | bytes, list[_Block]] = {}
        by_name = template.by_name
        for item, read in reads.items():
            if read.aborted or read.unusual is not None:
                return None
            kept = read.block
            block = self._block(version, item.wanted.partition, read) if kept is None or kept[0] != version else (kept[1], None)
            topic = item.topic if by_name else item.topic_id
            blocks = topics.get(topic)
            if blocks is None:
                topics[topic] = [block]
            else:
                blocks.append(block)
        parts = []
        run = [template.count(len(topics))]
        for topic, blocks in topics.items():
            run.append(topic if isinstance(topic, bytes) else template.topic(topic))
            run.append(template.count(len(blocks)))
            for before, region in blocks:
                run.append(before)
                if region is not None:
                    parts += (b"".join(run), region)
                    run = [template.partition_end]
            run.append(template.topic_end)
        run.append(template.end)
        parts.append(b"".join(run))
        size = template.head_bytes + sum(map(len, parts))
        parts.insert(0, template.pack_head(size, correlation_id, first, session_id, last))
        for item, read in reads.items():
            if read.size and item.counts is not None:
                item.counts.bytes_out += read.size
        return parts, size + 4

    def _block(self, version: int, partition: int, read: PartitionRead) -> _Block:
        template = self._templates.get((version, read.aborted is not None)) or self._template(version, True)
        assert template is not None
        after_index, after_offsets = template.partition_fixed
        block = template.pack_partition(
            partition,
            after_index,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            after_offsets,
        ) + template.records_length(read.size)
        records = read.records
        if read.shared_key is not None:
            try:
                records = read.records = records if isinstance(records, bytes) else records.read()
            except StorageError:
                pass  # the transport reports the file when it cannot send it
            else:
                block += records + template.partition_end
                read.block = version, block
                self._share(read.shared_key, read)
                return block, None
        if not read.size:
            return block + template.partition_end, None
        if isinstance(records, Region):
            return block, records
        return block + records + template.partition_end, None

    def _template(self, version: int, committed: bool) -> TopicListTemplate | None:
        if version < SESSION_VERSION:
            return None

        def response(head: Sequence[int], numbers: Sequence[int], topics: int, partitions: int) -> FetchResponse:
            index, high_watermark, last_stable_offset, log_start_offset = numbers
            partition = PartitionData(
                partition_index=index,
                error_code=0,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
                aborted_transactions=[] if committed else None,
                records=topic_lists.RECORDS,
            )
            topic = FetchableTopicResponse(
                topic=topic_lists.TOPIC_NAME, topic_id=topic_lists.TOPIC_ID, partitions=[partition] * partitions
            )
            return FetchResponse(session_id=head[0], responses=[topic] * topics)

        made = TopicListTemplate(FetchRequest, version, _HEAD, _PARTITION, response, records=True)
        self._templates[version, committed] = made
        return made
