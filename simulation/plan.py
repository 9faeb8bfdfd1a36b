"""What a seed draws: the cluster, the work of its clients, and the faults. A plan is a value: shrinking makes smaller ones of it.

Swarm testing (Groce et al., 2012): each seed first draws which kinds of work, of options and of faults there are at all. A mixture of
everything hides what only happens without something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from simulation.chance import stream
from simulation.clients.access_plan import AccessPlan
from simulation.clients.administrator import AdminPlan
from simulation.clients.committer import CommitterPlan
from simulation.clients.consumer import ConsumerPlan
from simulation.clients.member import GroupPlan
from simulation.clients.producer import ProducerPlan
from simulation.clients.transactional import TransactionalPlan
from txbroker.names import TopicPartition

SETTLE_S = 4.0  # before the first fault
STORM_S = 0.4  # the mean time from the beginning of a storm of faults to each of them


CONTROLLER, LEADER = -1, -2  # targets by their role when the fault begins


class Fault(NamedTuple):
    """Something that happens at a time. `length_s`: until it is undone; `detail`: from 0 to 1.

    `target`: a broker by number, CONTROLLER, or LEADER: the leader of one of the partitions.
    """

    at_s: float
    kind: str
    target: int
    length_s: float = 0.0
    detail: float = 0.0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that exists from the beginning."""

    name: str
    partitions: int
    replicas: int
    min_in_sync: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `settings`: server.properties of all brokers. `duration_s`: until the faults end and the clients finish."""

    seed: int
    duration_s: float
    brokers: int
    settings: Mapping[str, str]
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    consumers: tuple[ConsumerPlan, ...]
    committers: tuple[CommitterPlan, ...]
    faults: tuple[Fault, ...]
    latency_s: float = 0.002
    session_timeout_s: float = 3.0
    left_out: int | None = None  # a broker that stays away while the others converge
    durable: bool = False  # every append is synced before it counts: a loss of power loses nothing that was acknowledged
    transactional: tuple[TransactionalPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    administrators: tuple[AdminPlan, ...] = ()
    cleaning: bool = False  # the log cleaner runs
    access: AccessPlan | None = None  # some clients have principals of their own
    bug: str = ""


# How often, for each kind of fault, in faults a simulated minute; and how long it lasts.
KINDS: Mapping[str, tuple[float, float, float]] = {
    "kill": (5.0, 0.2, 8.0),
    "stop": (2.0, 0.5, 6.0),
    "pause": (4.0, 0.2, 8.0),
    "cut": (4.0, 0.5, 8.0),
    "isolate": (2.0, 0.5, 8.0),
    "cut_tree": (3.0, 0.5, 8.0),
    "drop_tree": (8.0, 0.0, 0.0),
    "drop": (10.0, 0.0, 0.0),
    "slow": (3.0, 1.0, 8.0),
    "lag_tree": (2.0, 1.0, 6.0),
    "elect_tree": (1.0, 0.3, 3.0),
    "expire": (3.0, 0.0, 0.0),
    "clock": (2.0, 0.0, 0.0),
    "torn": (3.0, 0.5, 6.0),
    "power": (2.0, 0.5, 6.0),
    "wipe": (1.0, 0.5, 4.0),
    "full": (2.0, 0.5, 5.0),
    "prefer": (3.0, 0.0, 0.0),
    "slow_disk": (3.0, 0.5, 4.0),
    "blackout": (2.0, 0.3, 3.0),
    "refuse": (5.0, 0.3, 8.0),
    "slow_link": (4.0, 0.5, 4.0),
    "depose": (2.0, 2.0, 8.0),
    "bounce": (2.0, 0.3, 2.0),
    "pause_client": (6.0, 0.5, 8.0),
    "lag_kill": (3.0, 1.0, 6.0),
    "late_isr": (4.0, 1.5, 3.0),
    "late_failover": (3.0, 2.0, 8.0),
    "late_roles": (3.0, 2.0, 3.5),
    "lost_answers": (4.0, 0.4, 2.5),
    "full_create": (3.0, 0.5, 3.0),
    "clean_wipe": (3.0, 0.5, 2.0),
    "torn_epochs": (8.0, 0.5, 3.0),
}

LIKELY = 0.35  # that a plan has faults of a kind


def draw_plain(seed: int) -> Plan:
    """The cluster of a seed, its faults, and plain clients; `workloads.py` adds others."""
    chance = stream(seed, "plan")
    brokers = chance.choices((1, 2, 3, 4, 5), (1, 2, 12, 2, 2))[0]
    durable = chance.random() < 0.2
    duration_s = chance.choice((15.0, 20.0, 30.0))
    session_s = chance.choice((2.0, 3.0, 6.0))
    settings = _settings(chance, durable=durable, session_s=session_s, brokers=brokers)
    topics = tuple(_topic(chance, number, brokers) for number in range(chance.choice((1, 1, 2, 3))))
    partitions = [TopicPartition(topic.name, index) for topic in topics for index in range(topic.partitions)]
    all_idempotent = chance.random() < 0.5
    producers = tuple(_producer(chance, partitions, all_idempotent) for _ in range(chance.choice((1, 2, 3))))
    consumers = tuple(_consumer(chance, partitions) for _ in range(chance.choice((1, 1, 2))))
    committers = tuple(
        CommitterPlan(f"g{number}", chance.choice(partitions), chance.choice((0.1, 0.5))) for number in range(chance.choice((0, 1, 2)))
    )
    hints = stream(seed, "failover")
    settings["txbroker.failover.on.connection.loss"] = str(hints.random() < 0.6).lower()
    faults = _faults(seed, duration_s, brokers=brokers, durable=durable)
    return Plan(
        seed=seed,
        duration_s=duration_s,
        brokers=brokers,
        settings=settings,
        topics=topics,
        producers=producers,
        consumers=consumers,
        committers=committers,
        faults=faults,
        latency_s=chance.choice((0.0005, 0.002, 0.02)),
        session_timeout_s=session_s,
        durable=durable,
        left_out=chance.randrange(brokers) if brokers > 1 and chance.random() < 0.3 else None,
    )


def _settings(chance: Random, *, durable: bool, session_s: float, brokers: int) -> dict[str, str]:
    settings = {
        "zookeeper.session.timeout.ms": str(int(session_s * 1000)),
        "zookeeper.connection.timeout.ms": "6000",
        "replica.lag.time.max.ms": str(chance.choice((1500, 3000, 6000))),
        "replica.fetch.wait.max.ms": str(chance.choice((100, 500))),
        "replica.fetch.backoff.ms": str(chance.choice((50, 300))),
        "replica.socket.timeout.ms": "4000",
        "controller.socket.timeout.ms": "4000",
        "log.segment.bytes": str(chance.choice((1024, 16384, 1 << 20))),
        "replica.high.watermark.checkpoint.interval.ms": str(chance.choice((500, 5000))),
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": str(min(brokers, 3)),
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": str(chance.random() < 0.5).lower(),
        "leader.imbalance.check.interval.seconds": "5",
        "leader.imbalance.per.broker.percentage": "0",
        "controlled.shutdown.enable": str(chance.random() < 0.7).lower(),
        "controlled.shutdown.retry.backoff.ms": "500",
        "max.incremental.fetch.session.cache.slots": str(chance.choice((1, 1000))),
    }
    if durable:
        settings["log.flush.interval.messages"] = "1"
    if chance.random() < 0.3:  # everything in small pieces
        settings["replica.fetch.max.bytes"] = str(chance.choice((1, 200)))
        settings["replica.fetch.response.max.bytes"] = str(chance.choice((1, 1000)))
    return settings


def _topic(chance: Random, number: int, brokers: int) -> TopicPlan:
    replicas = min(brokers, chance.choices((1, 2, 3), (1, 3, 8))[0])
    return TopicPlan(
        name=f"t{number}",
        partitions=chance.choice((1, 1, 2, 3)),
        replicas=replicas,
        min_in_sync=chance.randint(1, replicas),
    )


def _some(chance: Random, partitions: list[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(partition for partition in partitions if chance.random() < 0.7) or (chance.choice(partitions),)


def _producer(chance: Random, partitions: list[TopicPartition], all_idempotent: bool) -> ProducerPlan:
    idempotent = all_idempotent or chance.random() < 0.5
    return ProducerPlan(
        partitions=_some(chance, partitions),
        acks=-1 if idempotent else chance.choice((-1, -1, 1)),
        idempotent=idempotent,
        in_flight=chance.choice((1, 2, 5)),
        pause_s=chance.choice((0.06, 0.2, 0.8)),
        records_max=chance.choice((1, 3)),
        restarts=chance.choice((0.0, 0.1, 0.3)) if idempotent else 0.0,
    )


def _consumer(chance: Random, partitions: list[TopicPartition]) -> ConsumerPlan:
    return ConsumerPlan(
        partitions=_some(chance, partitions),
        pause_s=chance.choice((0.1, 0.5)),
        bytes_max=chance.choice((1, 500, 100_000)),
        from_followers=chance.random() < 0.3,
        again=chance.choice((0.0, 0.05)),
        wait_ms=chance.choice((0, 200)),
    )


def _faults(seed: int, duration_s: float, *, brokers: int, durable: bool) -> tuple[Fault, ...]:
    chance = stream(seed, "fault plan")
    intensity = chance.choice((0.5, 1.0, 2.0))
    aimed = chance.choice((0.0, 0.0, 0.5, 0.8))  # how likely a fault hits a role
    storms = [SETTLE_S + chance.random() * (duration_s - SETTLE_S) for _ in range(chance.choice((0, 0, 1, 2, 4)))]
    faults: list[Fault] = []
    for kind in KINDS:
        of_disks = durable and kind in ("power", "slow_disk", "blackout")
        faults += _faults_of(
            stream(seed, f"faults {kind}"), kind, duration_s, intensity * (3 if of_disks else 1), 1.0 if of_disks else LIKELY
        )
    drawn = []
    for fault in faults:
        own = stream(seed, f"fault {fault.kind} {fault.at_s}")
        at_s, target = fault.at_s, own.randrange(brokers)
        if own.random() < aimed:
            target = own.choice((CONTROLLER, LEADER))
        if storms and own.random() < 0.6:  # faults that come together find what single ones do not
            at_s = min(storms, key=lambda storm_s: abs(storm_s - fault.at_s)) + own.expovariate(1 / STORM_S)
        if at_s < duration_s:
            drawn.append(fault._replace(at_s=at_s, target=target))
    return tuple(sorted(drawn))


def _faults_of(chance: Random, kind: str, duration_s: float, intensity: float, likely: float) -> list[Fault]:
    """The faults of one kind, from a stream of its own: another kind changes nothing for this one."""
    a_minute, shortest_s, longest_s = KINDS[kind]
    if chance.random() >= likely:
        return []
    faults: list[Fault] = []
    at_s = SETTLE_S
    while True:
        at_s += chance.expovariate(a_minute * intensity / 60)
        if at_s >= duration_s:
            return faults
        length_s = shortest_s * (longest_s / shortest_s) ** chance.random() if shortest_s else 0.0
        faults.append(Fault(at_s, kind, 0, length_s, chance.random()))
