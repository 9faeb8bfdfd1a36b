"""Import rules: converts the metadata of an Apache Kafka broker to that of a single txbroker, and finds the conflicts.

This broker becomes the only replica of every partition, and leads it in an epoch above all in its log and in the cluster, so that clients
of an earlier leader are fenced (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from txbroker.cluster.zookeeper_migration.import_plan import ImportPlan, PlannedTopic
from txbroker.cluster.zookeeper_migration.kafka_metadata import (
    EVERY_TOPIC,
    ForeignCluster,
    ForeignPartition,
    ForeignTopic,
    FoundLog,
    FoundLogs,
    counted,
)
from txbroker.config.listener_keys import LISTENER_PREFIX
from txbroker.errors import BrokerError
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, TopicPartition, amount, check_topic_name, id_to_text

Configs = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigChecks:
    """Callables that return the unusable keys of a configuration with reasons, and a generator of topic ids."""

    topic: Callable[[Configs], Mapping[str, str]]
    broker: Callable[[Configs], Mapping[str, str]]
    all_brokers: Callable[[Configs], Mapping[str, str]]
    new_topic_id: Callable[[], bytes]
    new_cluster_id: Callable[[], str]  # for directories and a source without one


def plan_import(cluster: ForeignCluster, found: FoundLogs, configs: Mapping[str, Configs], checks: ConfigChecks) -> ImportPlan:
    """Plan an import. `configs`: by topic (`EVERY_TOPIC`: all topics), from the command line; they override the cluster's."""
    identity = found.identity
    broker_id = -1 if identity.broker_id is None else identity.broker_id
    plan = ImportPlan(
        cluster_id=identity.cluster_id or cluster.cluster_id or checks.new_cluster_id(),
        broker_id=broker_id,
        controller_epoch=cluster.controller_epoch,
        producer_ids=cluster.producer_ids,
        copied={**cluster.acls, **cluster.clients, **cluster.tokens},
        notes=list(cluster.notes),
        concerns=list(cluster.concerns),
        refusals=list(_identity_problems(cluster, found)),
    )
    plan.broker_configs = _usable(plan, cluster.broker_configs, checks.broker(cluster.broker_configs), f"of broker {broker_id}")
    plan.default_configs = _usable(plan, cluster.default_configs, checks.all_brokers(cluster.default_configs), "of all brokers")
    conflicts = _Conflicts()
    for name, topic in sorted(cluster.topics.items()):
        try:
            check_topic_name(name)
        except BrokerError as error:
            plan.refusals.append(str(error))
            continue
        logs = {partition: found.logs[TopicPartition(name, partition)] for partition in topic.partitions if (name, partition) in found.logs}
        if not logs and not any(broker_id in each.replicas for each in topic.partitions.values()):
            conflicts.elsewhere.append(name)
            continue
        planned = _planned(plan, name, topic, logs, cluster, configs, checks)
        plan.topics.append(planned)
        conflicts.check_topic(plan, planned, topic, logs)
    plan.concerns += conflicts.concerns()
    plan.refusals += conflicts.refusals
    plan.notes += _notes(cluster, found, conflicts.elsewhere)
    unknown = sorted(configs.keys() - cluster.topics.keys() - {EVERY_TOPIC})
    if unknown:
        plan.refusals.append(f"--topic-config specifies unknown topics: {counted(unknown, 'topic')}")
    return plan


def _identity_problems(cluster: ForeignCluster, found: FoundLogs) -> Iterable[str]:
    where = ", ".join(found.directories)
    identity = found.identity
    if identity.broker_id is None:
        yield f"no meta.properties in {where} has a broker id: specify all log.dirs of the broker, or its id with --override broker.id=ID"
        return
    if None not in (identity.cluster_id, cluster.cluster_id) and identity.cluster_id != cluster.cluster_id:
        yield (
            f"{where} belongs to cluster {identity.cluster_id}, and {cluster.source} to cluster {cluster.cluster_id}: "
            "specify the ZooKeeper of the same cluster"
        )
    if identity.broker_id in cluster.alive:
        yield (
            f"broker {identity.broker_id} is registered in {cluster.source}: stop it, or, if it was killed, wait until its session has "
            "expired (zookeeper.session.timeout.ms)"
        )


