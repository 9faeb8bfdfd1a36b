"""Moves leaders and coordinators, and shrinks ISRs, of a cluster for tests. Each returns when all brokers that run know it.

The controller does it, as when an operator asks: a partition's leader is the first of its replicas after a preferred election.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txbroker.errors import ErrorCode
from txbroker.names import coordinator_partition
from txbroker.testing.cluster_view import ClusterView
from txbroker.testing.errors import KitError
from txbroker.testing.rule_specs import known_brokers
from txbroker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from txbroker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from txbroker.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from txbroker.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

KINDS = {"group": (0, "__consumer_offsets"), "transaction": (1, "__transaction_state")}
_TIMEOUT_MS = 30_000
_FIND_VERSION = 3  # with one key
_PREFERRED = 0
_LATEST = -1
_ELECTED = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})


class ClusterMoves:
    """`bar(topic, partition, allowed)`: has all brokers keep other replicas out of the ISR; None: no more. `ids`: of all brokers."""

    def __init__(self, view: ClusterView, ids: Sequence[int], bar: Callable[[str, int, Sequence[int] | None], None]) -> None:
        self._view = view
        self._ids = ids
        self._bar = bar
        self._barred: dict[tuple[str, int], list[int] | None] = {}

    @property
    def bars(self) -> dict[tuple[str, int], list[int] | None]:
        """The ISRs that were shrunk: the replicas that are allowed in them; None for all, once they may grow again."""
        return dict(self._barred)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Broker `to` leads the partition from now on; without a replica it gets one in place of the last one. KitError; ClientError."""
        self._check_running(to)
        replicas = self._view.existing(topic, partition).replica_nodes
        allowed = self._barred.get((topic, partition))
        if allowed is not None and to not in allowed:
            raise KitError(f"broker {to} is kept out of the ISR of {topic}-{partition}: call grow_isr first")
        others = [each for each in replicas if each != to]
        wanted = [to, *(others if to in replicas else others[:-1])]
        what = f"the move of the leader of {topic}-{partition} to broker {to}"
        if wanted != replicas:
            self._view.until(lambda: self._reassigned(topic, partition, wanted), what)
        self._view.until_everywhere(lambda broker: self._has_replicas(broker, topic, partition, wanted), what)
        self._view.until(lambda: self._elected(topic, partition), what)
        self._view.until_everywhere(lambda broker: self._leads(broker, topic, partition, to), what)

    def shrink_isr(self, topic: str, partition: int, to: Sequence[int]) -> None:
        """Only these replicas are in the ISR, until `grow_isr`. The leader must be one of them. KitError; ClientError."""
        found = self._view.existing(topic, partition)
        if found.leader_id not in to:
            problem = f"the ISR of {topic}-{partition} must have its leader, broker {found.leader_id}"
            raise KitError(f"{problem}: add it, or move the leader first")
        if set(to) - set(found.replica_nodes):
            raise KitError(f"the ISR of {topic}-{partition} can only have its replicas, {', '.join(map(str, found.replica_nodes))}")
        if set(to) - set(found.isr_nodes):
            now = ", ".join(map(str, found.isr_nodes))
            raise KitError(f"the ISR of {topic}-{partition} is {now}, and cannot shrink to {', '.join(map(str, to))}: call grow_isr first")
        self._barred[topic, partition] = list(to)

        def reached() -> bool:
            self._bar(topic, partition, to)  # again: a proposal of the leader may be under way
            return all(self._has_isr(broker, topic, partition, to) for broker in self._view.running())

        self._view.until(reached, f"the ISR {', '.join(map(str, to))} of {topic}-{partition}")

    def grow_isr(self, topic: str, partition: int) -> None:
        """All replicas of brokers that run may be in the ISR again, and are. KitError; ClientError."""
        found = self._view.existing(topic, partition)
        self._release(topic, partition)
        wanted = [each for each in found.replica_nodes if each in self._view.running()]
        what = f"the whole ISR of {topic}-{partition}"
        self._view.until_everywhere(lambda broker: self._has_isr(broker, topic, partition, wanted), what)

    def release(self) -> None:
        """Let all replicas into the ISRs again."""
        for topic, partition in self.bars:
            self._release(topic, partition)

    def move_coordinator(self, key: str, to: int, kind: str) -> None:
        """Broker `to` is the coordinator of a group or of a transactional id from now on, and has loaded it. KitError; ClientError."""
        if kind not in KINDS:
            raise KitError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
        key_type, topic = KINDS[kind]
        self._check_running(to)
        what = f"the move of the coordinator of the {kind} {key} to broker {to}"
        self._view.until(lambda: self._coordinator(to, key, key_type) >= 0, what)  # creates the topic
        count = len(self._view.metadata(to, topic).topics[0].partitions)
        self.move_leader(topic, coordinator_partition(key, count), to)
        self._view.until_everywhere(lambda broker: self._coordinator(broker, key, key_type) == to, what)
        self._view.until_everywhere(lambda broker: self._serves(broker, key, kind) is (broker == to), what)

    def _release(self, topic: str, partition: int) -> None:
        if self._barred.get((topic, partition)) is not None:
            self._barred[topic, partition] = None  # not removed: a broker that is paused has to know it later
            self._bar(topic, partition, None)

    def _check_running(self, broker: int) -> None:
        if broker not in self._ids:
            raise KitError(f"there is no broker {broker}; {known_brokers(self._ids)}")
        if broker not in self._view.running():
            raise KitError(f"broker {broker} does not run: start or resume it first")

    def _controller(self) -> int:
        return self._view.metadata(min(self._view.running())).controller_id

    def _reassigned(self, topic: str, partition: int, replicas: Sequence[int]) -> bool:
        asked = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=list(replicas))])
        request = AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=[asked])
        answer: AlterPartitionReassignmentsResponse = self._view.call(self._controller(), request)
        codes = [answer.error_code, *(each.error_code for found in answer.responses for each in found.partitions)]
        return self._done(codes, f"the replicas of {topic}-{partition} were not changed")

    def _elected(self, topic: str, partition: int) -> bool:
        request = ElectLeadersRequest(
            election_type=_PREFERRED, topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])], timeout_ms=_TIMEOUT_MS
        )
        answer: ElectLeadersResponse = self._view.call(self._controller(), request)
        codes = [answer.error_code, *(each.error_code for found in answer.replica_election_results for each in found.partition_result)]
        return all(code in _ELECTED for code in codes)

    @staticmethod
    def _done(codes: Sequence[int], what: str) -> bool:
        failed = [code for code in codes if code]
        if failed and failed[0] not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
            raise KitError(f"{what}: {ErrorCode(failed[0]).name}")
        return not failed

    def _has_replicas(self, broker: int, topic: str, partition: int, replicas: Sequence[int]) -> bool:
        """Whether a broker knows these replicas, the first of which is in sync."""
        found = self._view.partition(broker, topic, partition)
        return found is not None and found.replica_nodes == list(replicas) and replicas[0] in found.isr_nodes

    def _has_isr(self, broker: int, topic: str, partition: int, isr: Sequence[int]) -> bool:
        found = self._view.partition(broker, topic, partition)
        return found is not None and set(found.isr_nodes) == set(isr)

    def _leads(self, broker: int, topic: str, partition: int, leader: int) -> bool:
        """Whether a broker knows the leader, and is it itself, or says that it is not."""
        found = self._view.partition(broker, topic, partition)
        if found is None or found.leader_id != leader:
            return False
        asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)])
        answer: ListOffsetsResponse = self._view.call(broker, ListOffsetsRequest(replica_id=-1, topics=[asked]))
        code = answer.topics[0].partitions[0].error_code
        return code == (ErrorCode.NONE if broker == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _coordinator(self, broker: int, key: str, key_type: int) -> int:
        """The coordinator's id, as a broker knows it; -1 if there is none now."""
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        answer: FindCoordinatorResponse = self._view.call(broker, request, _FIND_VERSION)
        return -1 if answer.error_code else answer.node_id

    def _serves(self, broker: int, key: str, kind: str) -> bool | None:
        """Whether a broker is the coordinator, by its own answer; None while it loads."""
        if kind == "group":
            groups: DescribeGroupsResponse = self._view.call(broker, DescribeGroupsRequest(groups=[key]))
            code = groups.groups[0].error_code
        else:
            transactions: DescribeTransactionsResponse = self._view.call(broker, DescribeTransactionsRequest(transactional_ids=[key]))
            code = transactions.transaction_states[0].error_code
        if code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            return None
        return code != ErrorCode.NOT_COORDINATOR
