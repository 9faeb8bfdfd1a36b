"""Requests that were made to get past the authorizer or the login, after known faults of other brokers (README.md of this folder)."""

from __future__ import annotations

import ast
import re
import struct
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.reference_pages.protocol import served
from tests.api.test_every_version import SERVED
from tests.fuzz.frames import make
from tests.security.in_process import SaslBroker
from tests.security.rights_sides import TOPIC_NAME, InProcess, Populated
from tests.support.acls import ALLOW, ANYONE, LITERAL, TOPIC, WRITE, Acl
from tests.support.cache import CHECKOUT
from txbroker.api.authorization import Guard
from txbroker.api.request_context import RequestContext, Session
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import Type
from txbroker.config.listener_keys import listener_key
from txbroker.config.topic_keys import TOPIC_KEYS
from txbroker.connection.states import RequestKind
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.acl_index import NO_ACL, Rule
from txbroker.security.acl_model import AclOperation, AclResource
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest
from txbroker.wire.records import Record, build

WRITER = "127.9.0.1"  # may write the topic, and nothing else
RECORDS = [Record(0, 1_700_000_000_000, b"k", b"v")]
PLAIN = build(RECORDS)
TRANSACTIONAL = build(RECORDS, producer_id=1000, producer_epoch=0, base_sequence=0, transactional=True)
NO_TRANSACTION, INVALID_RECORD = 53, 87
PRODUCE, ADD_PARTITIONS_TO_TXN = 0, 24


@pytest.fixture(scope="module")
def populated() -> Iterator[Populated]:
    side = InProcess()
    made = Populated(side, SERVED, "/data")
    acl = Acl(TOPIC, TOPIC_NAME, LITERAL, ANYONE, WRITER, WRITE, ALLOW)
    assert made.admin(30, 3, {"creations": [acl._asdict()]})["results"][0]["error_code"] == 0
    yield made
    side.broker.close()


def log_ends(populated: Populated) -> list[int]:
    wanted = [{"partition_index": index, "timestamp": -1} for index in (0, 1)]
    answer = populated.admin(2, 5, {"replica_id": -1, "topics": [{"name": TOPIC_NAME, "partitions": wanted}]})
    return [partition["offset"] for partition in answer["topics"][0]["partitions"]]


@pytest.mark.parametrize(
    ("transactional_id", "records", "errors"),
    [
        (None, {0: TRANSACTIONAL}, [NO_TRANSACTION]),
        (None, {0: PLAIN, 1: TRANSACTIONAL}, [NO_TRANSACTION] * 2),
        (TOPIC_NAME, {0: TRANSACTIONAL}, [NO_TRANSACTION]),
        (TOPIC_NAME, {0: PLAIN, 1: TRANSACTIONAL}, [NO_TRANSACTION] * 2),
        (TOPIC_NAME, {0: TRANSACTIONAL + TRANSACTIONAL}, [NO_TRANSACTION]),
        (None, {0: PLAIN + TRANSACTIONAL}, [INVALID_RECORD]),
        (None, {0: PLAIN + PLAIN}, [INVALID_RECORD]),
    ],
)
def test_transactional_records_need_the_id_and_its_right(
    populated: Populated, transactional_id: str | None, records: dict[int, bytes], errors: list[int]
) -> None:
    """CVE-2018-17196: nothing is written, whatever the request has beside them. Apache Kafka has the same answers."""
    before = log_ends(populated)
    data = [{"index": index, "records": each} for index, each in records.items()]
    fields = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 1000,
              "topic_data": [{"name": TOPIC_NAME, "partition_data": data}]}  # fmt: skip
    answer = populated.side.ask(WRITER, 0, 8, fields)
    assert answer is not None
    assert [partition["error_code"] for topic in answer["responses"] for partition in topic["partition_responses"]] == errors
    assert log_ends(populated) == before


