"""Several principals on one broker: what each of them may see is decided by a model, from the ACLs of the moment.

`Hunt` sends random requests on connections that stay open: requests that wait, fetch sessions of others, transactions, groups. Between any
two of them ACLs change, records are produced, and clients log in again. An answer may contain a name or a record if its principal could
have been permitted to see it at some time since the request, for a record since it was produced; what its principal could see all that time
is not refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from tests.security.in_process import Client, SaslBroker
from tests.security.test_acl_index import stated
from txbroker.security.acl_model import SUPPORTED_OPERATIONS, AclBinding, AclEntry, ResourcePattern
from txbroker.security.acl_model import AclOperation as Op
from txbroker.security.acl_model import AclPermission as A
from txbroker.security.acl_model import AclResource as R
from txbroker.security.acl_model import PatternType as P
from txbroker.wire.fieldkinds import resolve
from txbroker.wire.messages import (
    add_partitions_to_txn,
    create_acls,
    create_topics,
    delete_acls,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from txbroker.wire.records import Record, build
from txbroker.wire.schema import Request, Struct

TOPICS = ("topic-red", "topic-green", "other-blue")
GROUPS = ("group-red", "group-green")
TRANSACTIONS = ("txn-red", "txn-green")
KIND_OF = {**dict.fromkeys(TOPICS, R.TOPIC), **dict.fromkeys(GROUPS, R.GROUP), **dict.fromkeys(TRANSACTIONS, R.TRANSACTIONAL_ID)}
CLIENTS = ("alice", "bob", "eve")
HOSTS = ("127.0.0.1", "10.0.0.9")
DENIALS = {29, 30, 31, 53}
CLUSTER = "kafka-cluster"
# What a request needs for each topic, group and transactional id that it names.
NEEDS: dict[type[Request], dict[R, Op]] = {
    fetch.FetchRequest: {R.TOPIC: Op.READ},
    list_offsets.ListOffsetsRequest: {R.TOPIC: Op.DESCRIBE},
    metadata.MetadataRequest: {R.TOPIC: Op.DESCRIBE},
    describe_topic_partitions.DescribeTopicPartitionsRequest: {R.TOPIC: Op.DESCRIBE},
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: {R.TOPIC: Op.DESCRIBE},
    describe_producers.DescribeProducersRequest: {R.TOPIC: Op.READ},
    describe_configs.DescribeConfigsRequest: {R.TOPIC: Op.DESCRIBE_CONFIGS},
    produce.ProduceRequest: {R.TOPIC: Op.WRITE},
    offset_commit.OffsetCommitRequest: {R.TOPIC: Op.READ},
    offset_fetch.OffsetFetchRequest: {R.TOPIC: Op.DESCRIBE, R.GROUP: Op.DESCRIBE},
    add_partitions_to_txn.AddPartitionsToTxnRequest: {R.TOPIC: Op.WRITE},
    describe_groups.DescribeGroupsRequest: {R.GROUP: Op.DESCRIBE},
    find_coordinator.FindCoordinatorRequest: {R.GROUP: Op.DESCRIBE, R.TRANSACTIONAL_ID: Op.DESCRIBE},
    describe_transactions.DescribeTransactionsRequest: {R.TRANSACTIONAL_ID: Op.DESCRIBE},
    init_producer_id.InitProducerIdRequest: {},
    create_topics.CreateTopicsRequest: {R.TOPIC: Op.CREATE},
    list_groups.ListGroupsRequest: {},
    list_transactions.ListTransactionsRequest: {},
}
_NAME_FIELDS = ("name", "topic", "resource_name", "group_id", "transactional_id", "key", "group")


class Bypass(AssertionError):
    """An answer contains what its principal may not see, or is refused though its principal has the right."""


def made(cls: type[Any], fields: Any) -> Any:
    """A message from plain dictionaries and lists."""
    kinds = {each.name: each.kind for each in resolve(cls)}
    values = {}
    for name, value in fields.items():
        kind = kinds[name]
        if kind.struct is not None:
            value = made(kind.struct, value)
        elif kind.element is not None and kind.element.struct is not None and value is not None:
            value = [made(kind.element.struct, each) for each in value]
        values[name] = value
    return cls(**values)


@cache
def _fields(cls: Any) -> tuple[str, ...]:
    return tuple(each.name for each in resolve(cls))


def _names(struct: Any) -> tuple[str, ...]:
    kind: Any = type(struct)
    return _fields(kind)


def _structs(value: Any) -> Iterator[Any]:
    """Every struct of a message."""
    if isinstance(value, list):
        for each in value:
            yield from _structs(each)
    elif isinstance(value, Struct):
        yield value
        for name in _names(value):
            yield from _structs(getattr(value, name))


def _codes(struct: Any) -> set[int]:
    return {int(getattr(each, name)) for each in _structs(struct) for name in _names(each)
            if name.endswith("error_code") and not name.startswith("topic_config")}  # fmt: skip


@dataclass(frozen=True)
class _Sent:
    request: Request
    step: int
    text: str


@dataclass
class _Open:
    """A connection of a user at an address."""

    client: Client
    host: str
    sent: dict[int, _Sent] = field(default_factory=dict)


class Hunt:
    """One broker and its clients. `run` raises Bypass."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = SaslBroker()
        self.step = 0
        self.answered = 0
        self._acls: list[tuple[int, frozenset[AclBinding]]] = [(0, frozenset())]  # from which step on
        self._secrets: list[tuple[bytes, str, int]] = []
        self._sessions: list[tuple[int, int]] = []
        self._known: dict[str, set[str]] = {user: set() for user in CLIENTS}  # names that they have sent in fetches
        self._open: list[_Open] = []
        self._ids: dict[str, bytes] = {}
        self._ends = dict.fromkeys(TOPICS, 0)  # where the log ended after the last secret
        self._administrator = Client(self.broker, "admin")
        self._prepare()

    # The model

    def _states(self, since: int) -> Iterator[frozenset[AclBinding]]:
        """The ACLs of every time since a step."""
        for index, (step, acls) in enumerate(self._acls):
            end = self._acls[index + 1][0] if index + 1 < len(self._acls) else self.step + 1
            if end > since or step >= since:
                yield acls

    def could(self, opened: _Open, operation: Op, kind: R, name: str, since: int) -> bool:
        """Whether the client was permitted at some time since a step."""
        return any(self._may(acls, opened, operation, kind, name) for acls in self._states(since))

    def always(self, opened: _Open, operation: Op, kind: R, name: str, since: int) -> bool:
        """Whether the client was permitted at all times since a step."""
        return all(self._may(acls, opened, operation, kind, name) for acls in self._states(since))

    def _may(self, acls: frozenset[AclBinding], opened: _Open, operation: Op, kind: R, name: str) -> bool:
        return stated(set(acls), f"User:{opened.client.user}", opened.host, operation, kind, name, False)

    # What happens

    def run(self, steps: int) -> None:
        """Random steps; Bypass."""
        acts = [(self._ask, 20), (self._change, 4), (self._produce, 3), (self._connect, 1), (self._log_in_again, 1), (self._pass_time, 2),
                (self._overtake, 2)]  # fmt: skip
        weighted = [act for act, weight in acts for _ in range(weight)]
        for _ in range(steps):
            self.step += 1
            self.random.choice(weighted)()
            self.broker.reactor.advance(0.001)
            self._check()
        self.step += 1
        self.broker.reactor.advance(2)
        self._check()

    def close(self) -> None:
        """Stop the broker."""
        for opened in self._open:
            opened.client.close()
        self.broker.close()

    def _prepare(self) -> None:
        ask = self._admin
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} for name in TOPICS]
        created = ask(made(create_topics.CreateTopicsRequest, {"topics": topics, "timeout_ms": 5000}), 7)
        self._ids = {topic.name: topic.topic_id for topic in created.topics}
        for key_type, keys in ((0, GROUPS), (1, TRANSACTIONS)):
            ask(made(find_coordinator.FindCoordinatorRequest, {"key_type": key_type, "coordinator_keys": list(keys)}), 4)
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        for group in GROUPS:
            wanted = [{"name": name, "partitions": [partition]} for name in TOPICS]
            answer = ask(made(offset_commit.OffsetCommitRequest, {"group_id": group, "topics": wanted}), 7)
            assert _codes(answer) == {0}
        for transaction in TRANSACTIONS:
            given = ask(made(init_producer_id.InitProducerIdRequest,
                             {"transactional_id": transaction, "transaction_timeout_ms": 800_000}), 3)  # fmt: skip
            fields = {"transactional_id": transaction, "producer_id": given.producer_id, "producer_epoch": given.producer_epoch,
                      "topics": [{"name": name, "partitions": [0]} for name in TOPICS]}  # fmt: skip
            old = {f"v3_and_below_{name}": value for name, value in fields.items()}
            assert _codes(ask(made(add_partitions_to_txn.AddPartitionsToTxnRequest, old), 3)) == {0}
        for _ in range(10):
            self._change()
        for user in CLIENTS:
            self._connect(user)

    def _admin(self, request: Request, version: int) -> Any:
        number = self._administrator.send(request, version)
        for _ in range(1000):
            for answered, _, answer in self._administrator.answers():
                assert answered == number
                return answer
            self.broker.reactor.advance(0.0001)
        raise AssertionError(f"no answer to {request}")

    def _connect(self, user: str = "") -> None:
        if len(self._open) > 6:
            self._open.pop(self.random.randrange(len(self._open))).client.close()
        self.broker.peer_host = self.random.choice(HOSTS)
        client = Client(self.broker, user or self.random.choice(CLIENTS))
        self._open.append(_Open(client, self.broker.peer_host))

    def _log_in_again(self) -> None:
        """As the same user or as another one, which ends the connection."""
        opened = self.random.choice(self._open)
        client, user = opened.client, self.random.choice(CLIENTS)
        if opened.sent or client.is_closed:
            return
        if client.send(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 1) is None:
            return
        self.broker.reactor.advance(0)
        (answer,) = client.answers()
        if answer[2].error_code:
            return  # it may log in again once a second only
        client.send(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-pw".encode()), 2)
        self.broker.reactor.advance(0.001)
        code = client.answers()[0][2].error_code
        if bool(code) != (user != client.user):
            raise Bypass(f"{client.user} has logged in again as {user}: {code}")
        if code:
            self._open.remove(opened)
            client.close()
            self._connect()

    def _pass_time(self) -> None:
        self.broker.reactor.advance(self.random.choice((0.01, 0.2, 1.0)))

    def _overtake(self) -> None:
        """A client waits for records of a topic; while it does, it loses its right to read them, or gets another one."""
        waiting = [(opened, sent.request) for opened in self._open for sent in opened.sent.values()
                   if isinstance(sent.request, fetch.FetchRequest)]  # fmt: skip
        if waiting:
            opened, request = self.random.choice(waiting)
            topic = self.random.choice([name for name in TOPICS if name.encode() in str(request).encode()] or TOPICS)
            entry = AclEntry(f"User:{opened.client.user}", "*", Op.READ, self.random.choice((A.DENY, A.DENY, A.ALLOW)))
            binding = AclBinding(ResourcePattern(R.TOPIC, P.LITERAL, topic), entry)
            self._create([binding])
            self.step += 1
            self._produce(topic)
            self.broker.reactor.advance(0.001)
            self._check()
            self.step += 1
            self._delete([binding])

    def _produce(self, topic: str = "") -> None:
        topic, secret = topic or self.random.choice(TOPICS), b"<secret-%d-%d>" % (self.step, self.random.randrange(10**6))
        self._secrets.append((secret, topic, self.step))
        data = [{"index": 0, "records": build([Record(0, 1_700_000_000_000, b"k", secret)])}]
        fields = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": topic, "partition_data": data}]}
        answer = self._admin(made(produce.ProduceRequest, fields), 9)
        assert _codes(answer) == {0}
        self._ends[topic] = answer.responses[0].partition_responses[0].base_offset + 1

    def _change(self) -> None:
        """Create or delete some ACLs."""
        random, now = self.random, set(self._acls[-1][1])
        if now and random.random() < 0.45:
            self._delete(random.sample(sorted(now), min(len(now), random.randint(1, 2))))
        else:
            self._create([self._binding() for _ in range(random.randint(1, 3))])

    def _delete(self, gone: Sequence[AclBinding]) -> None:
        names = ("resource_type_filter", "pattern_type_filter", "resource_name_filter", "principal_filter", "host_filter", "operation",
                 "permission_type")  # fmt: skip
        filters = [dict(zip(names, (*binding.resource, *binding.entry), strict=True)) for binding in gone]
        assert _codes(self._admin(made(delete_acls.DeleteAclsRequest, {"filters": filters}), 3)) == {0}
        self._acls.append((self.step, self._acls[-1][1] - set(gone)))

    def _create(self, new: Sequence[AclBinding]) -> None:
        names = ("resource_type", "resource_pattern_type", "resource_name", "principal", "host", "operation", "permission_type")
        creations = [dict(zip(names, (*binding.resource, *binding.entry), strict=True)) for binding in new]
        assert _codes(self._admin(made(create_acls.CreateAclsRequest, {"creations": creations}), 3)) == {0}
        self._acls.append((self.step, self._acls[-1][1] | set(new)))

    def _binding(self) -> AclBinding:
        random = self.random
        kind = random.choice((R.TOPIC, R.TOPIC, R.TOPIC, R.GROUP, R.TRANSACTIONAL_ID))
        names = {R.TOPIC: TOPICS, R.GROUP: GROUPS, R.TRANSACTIONAL_ID: TRANSACTIONS}[kind]
        name, pattern = random.choice((*names, *names, "*")), P.LITERAL
        if random.random() < 0.2:
            name, pattern = random.choice(names)[: random.choice((3, 6))], P.PREFIXED
        operations = [*(each for each in SUPPORTED_OPERATIONS[kind] if each not in (Op.DELETE, Op.ALTER)), Op.ALL]
        user = random.choice((*CLIENTS, *CLIENTS, "*"))
        entry = AclEntry(f"User:{user}", random.choice(("*", "*", *HOSTS)), random.choice(operations),
                         A.DENY if random.random() < 0.15 else A.ALLOW)  # fmt: skip
        patterns = sorted(binding.resource for binding in self._acls[-1][1] if binding.resource.type is kind)
        if patterns and random.random() < 0.5:  # several entries of one pattern
            return AclBinding(random.choice(patterns), entry)
        return AclBinding(ResourcePattern(kind, pattern, name), entry)

    def _ask(self) -> None:
        opened = self.random.choice(self._open)
        if opened.client.is_closed:
            self._open.remove(opened)
            self._connect()
            return
        request, version, text = self._request(opened)
        number = opened.client.send(request, version)
        if number is not None:
            opened.sent[number] = _Sent(request, self.step, text)

    # Requests

    def _some(self, names: Sequence[str]) -> list[str]:
        return self.random.sample(names, self.random.randint(1, len(names)))

    def _request(self, opened: _Open) -> tuple[Request, int, str]:
        """A request, its version, and the names in it."""
        random = self.random
        cls: Any = random.choice((*NEEDS, *[fetch.FetchRequest] * 10, *[metadata.MetadataRequest] * 3))
        topics, groups, transactions = self._some(TOPICS), self._some(GROUPS), self._some(TRANSACTIONS)
        if cls is fetch.FetchRequest:
            return self._fetch(opened, topics)
        by_name = {"name": topics[0], "partitions": [{"partition_index": 0, "timestamp": -1}]}
        options: dict[Any, tuple[dict[str, Any], int]] = {
            list_offsets.ListOffsetsRequest: ({"replica_id": -1, "topics": [by_name]}, 5),
            metadata.MetadataRequest: (self._metadata(topics), random.choice((9, 12))),
            describe_topic_partitions.DescribeTopicPartitionsRequest: (
                {"topics": random.choice(([{"name": name} for name in sorted(topics)], [])), "response_partition_limit": 100}, 0),
            offset_for_leader_epoch.OffsetForLeaderEpochRequest: (
                {"replica_id": -2, "topics": [{"topic": name, "partitions": [
                    {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]} for name in topics]}, 3),
            describe_producers.DescribeProducersRequest: ({"topics": [{"name": name, "partition_indexes": [0]} for name in topics]}, 0),
            describe_configs.DescribeConfigsRequest: (
                {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]} for name in topics]}, 2),
            produce.ProduceRequest: (
                {"acks": 1, "timeout_ms": 100, "topic_data": [{"name": name, "partition_data": [
                    {"index": 0, "records": build([Record(0, 1_700_000_000_000, b"k", b"public")])}]} for name in topics]}, 9),
            offset_commit.OffsetCommitRequest: (
                {"group_id": groups[0], "topics": [{"name": name, "partitions": [
                    {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]} for name in topics]}, 7),
            offset_fetch.OffsetFetchRequest: (
                {"groups": [{"group_id": group, "topics": None if random.random() < 0.5 else [
                    {"name": name, "partition_indexes": [0]} for name in topics]} for group in groups]}, 8),
            add_partitions_to_txn.AddPartitionsToTxnRequest: (
                {"v3_and_below_transactional_id": transactions[0], "v3_and_below_producer_id": 12345, "v3_and_below_producer_epoch": 0,
                 "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in topics]}, 2),
            describe_groups.DescribeGroupsRequest: ({"groups": groups}, 4),
            find_coordinator.FindCoordinatorRequest: random.choice((
                ({"key_type": 0, "coordinator_keys": groups}, 4), ({"key_type": 1, "coordinator_keys": transactions}, 4))),
            describe_transactions.DescribeTransactionsRequest: ({"transactional_ids": transactions}, 0),
            init_producer_id.InitProducerIdRequest: ({"transactional_id": None, "transaction_timeout_ms": 1000}, 3),
            create_topics.CreateTopicsRequest: (
                {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
                            for name in topics], "timeout_ms": 100, "validate_only": True}, 6),
            list_groups.ListGroupsRequest: ({}, 3),
            list_transactions.ListTransactionsRequest: ({"state_filters": [], "producer_id_filters": []}, 0),
        }  # fmt: skip
        fields, version = options[cls]
        return made(cls, fields), version, str(fields)

    def _metadata(self, topics: Sequence[str]) -> dict[str, Any]:
        named = None if self.random.random() < 0.4 else [{"name": name} for name in topics]
        return {"topics": named, "allow_auto_topic_creation": False, "include_topic_authorized_operations": self.random.random() < 0.5}

    def _fetch(self, opened: _Open, topics: Sequence[str]) -> tuple[Request, int, str]:
        random, version = self.random, self.random.choice((7, 12, 12, 13))
        session_id, epoch = 0, random.choice((-1, 0, 0))
        if self._sessions and random.random() < 0.6:
            session_id, epoch = random.choice(self._sessions[-6:])
            if random.random() < 0.6:
                topics = topics[:1] if random.random() < 0.3 else []
        waits = random.random() < 0.5
        named = []
        for name in topics:
            partition = {"partition": 0, "fetch_offset": self._ends[name] if waits else 0, "partition_max_bytes": 10_000}
            place = {"topic": "", "topic_id": self._ids[name]} if version >= 13 else {"topic": name}
            named.append({**place, "partitions": [partition]})
        fields = {"max_wait_ms": 800 if waits else 0, "min_bytes": random.choice((1, 300)) if waits else 0, "max_bytes": 100_000,
                  "session_id": session_id, "session_epoch": epoch, "topics": named}  # fmt: skip
        self._known[opened.client.user] |= set(topics) if version < 13 else set()
        return made(fetch.FetchRequest, fields), version, str(fields)

    # What is checked

    def _check(self) -> None:
        for opened in self._open:
            for number, body, answer in opened.client.answers():
                sent = opened.sent.pop(number)
                self.answered += 1
                self._check_content(opened, sent, bytes(body))
                self._check_results(opened, sent, answer)
                if isinstance(answer, fetch.FetchResponse):
                    self._remember(sent, answer)
                elif isinstance(answer, produce.ProduceResponse):
                    for topic in answer.responses:
                        self._ends[topic.name] = max(self._ends[topic.name], topic.partition_responses[0].base_offset + 1)

    def _remember(self, sent: _Sent, answer: fetch.FetchResponse) -> None:
        request: Any = sent.request
        if answer.session_id:
            epoch = 1 if request.session_epoch == 0 else request.session_epoch + 1
            self._sessions.append((answer.session_id, epoch))

    def _check_content(self, opened: _Open, sent: _Sent, body: bytes) -> None:
        """Records and names."""
        who = f"{opened.client.user} at {opened.host}"
        for secret, topic, produced in self._secrets:
            if secret in body and not self.could(opened, Op.READ, R.TOPIC, topic, max(sent.step, produced)):
                raise Bypass(f"{who} has a record of {topic}, in the answer to {sent.request}")
        known = self._known[opened.client.user] if isinstance(sent.request, fetch.FetchRequest) else ()
        for name, kind in KIND_OF.items():
            if name.encode() not in body or name in sent.text or name in known:
                continue
            if not self.could(opened, Op.DESCRIBE, kind, name, sent.step):
                raise Bypass(f"{who} learns of {name}, by {sent.request}")

    def _check_results(self, opened: _Open, sent: _Sent, answer: Any) -> None:
        """The error of each topic, group and transactional id that the answer names; the bits of operations."""
        who, names = f"{opened.client.user} at {opened.host}", {value: name for name, value in self._ids.items()}
        for struct in _structs(answer):
            fields = _names(struct)
            values = {getattr(struct, name) for name in _NAME_FIELDS if name in fields}
            if "topic_id" in fields:
                values.add(names.get(struct.topic_id))
            name = next((value for value in values if value in KIND_OF), None)
            if name is None:
                continue
            kind = KIND_OF[name]
            if getattr(struct, "topic_authorized_operations", -1) > 0 and not isinstance(
                sent.request, describe_topic_partitions.DescribeTopicPartitionsRequest
            ):
                self._check_bits(opened, sent, name, struct.topic_authorized_operations)
            operation = NEEDS[type(sent.request)].get(kind)
            codes = _codes(struct)
            if operation is None or not codes:
                continue
            if not codes <= DENIALS and not self.could(opened, operation, kind, name, sent.step):
                raise Bypass(f"{who} has {codes} for {name} without {operation.name}, by {sent.request}")
            if 29 in codes and kind is R.TOPIC and self.always(opened, operation, kind, name, sent.step):
                raise Bypass(f"{who} is denied {operation.name} of {name}, by {sent.request}")

    def _check_bits(self, opened: _Open, sent: _Sent, name: str, bits: int) -> None:
        for operation in SUPPORTED_OPERATIONS[R.TOPIC]:
            has = bool(bits >> operation & 1)
            if has and not self.could(opened, operation, R.TOPIC, name, sent.step):
                raise Bypass(f"{opened.client.user} seems to have {operation.name} of {name}")
            if not has and self.always(opened, operation, R.TOPIC, name, sent.step):
                raise Bypass(f"{opened.client.user} seems not to have {operation.name} of {name}")
