"""Delegation tokens that either kind of broker makes are used, and ended, on all brokers of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.acls import ALLOW, LITERAL, TOPIC, WRITE, Acl, create_acls, listed_acls
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaMember
from tests.support.raw_log import batch, produce
from tests.support.records import numbered
from tests.support.secured_cluster import LoggedIn, SaslSslCluster
from tests.support.tokens import TokenScram, ask
from tests.support.waiting import until
from txbroker.client.client_security import Sasl
from txbroker.security.token_nodes import decode_token, encode_token, token_path
from txbroker.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from txbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

pytestmark = [pytest.mark.process, pytest.mark.extended]

NOT_ALLOWED = 64
SCRAM = "SCRAM-SHA-512"
CREATE = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1)


class ByToken(LoggedIn):
    """A raw connection of a client with a token."""

    def __init__(self, cluster: SaslSslCluster, broker_id: int, token: Any) -> None:
        self._token = token
        super().__init__(cluster.secure[broker_id], cluster.authority, Sasl(SCRAM, token.token_id, ""))

    def _log_in(self, sasl: Sasl) -> None:
        self._handshake(sasl.mechanism)
        messages = TokenScram(sasl.mechanism, self._token.token_id, self._token.hmac)
        messages.check(self._message(messages.final(self._message(messages.first))))


def may_log_in(cluster: SaslSslCluster, broker_id: int, token: Any) -> bool:
    try:
        ByToken(cluster, broker_id, token).close()
    except AssertionError:
        return False
    return True


@pytest.fixture
def cluster(request: pytest.FixtureRequest, server_directory: Path, tmp_path: Path, name: str) -> Iterator[SaslSslCluster]:
    made = SaslSslCluster(server_directory / name, request.param, tmp_path, overrides={"delegation.token.secret.key": "of all"})
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("cluster", [
    (BrokerProcess.kind,) * 2, (BrokerProcess.kind, KafkaMember.kind),
], indirect=True, ids=["txbroker", "mixed"])  # fmt: skip
def test_tokens_of_each_broker_count_on_all(cluster: SaslSslCluster, name: str) -> None:
    cluster.create_topic(name, partitions=2, replication_factor=2)
    may_write = Acl(TOPIC, name, LITERAL, "User:alice", "*", WRITE, ALLOW)
    create_acls(cluster.brokers[1].address, [may_write])
    for server in cluster.brokers.values():
        until(lambda server=server: may_write in listed_acls(server.address), "each broker has the ACL")  # type: ignore[misc]
    made = {}
    for broker_id in cluster.brokers:
        with cluster.connect(broker_id, "alice", "PLAIN") as alice:
            made[broker_id] = ask(alice, CREATE, 3)
        assert made[broker_id].error_code == 0
    zookeeper: Any = KazooClient(cluster.zookeeper_connect)
    zookeeper.start()
    try:
        for token in made.values():
            data = zookeeper.get(token_path(token.token_id))[0]
            assert encode_token(decode_token(data, token.token_id)) == data, "the bytes are those of Kafka"
    finally:
        zookeeper.stop()
        zookeeper.close()
    for partition in range(2):
        leader = cluster.leader(name, partition)
        for token in made.values():
            until(lambda token=token, leader=leader: may_log_in(cluster, leader, token), "each broker has the token")  # type: ignore[misc]
            with ByToken(cluster, leader, token) as client:
                assert produce(client, name, batch(numbered(10)), partition=partition).error_code == 0, "with the rights of its owner"
                assert ask(client, CREATE, 3).error_code == NOT_ALLOWED
    cluster.brokers[1].restart()
    for token in made.values():
        until(lambda token=token: may_log_in(cluster, 1, token), "after a restart")  # type: ignore[misc]
    for broker_id, other in ((1, 2), (2, 1)):
        with cluster.connect(other, "alice", "PLAIN") as alice:
            assert ask(alice, ExpireDelegationTokenRequest(hmac=made[broker_id].hmac, expiry_time_period_ms=-1), 2).error_code == 0
        for server_id in cluster.brokers:
            until(lambda at=server_id, token=made[broker_id]: not may_log_in(cluster, at, token), "it is removed everywhere")  # type: ignore[misc]