class _DeniesAll:
    allows_all = records_use = False

    def __init__(self) -> None:
        self.denials: Counter[tuple[str, str]] = Counter()

    def authorize(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return False

    def authorize_any(self, session: Session, operation: AclOperation, resource: AclResource) -> bool:
        return False

    def rule(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> Rule:
        return Rule(NO_ACL)


def _handler(api: Any) -> Any:
    """Of this API, without what it works with."""
    classes: list[Any] = [each for each in vars(api.module).values() if isinstance(each, type)]
    (cls,) = [each for each in classes if getattr(each, "request", None) is api.request]
    handler = cls.__new__(cls)
    vars(handler).update(errors=Counter(), _cluster_id="")
    return handler


def _context(key: int, version: int) -> RequestContext:
    session = Session(peer_host="10.0.0.9", peer_port=1, local_host="", local_port=1, listener="L", number=1)
    return RequestContext(key, version, 1, None, session)


def _versions(api: Any) -> range:
    return range(api.versions.low, api.versions.high + 1)


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_every_version_can_carry_a_failure_of_the_whole_request(code: ErrorCode) -> None:
    """Else the connection is closed without an answer. The requests have null for all that may be null."""
    for key, api in served().items():
        handler = _handler(api)
        for version in _versions(api):
            request = make(api.request, version, lambda below: 0)
            failed = handler.failed(request, _context(key, version), BrokerError(code, "why"))
            if failed is not None or key != PRODUCE:  # acks=0
                encode_bytes(failed, version)


BETWEEN_BROKERS = {key: api for key, api in served().items() if api.in_cluster or key == ADD_PARTITIONS_TO_TXN}


def test_requests_between_brokers_need_a_right_of_the_cluster() -> None:
    """A client that may send them acts as the controller or as a broker. Envelope (58) is not served."""
    assert {4, 5, 6, 7, 24, 56, 67} == BETWEEN_BROKERS.keys() and 58 not in served()
    for key, api in BETWEEN_BROKERS.items():
        handler = _handler(api)
        for version in _versions(api):
            if key == ADD_PARTITIONS_TO_TXN and version < 4:
                continue
            request, context = make(api.request, version, lambda below: 0), _context(key, version)
            guard = Guard(api.request, version, _handled, handler.failed, handler.resources, _DeniesAll())
            with pytest.raises(BrokerError) as denied:
                guard.call(request, context)
            assert denied.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _handled(*what: object) -> None:
    pytest.fail(f"it was handled: {what}")


# --- before the login ---


def _before_the_login() -> Iterator[tuple[Any, int, bytes]]:
    for request in (
        ApiVersionsRequest(client_software_name="name", client_software_version="version"),
        SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"),
    ):  # fmt: skip
        for version in range(type(request).versions.low, type(request).versions.high + 1):
            body = encode_bytes(request, version)
            yield type(request), version, request_prefix(type(request), version, 1, "client", len(body)) + body


def test_lengths_before_the_login_take_no_memory(anonymous: SaslBroker) -> None:
    """CVE-2022-34917: the longest string, array and byte string at each position of each request that is decoded before the login."""
    extremes = (struct.pack(">i", 2**31 - 1), struct.pack(">h", 2**15 - 1), b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f")
    assert {kind.value for kind in RequestKind} - {-1} == {cls.api_key for cls, _, _ in _before_the_login()}
    tracemalloc.start()
    try:
        for _, _, data in _before_the_login():
            for position in range(12, len(data)):
                for extreme in extremes:
                    changed = data[:position] + extreme + data[position + len(extreme) :]
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    anonymous.send([changed], 0.1)
                    assert tracemalloc.get_traced_memory()[1] - before < 400_000, changed
    finally:
        tracemalloc.stop()


SECRET_WORDS = {"password", "proof", "hmac", "stored_key", "server_key", "signature", "secret", "key"}


def test_secrets_are_compared_in_constant_time() -> None:
    """CVE-2021-38153: no == between secrets."""
    found = []
    for path in sorted((CHECKOUT / "txbroker" / "security").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if "len(" in ast.unparse(node):
                continue
            if isinstance(node, ast.Compare) and any(isinstance(each, (ast.Eq, ast.NotEq)) for each in node.ops):
                names = {each.attr if isinstance(each, ast.Attribute) else each.id
                         for each in ast.walk(node) if isinstance(each, (ast.Attribute, ast.Name))}  # fmt: skip
                if any(name.strip("_") in SECRET_WORDS for name in names):
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
    compared = {path.name for path in Path(CHECKOUT, "txbroker", "security").glob("*.py") if "compare_digest" in path.read_text()}
    assert {"sasl_plain.py", "scram.py"} <= compared


OPENS = re.compile(r"class|url|file|location|jaas|provider|factory|implementation|\\.dirs?$|handler")
STORES = {"ssl.keystore.location", "ssl.truststore.location"}  # of a listener, as in Kafka: certificates are replaced so


def test_no_altered_configuration_loads_code_or_opens_a_path_or_an_address(populated: Populated) -> None:
    """CVE-2023-25194, 2025-27817 and others: an administrator of the cluster is not one of the machine."""
    names = {name for name, key in BROKER_KEYS.items() if OPENS.search(name) or key.type is Type.CLASS}
    listener = {f"listener.name.plaintext.{name}" for name in names if listener_key(f"listener.name.plaintext.{name}") is not None}
    assert len(names) > 20 and listener
    accepted = set()
    for value in ("/etc/passwd", "http://127.0.0.1/x", "${file:/etc/passwd:x}", "com.sun.security.auth.module.JndiLoginModule required;"):
        for name in sorted(names | listener):
            config = {"name": name, "config_operation": 0, "value": value}
            resource = {"resource_type": 4, "resource_name": str(populated.present.broker_id), "configs": [config]}
            answer = populated.admin(44, 1, {"resources": [resource], "validate_only": True})
            if not answer["responses"][0]["error_code"]:
                accepted.add(name)
    assert accepted <= {f"listener.name.plaintext.{name}" for name in STORES}
    assert not [name for name, key in TOPIC_KEYS.items() if key.type is Type.CLASS or re.search("url|file$|location|jaas", name)]
