"""Responses to fetches, made of what was read: the usual ones are filled into templates, the others are messages.

The only place that makes `PartitionData`, and the only one where a fetch looks into records: clients that do not know batches of format v2
(Fetch v0-v3) get them converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.encoded.fetch_response import FetchResponses
from txbroker.api.encoded.response_frame import Frame
from txbroker.api.fetch_item import FetchItem, PartitionRead, Unusual
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.errors import BrokerError
from txbroker.log.region import Region
from txbroker.wire.conversion import from_v2
from txbroker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

V2_BATCH_VERSION = 4
NODE_ENDPOINTS_VERSION = 16
DOWN_CONVERTED_BYTES_MAX = 128 << 20  # what the records of one partition may decompress to while they are converted
_MAGIC_0_VERSION_MAX = 1

_USUAL = Unusual()

Fetched: TypeAlias = FetchResponse | Frame


class FetchAnswers:
    """Makes the responses. `share(key, read)` keeps what several fetches wait for (`PartitionReader.share`)."""

    def __init__(self, leaders: CurrentLeaders, errors: Errors, share: Callable[[tuple[object, ...], PartitionRead], None]) -> None:
        """`errors` counts the error codes of partitions."""
        self._leaders = leaders
        self._errors = errors
        self.encoded = FetchResponses(share).encoded
        """The response with these partitions, if it is a usual one."""

    def throttled(self, pause_ms: int, session_id: int) -> FetchResponse:
        """The response to a client above its quota."""
        return FetchResponse(throttle_time_ms=pause_ms, session_id=session_id, responses=[])

    def failed(self, error: BrokerError) -> FetchResponse:
        """The response to a request that fails as a whole."""
        self._errors[error.code] += 1
        return FetchResponse(error_code=error.code, responses=[])

    def message(self, context: RequestContext, session_id: int, reads: Mapping[FetchItem, PartitionRead]) -> FetchResponse:
        """The response with any partitions."""
        version = context.api_version
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for item, read in reads.items():
            data = partition_data(item.wanted.partition, read)
            if version < V2_BATCH_VERSION and not down_convert(data, 0 if version <= _MAGIC_0_VERSION_MAX else 1, item.wanted.fetch_offset):
                self._errors[data.error_code] += 1
            key = (item.topic, item.topic_id)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(topic=item.topic, topic_id=item.topic_id, partitions=[])
            topic.partitions.append(data)
            if data.records and item.counts is not None:
                item.counts.bytes_out += len(data.records)
        nodes = self._nodes(reads.values(), context) if version >= NODE_ENDPOINTS_VERSION else []
        return FetchResponse(session_id=session_id, responses=list(topics.values()), node_endpoints=nodes)

    def _nodes(self, reads: Iterable[PartitionRead], context: RequestContext) -> list[NodeEndpoint]:
        """The addresses of the leaders that these name."""
        leaders = {leader.leader_id for read in reads if read.unusual and (leader := read.unusual.leader) and leader.leader_id >= 0}
        if not leaders:
            return []
        nodes = self._leaders.nodes(leaders, context)
        return [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]


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


def down_convert(data: PartitionData, magic: int, first_offset: int) -> bool:
    """Convert the records to message format `magic`, in place. False: they are replaced by an error."""
    if not isinstance(data.records, Region):
        return True
    try:
        data.records = from_v2(data.records.read(), magic, first_offset=first_offset, bytes_max=DOWN_CONVERTED_BYTES_MAX)
    except BrokerError as error:
        data.error_code = error.code
        data.records = b""
        return False
    return True
