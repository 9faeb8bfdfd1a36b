"""Clients with principals of their own, and the administrator of their ACLs. Their answers are checked by `AccessLedger`."""

from __future__ import annotations

from simulation.access_ledger import RECOVERED_S, AccessLedger
from simulation.clients.access_plan import AccessPlan
from simulation.clients.cluster_client import PASSING, ClusterClient, Refused
from simulation.ledger import Ledger
from txbroker.errors import ErrorCode
from txbroker.security.acl_model import ANY_HOST, AclEntry, AclOperation, AclPermission, AclResource, PatternType
from txbroker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from txbroker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

RETRY_S = 0.2
TIMEOUT_S = 4.0
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OPERATIONS = (AclOperation.READ, AclOperation.DESCRIBE)


class AclAdministrator:
    """Adds and removes one ACL at a time, on any broker, until `finish`."""

    def __init__(self, name: str, client: ClusterClient, plan: AccessPlan, access: AccessLedger, ledger: Ledger) -> None:
        self.name = name
        self.plan = plan
        self.finishing = False
        self._client = client
        self._access = access
        self._ledger = ledger
        self._done = False

    def start(self) -> None:
        """Begin."""
        self._ledger.run(self.name, self._run())

    def finish(self) -> None:
        """Send nothing more."""
        self.finishing = True

    @property
    def busy(self) -> list[str]:
        """Its request without an answer."""
        return [] if self._done else [f"{self.name} waits for an answer"]

    async def _run(self) -> None:
        chance, plan, seconds = self._client.chance, self.plan, self._client.process.seconds
        until_s = seconds() + plan.changing_s
        while not self.finishing and seconds() < until_s:
            await self._client.sleep(chance.expovariate(1 / plan.pause_s))
            permission = chance.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY))
            entry = AclEntry(f"User:{chance.choice(plan.principals)}", ANY_HOST, chance.choice(OPERATIONS), permission)
            try:
                await self._change(chance.choice(self._client.broker_ids), chance.choice(plan.topics), entry, there=chance.random() < 0.5)
            except PASSING:
                await self._client.sleep(RETRY_S)
        self._done = True

    async def _change(self, broker_id: int, topic: str, entry: AclEntry, *, there: bool) -> None:
        versions = self._access.versions[topic]
        starts, begun = self._access.begin(broker_id, (topic,))[0], len(versions) - 1
        if there:
            creation = AclCreation(
                resource_type=AclResource.TOPIC, resource_name=topic, resource_pattern_type=PatternType.LITERAL, principal=entry.principal,
                host=entry.host, operation=entry.operation, permission_type=entry.permission,
            )  # fmt: skip
            (answer,) = (await self._client.send(broker_id, CreateAclsRequest(creations=[creation]))).results
        else:
            removal = DeleteAclsFilter(
                resource_type_filter=AclResource.TOPIC, resource_name_filter=topic, pattern_type_filter=PatternType.LITERAL,
                principal_filter=entry.principal, host_filter=entry.host, operation=entry.operation, permission_type=entry.permission,
            )  # fmt: skip
            (answer,) = (await self._client.send(broker_id, DeleteAclsRequest(filters=[removal]))).filter_results
            if not answer.matching_acls:
                return  # the broker does not know it, perhaps not yet
        if not answer.error_code:
            self._access.acknowledged(broker_id, starts, topic, entry, there=there, begun=begun)


class RestrictedClient:
    """Asks all brokers for topics and their records, in fetch sessions; after `finish` until each broker has had the time to recover."""

    def __init__(self, name: str, client: ClusterClient, plan: AccessPlan, access: AccessLedger, ledger: Ledger) -> None:
        self.name = name
        self.plan = plan
        self.finishing = False
        self._client = client
        self._access = access
        self._ledger = ledger
        self._sessions: dict[int, tuple[int, int]] = {}  # id and next epoch, by broker
        self._working = 0

    def start(self) -> None:
        """Begin."""
        for broker_id in self._client.broker_ids:
            self._working += 1
            self._ledger.run(f"{self.name} for b{broker_id}", self._run(broker_id))

    def finish(self) -> None:
        """Ask all brokers once more when they must know all ACLs."""
        self.finishing = True

    @property
    def busy(self) -> list[str]:
        """The brokers that it has not asked a last time."""
        return [f"{self.name} has to ask {self._working} brokers once more"] if self._working else []

    async def _run(self, broker_id: int) -> None:
        while not self.finishing:
            await self._client.sleep(self._client.chance.expovariate(1 / self.plan.pause_s))
            await self._asked(broker_id)
        await self._client.sleep(RECOVERED_S + TIMEOUT_S + 1)
        while not await self._asked(broker_id):
            await self._client.sleep(RETRY_S)
        self._working -= 1

    async def _asked(self, broker_id: int) -> bool:
        try:
            await self._metadata(broker_id)
            await self._fetch(broker_id)
        except PASSING:
            self._sessions.pop(broker_id, None)
            return False
        return True

    async def _metadata(self, broker_id: int) -> None:
        topics, named = self.plan.topics, self._client.chance.random() < 0.5
        begun = self._access.begin(broker_id, topics)
        wanted = [MetadataRequestTopic(name=name) for name in topics] if named else None
        answer = await self._client.send(broker_id, MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version_max=9)
        for topic in answer.topics:
            allowed = topic.error_code != DENIED
            if topic.name in topics:
                self._access.answered(self.name, broker_id, begun, topic.name, AclOperation.DESCRIBE, allowed=allowed)
            elif allowed:
                raise Refused(f"no ACL permits {topic.name}, and Metadata names it")

    async def _fetch(self, broker_id: int) -> None:
        topics = self.plan.topics
        session_id, epoch = self._sessions.pop(broker_id, (0, 0))
        begun = self._access.begin(broker_id, topics)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=10_000, session_id=session_id, session_epoch=epoch,
            topics=[] if session_id else [FetchTopic(topic=topic, partitions=[partition]) for topic in topics],
        )  # fmt: skip
        answer = await self._client.send(broker_id, request, version_max=12)
        if answer.error_code:
            return  # the broker has forgotten the session
        for topic in answer.responses:
            for read in topic.partitions:
                allowed = read.error_code != DENIED
                self._access.answered(self.name, broker_id, begun, topic.topic, AclOperation.READ, allowed=allowed)
        if answer.session_id:
            self._sessions[broker_id] = answer.session_id, epoch + 1
