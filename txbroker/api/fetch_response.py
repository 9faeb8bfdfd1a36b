"""Responses to fetches, made of what was read: the usual ones are filled into templates, the others are messages.

The only place that makes `PartitionData`, and the only one where a fetch looks into records: clients that do not know batches of format v2
(Fetch v0-v3) get them converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.encoded.response_frame import Frame, Part
from txbroker.api.fetch_item import FetchItem, PartitionRead, Unusual
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.errors import BrokerError, StorageError
from txbroker.log.region import Region
from txbroker.wire import topic_lists
from txbroker.wire.conversion import from_v2
from txbroker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from txbroker.wire.topic_lists import TopicListTemplate

V2_BATCH_VERSION = 4
SESSION_VERSION = 7  # from here on a response has a session id
NODE_ENDPOINTS_VERSION = 16
DOWN_CONVERTED_BYTES_MAX = 128 << 20  # what the records of one partition may decompress to while they are converted
_MAGIC_0_VERSION_MAX = 1
_USUAL = Unusual()

Fetched: TypeAlias = FetchResponse | Frame

# One partition: the bytes before its records, and the records if they are not among these.
_Block: TypeAlias = tuple[bytes, Region | None]


class FetchResponses:
    """Makes the responses. Nearly all are alike but for offsets and records: there is one template per version and isolation level."""

    def __init__(self, leaders: CurrentLeaders, errors: Errors, share: Callable[[tuple[object, ...], PartitionRead], None]) -> None:
        """`errors` counts the error codes of partitions. `share(key, read)` keeps what several fetches wait for."""
        self._leaders = leaders
        self._errors = errors
        self._share = share
        self._templates: dict[tuple[int, bool], TopicListTemplate] = {}

    def encoded(self, version: int, correlation_id: int, session_id: int, reads: Mapping[FetchItem, PartitionRead]) -> Frame | None:
        """The response; None if a read is unusual or has aborted transactions, and for a version without all of the fields."""
        template = self._templates.get((version, False)) or self._template(version, False)
        if template is None:
            return None
        topics: dict[str | bytes, list[_Block]] = {}
        by_name, one = template.by_name, template.count_of_one
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
        parts: list[Part] = []
        size = template.head_bytes
        run = [one if len(topics) == 1 else template.count(len(topics))]
        for topic, blocks in topics.items():
            run.append(topic if isinstance(topic, bytes) else template.topic(topic))
            run.append(one if len(blocks) == 1 else template.count(len(blocks)))
            for before, region in blocks:
                run.append(before)
                if region is not None:
                    joined = b"".join(run)
                    parts += (joined, region)
                    size += len(joined) + region.length
                    run = [template.partition_end]
            run.append(template.topic_end)
        run.append(template.end)
        joined = b"".join(run)
        parts.append(joined)
        size += len(joined)
        first, last = template.head_fixed
        parts.insert(0, template.pack_head(size, correlation_id, first, session_id, last))
        for item, read in reads.items():
            if read.size and item.counts is not None:
                item.counts.bytes_out += read.size
        return parts, size + 4

    def _block(self, version: int, partition: int, read: PartitionRead) -> _Block:
        template = self._templates.get((version, read.aborted is not None)) or self._template(version, True)
        assert template is not None
        after_index, after_offsets = template.partition_fixed
        offsets = read.high_watermark, read.last_stable_offset, read.log_start_offset
        block = template.pack_partition(partition, after_index, *offsets, after_offsets) + template.records_length(read.size)
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
        made = TopicListTemplate(FetchRequest, version, partial(_response, committed), number=True, records=True)
        self._templates[version, committed] = made
        return made

    def message(self, context: RequestContext, session_id: int, reads: Mapping[FetchItem, PartitionRead]) -> FetchResponse:
        """The response with any partitions."""
        version = context.api_version
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for item, read in reads.items():
            data = partition_data(item.wanted.partition, read)
            if version < V2_BATCH_VERSION and isinstance(data.records, Region):
                self._down_convert(data, data.records, 0 if version <= _MAGIC_0_VERSION_MAX else 1, item.wanted.fetch_offset)
            key = (item.topic, item.topic_id)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(topic=item.topic, topic_id=item.topic_id, partitions=[])
            topic.partitions.append(data)
            if data.records and item.counts is not None:
                item.counts.bytes_out += len(data.records)
        nodes = self._nodes(reads.values(), context) if version >= NODE_ENDPOINTS_VERSION else []
        return FetchResponse(session_id=session_id, responses=list(topics.values()), node_endpoints=nodes)

    def _down_convert(self, data: PartitionData, records: Region, magic: int, first_offset: int) -> None:
        """Convert the records to message format `magic`, or replace them by an error."""
        try:
            data.records = from_v2(records.read(), magic, first_offset=first_offset, bytes_max=DOWN_CONVERTED_BYTES_MAX)
        except BrokerError as error:
            data.error_code, data.records = error.code, b""
            self._errors[error.code] += 1

    def _nodes(self, reads: Iterable[PartitionRead], context: RequestContext) -> list[NodeEndpoint]:
        """The addresses of the leaders that these name."""
        leaders = {leader.leader_id for read in reads if read.unusual and (leader := read.unusual.leader) and leader.leader_id >= 0}
        nodes = self._leaders.nodes(leaders, context)
        return [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]


def _response(committed: bool, session_id: int, numbers: tuple[int, int, int, int], topics: int, partitions: int) -> FetchResponse:
    index, high_watermark, stable, start = numbers
    read = PartitionRead(high_watermark, stable, start, topic_lists.RECORDS, aborted=[] if committed else None)
    partition = partition_data(index, read)
    topic = FetchableTopicResponse(topic=topic_lists.TOPIC_NAME, topic_id=topic_lists.TOPIC_ID, partitions=[partition] * partitions)
    return FetchResponse(session_id=session_id, responses=[topic] * topics)


def partition_data(partition: int, read: PartitionRead) -> PartitionData:
    """A partition in a response."""
    unusual = read.unusual or _USUAL
    data = PartitionData(
        partition_index=partition,
        error_code=unusual.error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        preferred_read_replica=unusual.preferred_replica,
        records=b"" if read.unusual else read.records,
    )
    if not unusual.error_code:  # as in Kafka, an error has an empty list
        aborted = read.aborted
        data.aborted_transactions = None if aborted is None else [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted
        ]
    if unusual.diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=unusual.diverging.epoch, end_offset=unusual.diverging.end_offset)
    if unusual.leader is not None:
        data.current_leader = unusual.leader
    return data