def _notes(cluster: ForeignCluster, found: FoundLogs, elsewhere: list[str]) -> Iterable[str]:
    unknown = sorted({topic for topic, _ in found.logs if topic not in cluster.topics} - set(elsewhere))
    if unknown:
        yield (
            f"{cluster.source} does not know {counted(unknown, 'topic')}: their logs do not change and are not served; move them away "
            "before you create topics with these names"
        )
    if found.identity.cluster_id is None and cluster.cluster_id is None:
        yield "the directories have no cluster id, as those of Apache Kafka before 2.4: the cluster gets a new one, or that of --cluster-id"
    if cluster.acls:
        yield f"the ACLs of {amount(len(cluster.acls), 'resource')} count once the broker has the authorizer.class.name of Kafka's brokers"
    if cluster.tokens:
        count = amount(len(cluster.tokens), "delegation token")
        yield f"{count} can be used once the broker has the delegation.token.secret.key of Kafka's brokers"
    if cluster.clients:
        yield f"quotas and SCRAM credentials of {counted(list(map(_entity, cluster.clients)), 'entity')} are imported as they are"
    opened = sum(log.open_transactions for log in found.logs.values())
    if opened:
        are = "is" if opened == 1 else "are"
        yield f"{amount(opened, 'transaction')} {are} open: read_committed consumers wait for their end"


def _entity(path: str) -> str:
    return path.removeprefix("/config/")


def _planned(
    plan: ImportPlan,
    name: str,
    topic: ForeignTopic,
    logs: Mapping[int, FoundLog],
    cluster: ForeignCluster,
    configs: Mapping[str, Configs],
    checks: ConfigChecks,
) -> PlannedTopic:
    ids = [topic.topic_id, *(log.topic_id for log in logs.values())]
    for_all = configs.get(EVERY_TOPIC, {})
    own = topic.configs or {}
    wanted = {**for_all, **own} if name in INTERNAL_TOPICS else {**own, **for_all}
    wanted |= configs.get(name, {})
    return PlannedTopic(
        name=name,
        topic_id=next((each for each in ids if each != NULL_TOPIC_ID), None) or checks.new_topic_id(),
        epochs={number: _epoch(each, logs.get(number), cluster.epoch_margin) for number, each in sorted(topic.partitions.items())},
        here=frozenset(logs),
        configs=_usable(plan, wanted, checks.topic(wanted), f"of topic {name}"),
        deleting=name in cluster.deleting,
    )


def _epoch(partition: ForeignPartition, log: FoundLog | None, margin: int) -> int:
    return max(partition.leader_epoch, -1 if log is None else log.leader_epoch) + margin + 1


def _usable(plan: ImportPlan, configs: Configs, problems: Mapping[str, str], whose: str) -> dict[str, str]:
    for key, why in sorted(problems.items()):
        if key.startswith(LISTENER_PREFIX):  # what protects a listener
            plan.concerns.append(f"{key} {whose} is not imported, so that the listener uses what the file of the broker has: {why}")
        else:
            plan.notes.append(f"{key} {whose} is not imported: {why}")
    return {key: value for key, value in configs.items() if key not in problems}


@dataclass(slots=True)
class _Conflicts:
    """Problems of partitions, summarized: one sentence for each kind."""

    elsewhere: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    replicated: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    deleting: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def check_topic(self, plan: ImportPlan, planned: PlannedTopic, topic: ForeignTopic, logs: Mapping[int, FoundLog]) -> None:
        """Check one topic and each of its partitions."""
        name = planned.name
        if planned.deleting:
            self.deleting.append(name)
        if list(planned.epochs) != list(range(len(planned.epochs))):
            self.refusals.append(f"the partitions of topic {name} are not numbered from 0 without gaps: {list(planned.epochs)[:10]}")
        for number, partition in sorted(topic.partitions.items()):
            text = f"{name}-{number}"
            log = logs.get(number)
            if log is None:
                (self.lost if plan.broker_id in partition.replicas else self.absent).append(text)
                continue
            if log.topic_id not in (NULL_TOPIC_ID, planned.topic_id):
                self.refusals.append(
                    f"{log.directory} has topic id {id_to_text(log.topic_id)}, and topic {name} has {id_to_text(planned.topic_id)}: "
                    "it belongs to a deleted topic of this name, move it away"
                )
            if set(partition.replicas) - {plan.broker_id}:
                self.replicated.append(text)
                if plan.broker_id not in partition.isr:
                    self.behind.append(text)

    def concerns(self) -> Iterable[str]:
        """A sentence for each kind."""
        if self.elsewhere:
            yield f"{counted(self.elsewhere, 'topic')} cannot be imported: only other brokers have replicas"
        if self.lost:
            yield f"no directory has the log of {counted(self.lost, 'partition')}, which will start empty: check that log.dirs is complete"
        if self.absent:
            yield f"other brokers have {counted(self.absent, 'partition')} of imported topics, which will start empty here"
        if self.replicated:
            yield (
                f"other brokers have replicas of {counted(self.replicated, 'partition')}: the replica here becomes the only one, and "
                "the others must not be used any more"
            )
        if self.behind:
            yield f"the replica here is not in sync for {counted(self.behind, 'partition')}: the last acknowledged records are missing"
        if self.deleting:
            yield f"{counted(self.deleting, 'topic')} marked for deletion: deleted once the broker starts, as Kafka would"
