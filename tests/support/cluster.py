"""A cluster of real processes: ZooKeeper, and brokers that register there, of txbroker and of Apache Kafka 3.9 side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from kafka.protocol.metadata import MetadataRequest

from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaMember, ZooKeeperProcess
from tests.support.network import Network
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, creation
from tests.support.server import Server, free_port
from tests.support.waiting import until

# A paused process is one whose session expires: on a loaded machine a running one must not lose it.
SESSION_MS = 6000
NOT_CONTROLLER = 41
_METADATA_VERSION = 8

# Kafka's defaults are for many large machines.
CLUSTER_OVERRIDES = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "controlled.shutdown.retry.backoff.ms": "500",
}


class PartitionState(NamedTuple):
    """A partition in one broker's metadata. `leader` is -1 if it has none; `isr` is sorted, because its order has no meaning."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def in_sync(self) -> bool:
        """Whether it has a leader, and every replica is in sync."""
        return self.leader >= 0 and self.isr == tuple(sorted(self.replicas))


class Cluster:
    """Brokers 1 to N on a ZooKeeper of their own. Each is a `Server` with its own data and log, which tests pause, kill and start.

    `kinds` are those of the brokers, "txbroker" (an `own_kind`) or "kafka-3.9", and `racks` their racks. There are `zookeepers` servers of
    ZooKeeper. With a `network` each server is on a host of its own, named broker-1, zookeeper-1 and so on. `until_...` methods poll the
    metadata of every broker that runs.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str] = (BrokerProcess.kind,) * 3,
        overrides: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        zookeepers: int = 1,
        network: Network | None = None,
        own_kind: type[BrokerProcess] = BrokerProcess,
    ) -> None:
        self.directory = directory
        self._own_kind = own_kind
        self.network = network
        self.zookeepers = {number: ZooKeeperProcess(directory / f"zookeeper-{number}") for number in range(1, zookeepers + 1)}
        for number, zookeeper in self.zookeepers.items():
            self._place(zookeeper, f"zookeeper-{number}")
        if zookeepers > 1:
            hosts = {number: (zookeeper.host, free_port()) for number, zookeeper in self.zookeepers.items()}
            for number, zookeeper in self.zookeepers.items():
                zookeeper.join(number, hosts)
        self._overrides = {**CLUSTER_OVERRIDES, **(overrides or {})}
        self.brokers: dict[int, Server] = {}
        for broker_id, kind in enumerate(kinds, 1):
            self.add(broker_id, kind)
        for server, rack in zip(self.brokers.values(), racks, strict=False):
            server.overrides["broker.rack"] = rack

    @property
    def zookeeper_connect(self) -> str:
        """host:port of each server of ZooKeeper, with a chroot."""
        return f"{','.join(server.address for server in self.zookeepers.values())}/cluster"

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers with all brokers, also those that do not run."""
        return ",".join(server.address for server in self.brokers.values())

    def add(self, broker_id: int, kind: str = BrokerProcess.kind, *, same_data: bool = False) -> Server:
        """Another broker of the cluster, which is not started; with `same_data` it replaces one, whose port and data it uses."""
        name = f"broker-{broker_id}"
        before = self.brokers.get(broker_id)
        assert same_data == (before is not None) and (before is None or not before.running)
        overrides = {**self._overrides, "broker.id": str(broker_id), "zookeeper.connect": self.zookeeper_connect}
        server: Server
        if kind == KafkaMember.kind:
            server = KafkaMember(self.directory / name, broker_id, self.zookeeper_connect, overrides)
        else:
            server = self._own_kind(self.directory / name, overrides)
        self._place(server, name)
        server.port = before.port if before is not None else server.port
        self.brokers[broker_id] = server
        return server

    def _place(self, server: Server, name: str) -> None:
        if self.network is not None:
            server.host, server.within = self.network.host(name)
        server.port = free_port()

    def start(self) -> None:
        """Start ZooKeeper and all brokers, at the same time; wait until every broker has all others in its metadata."""
        self.start_zookeeper()
        self.start_brokers(self.brokers)

    def start_zookeeper(self) -> None:
        """Start the servers of ZooKeeper that do not run, at the same time."""
        _start_together([server for server in self.zookeepers.values() if not server.running])

    def start_brokers(self, broker_ids: Iterable[int]) -> None:
        """Start some brokers at the same time, and wait until all brokers have them in their metadata."""
        _start_together([self.brokers[broker_id] for broker_id in broker_ids])
        self.until_registered()

    def stop(self) -> None:
        """Stop the brokers cleanly one after the other, then ZooKeeper."""
        for server in self.brokers.values():
            if server.running:
                status = server.stop()
                assert status == server.stopped_status, f"{server.kind} ended with {status}:\n{server.log_tail()}"
        for zookeeper in self.zookeepers.values():
            zookeeper.stop()

    def close(self) -> None:
        """Kill what still runs."""
        for server in self.brokers.values():
            server.close()
        for zookeeper in self.zookeepers.values():
            zookeeper.close()

    @property
    def serving(self) -> dict[int, Server]:
        """The brokers whose processes run and are not paused."""
        return {broker_id: server for broker_id, server in self.brokers.items() if server.running and not server.paused}

    # --- metadata ---

    def metadata(self, topics: Sequence[str] | None = None, broker_id: int | None = None) -> Any:
        """A Metadata response with these topics, or all, from one broker, or the first that answers. Creates no topics."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        for server in self.serving.values() if broker_id is None else [self.brokers[broker_id]]:
            try:
                with RawConnection(server.address) as connection:
                    return connection.call(request, _METADATA_VERSION)
            except OSError:
                if broker_id is not None:
                    raise
        raise ConnectionError("no broker answers")

    def partitions(self, topic: str, broker_id: int | None = None) -> dict[int, PartitionState]:
        """The partitions of a topic by one broker's metadata, or the first that answers; empty if the topic does not exist there."""
        return _states(self.metadata([topic], broker_id)).get(topic, {})

    def topics(self, broker_id: int | None = None) -> dict[str, dict[int, PartitionState]]:
        """All topics by one broker's metadata, or the first that answers."""
        return _states(self.metadata(None, broker_id))

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the leader, once there is one among the serving brokers."""
        def find() -> int | None:
            state = self.partitions(topic).get(partition)
            return state.leader if state is not None and state.leader in self.serving else None

        leader: int = self.until(find, f"{topic}-{partition} has a leader that runs")
        return leader

    def controller(self) -> int:
        """The id of the controller, once there is one among the serving brokers."""
        def find() -> int | None:
            found: int = self.metadata([]).controller_id
            return found if found in self.serving else None

        controller: int = self.until(find, "there is a controller that runs")
        return controller

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """The first true value of `condition`; an OSError in it, as when a broker ends meanwhile, is not true."""
        def checked() -> Any:
            try:
                return condition()
            except OSError:
                return None

        try:
            return until(checked, what, every_s=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.description()}") from None

    def until_registered(self) -> None:
        """Wait until every serving broker has exactly the serving ones in its metadata, and a controller."""
        def complete() -> bool:
            answers = [self.metadata([], broker_id) for broker_id in self.serving]
            listed = [{broker.node_id for broker in answer.brokers} for answer in answers]
            return all(ids == self.serving.keys() for ids in listed) and all(answer.controller_id in self.serving for answer in answers)

        self.until(complete, f"each of the brokers {sorted(self.serving)} knows the others and the controller")

    def until_in_sync(self, *topics: str) -> None:
        """Wait until, by every serving broker's metadata, all replicas of these topics, or of all topics, are in sync."""
        def complete() -> bool:
            answers = [_states(self.metadata(topics or None, broker_id)) for broker_id in self.serving]
            return all(set(topics) <= states.keys() for states in answers) and all(
                partitions and all(state.in_sync for state in partitions.values()) for states in answers for partitions in states.values())

        self.until(complete, f"all replicas of {', '.join(topics) or 'all topics'} are in sync")

    def until_isr(self, topic: str, partition: int, *members: int) -> PartitionState:
        """Wait until the ISR of a partition is exactly this, by every serving broker's metadata."""
        def find() -> PartitionState | None:
            found = [self.partitions(topic, broker_id).get(partition) for broker_id in self.serving]
            fits = all(state is not None and state.isr == tuple(sorted(members)) for state in found)
            return found[0] if found and fits else None

        state: PartitionState = self.until(find, f"the ISR of {topic}-{partition} is {sorted(members)}")
        return state

    def until_leader_is_not(self, broker_id: int, *topics: str) -> None:
        """Wait until these topics, or all, have only other leaders, by every serving broker's metadata."""
        def complete() -> bool:
            answers = [_states(self.metadata(topics or None, asked)) for asked in self.serving]
            return all(state.leader in self.serving and state.leader != broker_id
                       for states in answers for partitions in states.values() for state in partitions.values())

        self.until(complete, f"broker {broker_id} leads nothing")

    def description(self) -> str:
        """All partitions by each broker's metadata, and the end of each log, for the message of a failed wait."""
        parts = []
        for broker_id, server in self.brokers.items():
            state = "paused" if server.paused else "running" if server.running else "not running"
            parts.append(f"== broker {broker_id} ({server.kind}, {state})")
            if broker_id in self.serving:
                try:
                    answer = self.metadata(None, broker_id)
                    ids = sorted(broker.node_id for broker in answer.brokers)
                    parts.append(f"brokers {ids}, controller {answer.controller_id}")
                    parts += [f"{topic}-{partition}: {tuple(found)}" for topic, partitions in _states(answer).items()
                              for partition, found in partitions.items() if not found.in_sync]
                except OSError as error:
                    parts.append(f"no metadata: {error}")
            parts.append(server.log_tail()[-3000:])
        return "\n".join(parts)

    # --- topics ---

    def create_topic(self, topic: str, partitions: int = 1, replication_factor: int = 3, configs: Mapping[str, str] = KEEP) -> None:
        """Create a topic through the controller, and wait until all replicas are in sync by every broker's metadata."""
        def attempt() -> Any:
            with RawConnection(self.brokers[self.controller()].address) as connection:
                answer = creation(connection, topic, partitions, replication_factor, configs)
            return None if answer.error_code == NOT_CONTROLLER else answer

        created = self.until(attempt, f"the controller answers the creation of {topic}")
        assert created.error_code == 0, created
        self.until_in_sync(topic)


def _start_together(servers: Sequence[Server]) -> None:
    with ThreadPoolExecutor() as threads:
        for started in [threads.submit(server.start) for server in servers]:
            started.result()


def _states(answer: Any) -> dict[str, dict[int, PartitionState]]:
    """The partitions in a Metadata response, by topic and number; topics with an error are left out."""
    return {
        topic.name: {
            p.partition_index: PartitionState(p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(sorted(p.isr_nodes)))
            for p in topic.partitions
        }
        for topic in answer.topics
        if topic.error_code == 0
    }
