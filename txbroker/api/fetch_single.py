"""A consumer's fetch of one partition without a session: most fetches of clients that do not use sessions, such as librdkafka.

`SingleFetch` makes the response in one step, without the lists of a fetch of many partitions. It does nothing that a `FetchReader` does not
do, and leaves to it whatever is special: errors, epochs, aborted transactions, old versions.

Thousands may wait at the end of one partition, and are out of the processor's cache when it moves. So a waiting fetch is few objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txbroker.api.encoded.encoded_response import EncodedResponse, SharedResponse
from txbroker.api.encoded.fetch_response import FetchResponses
from txbroker.api.fetch_client import ANY_REPLICA_VERSION, FetchClient
from txbroker.api.fetch_reading import ZSTD_VERSION, Fetched, FetchReader
from txbroker.api.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchItem
from txbroker.api.parking import ParkedRequest
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
        self,
        replicas: Replicas,
        responses: FetchResponses,
        purgatory: Purgatory,
        read_replicas: ReadReplicas,
        reader: Callable[[FetchItem, int, int, FetchClient, RequestContext], FetchReader],
    ) -> None:
        """`reader(item, min_bytes, limit, client, context)` makes the reader for what is special."""
        self.replicas = replicas
        self._read_replicas = read_replicas
        self.responses = responses
        self.purgatory = purgatory
        self.reader = reader
        self._last_key: tuple[Any, ...] = ()
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
        return SingleFetch(self, partition, context, topic, wanted, limit, request)

    def kept(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key of the last fetch that waits, if it is equal: thousands may have the same."""
        if key != self._last_key:
            self._last_key = key
        return self._last_key

    def shared(self, key: tuple[Any, ...]) -> SharedResponse | None:
        """The response to another fetch of the same in this check."""
        return self._shared.get(key) if self._shared_in == self.purgatory.checks else None

    def share(self, key: tuple[Any, ...], response: SharedResponse) -> None:
        """Keep a response for the other fetches of this check."""
        if self._shared_in != self.purgatory.checks or len(self._shared) >= SHARED_RESPONSES_MAX:
            self._shared.clear()
            self._shared_in = self.purgatory.checks
        self._shared[key] = response


class SingleFetch(ParkedRequest[Fetched]):
    """One such fetch. It copies what it needs of the request, so that it can wait."""

    __slots__ = (
        "_any_replica",
        "_bytes_max",
        "_context",
        "_epoch",
        "_fetches",
        "_isolation",
        "_key",
        "_limit",
        "_min_bytes",
        "_offset",
        "_rack",
        "_topic",
        "_topic_id",
        "is_special",
        "partition",
    )

    _key: tuple[Any, ...]

    def __init__(
        self,
        fetches: SingleFetches,
        partition: Partition,
        context: RequestContext,
        topic: FetchTopic,
        wanted: FetchPartition,
        limit: int,
        request: FetchRequest,
    ) -> None:
        self._fetches = fetches
        self.partition = partition
        self._context = context
        self._topic = topic.topic
        self._topic_id = topic.topic_id
        self._offset = wanted.fetch_offset
        self._epoch = wanted.current_leader_epoch
        self._limit = limit
        self._bytes_max = min(wanted.partition_max_bytes, limit)
        self._min_bytes = min(request.min_bytes, limit)
        self._isolation = request.isolation_level
        self._rack = request.rack_id
        self._any_replica = context.api_version >= ANY_REPLICA_VERSION
        self.is_special = False
        """Set by `response`: the response is to be made by a FetchReader."""

    def response(self) -> EncodedResponse | None:
        """The response; None if there are fewer than min.bytes, or `is_special`."""
        partition, committed = self.partition, self._isolation == Isolation.READ_COMMITTED
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

    def wait(self, timeout_ms: int) -> SingleFetch:
        """Wait until there is enough, or an error, or for the timeout. `response` has returned None."""
        self._key = self._fetches.kept(
            (
                self._offset,
                self._epoch,
                self._bytes_max,
                self._min_bytes,
                self._isolation,
                self._context.api_version,
                self._topic_id,
            )
        )
        return self.park(self._fetches.purgatory, (self.partition.topic_partition,), timeout_ms)

    def try_complete(self) -> bool:
        """Respond if there is enough, or an error. Fetches with the same `_key` may share their response: it depends on nothing else but
        the partition and the correlation id."""
        partition, fetches = self.partition, self._fetches
        shared = fetches.shared(self._key)
        if shared is not None:
            partition.counts.bytes_out += shared.records_bytes
            self.respond(shared.for_request(self._context.correlation_id))
            return True
        response = None
        if fetches.replicas.find(*partition.topic_partition) is partition:
            response = self.response()
        else:
            self.is_special = True  # deleted, or its directory is offline
        if response is not None:
            self.respond(self._sharing(response))
            return True
        return self.is_special and self._read_special()

    def _sharing(self, response: EncodedResponse) -> EncodedResponse:
        """The response, which is kept for the other fetches of this check if it is small."""
        if response.size > SHARED_BYTES_MAX:
            return response
        try:
            shared = SharedResponse(response)
        except StorageError:
            return response  # the transport reports the file when it cannot send it
        self._fetches.share(self._key, shared)
        return shared.for_request(self._context.correlation_id)

    def _read_special(self) -> bool:
        reader = self._reader()
        if reader.ready:
            self.respond(reader.response())
        return reader.ready

    def on_expired(self) -> None:
        """max.wait.ms is over: respond with what there is."""
        self.respond(self._reader().response())

    def _reader(self) -> FetchReader:
        """A reader that has read the partition."""
        wanted = FetchPartition(
            partition=self.partition.topic_partition.partition,
            fetch_offset=self._offset,
            partition_max_bytes=self._bytes_max,
            current_leader_epoch=self._epoch,
        )
        client = FetchClient(isolation=self._isolation, rack=self._rack, listener=self._context.listener, any_replica=self._any_replica)
        item = FetchItem(self._topic, self._topic_id, wanted)
        reader = self._fetches.reader(item, self._min_bytes, self._limit, client, self._context)
        reader.read(count=False)
        return reader
