"""Planning an import: leaders and epochs, concerns that require consent, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from tests.config.configs import broker_config
from txbroker.cli.handover.config_compatibility import config_checks
from txbroker.cluster.node_data import (
    ProducerIdBlock,
    decode_cluster_id,
    decode_config,
    decode_producer_id_block,
    decode_state,
    decode_topic,
)
from txbroker.cluster.zookeeper_migration.import_plan import ImportPlan
from txbroker.cluster.zookeeper_migration.import_rules import ConfigChecks, Configs, plan_import
from txbroker.cluster.zookeeper_migration.kafka_metadata import (
    ForeignCluster,
    ForeignPartition,
    ForeignTopic,
    FoundLog,
    FoundLogs,
    cluster_from_logs,
)
from txbroker.log.meta_properties import Identity
from txbroker.names import NULL_TOPIC_ID, TopicPartition

CLUSTER = "lvr4NfIWTo6tu8cpVcm0iw"
ORDERS, MADE = b"o" * 16, b"m" * 16
NEW = "NewClusterIdAAAAAAAAAA"
TAKES_ALL = ConfigChecks(*[lambda configs: {}] * 3, lambda: MADE, lambda: NEW)  # type: ignore[arg-type]
ALONE = ForeignPartition(replicas=(1,), isr=(1,), leader_epoch=4)


def topic(*partitions: ForeignPartition, topic_id: bytes = ORDERS, configs: Mapping[str, str] | None = None) -> ForeignTopic:
    return ForeignTopic(topic_id=topic_id, partitions=dict(enumerate(partitions)), configs=configs or {})


def cluster(**topics: ForeignTopic) -> ForeignCluster:
    block = ProducerIdBlock(1, 0, 999)
    return ForeignCluster(source="the ZooKeeper", cluster_id=CLUSTER, topics=topics, controller_epoch=7, producer_ids=block)


def logs(*names: str, topic_id: bytes = ORDERS, leader_epoch: int = 2) -> FoundLogs:
    found = {}
    for name in names:
        topic_name, _, partition = name.rpartition("-")
        found[TopicPartition(topic_name, int(partition))] = FoundLog(directory=f"/d/{name}", topic_id=topic_id, leader_epoch=leader_epoch)
    return FoundLogs(directories=("/d",), identity=Identity(1, CLUSTER), logs=found, clean=True)


def plan(
    foreign: ForeignCluster, found: FoundLogs, configs: Mapping[str, Configs] | None = None, checks: ConfigChecks = TAKES_ALL
) -> ImportPlan:
    return plan_import(foreign, found, configs or {}, checks)


def nodes(of: ImportPlan) -> dict[str, bytes | None]:
    return {op.path: op.data for op in of.operations()}


def test_a_single_broker_is_imported_unchanged() -> None:
    made = plan(cluster(orders=topic(ALONE, ALONE, configs={"retention.ms": "5"})), logs("orders-0", "orders-1"))
    assert (made.notes, made.concerns, made.refusals) == ([], [], [])
    written = nodes(made)
    assert decode_topic(written["/brokers/topics/orders"]).topic_id == ORDERS
    assert decode_config(written["/config/topics/orders"]) == {"retention.ms": "5"}
    state = decode_state(written["/brokers/topics/orders/partitions/1/state"], 0)
    assert (state.leader, state.isr, state.leader_epoch, state.controller_epoch) == (1, (1,), 5, 7)
    assert decode_producer_id_block(written["/latest_producer_id_block"]).end == 999
    assert decode_cluster_id(written["/cluster/id"]) == CLUSTER
    assert list(written).index("/brokers/topics/orders") < list(written).index("/brokers/topics/orders/partitions/0/state")


def test_the_leader_epoch_is_above_that_of_the_log() -> None:
    made = plan(cluster(orders=topic(ALONE)), logs("orders-0", leader_epoch=30))
    assert made.topics[0].epochs == {0: 31}


def test_replicas_on_other_brokers_require_consent() -> None:
    shared = ForeignPartition(replicas=(2, 1), isr=(2,), leader_epoch=1)
    far = ForeignPartition(replicas=(2, 3), isr=(2, 3), leader_epoch=1)
    made = plan(cluster(orders=topic(ALONE, shared, far), away=topic(far, topic_id=MADE)), logs("orders-0", "orders-1"))
    assert [each.name for each in made.topics] == ["orders"]
    assert made.topics[0].here == {0, 1} and made.topics[0].epochs.keys() == {0, 1, 2}
    text = "\n".join(made.concerns)
    assert len(made.concerns) == 4 and made.refusals == []
    for part in ("1 topic (away) cannot be imported", "other brokers have 1 partition (orders-2)", "replicas of 1 partition (orders-1)",
                 "not in sync for 1 partition (orders-1)"):  # fmt: skip
        assert part in text


def test_missing_logs_deletions_and_unknown_logs_are_reported() -> None:
    foreign = replace(cluster(orders=topic(ALONE, ALONE), old=topic(ALONE, topic_id=MADE)), deleting=frozenset({"old"}))
    found = logs("orders-0", "stray-0")
    made = plan(foreign, replace(found, logs={**found.logs, TopicPartition("old", 0): FoundLog(directory="/d/old-0", open_transactions=2)}))
    assert any("no directory has the log of 1 partition (orders-1)" in each for each in made.concerns)
    assert any("1 topic (old) marked for deletion" in each for each in made.concerns)
    assert "/admin/delete_topics/old" in nodes(made)
    assert any("does not know 1 topic (stray)" in each for each in made.notes)
    assert any("2 transactions are open" in each for each in made.notes)


@pytest.mark.parametrize(("foreign", "found", "said"), [
    (cluster(orders=topic(ALONE)), logs("orders-0", topic_id=MADE), "has topic id"),
    (replace(cluster(orders=topic(ALONE)), cluster_id="other"), logs("orders-0"), "to cluster other"),
    (replace(cluster(orders=topic(ALONE)), alive=frozenset({1})), logs("orders-0"), "is registered"),
    (cluster(orders=topic(ALONE)), replace(logs("orders-0"), identity=Identity(None, None)), "no meta.properties"),
    (cluster(orders=ForeignTopic(topic_id=ORDERS, partitions={1: ALONE}, configs={})), logs("orders-1"), "without gaps"),
    (cluster(**{"or/ders": topic(ALONE)}), logs("orders-0"), "is invalid"),
])  # fmt: skip
def test_impossible_cases_are_refused(foreign: ForeignCluster, found: FoundLogs, said: str) -> None:
    assert any(said in refusal for refusal in plan(foreign, found).refusals)


def test_configurations_of_missing_topics_are_refused() -> None:
    assert "nothing-there" not in nodes(plan(cluster(orders=topic(ALONE)), logs("orders-0"), {"orders": {"a": "1"}}))
    assert plan(cluster(orders=topic(ALONE)), logs("orders-0"), {"typo": {"a": "1"}}).refusals != []


def test_unusable_configurations_are_reported_and_dropped() -> None:
    choosy = ConfigChecks(*[lambda configs: {key: "unknown key" for key in configs if key == "odd"}] * 3, lambda: MADE, lambda: NEW)  # type: ignore[arg-type]
    foreign = cluster(orders=topic(ALONE, configs={"odd": "1", "even": "2"}))
    foreign = replace(foreign, default_configs={"odd": "3"}, broker_configs={"even": "4"})
    made = plan(foreign, logs("orders-0"), checks=choosy)
    assert made.topics[0].configs == {"even": "2"}
    assert (made.broker_configs, made.default_configs) == ({"even": "4"}, {})
    assert sorted(made.notes) == [f"odd of {whose} is not imported: unknown key" for whose in ("all brokers", "topic orders")]
    assert "/config/brokers/1" in nodes(made) and "/config/brokers/<default>" not in nodes(made)


def test_configurations_of_the_user_have_precedence_and_defaults_exclude_internal_topics() -> None:
    offsets = topic(ALONE, topic_id=MADE, configs={"cleanup.policy": "compact"})
    foreign = cluster(orders=topic(ALONE, configs={"retention.ms": "5", "cleanup.policy": "delete"}), __consumer_offsets=offsets)
    user = {"*": {"cleanup.policy": "compact,delete", "retention.ms": "-1"}, "orders": {"retention.ms": "7"}}
    found = logs("orders-0")
    made = plan(foreign, replace(found, logs={**found.logs, TopicPartition("__consumer_offsets", 0): FoundLog(directory="/d/o")}), user)
    by_name = {each.name: each.configs for each in made.topics}
    assert by_name["orders"] == {"retention.ms": "7", "cleanup.policy": "compact,delete"}
    assert by_name["__consumer_offsets"] == {"retention.ms": "-1", "cleanup.policy": "compact"}


def test_an_import_from_directories_alone_reports_what_is_unknown() -> None:
    found = logs("orders-0", "orders-2", "__consumer_offsets-0", topic_id=NULL_TOPIC_ID)
    found = replace(found, cleaned=frozenset({TopicPartition("orders", 0)}))
    third = FoundLog(directory="/d/orders-2", topic_id=ORDERS, producer_id_max=4321, leader_epoch=9)
    found = replace(found, logs={**found.logs, TopicPartition("orders", 2): third})
    foreign = cluster_from_logs(found, {})
    made = plan(foreign, found)
    orders = next(each for each in made.topics if each.name == "orders")
    assert orders.topic_id == ORDERS and orders.epochs.keys() == {0, 1, 2} and orders.epochs[2] > 9
    assert made.producer_ids is not None and made.producer_ids.end > 4321 and made.producer_ids.end % 1000 == 999
    internal = next(each for each in made.topics if each.name == "__consumer_offsets")
    assert internal.configs["cleanup.policy"] == "compact" and internal.topic_id == MADE
    text = "\n".join(made.concerns)
    assert "do not contain the configurations of 1 topic (orders)" in text and "has cleaned orders" in text and "orders-1" in text
    assert "configurations" not in "\n".join(plan(cluster_from_logs(found, {"*": {}}), found, {"*": {}}).concerns)


def test_passwords_are_imported_if_they_can_be_decrypted() -> None:
    name = "listener.name.x.ssl.keystore.password"
    config = broker_config("listeners=X://:0\nlistener.security.protocol.map=X:SSL\ninter.broker.listener.name=X\n"
                           "password.encoder.secret=of-kafka")  # fmt: skip
    assert config.passwords is not None
    stored = config.passwords.encode("very-hidden", Random(1).randbytes)
    assert config_checks(config).broker({name: stored, "log.cleaner.threads": "2"}) == {}
    (problem,) = config_checks(config).broker({name: "very-hidden", "log.cleaner.threads": "2"}).values()
    assert problem.endswith("use the password.encoder keys of Kafka's broker") and "very-hidden" not in problem
    (problem,) = config_checks(broker_config("")).broker({name: stored}).values()
    assert "password.encoder.secret is not set" in problem
