"""What must hold of brokers and ZooKeeper after every step.

The checks look into the brokers, so that they find a mistake when it happens and not when a client notices it. They compare each replica
with `Truth`, what some leader has once committed, and each write of the controller with the write before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from simulation.ensemble import Transaction
from simulation.environment import Environment
from simulation.hosts import BrokerHost
from simulation.invariants import leader_epochs, producer_states
from simulation.invariants.batches import READ_BYTES, read_batch
from simulation.invariants.truth import Committed, Replica, Seen, Truth
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import NO_LEADER, PartitionState, decode_controller_epoch, decode_state, decode_topic
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.tree.znodes import Node
from txbroker.errors import BrokerError
from txbroker.names import OFFSETS_TOPIC, TopicPartition, java_hash
from txbroker.wire.batch import HEADER_SIZE, BatchHeader, read_header
from txbroker.wire.records import Record

SEQUENCES = 2**31

topic_assignment = lru_cache(maxsize=256)(decode_topic)  # it is read-only, and asked for again and again


class ClusterState:
    """Of one run, whose ledger asks it who leads and what is committed."""

    def __init__(self, environment: Environment, hosts: Mapping[int, BrokerHost]) -> None:
        self._environment = environment
        self._hosts = hosts
        self._violate = environment.violate
        self._truths: dict[tuple[bytes, int], Truth] = {}
        self._replicas: dict[int, dict[TopicPartition, Replica]] = {}  # by broker, while its process runs
        self._ends: dict[tuple[int, TopicPartition], int | None] = {}  # of each replica, also of a broker that does not run
        self._states: dict[TopicPartition, PartitionState] = {}
        self._controller_epoch = 0
        environment.ensemble.committed = self._committed
        environment.ledger.committed = self.acknowledged
        environment.ledger.acting_coordinator = self.acting_coordinator
        environment.ledger.leads = self.leads

    def truth(self, partition: Partition) -> Truth:
        """What is known of a partition."""
        key = partition.log.topic_id, partition.topic_partition.partition
        found = self._truths.get(key)
        if found is None:
            found = self._truths[key] = Truth()
        return found

    # Brokers

    def stepped(self, host: BrokerHost) -> None:
        """A broker has made a step."""
        broker = host.broker
        if broker is None or broker.components is None or host.process is None or not host.process.alive:
            return
        if self._environment.violation is not None:
            return
        known = self._replicas.setdefault(host.id, {})
        partitions = broker.components.replicas._partitions
        if len(known) != len(partitions):
            self._look(host, broker.components.replicas)
            return
        for replica, partition in zip(known.values(), partitions.values(), strict=True):  # mostly nothing has changed
            log, epoch = partition.log, partition.state.leader_epoch
            fields = (partition.is_leader, epoch, partition.high_watermark, log.log_end_offset, log.log_start_offset)
            if fields != replica.seen or replica.partition is not partition:
                self._look(host, broker.components.replicas)
                return

    def _look(self, host: BrokerHost, replicas: Replicas) -> None:
        """Compare the replicas of a broker with what they were."""
        known = self._replicas[host.id]
        for partition in replicas:
            name, log, replica = partition.topic_partition, partition.log, known.get(partition.topic_partition)
            epoch = partition.state.leader_epoch
            now = Seen(partition.is_leader, epoch, partition.high_watermark, log.log_end_offset, log.log_start_offset)
            if replica is None or replica.partition is not partition:
                replica = known[name] = Replica(partition, now._replace(is_leader=False), now.start, now.end)
                self._changed(host, replica, replica.seen, now, started=True)
            elif now != replica.seen:
                before, replica.seen = replica.seen, now
                self._changed(host, replica, before, now)
        for name in [name for name in known if name not in replicas._partitions]:
            del known[name]
            if not replicas.is_offline(*name):  # else its log is as it was
                self._ends.pop((host.id, name), None)

    def _changed(self, host: BrokerHost, replica: Replica, before: Seen, now: Seen, *, started: bool = False) -> None:
        partition = replica.partition
        name = partition.topic_partition
        self._ends[host.id, name] = now.end
        replica.seen = now
        truth = self.truth(partition)
        who = f"b{host.id} ({name}, leader epoch {now.leader_epoch})"
        leads = now.is_leader and (not before.is_leader or now.leader_epoch != before.leader_epoch)
        if leads:
            self._leads(host, who, truth, now)
            self._check_known_producers(partition, truth, who)
        if leads or started or now.end < before.end:
            self._check_log(partition, who)
        if now.high_watermark < before.high_watermark:
            self._violate("I3", f"{who}: the high watermark went back from {before.high_watermark} to {now.high_watermark}")
        if now.high_watermark > now.end:
            self._violate("I6", f"{who}: the high watermark is {now.high_watermark}, and the log ends at {now.end}")
        if now.leader_epoch < before.leader_epoch:
            self._violate("I4", f"{who}: the leader epoch went back from {before.leader_epoch}")
        if now.start > now.high_watermark:
            self._violate("I3", f"{who}: the log starts at {now.start}, above the high watermark {now.high_watermark}")
        if now.end < before.end:
            self._environment.trace.add(host.name, f"{name} is truncated from {before.end} to {now.end}")
            self._environment.counts["truncations"] += 1
        if now.high_watermark > replica.checked:
            self._compare(replica, truth, who, now)
        if started:
            self._check_compacted(replica, who)
        stable = partition.last_stable_offset
        replica.loaded = min(replica.loaded, now.end)
        problem = truth.transactions.problem(partition.log, stable, max(now.high_watermark, replica.loaded), truth.checked)
        if problem is not None:
            self._violate("I9", f"{who}: the last stable offset is {stable}, and {problem}")
        if now.is_leader and now.high_watermark > truth.ends.get(now.leader_epoch, -1):
            truth.ends[now.leader_epoch] = now.high_watermark
            self._check_isr(name, now, who)

    def _leads(self, host: BrokerHost, who: str, truth: Truth, now: Seen) -> None:
        self._environment.trace.add(host.name, f"leads {who}, high watermark {now.high_watermark}, end {now.end}")
        self._environment.counts["leaders"] += 1
        leader = truth.leaders.setdefault(now.leader_epoch, host.id)
        if leader != host.id:
            self._violate("I4", f"{who} leads, and b{leader} has led in the same epoch")
        committed = truth.end_before(now.leader_epoch)
        if now.end < committed:
            self._violate("I1", f"{who} leads with the end {now.end}, and offsets up to {committed} were committed in earlier epochs")

    def _compare(self, replica: Replica, truth: Truth, who: str, now: Seen) -> None:
        """Compare the records below the high watermark with the truth, or add them to it (I2, I10)."""
        log, offset = replica.partition.log, max(replica.checked, now.start)
        try:
            while offset < now.high_watermark:
                data = log.read(offset, READ_BYTES, offset_end=now.high_watermark, whole_first_batch=True).region.read()
                at = 0
                while at + HEADER_SIZE <= len(data) and offset < now.high_watermark:
                    header = read_header(data, at)
                    if header.last_offset >= offset:
                        if self._compacts(replica.partition):
                            self._compare_compacted(truth, who, header, read_batch(data, at, header))
                        else:
                            self._compare_batch(truth, who, header, offset)
                        offset = header.last_offset + 1
                    at += header.size
                if at == 0:
                    break
        except BrokerError as error:
            self._violate("I12", f"{who}: {offset} cannot be read: {error}")
        replica.checked = max(offset, now.high_watermark)
        if offset != now.high_watermark and not self._compacts(replica.partition):
            self._violate("I2", f"{who}: offsets up to {now.high_watermark} are committed, and a batch ends at {offset}")

    def _compare_batch(self, truth: Truth, who: str, header: BatchHeader, expected: int) -> None:
        found = Committed(header.last_offset, header.leader_epoch, header.crc)
        known = truth.batches.get(header.base_offset)
        if header.base_offset > expected:
            self._violate("I2", f"{who}: no record has the offset {expected}; the next batch begins at {header.base_offset}")
        if known is None:
            if header.base_offset < truth.checked:
                self._violate("I2", f"{who}: the batch at {header.base_offset} is in the middle of a committed one")
            truth.batches[header.base_offset] = found
            truth.checked = header.last_offset + 1
            self._check_sequence(truth, who, header)
            truth.transactions.committed(header)
        elif known != found:
            self._violate("I2", f"{who}: the batch at {header.base_offset} is {found}, and was committed as {known}")

    def _compacts(self, partition: Partition) -> bool:
        return self._environment.plan.cleaning and partition.log.config.compact

    def _compare_compacted(self, truth: Truth, who: str, header: BatchHeader, records: list[Record]) -> None:
        """A batch of a compacted topic: records of it may be missing, but it has no other ones (I2)."""
        if header.base_offset < truth.checked:
            problem = None if header.control else truth.compacted.difference(records)
            if problem is not None:
                self._violate("I2", f"{who}: {problem}")
            return
        if header.base_offset != truth.checked:
            self._violate("I2", f"{who}: no record has the offset {truth.checked}; the next batch begins at {header.base_offset}")
        truth.checked = header.last_offset + 1
        self._check_sequence(truth, who, header)
        truth.transactions.committed(header)
        truth.compacted.committed(header, records)

    def rewritten(self, host: BrokerHost, name: TopicPartition) -> None:
        """Segments of a log were replaced by cleaned ones (I13)."""
        replica = self._replicas.get(host.id, {}).get(name)
        self._environment.counts["cleaned segments"] += 1
        if replica is not None and self._environment.violation is None:
            self._environment.trace.add(host.name, f"{name} has cleaned segments")
            self._check_compacted(replica, f"b{host.id} ({name}, after a swap)")

    def _check_compacted(self, replica: Replica, who: str) -> None:
        if self._compacts(replica.partition):
            problem = self.truth(replica.partition).compacted.missing(replica.partition.log, replica.seen.high_watermark)
            if problem is not None:
                self._violate("I13", f"{who}: {problem}")

    def _check_known_producers(self, partition: Partition, truth: Truth, who: str) -> None:
        """A new leader of a compacted log knows all producers of what is committed: else it appends a repeated batch again (I10)."""
        if not self._compacts(partition) or partition.log.log_end_offset < truth.checked:
            return
        known = partition.log.producers.states()
        for producer_id, (epoch, sequence) in truth.producers.items():
            state = known.get(producer_id)
            if state is None or (state.epoch, state.last_sequence) < (epoch, sequence):
                self._violate("I10", f"{who}: producer {producer_id} has sequence {sequence} in epoch {epoch}, and is known as {state}")

    def _check_producers(self, replica: Replica, who: str) -> None:
        """A log that has everything knows the last sequence of each producer, though its batches may be cleaned (I10)."""
        truth, log = self.truth(replica.partition), replica.partition.log
        if not self._compacts(replica.partition) or replica.seen.high_watermark < truth.checked:
            return
        known = log.producers.states()
        for producer_id, (epoch, sequence) in truth.producers.items():
            state = known.get(producer_id)
            if state is None or ((state.epoch, state.last_sequence) != (epoch, sequence) and state.epoch <= epoch):
                self._violate("I10", f"{who}: producer {producer_id} has sequence {sequence} in epoch {epoch}, and is known as {state}")

    def _check_sequence(self, truth: Truth, who: str, header: BatchHeader) -> None:
        if header.producer_id < 0 or header.control or header.base_sequence < 0:
            return
        epoch, last = truth.producers.get(header.producer_id, (header.producer_epoch, -1))
        expected = (last + 1) % SEQUENCES if epoch == header.producer_epoch else 0
        if header.producer_epoch < epoch or (last >= 0 and header.base_sequence != expected):
            self._violate(
                "I10", f"{who}: producer {header.producer_id} has sequence {header.base_sequence} in epoch {header.producer_epoch} "
                f"at offset {header.base_offset}, after sequence {last} in epoch {epoch}",
            )  # fmt: skip
        truth.producers[header.producer_id] = header.producer_epoch, (header.base_sequence + header.count - 1) % SEQUENCES

    def _check_isr(self, name: TopicPartition, leader: Seen, who: str) -> None:
        """The high watermark of a leader has advanced: every member of the ISR has these records (I6)."""
        state = self._states.get(name)
        if state is None or state.leader_epoch != leader.leader_epoch:
            return
        for member in state.isr:
            end = self._ends.get((member, name), 0)
            if end is not None and end < leader.high_watermark:
                text = f"the high watermark is {leader.high_watermark}, and b{member} of the ISR {state.isr} ends at {end}"
                self._violate("I6", f"{who}: {text}")
            if self._environment.plan.durable and leader.high_watermark > 0:
                self._check_synced(member, name, leader.high_watermark, who)

    def _check_synced(self, member: int, name: TopicPartition, high_watermark: int, who: str) -> None:
        """With flush.messages=1 every member of the ISR has synced what is committed (I1)."""
        replica = self._replicas.get(member, {}).get(name)
        if replica is None or replica.partition.log.log_end_offset < high_watermark:
            return
        log = replica.partition.log
        region: Any = log.read(high_watermark - 1, 1, offset_end=high_watermark, whole_first_batch=True).region
        if not region.length:
            return  # the last records were cleaned
        synced = self._hosts[member].disk.synced(region.file.path)
        if synced < region.position + region.length:
            self._violate("I1", f"{who}: {high_watermark - 1} is committed, and b{member} of the ISR has not synced it")

    def ended(self, host: BrokerHost) -> None:
        """A process has ended, perhaps in the middle of a step in which it has committed records and answered."""
        for replica in self._replicas.get(host.id, {}).values():
            partition, truth = replica.partition, self.truth(replica.partition)
            if partition.is_leader:
                epoch = partition.state.leader_epoch
                truth.ends[epoch] = max(truth.ends.get(epoch, -1), partition.high_watermark)
        self._replicas.pop(host.id, None)

    def forget(self) -> None:
        """The end of the run."""
        self._replicas.clear()

    def disk_lost(self, host: BrokerHost) -> None:
        """The disk of a host that does not run has lost data."""
        for key in self._ends:
            if key[0] == host.id:
                self._ends[key] = None

    def acknowledged(self, name: TopicPartition, last_offset: int) -> None:
        """A client has an acknowledgement with acks=all: a leader has committed the record before."""
        for (topic_id, index), truth in self._truths.items():
            if index == name.partition and max(truth.ends.values(), default=0) > last_offset and self._has_id(name.topic, topic_id):
                return
        self._violate("I1", f"{name}@{last_offset} is acknowledged, and no leader has committed it")

    def _has_id(self, topic: str, topic_id: bytes) -> bool:
        node = self._environment.ensemble.nodes.get(node_paths.topic(topic))
        return node is None or topic_assignment(node.data).topic_id == topic_id

    def states(self) -> Iterator[tuple[TopicPartition, PartitionState, tuple[int, ...]]]:
        """The partitions with their states and replicas, as ZooKeeper has them."""
        for name, state in self._states.items():
            node = self._environment.ensemble.nodes.get(node_paths.topic(name.topic))
            if node is not None:
                yield name, state, topic_assignment(node.data).partitions[name.partition].replicas

    def state(self, name: TopicPartition) -> PartitionState | None:
        """The state of a partition, as ZooKeeper has it."""
        return self._states.get(name)

    def leads(self, name: TopicPartition, broker_id: int) -> bool:
        """Whether a broker is the leader of a partition, as ZooKeeper has it."""
        state = self._states.get(name)
        return state is not None and state.leader == broker_id

    @property
    def controller(self) -> int | None:
        """The broker that is the controller, as ZooKeeper has it."""
        node = self._environment.ensemble.nodes.get(node_paths.CONTROLLER)
        return None if node is None else int(json.loads(node.data or b"")["brokerid"])

    def acting_coordinator(self, group: str, broker_id: int) -> int | None:
        """The leader epoch in which a broker leads the partition of a group, if ZooKeeper and the broker agree."""
        partitions = int(self._environment.plan.settings["offsets.topic.num.partitions"])
        name = TopicPartition(OFFSETS_TOPIC, (java_hash(group) & 0x7FFFFFFF) % partitions)
        state, replica = self._states.get(name), self._replicas.get(broker_id, {}).get(name)
        if state is None or replica is None or state.leader != broker_id or not replica.seen.is_leader:
            return None
        return state.leader_epoch if state.leader_epoch == replica.seen.leader_epoch else None

    def in_sync(self, broker_id: int) -> bool:
        """Whether a broker is in the ISR of a partition, as ZooKeeper has it."""
        return any(broker_id in state.isr for state in self._states.values())

    # ZooKeeper

    def _committed(self, transaction: Transaction) -> None:
        self._check_controller(transaction.changes.get(node_paths.CONTROLLER), transaction.changes.get(node_paths.CONTROLLER_EPOCH))
        for path, node in transaction.changes.items():
            if path.endswith("/state") and path.startswith(node_paths.TOPICS):
                parts = path.split("/")
                name = TopicPartition(parts[3], int(parts[5]))
                before = self._states.pop(name, None)
                if node is not None:
                    state = self._states[name] = decode_state(node.data, node.version)
                    if before is None or (before.leader, before.leader_epoch, before.isr) != (state.leader, state.leader_epoch, state.isr):
                        self._environment.trace.add("tree", f"{name}: leader {state.leader}, epoch {state.leader_epoch}, ISR {state.isr}")
                    self._check_state(name, before, state)

    def _check_controller(self, controller: Node | None, epoch_node: Node | None) -> None:
        """The nodes that a transaction has written, if any: a controller has a newer epoch than the one before it."""
        before = self._controller_epoch
        if epoch_node is not None:
            self._controller_epoch = decode_controller_epoch(epoch_node.data)
            if self._controller_epoch < before:
                self._violate("I7", f"the controller epoch went back from {before} to {self._controller_epoch}")
        if controller is not None and self._controller_epoch == before:
            self._violate("I7", f"/controller became {controller.data!r}, and the controller epoch is still {before}")

    def _check_state(self, name: TopicPartition, before: PartitionState | None, state: PartitionState) -> None:
        text = f"{name}: {before} became {state}"
        if state.controller_epoch != self._controller_epoch:
            self._violate("I7", f"{text}, and the controller epoch is {self._controller_epoch}")
        if not state.isr or (state.leader >= 0 and state.leader not in state.isr):
            self._violate("I6", f"{text}: the leader is not in the ISR")
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch:
            self._violate("I7", f"{text}: the leader epoch went back")
        if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            self._violate("I4", f"{text}: another leader in the same epoch")
        if state.leader >= 0 and state.leader not in before.isr:
            self._violate("I1", f"{text}: the leader was not in the ISR")
        if not set(state.isr) & set(before.isr):
            self._violate("I1", f"{text}: no replica of the ISR remains")
        if before.leader in state.isr and state.leader not in (NO_LEADER, before.leader, self._preferred(name)):
            self._violate("I6", f"{text}: the leader was replaced, and is in the ISR")
        for member in set(state.isr) - set(before.isr):
            end = self._ends.get((member, name), 0)
            committed = self._committed_end(name)
            if end is not None and end < committed:
                self._violate("I6", f"{text}: b{member} joins and ends at {end}, and {committed} is committed")

    def _preferred(self, name: TopicPartition) -> int | None:
        """The leader that an operator, or the balancing, may elect while the one before it is well."""
        node = self._environment.ensemble.nodes.get(node_paths.topic(name.topic))
        return None if node is None else topic_assignment(node.data).partitions[name.partition].replicas[0]

    def _committed_end(self, name: TopicPartition) -> int:
        node = self._environment.ensemble.nodes.get(node_paths.topic(name.topic))
        truth = None if node is None else self._truths.get((topic_assignment(node.data).topic_id, name.partition))
        return 0 if truth is None else max(truth.ends.values(), default=0)

    # The end

    def check_all(self) -> None:
        """Check what is too expensive for every step: each log as a whole."""
        for host in self._hosts.values():
            for name, replica in self._replicas.get(host.id, {}).items():
                who = f"b{host.id} ({name}, at the end)"
                replica.checked = replica.seen.start
                self._compare(replica, self.truth(replica.partition), who, replica.seen)
                self._check_compacted(replica, who)
                self._check_producers(replica, who)
                self._check_log(replica.partition, who)

    def _check_log(self, partition: Partition, who: str) -> None:
        """What a log remembers of its batches is what they say."""
        epochs = leader_epochs.problem(partition.log, cleaned=self._compacts(partition))
        for invariant, problem in (("I5", epochs), ("I10", producer_states.problem(partition.log))):
            if problem is not None:
                self._violate(invariant, f"{who}: {problem}")
