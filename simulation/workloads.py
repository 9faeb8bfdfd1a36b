"""Which work a seed has beside plain producers and consumers, so that each seed has little of it: a kind of its own for each."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from simulation.chance import stream
from simulation.clients.access_plan import AccessPlan
from simulation.clients.administrator import REQUESTS, AdminPlan
from simulation.clients.member import GroupPlan
from simulation.clients.transactional import TransactionalPlan
from simulation.plan import SETTLE_S, Fault, Plan, draw_plain
from txbroker.names import TopicPartition

DAY_MS = 86_400_000  # longer than any run, with all jumps of the clocks

ACCESS_S = 30.0  # long enough for brokers to read the ACLs after a fault
ACCESS_FAULTS = ("kill", "stop", "cut", "cut_tree", "drop", "drop_tree", "expire", "prefer", "torn")  # no delays: ACLs are late then

KINDS = {"plain": 6, "transactions": 3, "groups": 2, "administration": 2}
RESTRICTED = 0.06  # the share of the seeds whose brokers ask ACLs
CLEANED = 0.15  # the share of the seeds whose topics are compacted


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    plan, chance = draw_plain(seed), stream(seed, "work")
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    made = WORK.get(kind)
    if made is not None:
        plan = made(plan, chance)
    access = stream(seed, "access")
    if access.random() < RESTRICTED:
        return _restricted(draw_plain(seed), access)
    cleaning = stream(seed, "cleaning")
    return _compacted(plan, cleaning) if kind != "administration" and cleaning.random() < CLEANED else plan


def _groups(plan: Plan, chance: Random) -> Plan:
    """Members of one or two groups, beside one producer."""
    partitions = [TopicPartition(topic.name, index) for topic in plan.topics for index in range(topic.partitions)]
    groups = tuple(
        GroupPlan(
            group=f"group-{number}",
            partitions=tuple(partitions),
            members=chance.choice((1, 2, 3, 4)),
            cooperative=chance.random() < 0.5,
            static=chance.random() < 0.3,
            session_timeout_ms=chance.choice((2000, 6000)),
            rebalance_timeout_ms=chance.choice((1000, 4000)),
            pause_s=chance.choice((0.1, 0.4)),
            leaves=chance.choice((0.0, 0.03, 0.1)),
            silent=chance.choice((0.0, 0.03)),
            away_s=chance.choice((0.2, 3.0)),
        )
        for number in range(chance.choice((1, 1, 2)))
    )
    settings = {**plan.settings, "group.min.session.timeout.ms": "1000"}
    return replace(plan, settings=settings, producers=plan.producers[:1], consumers=plan.consumers[:1], committers=(), groups=groups)


def _transactions(plan: Plan, chance: Random) -> Plan:
    """Transactional clients, consumers with read_committed, and producers whose records are copied in transactions."""
    partitions = [TopicPartition(topic.name, index) for topic in plan.topics for index in range(topic.partitions)]
    source = chance.choice(partitions) if len(partitions) > 1 and chance.random() < 0.7 else None
    jumps = any(fault.kind == "clock" for fault in plan.faults)  # the wall clock decides when a transaction times out
    outputs = [partition for partition in partitions if partition != source]
    clients = tuple(
        _transactional(f"id-{number}", outputs, source if number == 0 or chance.random() < 0.5 else None, chance, jumps=jumps)
        for number in range(chance.choice((1, 2, 3)))
    )
    producers = tuple(
        replace(producer, idempotent=True, acks=-1, partitions=tuple(p for p in producer.partitions if p == source) or (source,))
        for producer in plan.producers[:1]
        if source is not None
    )
    consumers = tuple(replace(consumer, read_committed=chance.random() < 0.8) for consumer in plan.consumers)
    settings = {
        **plan.settings,
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": str(min(plan.brokers, 3)),
        "transaction.state.log.min.isr": str(min(plan.brokers, chance.choice((1, 2)))),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    return replace(plan, settings=settings, producers=producers, consumers=consumers, committers=(), transactional=clients)


def _transactional(
    name: str, partitions: list[TopicPartition], source: TopicPartition | None, chance: Random, *, jumps: bool
) -> TransactionalPlan:
    versions = chance.choice(((1,), (2,), (1, 2)))
    return TransactionalPlan(
        transactional_id=name,
        partitions=tuple(partition for partition in partitions if chance.random() < 0.7) or (chance.choice(partitions),),
        versions=versions,
        timeout_ms=chance.choice((2000, 6000, 20_000)),
        pause_s=chance.choice((0.05, 0.2, 0.6)),
        batches_max=chance.choice((1, 3)),
        aborted=chance.choice((0.0, 0.2, 0.5)),
        abandoned=chance.choice((0.0, 0.05, 0.2)),
        away_s=chance.choice((0.1, 1.0, 5.0)),
        rivals=chance.choice((1, 1, 2)),
        leaves_open=not jumps and chance.random() < 0.4,
        source=source,
    )


def _administration(plan: Plan, chance: Random) -> Plan:
    """One administrator, beside plain clients."""
    admin = AdminPlan(
        name="a0",
        topics={topic.name: topic.partitions for topic in plan.topics},
        brokers=plan.brokers,
        replicas=max(topic.replicas for topic in plan.topics),
        work=tuple(kind for kind in REQUESTS if chance.random() < 0.6) or REQUESTS,
        pause_s=chance.choice((0.1, 0.5, 2.0)),
    )
    return replace(plan, left_out=None, committers=plan.committers[:1], administrators=(admin,))


def _restricted(plan: Plan, chance: Random) -> Plan:
    """Clients with principals of their own, whose ACLs change while brokers restart and lose ZooKeeper."""
    faults = [fault for fault in plan.faults if fault.kind in ACCESS_FAULTS and fault.at_s < ACCESS_S / 2]
    for kind, length_s in (("expire", 0.0), ("cut_tree", 5.0), ("drop_tree", 0.0)):
        for _ in range(chance.choice((0, 1, 2))):
            faults.append(Fault(SETTLE_S + chance.random() * ACCESS_S / 2, kind, chance.randrange(plan.brokers), length_s, chance.random()))
    settings = {
        **plan.settings,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",  # brokers, and the clients without a principal
    }
    access = AccessPlan(
        principals=("alice", "bob"),
        topics=tuple(topic.name for topic in plan.topics),
        pause_s=chance.choice((0.3, 0.8)),
        changing_s=chance.choice((ACCESS_S / 4, ACCESS_S)),
        lost=chance.choice((0.0, 0.3, 0.8)),
    )
    return replace(
        plan, duration_s=ACCESS_S, left_out=None, settings=settings, producers=plan.producers[:1], consumers=plan.consumers[:1],
        committers=(), faults=tuple(sorted(faults)), access=access, latency_s=min(plan.latency_s, 0.002),
    )  # fmt: skip


def _compacted(plan: Plan, chance: Random) -> Plan:
    """With compacted topics, of few keys and with tombstones, and with the log cleaner, which cleans the internal topics, too."""
    keys = chance.choice((1, 4, 12))
    # A follower that does not run for longer than that keeps what tombstones have deleted, as in Kafka.
    retention_ms = {topic.name: DAY_MS if topic.replicas > 1 else chance.choice((0, 3000, DAY_MS)) for topic in plan.topics}
    topics = tuple(
        replace(topic, configs={**topic.configs, "cleanup.policy": "compact", "delete.retention.ms": str(retention_ms[topic.name])})
        for topic in plan.topics
    )
    checked = all(kept_ms == DAY_MS for kept_ms in retention_ms.values())  # else a latest record may be missing in the history
    restarts = stream(plan.seed, "restarts").choice((0.0, 0.0, 0.1))
    producers = tuple(
        replace(
            producer, keys=keys, pause_s=min(producer.pause_s, 0.2), tombstones=chance.choice((0.0, 0.2, 0.5)), latest=checked,
            restarts=restarts,
        )
        for producer in plan.producers
    )  # fmt: skip
    transactional = tuple(replace(one, keys=keys, source=None) for one in plan.transactional)
    settings = {
        **plan.settings,
        "log.segment.bytes": str(chance.choice((300, 1024, 4096))),
        "offsets.topic.segment.bytes": "1024",
        "transaction.state.log.segment.bytes": "1024",
        "log.cleaner.backoff.ms": str(chance.choice((50, 500, 2000))),
        "log.cleaner.min.cleanable.ratio": str(chance.choice((0.01, 0.3, 0.6))),
        "log.cleaner.dedupe.buffer.size": str(1 << 20),
        "log.cleaner.schedule": chance.choice(("kafka", "kafka", "generational")),
    }
    return replace(plan, cleaning=True, settings=settings, topics=topics, producers=producers, transactional=transactional)


WORK = {"transactions": _transactions, "groups": _groups, "administration": _administration}
