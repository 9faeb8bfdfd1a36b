"""What a whole broker writes into its audit log: each administrative request, each decision with its rule, and nothing without the key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.test_acls import ADMIN, ALICE, STRANGER, Guarded, creation
from tests.fuzz import frames
from tests.fuzz.inprocess import InProcessBroker
from txbroker.api.authorization import LOGGED_MAX
from txbroker.api.config_resources import ResourceType
from txbroker.security.acl_model import AclOperation as Op
from txbroker.security.acl_model import AclPermission, PatternType
from txbroker.security.acl_model import AclResource as R
from txbroker.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from txbroker.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from txbroker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from txbroker.wire.messages.delete_groups import DeleteGroupsRequest
from txbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from txbroker.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic

FILE = "/data/audit.log"
EVERYTHING = "txbroker.audit.events=denial,login,login_failure,change,use"


class Audited(Guarded):
    """A broker with an audit log."""

    def __init__(self, *overrides: str) -> None:
        super().__init__(f"txbroker.audit.file={FILE}", *overrides)

    def lines(self, **wanted: Any) -> list[dict[str, Any]]:
        """The lines with these fields."""
        self.reactor.advance(1.0)
        data = self._broker._environment.disk.read(FILE) or b""
        found = [json.loads(line) for line in data.splitlines()]
        return [line for line in found if wanted.items() <= line.items()]


@pytest.fixture
def broker() -> Iterator[Audited]:
    made = Audited(EVERYTHING)
    yield made
    made.close()


def read(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def test_denials_have_the_rule_that_decides(broker: Audited) -> None:
    topic = frames.TOPICS[0]
    assert broker.topics(STRANGER, topic, "ghost") == {topic: 29, "ghost": 29}
    broker.create(creation(topic, Op.ALL, STRANGER, permission=AclPermission.DENY))
    broker.topics(STRANGER, topic)
    denied = broker.lines(event="denial")
    assert [(line["resource"], line["decided_by"]) for line in denied] == [(topic, "no ACL"), ("ghost", "no ACL")]
    line = denied[0]
    assert (line["principal"], line["client_id"], line["host"], line["api"]) == (STRANGER, "tests", "127.0.0.1", "Metadata")
    assert (line["operation"], line["resource_type"], line["outcome"], line["broker"]) == ("Describe", "Topic", "denied", 1001)
    broker.reactor.advance(60.0)
    assert broker.lines(event="denial", repeated=1), "the same denial by another rule is a repetition"
    broker.topics(STRANGER, topic)
    (line,) = broker.lines(event="denial", decided_by="ACL")
    assert line["acl"] == f"{STRANGER} has DENY permission for operations: ALL from hosts: * on Topic:LITERAL:{topic}"
    assert broker._connect()[0]._registry.authorizer.denials["Metadata", "Describe"] == 4


def test_what_a_list_leaves_out_is_no_denial(broker: Audited) -> None:
    assert broker.topics(STRANGER) == {}
    assert broker.lines(principal=STRANGER) == []


def test_a_request_with_many_denied_resources_has_bounded_lines(broker: Audited) -> None:
    broker.topics(STRANGER, *(f"t{number}" for number in range(LOGGED_MAX + 20)))
    broker.reactor.advance(60.0)
    assert len(broker.lines(event="denial", api="Metadata")) == LOGGED_MAX + 1
    assert broker.lines(event="denial", left_out=19)


def test_what_is_allowed_is_recorded_once_with_its_rule(broker: Audited) -> None:
    topic = frames.TOPICS[0]
    broker.create(creation(topic[:2], Op.READ, pattern=PatternType.PREFIXED))
    for _ in range(3):
        broker.topics(ALICE, topic)
        broker.topics(ADMIN, topic)
        broker.topics(ALICE)
    (alice,) = broker.lines(event="use", principal=ALICE)
    assert (alice["operation"], alice["resource"], alice["decided_by"]) == ("Describe", topic, "ACL") and topic[:2] in alice["acl"]
    (admin,) = broker.lines(event="use", principal=ADMIN, operation="Describe", resource=topic)
    assert admin["decided_by"] == "super.users" and admin["acl"] is None
    assert broker.lines(event="use", principal=ADMIN, operation="Create", resource_type="Topic"), "the topics of the start"


def test_a_right_that_stands_for_another_is_the_one_that_was_used(broker: Audited) -> None:
    broker.create(creation("kafka-cluster", Op.CREATE, kind=R.CLUSTER))
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    (created,) = broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7, ALICE).topics
    assert created.error_code == 0
    assert [(line["operation"], line["resource_type"]) for line in broker.lines(event="use", principal=ALICE)] == [("Create", "Cluster")]
    assert broker.lines(event="denial") == []


def test_every_administrative_change_is_recorded(broker: Audited) -> None:
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[],
                           configs=[CreatableTopicConfig(name="retention.ms", value="5000")])  # fmt: skip
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    committed = OffsetCommitRequestTopic(name="new", partitions=[offset])
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[committed])
    deleted = OffsetDeleteRequestTopic(name="new", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    config = AlterableConfig(name="retention.ms", config_operation=0, value="7000")
    resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="new", configs=[config])
    rate = OpData(key="producer_byte_rate", value=9, remove=False)
    quota = EntryData(entity=[EntityData(entity_type="user", entity_name="a/b")], ops=[rate])
    broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    broker.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="new", count=2, assignments=None)], timeout_ms=5000,
                                       validate_only=False), 3)  # fmt: skip
    broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
    broker.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False), 1)
    broker.create(creation("new"))
    broker.delete({"name": "new"})
    broker.ask(commit, 8)
    broker.ask(OffsetDeleteRequest(group_id="g", topics=[deleted]), 0)
    broker.ask(commit, 8)
    broker.ask(DeleteGroupsRequest(groups_names=["g", "unknown"]), 2)
    records = DeleteRecordsTopic(name="new", partitions=[DeleteRecordsPartition(partition_index=1, offset=0)])
    broker.ask(DeleteRecordsRequest(topics=[records], timeout_ms=1000), 2)
    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="new"), DeleteTopicState(name="ghost")], timeout_ms=5000), 6)
    changes = [line for line in broker.lines(event="change", principal=ADMIN) if line["resource"] not in frames.TOPICS]
    limited = {"changes": {"producer_byte_rate": {"from": "(not set)", "to": "9"}}}
    acl = f"{ALICE} has ALLOW permission for operations: READ from hosts: * on Topic:LITERAL:new"
    assert [(c["api"], c["operation"], c["resource_type"], c["resource"], c.get("details")) for c in changes] == [
        ("CreateTopics", "created", "Topic", "new", {"partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "5000"}}),
        ("CreatePartitions", "partitions added", "Topic", "new", {"partitions": 2}),
        ("IncrementalAlterConfigs", "configuration changed", "Topic", "new", {"changes": {"retention.ms": {"from": "5000", "to": "7000"}}}),
        ("AlterClientQuotas", "configuration changed", "User", "a/b", limited),
        ("CreateAcls", "ACL created", "Topic", "new", {"acl": acl}),
        ("DeleteAcls", "ACL deleted", "Topic", "new", {"acl": acl}),
        ("OffsetDelete", "offsets deleted", "Group", "g", {"count": 1, "partitions": ["new-0"]}),
        ("DeleteGroups", "deleted", "Group", "g", None),
        ("DeleteRecords", "records deleted", "Topic", "new", {"partition": 1, "offset": 0}),
        ("DeleteTopics", "deleted", "Topic", "new", None),
    ]
    assert {line["outcome"] for line in changes} == {"succeeded"}


def test_the_password_of_a_super_user_is_a_change_of_its_own(broker: Audited) -> None:
    """A client that may alter the cluster could become an administrator so."""
    broker.create(creation("kafka-cluster", Op.ALTER, kind=R.CLUSTER))
    users = [ScramCredentialUpsertion(name=name, mechanism=2, iterations=4096, salt=b"salt", salted_password=b"x" * 64)
             for name in ("admin", "bob")]  # fmt: skip
    broker._watch.lines.clear()
    broker.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=users), 0, ALICE)
    changes = broker.lines(event="change", principal=ALICE)
    hidden = {"changes": {"SCRAM-SHA-512": {"from": "(not set)", "to": "[hidden]"}}}
    assert [(c["operation"], c["resource"], c["details"]) for c in changes] == [
        ("configuration changed", "admin", hidden),
        ("password of a super user changed", "admin", {"super_user": True}),
        ("configuration changed", "bob", hidden),
    ]
    warnings = [line.getMessage() for line in broker._watch.lines if line.levelname == "WARNING"]
    assert warnings == ["the password of User:admin, which is in super.users, was changed by User:alice (client id 'tests', 127.0.0.1)"]


def test_without_the_key_there_is_no_audit_log() -> None:
    broker = InProcessBroker()
    try:
        registry = broker._connect()[0]._registry
        assert registry.audit is None and broker._broker._environment.disk.size(FILE) is None
    finally:
        broker.close()


def test_use_is_recorded_only_if_it_is_chosen() -> None:
    broker = Audited()
    try:
        broker.topics(ADMIN, frames.TOPICS[0])
        assert broker.lines(event="change") and not broker.lines(event="use")
        assert not broker._connect()[0]._registry.authorizer.records_use
    finally:
        broker.close()
