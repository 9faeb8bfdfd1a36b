"""Produces to the target: a request has at most one batch of each partition, as Kafka requires, and batches of many partitions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.client.client_errors import ClientError
from txbroker.client.topic_leaders import TopicLeaders
from txbroker.errors import ErrorCode, error_name
from txbroker.mirror.cluster import DATA, Cluster
from txbroker.mirror.partition import PartitionCopy, State
from txbroker.mirror.requests import produce_request, produced
from txbroker.mirror.settings import MirrorSettings
from txbroker.wire.batch import Buffer
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceResponse

log = logging.getLogger("txbroker.mirror")


class _Carried(NamedTuple):
    """A partition with a batch in a request."""

    copy: PartitionCopy
    generation: int
    topic: TopicLeaders


class TargetWriter:
    """`freed` is called when partitions have room again; `failed` with a partition, an error code or None, and a text; `settled` with a
    partition that failed, once all its requests are answered."""

    def __init__(
        self,
        cluster: Cluster,
        settings: MirrorSettings,
        freed: Callable[[], None],
        failed: Callable[[PartitionCopy, int | None, str], None],
        settled: Callable[[PartitionCopy], None],
    ) -> None:
        self.problem = ""
        self._cluster = cluster
        self._settings = settings
        self._freed = freed
        self._failed = failed
        self._settled = settled
        self._waiting: dict[PartitionCopy, None] = {}  # with batches to send, in the order of their turns
        self._in_flight: Counter[int] = Counter()

    def add(self, partitions: Collection[PartitionCopy]) -> None:
        """These have batches to send."""
        for copy in partitions:
            if copy.queue:
                self._waiting[copy] = None
        self._send()

    def _send(self) -> None:
        """Send requests to every broker that takes another one."""
        while True:
            by_node: dict[int, list[tuple[PartitionCopy, TopicLeaders]]] = {}
            sizes: Counter[int] = Counter()
            for copy in list(self._waiting):
                if not copy.queue or copy.state is not State.COPYING:
                    del self._waiting[copy]
                    continue
                topic = self._cluster.topics.get(copy.partition.topic)
                leader = None if topic is None else topic.by_partition.get(copy.partition.partition)
                if topic is None or leader is None:
                    del self._waiting[copy]
                    self._failed(copy, int(ErrorCode.LEADER_NOT_AVAILABLE), f"{copy} of the target has no leader")
                    continue
                node = leader.node_id
                size = len(copy.queue[0].records)
                if not copy.can_send or self._in_flight[node] >= self._settings.requests_in_flight:
                    continue
                if sizes[node] and sizes[node] + size > self._settings.request_bytes:
                    continue
                sizes[node] += size
                by_node.setdefault(node, []).append((copy, topic))
            if not by_node:
                return
            for node, carried in by_node.items():
                self._send_to(node, carried)

    def _send_to(self, node: int, partitions: list[tuple[PartitionCopy, TopicLeaders]]) -> None:
        batches: list[tuple[TopicLeaders, int, Buffer]] = []
        carried: list[_Carried] = []
        for copy, topic in partitions:
            batches.append((topic, copy.partition.partition, copy.send_next().records))
            copy.in_flight += 1
            carried.append(_Carried(copy, copy.generation, topic))
            del self._waiting[copy]
            if copy.queue:
                self._waiting[copy] = None
        self._in_flight[node] += 1
        request = produce_request(batches)
        answer: Deferred[ProduceResponse] = Deferred.fromCoroutine(self._cluster.ask(request, node, DATA))
        answer.addCallbacks(self._answered, self._lost, callbackArgs=(carried,), errbackArgs=(carried,))
        answer.addErrback(lambda failure: log.error("internal error while producing: %s", failure.getTraceback()))
        answer.addBoth(self._done, node)

    def _answered(self, response: ProduceResponse, carried: list[_Carried]) -> None:
        if self.problem:
            log.info("the target answers again")
            self.problem = ""
        found = produced(response)
        for copy, generation, topic in carried:
            copy.in_flight -= 1
            index = copy.partition.partition
            answer = found.get((topic.name, index)) or found.get((topic.topic_id, index))
            if copy.generation == generation:
                self._judge(copy, answer)
            self._check_settled(copy)

    def _check_settled(self, copy: PartitionCopy) -> None:
        if not copy.in_flight and copy.state is State.PAUSED:
            self._settled(copy)

    def _judge(self, copy: PartitionCopy, answer: PartitionProduceResponse | None) -> None:
        if answer is None:
            self._failed(copy, None, f"the target's response does not have {copy}")
        elif answer.error_code:
            text = answer.error_message or error_name(answer.error_code)
            self._failed(copy, answer.error_code, f"{copy} cannot be produced to the target: {text}")
        else:
            problem = copy.acknowledged(answer.base_offset)
            if problem:
                self._failed(copy, int(ErrorCode.INVALID_RECORD), f"{copy}: {problem}")

    def _lost(self, failure: Failure, carried: list[_Carried]) -> None:
        if not failure.check(ClientError):
            log.error("internal error while producing: %s", failure.getTraceback())
        elif not self.problem:
            log.warning("%s; trying again", failure.getErrorMessage())
        self.problem = failure.getErrorMessage()
        for copy, generation, _ in carried:
            copy.in_flight -= 1
            if copy.generation == generation:
                self._failed(copy, int(ErrorCode.NETWORK_EXCEPTION), self.problem)
            self._check_settled(copy)

    def _done(self, _: object, node: int) -> None:
        self._in_flight[node] -= 1
        self._send()
        self._freed()
