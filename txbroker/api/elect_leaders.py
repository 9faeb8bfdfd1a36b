"""ElectLeaders (key 43): preferred and unclean leader elections on request (KIP-183, KIP-460).

Behaviour: served by the controller. The response is sent when this broker's metadata has the elected leaders, at the latest after
timeout.ms. A request for all partitions (null) is answered with those that needed an election.
Version notes: v1 election types, before it every election is preferred.
"""

from __future__ import annotations

from collections import defaultdict

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import partition_changed
from txbroker.api.controller_services import OwnController
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster.controller.elect_leaders import ElectionType
from txbroker.cluster.image import ClusterImage
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from txbroker.wire.schema import Request

REQUEST_ERROR_VERSION = 1

_MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is offline or not in sync.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "All replicas are offline.",
    ErrorCode.REQUEST_TIMED_OUT: "The leader is elected, but the metadata does not have it yet.",
}


class ElectLeadersHandler:
    """Passes elections to the controller of this broker and waits for their effect."""

    request: type[Request] = ElectLeadersRequest
    resources = on_cluster(AclOperation.ALTER)

    def __init__(self, controller: OwnController, image: ClusterImage, waiting: TopicWaiting) -> None:
        self._controller = controller
        self._image = image
        self._waiting = waiting

    def __call__(self, request: ElectLeadersRequest, context: RequestContext) -> Deferred[ElectLeadersResponse]:
        if request.election_type not in set(ElectionType):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}.")
        return Deferred.fromCoroutine(self._elect(request, context))

    async def _elect(self, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
        asked = None
        if request.topic_partitions is not None:
            asked = [TopicPartition(topic.topic, number) for topic in request.topic_partitions for number in topic.partitions]
        elections = await self._controller().elect_leaders(ElectionType(request.election_type), asked)
        elected = {tp: election.leader for tp, election in elections.items() if election.error is ErrorCode.NONE}
        for topic_partition, leader in elected.items():
            kind = ElectionType(request.election_type).name.lower()
            partition_changed("election", topic_partition, {"leader": leader, "type": kind}, context)
        done = True
        if elected:
            topics = {topic_partition.topic for topic_partition in elected}
            done = await self._waiting.until(topics, lambda: all(map(self._leads, elected.items())), request.timeout_ms)
        results: dict[str, list[PartitionResult]] = defaultdict(list)
        for topic_partition, election in elections.items():
            code = election.error
            if asked is None and code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            if code is ErrorCode.NONE and not done and not self._leads((topic_partition, election.leader)):
                code = ErrorCode.REQUEST_TIMED_OUT
            results[topic_partition.topic].append(_result(topic_partition.partition, code, _MESSAGES.get(code)))
        return _response(ErrorCode.NONE, results)

    def _leads(self, elected: tuple[TopicPartition, int]) -> bool:
        topic_partition, leader = elected
        known = self._image.partition(*topic_partition)
        return known is None or known.leader == leader

    def failed(self, request: ElectLeadersRequest, context: RequestContext, error: BrokerError) -> ElectLeadersResponse:
        """The error for the request and for each of its partitions: version 0 has no field for the request."""
        results = {
            topic.topic: [_result(number, error.code, error.message) for number in topic.partitions]
            for topic in request.topic_partitions or ()
        }
        return _response(error.code if context.api_version >= REQUEST_ERROR_VERSION else ErrorCode.NONE, results)


def _result(partition: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=partition, error_code=code, error_message=message)


def _response(code: ErrorCode, results: dict[str, list[PartitionResult]]) -> ElectLeadersResponse:
    topics = [ReplicaElectionResult(topic=topic, partition_result=partitions) for topic, partitions in results.items()]
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=topics)
