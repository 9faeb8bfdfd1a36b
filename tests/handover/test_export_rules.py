"""Planning an export: the nodes in ZooKeeper, concerns that require consent, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.handover.test_import_rules import ALONE, CLUSTER, MADE, ORDERS, cluster, logs, plan, topic
from txbroker.cluster.node_data import ProducerIdBlock, decode_config, decode_producer_id_block, decode_state, decode_topic, encode_config
from txbroker.cluster.tree.interface import Create
from txbroker.cluster.zookeeper_migration.export_rules import ExportPlan, Nodes, plan_export
from txbroker.cluster.zookeeper_migration.kafka_metadata import ForeignCluster, ForeignPartition, FoundLogs
from txbroker.log.meta_properties import Identity

EMPTY = ForeignCluster(source="the ZooKeeper", cluster_id=None, topics={})


def imported(**configs: str) -> dict[str, bytes | None]:
    """The tree of a broker that took over one topic of two partitions."""
    made = plan(cluster(orders=topic(ALONE, ALONE, configs=configs)), logs("orders-0", "orders-1"))
    return {op.path: op.data for op in made.operations()}


def exported(tree: Nodes, there: ForeignCluster, found: FoundLogs | None = None) -> ExportPlan:
    return plan_export(tree, found or logs("orders-0", "orders-1"), there)


def test_an_empty_zookeeper_gets_everything_parents_first() -> None:
    made = exported(imported(**{"retention.ms": "5"}), EMPTY)
    assert (made.notes, made.concerns, made.refusals, made.obsolete) == ([], [], [], [])
    assert made.topics == {"orders": (2, "new")}
    assert decode_topic(made.nodes["/brokers/topics/orders"]).topic_id == ORDERS
    assert decode_config(made.nodes["/config/topics/orders"]) == {"retention.ms": "5"}
    assert decode_producer_id_block(made.nodes["/latest_producer_id_block"]).end == 999
    seen = {""}
    for path in made.nodes:
        assert path.rpartition("/")[0] in seen, path
        seen.add(path)


def test_acls_replace_those_in_zookeeper() -> None:
    acls = {"/kafka-acl/Topic/a": b"1", "/kafka-acl-extended/prefixed/Group/a b": b"2"}
    there = replace(EMPTY, acls={"/kafka-acl/Topic/a": b"3", "/kafka-acl/Topic/old": b"4"})
    made = exported({op.path: op.data for op in with_acls(acls)}, there)
    assert {path: data for path, data in made.nodes.items() if path.startswith("/kafka-acl") and data} == acls
    assert list(made.nodes).index("/kafka-acl-extended/prefixed/Group") < list(made.nodes).index("/kafka-acl-extended/prefixed/Group/a b")
    assert made.obsolete == ["/kafka-acl/Topic/old"]
    kept = exported(imported(), there)
    assert kept.obsolete == [] and not [path for path in kept.nodes if "acl" in path], "the broker never had an authorizer"


def test_tokens_replace_those_in_zookeeper() -> None:
    tokens = {"/delegation_token/tokens/a": b"1", "/delegation_token/tokens/b": b"2"}
    made = plan(replace(cluster(orders=topic(ALONE, ALONE)), tokens=tokens), logs("orders-0", "orders-1"))
    assert "2 delegation tokens can be used once the broker has the delegation.token.secret.key of Kafka's brokers" in made.notes
    tree = {op.path: op.data for op in made.operations()}
    del tree["/delegation_token/tokens/b"]
    there = replace(EMPTY, tokens={**tokens, "/delegation_token/tokens/old": b"3"})
    back = exported(tree, there)
    assert {path: data for path, data in back.nodes.items() if path.startswith("/delegation_token") and data} == {
        "/delegation_token/tokens/a": b"1"
    }
    assert list(back.nodes).index("/delegation_token/tokens") < list(back.nodes).index("/delegation_token/tokens/a")
    assert back.obsolete == ["/delegation_token/tokens/b", "/delegation_token/tokens/old"], "what was removed here is removed there"
    kept = exported(imported(), there)
    assert kept.obsolete == [] and not [path for path in kept.nodes if "token" in path], "the broker never had tokens"


def with_acls(acls: dict[str, bytes]) -> list[Create]:
    """What an import of a cluster with ACLs creates."""
    made = plan(replace(cluster(orders=topic(ALONE, ALONE)), acls=acls), logs("orders-0", "orders-1"))
    assert made.notes and "2 resources" in made.notes[0]
    return made.operations()


def test_quotas_and_users_come_back() -> None:
    clients = {"/config/users/a%2Fb": b"1", "/config/users/a%2Fb/clients/c": b"2", "/config/clients/<default>": b"3",
               "/config/ips/::1": b"4"}  # fmt: skip
    made = plan(replace(cluster(orders=topic(ALONE, ALONE)), clients=clients), logs("orders-0", "orders-1"))
    assert any("4 entities" in note for note in made.notes)
    tree = {op.path: op.data for op in made.operations()}
    assert len(tree) == len(made.operations()), "each node is created once"
    there = replace(EMPTY, clients={"/config/users/a%2Fb": b"old", "/config/users/removed": b"5"})
    back = exported(tree, there)
    assert {path: back.nodes[path] for path in clients} == clients and back.obsolete == []
    assert list(back.nodes).index("/config/users/a%2Fb/clients") < list(back.nodes).index("/config/users/a%2Fb/clients/c")
    assert len(back.concerns) == 1 and "1 entity (users/removed)" in back.concerns[0]


def test_epochs_and_producer_ids_are_above_those_of_both() -> None:
    there = replace(cluster(orders=topic(replace(ALONE, leader_epoch=40), ALONE)), producer_ids=ProducerIdBlock(1, 8000, 8999))
    made = exported(imported(), there, logs("orders-0", "orders-1", leader_epoch=60))
    states = [decode_state(made.nodes[f"/brokers/topics/orders/partitions/{number}/state"], 0) for number in (0, 1)]
    assert [(state.leader, state.leader_epoch, state.isr, state.controller_epoch) for state in states] == [(1, 61, (1,), 7)] * 2
    assert decode_producer_id_block(made.nodes["/latest_producer_id_block"]).end == 8999
    assert made.topics == {"orders": (2, "known")}
    assert decode_state(exported(imported(), there).nodes["/brokers/topics/orders/partitions/0/state"], 0).leader_epoch == 41


def test_a_recreated_topic_replaces_the_old_one_with_fewer_partitions() -> None:
    made = exported(imported(), cluster(orders=topic(ALONE, ALONE, ALONE, topic_id=MADE)))
    assert made.topics == {"orders": (2, "recreated")} and made.obsolete == ["/brokers/topics/orders/partitions/2"]
    assert decode_topic(made.nodes["/brokers/topics/orders"]).topic_id == ORDERS


def test_deletions_are_exported_with_consent_and_without_a_log() -> None:
    shared = ForeignPartition(replicas=(1, 2), isr=(1, 2), leader_epoch=0)
    there = cluster(orders=topic(ALONE, ALONE), old=topic(ALONE), stray=topic(ALONE), theirs=topic(shared))
    made = exported(imported(), there, logs("orders-0", "orders-1", "stray-0"))
    assert [path for path in made.nodes if path.startswith("/admin/delete_topics/")] == ["/admin/delete_topics/old"]
    assert len(made.concerns) == 1 and "1 topic (old)" in made.concerns[0]
    assert made.notes == ["ZooKeeper keeps 2 topics (stray, theirs) that this broker does not serve"]


def test_a_deletion_in_progress_is_exported() -> None:
    made = exported({**imported(), "/admin/delete_topics/orders": None}, EMPTY, logs("orders-0"))
    assert made.topics == {} and "/brokers/topics/orders" not in made.nodes


def test_keys_that_kafka_does_not_know_are_not_exported() -> None:
    tree = imported(**{"retention.precise": "true", "retention.ms": "5"})
    tree["/config/brokers/1"] = encode_config({"txbroker.metrics.port": "1", "log.cleaner.threads": "2"})
    made = exported(tree, EMPTY)
    assert decode_config(made.nodes["/config/topics/orders"]) == {"retention.ms": "5"}
    assert decode_config(made.nodes["/config/brokers/1"]) == {"log.cleaner.threads": "2"}
    assert len(made.notes) == 2 and "retention.precise=true of topics/orders" in made.notes[1]


def test_removed_configurations_are_removed_by_the_export() -> None:
    made = exported(imported(), replace(EMPTY, broker_configs={"log.cleaner.threads": "2"}))
    assert decode_config(made.nodes["/config/brokers/1"]) == {} and "/config/brokers/<default>" not in made.nodes


@pytest.mark.parametrize(("there", "found", "said"), [
    (replace(EMPTY, cluster_id="other"), logs("orders-0"), "to cluster other"),
    (replace(EMPTY, alive=frozenset({1, 2})), logs("orders-0"), "brokers are running on the ZooKeeper (1, 2)"),
    (EMPTY, replace(logs("orders-0"), identity=Identity(None, None)), "no meta.properties"),
])  # fmt: skip
def test_impossible_cases_are_refused(there: ForeignCluster, found: FoundLogs, said: str) -> None:
    assert any(said in refusal for refusal in exported(imported(), there, found).refusals)
    assert exported(imported(), there, found).cluster_id == CLUSTER


def test_replicas_on_other_brokers_require_consent() -> None:
    shared = ForeignPartition(replicas=(1, 2), isr=(1, 2), leader_epoch=0)
    assert "orders-1" in exported(imported(), cluster(orders=topic(ALONE, shared))).concerns[0]
