"""A consumer's fetch of one partition without a session: most fetches of clients that do not use sessions, such as librdkafka.

`SingleFetch` makes the response in one step, without the lists of a fetch of many partitions. It does nothing that a `FetchReader` does not
do, and leaves to it whatever is special: errors, epochs, aborted transactions, old versions.
"""

from __future__ import annotations

from typing import Any

from txbroker.api.encoded.encoded_response import EncodedResponse, SharedResponse
from txbroker.api.encoded.fetch_response import FetchResponses
from txbroker.api.fetch_client import ANY_REPLICA_VERSION, FetchClient
from txbroker.api.fetch_reading import ZSTD_VERSION
from txbroker.api.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchItem
from txbroker.api.read_replica import NO_PREFERENCE, ReadReplicas
from txbroker.api.request_context import RequestContext
from txbroker.cluster.partition import CONSUMER, Isolation, Partition
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, StorageError
from txbroker.names import NULL_TOPIC_ID
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

# Responses of at most this many bytes are kept for the other fetches that are tried in the same check of the purgatory.
SHARED_BYTES_MAX = 8 * 1024
SHARED_RESPONSES_MAX = 16


class SingleFetches:
    """Recognises single fetches. Those that wait for the same records share one response, which is read and encoded once.

    It is shared within one check of the purgatory, which tries all fetches of one partition in the same turn of the reactor: whatever
    happens to the partition meanwhile, each of them might have been the first one.
    """

    def __init__(
        self, replicas: Replicas, responses: FetchResponses, purgatory: Purgatory, read_replicas: ReadReplicas
    ) -> None:
        self.replicas = replicas
        self._read_replicas = read_replicas
        self.responses = responses
        self._purgatory = purgatory
        self._shared: dict[tuple[Any, ...], SharedResponse] = {}
        self._shared_in = 0  # the check of the purgatory

    def of(self, request: FetchRequest, context: RequestContext, limit: int) -> SingleFetch | None:
        """The request as a single fetch, if it is one and its partition is here. `limit`: bytes of records at most."""
        topics = request.topics
        if (
            len(topics) != 1
            or len(topics[0].partitions) != 1
            or request.session_epoch != FINAL_EPOCH
            or request.session_id != NO_SESSION
            or request.replica_id != CONSUMER
            or request.replica_state.replica_id != CONSUMER
            or context.api_version < ZSTD_VERSION
        ):
            return None
        topic = topics[0]
        wanted = topic.partitions[0]
        name = topic.topic
        if topic.topic_id != NULL_TOPIC_ID:
            name = self.replicas.topic_name(topic.topic_id) or ""
        partition = self.replicas.find(name, wanted.partition)
        if partition is None or wanted.last_fetched_epoch != -1:
            return None
        if topic.topic_id not in (NULL_TOPIC_ID, partition.log.topic_id):
            return None
        if request.rack_id:
            client = FetchClient.of(request, context)
            if self._read_replicas.preferred(partition, client, wanted.fetch_offset) != NO_PREFERENCE:
                return None
        return SingleFetch(self, partition, context, topic, wanted, limit, request.min_bytes, request.isolation_level)

    def shared(self, key: tuple[Any, ...]) -> SharedResponse | None:
        """The response to another fetch of the same in this check."""
        return self._shared.get(key) if self._shared_in == self._purgatory.checks else None

    def share(self, key: tuple[Any, ...], response: SharedResponse) -> None:
        """Keep a response for the other fetches of this check."""
        if self._shared_in != self._purgatory.checks or len(self._shared) >= SHARED_RESPONSES_MAX:
            self._shared.clear()
            self._shared_in = self._purgatory.checks
        self._shared[key] = response


class SingleFetch:
    """One such fetch. It copies what it needs of the request, so that it can wait."""

    __slots__ = (
        "_any_replica",
        "_bytes_max",
        "_committed",
        "_context",
        "_epoch",
        "_fetches",
        "_min_bytes",
        "_offset",
        "_topic",
        "_topic_id",
        "is_special",
        "partition",
    )

    def __init__(
        self,
        fetches: SingleFetches,
        partition: Partition,
        context: RequestContext,
        topic: FetchTopic,
        wanted: FetchPartition,
        limit: int,
        min_bytes: int,
        isolation: int,
    ) -> None:
        self._fetches = fetches
        self.partition = partition
        self._context = context
        self._topic = topic.topic
        self._topic_id = topic.topic_id
        self._offset = wanted.fetch_offset
        self._epoch = wanted.current_leader_epoch
        self._bytes_max = min(wanted.partition_max_bytes, limit)
        self._min_bytes = min(min_bytes, limit)
        self._committed = isolation == Isolation.READ_COMMITTED
        self._any_replica = context.api_version >= ANY_REPLICA_VERSION
        self.is_special = False
        """Set by `response` and `woken`: the response is to be made by a FetchReader."""

    def response(self) -> EncodedResponse | None:
        """The response; None if there are fewer than min.bytes, or `is_special`."""
        partition, committed = self.partition, self._committed
        if not (partition.is_leader or self._any_replica) or (self._epoch != -1 and self._epoch != partition.state.leader_epoch):
            self.is_special = True
            return None
        stable = partition.last_stable_offset
        high_watermark = partition.high_watermark
        try:
            read = partition.read(self._offset, self._bytes_max, stable if committed else high_watermark, True)
            if committed and partition.aborted_transactions(self._offset, read.end_offset):
                self.is_special = True
        except BrokerError:
            self.is_special = True
        if self.is_special:
            return None
        records = read.region
        size = len(records)
        if size < self._min_bytes:
            return None
        partition.counts.bytes_out += size
        return self._fetches.responses.encoded(
            self._context.api_version,
            self._context.correlation_id,
            NO_SESSION,
            self._topic,
            self._topic_id,
            partition.topic_partition.partition,
            high_watermark,
            stable,
            partition.log.log_start_offset,
            records,
            committed=committed,
        )

    def key(self) -> tuple[Any, ...]:
        """What the response depends on, besides the partition and the correlation id."""
        return self._offset, self._epoch, self._bytes_max, self._min_bytes, self._committed, self._context.api_version, self._topic_id

    def woken(self, key: tuple[Any, ...]) -> EncodedResponse | None:
        """As `response`, after the partition has moved. Many fetches may wait for the same records at its end; they have the same `key`."""
        partition, fetches = self.partition, self._fetches
        shared = fetches.shared(key)
        if shared is not None:
            partition.counts.bytes_out += shared.records_bytes
            return shared.for_request(self._context.correlation_id)
        if fetches.replicas.find(*partition.topic_partition) is not partition:
            self.is_special = True  # deleted, or its directory is offline
            return None
        response = self.response()
        if response is not None and response.size <= SHARED_BYTES_MAX:
            try:
                shared = SharedResponse(response)
            except StorageError:
                return response  # the transport reports the file when it cannot send it
            fetches.share(key, shared)
            return shared.for_request(self._context.correlation_id)
        return response

    def item(self) -> FetchItem:
        """What a FetchReader is to read instead."""
        wanted = FetchPartition(
            partition=self.partition.topic_partition.partition,
            fetch_offset=self._offset,
            partition_max_bytes=self._bytes_max,
            current_leader_epoch=self._epoch,
        )
        return FetchItem(self._topic, self._topic_id, wanted)
