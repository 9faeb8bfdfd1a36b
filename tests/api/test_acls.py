"""ACLs in a whole broker: what clients create, describe and delete, what they may do then, and what the log says about it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from tests.fuzz import frames
from tests.fuzz.inprocess import InProcessBroker
from txbroker.api import delegation_tokens
from txbroker.api import describe_cluster as describe_cluster_handler
from txbroker.api import describe_topic_partitions as describe_topic_partitions_handler
from txbroker.api import group_admin as group_admin_handler
from txbroker.api import metadata as metadata_handler
from txbroker.api.authorization import LOGGED_MAX
from txbroker.api.authorized_operations import NOT_REQUESTED
from txbroker.api.request_context import Session
from txbroker.api.resources import rights_of
from txbroker.connection.protocol import Connection
from txbroker.errors import ErrorCode
from txbroker.security.acl_index import NO_ACL, Rule
from txbroker.security.acl_model import ANY, MATCH
from txbroker.security.acl_model import AclOperation as Op
from txbroker.security.acl_model import AclPermission as A
from txbroker.security.acl_model import AclResource as R
from txbroker.security.acl_model import PatternType as P
from txbroker.wire.messages import (
    create_acls,
    create_topics,
    delete_acls,
    describe_acls,
    describe_cluster,
    fetch,
    find_coordinator,
    init_producer_id,
    list_groups,
    metadata,
    offset_commit,
    produce,
)
from txbroker.wire.records import Record, build
from txbroker.wire.schema import Request

NO_TOPIC, NO_CLUSTER = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
OVERRIDES = ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:CN=root,O=x;User:admin")
OF_TRANSACTIONS = (65, 66)  # there are none
DESCRIBE_TOKENS = 41  # asks about tokens, of which there are none
ADMIN, ALICE, STRANGER = "User:admin", "User:alice", "User:eve"


class Guarded(InProcessBroker):
    """A broker with an authorizer. `principal` and `peer_host`: of the connections from now on."""

    def __init__(self, *overrides: str) -> None:
        self.principal, self.peer_host = ADMIN, "127.0.0.1"
        super().__init__(overrides=[*OVERRIDES, *overrides])

    def _connect(self) -> tuple[Connection, Any]:
        connection, transport = super()._connect()
        transport.session.principal, transport.session.peer_host = self.principal, self.peer_host
        return connection, transport

    def ask(self, request: Request, version: int, principal: str = ADMIN) -> Any:
        self.principal = principal
        (answer,) = self.exchange([self.frame(request, version)])
        return answer

    def create(self, *creations: create_acls.AclCreation, version: int = 3) -> list[int]:
        answer = self.ask(create_acls.CreateAclsRequest(creations=list(creations)), version)
        return [result.error_code for result in answer.results]

    def described(self, principal: str = ADMIN, **wanted: Any) -> set[tuple[Any, ...]]:
        answer = self.ask(describe_acls.DescribeAclsRequest(**_filter(**wanted)), 3, principal)
        assert answer.error_code == 0 and answer.error_message is None
        return {(r.resource_type, r.pattern_type, r.resource_name, a.principal, a.host, a.operation, a.permission_type)
                for r in answer.resources for a in r.acls}  # fmt: skip

    def delete(self, *wanted: dict[str, Any]) -> Any:
        filters = [delete_acls.DeleteAclsFilter(**_filter(**each)) for each in wanted]
        return self.ask(delete_acls.DeleteAclsRequest(filters=filters), 3).filter_results

    def topics(self, principal: str, *names: str) -> dict[str, int]:
        wanted = [metadata.MetadataRequestTopic(name=name) for name in names] if names else None
        request = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return {topic.name: topic.error_code for topic in self.ask(request, 9, principal).topics}


def creation(name: str, operation: int = Op.READ, principal: str = ALICE, *, kind: int = R.TOPIC, pattern: int = P.LITERAL,
             permission: int = A.ALLOW, host: str = "*") -> create_acls.AclCreation:  # fmt: skip
    return create_acls.AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=principal, host=host, operation=operation,
        permission_type=permission,
    )  # fmt: skip


def _filter(kind: int = ANY, pattern: int = ANY, name: str | None = None, principal: str | None = None, host: str | None = None,
            operation: int = ANY, permission: int = ANY) -> dict[str, Any]:  # fmt: skip
    return {"resource_type_filter": kind, "pattern_type_filter": pattern, "resource_name_filter": name, "principal_filter": principal,
            "host_filter": host, "operation": operation, "permission_type": permission}  # fmt: skip


@pytest.fixture
def broker() -> Iterator[Guarded]:
    made = Guarded()
    yield made
    made.close()


def test_acls_are_created_described_and_deleted(broker: Guarded) -> None:
    assert broker.described() == set()
    made = [creation("t"), creation("p-", Op.WRITE, "User:bob", pattern=P.PREFIXED, permission=A.DENY, host="10.0.0.1"),
            creation("*", kind=R.GROUP), creation("kafka-cluster", Op.READ, kind=R.CLUSTER), creation("User:bob", kind=R.USER)]  # fmt: skip
    assert broker.create(*made) == [0] * 5
    assert broker.create(made[0], made[0]) == [0, 0], "the same once more"
    rows = {(m.resource_type, m.resource_pattern_type, m.resource_name, m.principal, m.host, m.operation, m.permission_type) for m in made}
    assert broker.described() == broker.described("User:CN=root,O=x") == rows
    assert {row[2] for row in broker.described(kind=R.TOPIC, pattern=MATCH, name="p-1")} == {"p-"}
    assert {row[2] for row in broker.described(kind=R.GROUP, pattern=MATCH, name="g")} == {"*"}
    results = broker.delete({"principal": ALICE, "kind": R.TOPIC}, {"name": "t"}, {"principal": "User:x"})
    assert [(r.error_code, [m.resource_name for m in r.matching_acls]) for r in results] == [(0, ["t"]), (0, []), (0, [])]
    assert len(broker.described()) == 4
    old = broker.ask(describe_acls.DescribeAclsRequest(**_filter(pattern=P.LITERAL)), 0)
    assert {r.resource_name for r in old.resources} == {"*", "kafka-cluster", "User:bob"}
    assert broker.create(creation("old"), version=0) == [0]
    everything = broker.delete({})
    assert len(everything[0].matching_acls) == 5 and broker.described() == set()


@pytest.mark.parametrize(
    ("bad", "codes"),
    [
        (creation(""), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("a/b"), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("t", principal="alice"), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("other", kind=R.CLUSTER), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("t", 99), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("t", kind=9), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("t", pattern=0), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("t", permission=7), [ErrorCode.INVALID_REQUEST, 0]),
        (creation("t", ANY), [ErrorCode.UNKNOWN_SERVER_ERROR] * 2),
        (creation("t", kind=ANY), [ErrorCode.UNKNOWN_SERVER_ERROR] * 2),
        (creation("t", pattern=MATCH), [ErrorCode.UNKNOWN_SERVER_ERROR] * 2),
        (creation("t", permission=ANY), [ErrorCode.UNKNOWN_SERVER_ERROR] * 2),
    ],
)
def test_what_cannot_be_created(broker: Guarded, bad: create_acls.AclCreation, codes: list[int]) -> None:
    assert broker.create(bad, creation("good")) == codes
    assert {row[2] for row in broker.described()} == ({"good"} if codes[1] == 0 else set())


@pytest.mark.parametrize("wanted", [{"operation": 99}, {"kind": 0}, {"pattern": 0}, {"permission": 9}])
def test_filters_with_unknown_codes(broker: Guarded, wanted: dict[str, Any]) -> None:
    broker.create(creation("t"))
    answer = broker.ask(describe_acls.DescribeAclsRequest(**_filter(**wanted)), 3)
    assert (answer.error_code, answer.resources) == (ErrorCode.INVALID_REQUEST, [])
    results = broker.delete(wanted, {"name": "t"})
    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST, 0] and len(results[1].matching_acls) == 1


def test_without_an_authorizer_there_are_no_acls() -> None:
    plain = InProcessBroker()
    try:
        asked = [create_acls.CreateAclsRequest(creations=[creation("t")]), describe_acls.DescribeAclsRequest(**_filter()),
                 delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**_filter())])]  # fmt: skip
        created, described, deleted = plain.exchange([plain.frame(request, 3) for request in asked])
        assert [created.results[0].error_code, described.error_code, deleted.filter_results[0].error_code] == [
            ErrorCode.SECURITY_DISABLED] * 3  # fmt: skip
    finally:
        plain.close()


def test_acls_are_administered_by_those_who_may(broker: Guarded) -> None:
    def answers() -> list[int]:
        created = broker.ask(create_acls.CreateAclsRequest(creations=[creation("t")]), 3, ALICE)
        described = broker.ask(describe_acls.DescribeAclsRequest(**_filter(kind=R.TOPIC)), 3, ALICE)
        removing = delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**_filter(kind=R.TOPIC))])
        deleted = broker.ask(removing, 3, ALICE)
        return [created.results[0].error_code, described.error_code, deleted.filter_results[0].error_code]

    assert answers() == [NO_CLUSTER] * 3 and broker.described() == set()
    broker.create(creation("kafka-cluster", Op.DESCRIBE, kind=R.CLUSTER))
    assert answers() == [NO_CLUSTER, 0, NO_CLUSTER]
    broker.create(creation("kafka-cluster", Op.ALTER, kind=R.CLUSTER))
    assert answers() == [0, 0, 0]


def test_a_change_counts_at_once_also_on_open_connections(broker: Guarded) -> None:
    broker.principal = ALICE
    connection, transport = broker._connect()

    def ask() -> int:
        cls, version, data = broker.frame(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=frames.TOPICS[0])]), 9)
        assert connection.frame_received(memoryview(bytearray(data[4:])))
        output: list[bytes] = []
        broker.reactor.advance(0)
        broker._take(connection, output)
        return int(frames_decoded(cls, version, output).topics[0].error_code)

    assert ask() == NO_TOPIC
    broker.create(creation("known", Op.DESCRIBE))
    assert ask() == 0
    broker.create(creation("kno", Op.ALL, "User:*", pattern=P.PREFIXED, permission=A.DENY))
    assert ask() == NO_TOPIC
    broker.delete({})
    assert ask() == NO_TOPIC and not transport.closed


def frames_decoded(cls: type[Request], version: int, output: list[bytes]) -> Any:
    from txbroker.wire.codec import decode

    return decode(frames.readable_answer(cls), version, b"".join(output)[9:])


def test_denials_are_logged_where_kafka_logs_them(broker: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txbroker.authorizer")

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == "txbroker.authorizer"]
        caplog.clear()
        return found

    def resources() -> list[str]:
        return [line.partition("resource = ")[2] for line in lines()]

    broker.topics(ALICE, "known", "ghost")
    described = "Principal = User:alice is Denied Operation = Describe from host = 127.0.0.1 on resource = Topic:LITERAL:{} " \
                "for request = Metadata with resourceRefCount = 1"  # fmt: skip
    assert lines() == [described.format("known"), described.format("ghost")]
    assert broker.topics(ALICE) == {} and lines() == [], "a list leaves out what the client may not see"
    broker.ask(list_groups.ListGroupsRequest(), 4, ALICE)
    broker.ask(describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True), 0, ALICE)
    assert lines() == []
    broker.create(creation("a", Op.WRITE))
    producer = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert broker.ask(producer, 4, ALICE).error_code == 0 and lines() == [], "one of two rights suffices"
    assert broker.ask(producer, 4, STRANGER).error_code == NO_CLUSTER
    assert [line.partition(" from ")[0] for line in lines()] == ["Principal = User:eve is Denied Operation = IdempotentWrite"]
    topics = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
              for name in ("new", "newer")]  # fmt: skip
    broker.create(creation("new", Op.CREATE))
    broker.ask(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True), 7, ALICE)
    assert resources() == ["Topic:LITERAL:newer for request = CreateTopics with resourceRefCount = 1"]
    keys = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "g", "h"])
    broker.ask(keys, 4, ALICE)
    assert [line[-1] for line in lines()] == ["2", "1"]
    partitions = [fetch.FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1) for p in (0, 1)]
    topic = fetch.FetchTopic(topic="known", partitions=partitions)
    broker.ask(fetch.FetchRequest(replica_id=3, max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[topic]), 11, ALICE)
    assert resources() == ["Cluster:LITERAL:kafka-cluster for request = Fetch with resourceRefCount = 1"]
    broker.topics(ALICE, *(f"ghost-{number}" for number in range(1000)))
    many = lines()
    assert len(many) == LOGGED_MAX + 1 and "further resources of the same Metadata request are not logged" in many[-1]
    caplog.set_level(logging.DEBUG, "txbroker.authorizer")
    broker.topics(ADMIN, "known")
    assert [line[:40] for line in lines()] == ["Principal = User:admin is Allowed Operat"]


def test_allow_everyone_if_no_acl_found() -> None:
    broker = Guarded("allow.everyone.if.no.acl.found=true")
    try:
        assert broker.topics(STRANGER, "known") == {"known": 0}
        broker.create(creation("known"))
        assert broker.topics(STRANGER, "known") == {"known": NO_TOPIC}
        assert broker.topics(ALICE, "known", "stamped") == {"known": 0, "stamped": 0}
    finally:
        broker.close()


# --- what a client without any right learns ---

# Names that exist, and names that do not, of the same length and in the same order: topics, and a group that is also a transactional id.
EXISTING = [(b"known", b"knowo"), (b"compacted", b"compactee"), (b"stamped", b"stampee"), (b"group", b"grouq")]


@pytest.fixture(scope="module")
def populated() -> Iterator[Guarded]:
    made = Guarded()
    partition = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    topics = [offset_commit.OffsetCommitRequestTopic(name=name, partitions=partition) for name in frames.TOPICS]
    assert made.ask(offset_commit.OffsetCommitRequest(group_id=frames.GROUP, topics=topics), 7).topics
    made.ask(find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[frames.GROUP]), 4)
    assert made.ask(init_producer_id.InitProducerIdRequest(transactional_id=frames.GROUP, transaction_timeout_ms=60_000), 4).error_code == 0
    yield made
    made.close()


def _answers(broker: Guarded, cls: type[Request], version: int, data: bytes) -> tuple[bytes, bool]:
    """What a client without rights gets; the ids of fetch sessions are random."""
    broker.principal = STRANGER
    output, closed = broker.send([data], 0.5)
    if cls is fetch.FetchRequest and version >= 7:
        position = 14 + (version in cls.flexible)
        output = output[:position] + bytes(4) + output[position + 4 :]
    return output, closed


def _renamed(data: bytes, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    for old, new in pairs:
        data = data.replace(old, new)
    return data


@pytest.mark.parametrize("seed", range(4))
def test_what_exists_and_what_does_not_look_alike_to_a_client_without_rights(populated: Guarded, seed: int) -> None:
    """Random requests of every API and version: the same answer to the byte, but for the name, if a name that exists is replaced."""
    random = Random(seed)
    unanswered = []
    for cls, version in populated.served.pairs:
        for _ in range(3):
            data = frames.request_frame(cls, version, 1, random.randrange)
            output, closed = _answers(populated, cls, version, data)
            other_output, other_closed = _answers(populated, cls, version, _renamed(data, EXISTING))
            assert (_renamed(output, EXISTING), closed) == (_renamed(other_output, EXISTING), other_closed), frames.described(cls, version)
            if closed and not output:
                unanswered.append(frames.described(cls, version))
    assert {text.partition(" ")[0] for text in unanswered} <= {"Produce", "SaslHandshake"}, "acks=0, and without SASL"


class _Null:
    """Chooses null for everything that may be null, and one element of each list, zero and empty text for the rest."""

    def __call__(self, below: int) -> int:
        return 0


def test_the_denied_form_of_every_request_with_null_is_answered(populated: Guarded) -> None:
    for cls, version in populated.served.pairs:
        output, closed = _answers(populated, cls, version, frames.request_frame(cls, version, 1, _Null()))
        answered = bool(output) and not closed
        assert answered or cls.__name__ in ("ProduceRequest", "SaslHandshakeRequest"), frames.described(cls, version)


# --- two principals on one broker ---

BOB = "User:bob"
OWN = {ALICE: ("known", b"secret-of-alice"), BOB: ("compacted", b"secret-of-bob")}


@pytest.fixture
def shared() -> Iterator[Guarded]:
    """Each of the two has a topic, in which are its secrets, and a group of the name of the topic."""
    made = Guarded()
    for principal, (name, secret) in OWN.items():
        made.create(*(creation(name, Op.ALL, principal, kind=kind) for kind in (R.TOPIC, R.GROUP, R.TRANSACTIONAL_ID)),
                    creation(name, Op.DELETE, principal, permission=A.DENY))  # fmt: skip
        data = produce.PartitionProduceData(index=0, records=build([Record(0, 1_700_000_000_000, b"k", secret)]))
        request = produce.ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(name=name, partition_data=[data])]
        )
        assert made.ask(request, 9, principal).responses[0].partition_responses[0].error_code == 0
        partition = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
        topics = [offset_commit.OffsetCommitRequestTopic(name=name, partitions=partition)]
        committed = made.ask(offset_commit.OffsetCommitRequest(group_id=name, topics=topics), 7, principal)
        assert committed.topics[0].partitions[0].error_code == 0
    yield made
    made.close()


def fetched(names: Sequence[str], session_id: int = 0, epoch: int = -1) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [fetch.FetchTopic(topic=name, partitions=[partition]) for name in names]
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_id=session_id, session_epoch=epoch, topics=topics)


@pytest.mark.parametrize("seed", range(2))
def test_no_answer_contains_what_its_principal_may_not_see(shared: Guarded, seed: int) -> None:
    """Neither records, nor names that the request does not contain: random requests of both in turn, in all APIs and versions."""
    random = Random(seed)
    served = shared.served.pairs * 4
    seen: Counter[str] = Counter()
    both = shared.frame(fetched([name for name, _ in OWN.values()]), 12)[2]
    whole: list[tuple[type[Request], int, bytes | None]] = [(fetch.FetchRequest, 12, both)] * 50
    for cls, version, prepared in random.sample([*((cls, version, None) for cls, version in served), *whole], len(served) + len(whole)):
        shared.principal = random.choice((ALICE, BOB))
        data = prepared or frames.request_frame(cls, version, 1, random.randrange)
        output, _ = shared.send([data], 0.05)
        for principal, (name, secret) in OWN.items():
            if principal == shared.principal:
                seen[principal] += secret in output
                continue
            assert secret not in output, frames.described(cls, version)
            assert name.encode() not in output or name.encode() in data, frames.described(cls, version)
    assert all(seen[principal] for principal in OWN), "they see their own"


def test_a_fetch_session_of_another_principal_returns_nothing_of_its_own(shared: Guarded) -> None:
    first = shared.ask(fetched(["known"], 0, 0), 12, ALICE)
    assert first.session_id and first.responses[0].partitions[0].records
    answers = [shared.ask(fetched(names, first.session_id, epoch), 12, BOB) for epoch, names in ((1, []), (2, ["known"]))]
    assert [(answer.error_code, answer.responses) for answer in answers] == [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])] * 2


def test_the_declared_rights_are_those_that_requests_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol reference has them: random requests ask for each of them, and for nothing else."""
    for module in (metadata_handler, describe_cluster_handler, describe_topic_partitions_handler, group_admin_handler):
        monkeypatch.setattr(module, "authorized_operations", lambda *_: NOT_REQUESTED)  # the bits of the client: everything is asked
    monkeypatch.setattr(delegation_tokens, "_check_sender", lambda _: None)  # no client of this test has logged in
    random = Random(5)
    asked: set[tuple[int, int]] = set()

    class Recording:
        allows_all = False
        records_use = False
        denials: Counter[tuple[str, str]] = Counter()  # noqa: RUF012

        def authorize(self, session: Session, operation: Op, resource: R, name: str) -> bool:
            asked.add((operation, resource))
            return random.random() < 0.7

        def authorize_any(self, session: Session, operation: Op, resource: R) -> bool:
            asked.add((operation, resource))
            return True

        def rule(self, session: Session, operation: Op, resource: R, name: str) -> Rule:
            return Rule(NO_ACL)

    broker = InProcessBroker()
    try:
        registry = broker._connect()[0]._registry
        registry.authorizer = Recording()
        registry.routes.clear()
        for key in registry.requests():
            handler = registry.handler(key)
            declared = set(rights_of(handler))
            versions = [version for cls, version in broker.served.pairs if cls.api_key == key]
            asked.clear()
            for attempt in range(4000 if versions else 0):
                version = versions[attempt % len(versions)]
                if version == 0 or attempt % 7:
                    broker.send([frames.request_frame(handler.request, version, 1, random.randrange)])
                if attempt > 40 and (asked == declared or key in {*OF_TRANSACTIONS, DESCRIBE_TOKENS}):
                    break
            assert asked <= declared, handler.request.__name__
            assert asked == declared or not versions or key in {*OF_TRANSACTIONS, DESCRIBE_TOKENS}, handler.request.__name__
    finally:
        broker.close()
