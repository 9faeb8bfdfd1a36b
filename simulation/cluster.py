"""A cluster of real brokers, its clients and its faults, on one simulated clock, from one plan.

A run has three parts. First the cluster starts, and topics are created. Then clients work while faults happen. At `duration_s` the faults
end: everything is repaired, the clients finish what they have begun, and the cluster must converge within `CONVERGE_S`. The invariants are
checked after every step, and at the end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from simulation.access_ledger import AccessLedger
from simulation.clients.all_clients import AllClients
from simulation.clients.cluster_client import PASSING, ClusterClient
from simulation.environment import Environment, Violation
from simulation.faults import Faults
from simulation.hosts import PORT, BrokerHost
from simulation.invariants.cluster_state import ClusterState
from simulation.invariants.convergence import Convergence
from simulation.log_watch import LogWatch
from simulation.plan import Plan, TopicPlan
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

START_S = 30.0  # until all topics exist
CONVERGE_S = 60.0
CHECK_S = 0.25  # how often convergence is looked for


@dataclass(frozen=True, slots=True)
class Result:
    """A run. `digest`: of its trace. `converged_s`: how long after the end of the faults the cluster was whole again."""

    violation: Violation | None
    digest: int
    simulated_s: float
    converged_s: float
    events: int
    counts: Counter[str]


class Cluster:
    """`run` runs it, once. An observer of its hosts."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.environment = Environment(plan, keep_trace=keep_trace)
        self.hosts = {number + 1: BrokerHost(self.environment, self, number + 1, plan.settings) for number in range(plan.brokers)}
        self.state = ClusterState(self.environment, self.hosts)
        self.clients = AllClients(self.environment, {host.id: (host.name, PORT) for host in self.hosts.values()})
        if plan.access is not None:
            self.clients.access = AccessLedger(self.environment, self.hosts, plan.access.topics, plan.access.lost)
        self.convergence = Convergence(self.environment, self.hosts, self.state, self.clients)
        self.faults = Faults(self.environment, self.hosts, self.state, self.clients)
        self._ready = False

    def run(self) -> Result:
        """Run the plan."""
        with LogWatch(self.environment, self.log_line) as watch:
            converged_s = self._run()
            events, digest = self.environment.scheduler.events, self.environment.trace.digest
            self.environment.counts.update(self.environment.ledger.transactions.counts())
            self._end_processes()
            watch.collect()
        return Result(self.environment.violation, digest, self.environment.scheduler.now_s, converged_s, events, self.environment.counts)

    def _end_processes(self) -> None:
        """End all processes, and keep nothing of them: what no code has handled is garbage."""
        for process in self.environment.processes:
            process.alive = False
        for host in self.hosts.values():
            host.forget()
        self.clients.forget()
        self.environment.clear()
        self.state.forget()

    def _run(self) -> float:
        for host in self.hosts.values():
            host.start()
        starting = self.clients.connect("admin")
        self.environment.ledger.run("creation of topics", self._create_topics(starting))
        if not self._until(lambda: self._ready, START_S, "the cluster does not start"):
            return 0.0
        begun_s = self.environment.scheduler.now_s
        self._start_clients()
        self.faults.schedule(begun_s)
        self.environment.scheduler.run(begun_s + self.plan.duration_s)
        problem = self.convergence.problem
        if self.plan.left_out is not None and self.environment.violation is None:
            out = self.faults.leave_out(self.plan.left_out)
            self.clients.finish()
            self._until(lambda: problem(out) is None, CONVERGE_S, f"without b{out} the cluster does not converge", lambda: problem(out))
        self.heal()
        healed_s = self.environment.scheduler.now_s
        if self._until(lambda: problem() is None, CONVERGE_S, "the cluster does not converge"):
            self.clients.finish_consumers()
            if self._until(lambda: problem() is None, CONVERGE_S, "the consumers do not come to the end"):
                self._finish()
        return self.environment.scheduler.now_s - healed_s

    def _until(
        self, condition: Callable[[], bool], at_most_s: float, otherwise: str, problem: Callable[[], str | None] | None = None
    ) -> bool:
        """Run until a condition holds; a violation of I11 if it does not in time, which names what waits."""
        environment, scheduler = self.environment, self.environment.scheduler
        deadline_s = scheduler.now_s + at_most_s
        while environment.violation is None and scheduler.now_s < deadline_s:
            scheduler.run(scheduler.now_s + CHECK_S)
            if environment.violation is None and condition():
                return True
        if environment.violation is None:
            missing = (problem or self.convergence.problem)() or "topics are missing"
            environment.violate("I11", f"{otherwise} within {at_most_s:.0f} s: {missing}")
        return False

    async def _create_topics(self, client: ClusterClient) -> None:
        for topic in self.plan.topics:
            while not await self._create_topic(client, topic):
                await client.sleep(0.2)
        self._ready = True

    async def _create_topic(self, client: ClusterClient, topic: TopicPlan) -> bool:
        configs = {"min.insync.replicas": str(topic.min_in_sync), **topic.configs}
        creatable = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        try:
            await client.refresh([])
            response = await client.send(client.controller_id, CreateTopicsRequest(topics=[creatable], timeout_ms=3000))
        except PASSING:
            return False
        (answer,) = response.topics
        return answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    def _start_clients(self) -> None:
        for topic in self.plan.topics:
            for index in range(topic.partitions):
                observed = self.environment.ledger.of(TopicPartition(topic.name, index))
                observed.compacted = "compact" in topic.configs.get("cleanup.policy", "")
        self.clients.start()

    def heal(self) -> None:
        """The faults end: everything is repaired, and the clients finish, the consumers last."""
        self.environment.trace.add("cluster", "healed")
        self.faults.heal()
        self.clients.finish()

    def _finish(self) -> None:
        """After convergence: read everything once more, from the beginning."""
        reader = self.clients.connect("reader")
        done: list[Any] = []
        Deferred.fromCoroutine(self.convergence.read_all(reader)).addBoth(done.append)
        if self._until(lambda: bool(done), CONVERGE_S, "the final read does not end") and isinstance(done[0], Failure):
            self.environment.violate("I12", f"the final read failed: {done[0].getTraceback()}")
        waits = reader.unanswered or self.convergence.overdue()
        if self.environment.violation is None and waits:
            self.environment.violate("I11", f"the cluster is whole, and some requests are not answered: {'; '.join(waits)}")
        if self.environment.violation is None:
            self.state.check_all()
        if self.environment.violation is None:
            self.environment.ledger.check_history()

    # Events of hosts

    def stepped(self, host: BrokerHost) -> None:
        """See `HostObserver`."""
        self.state.stepped(host)

    def ended(self, host: BrokerHost) -> None:
        """See `HostObserver`."""
        self.state.ended(host)

    def exited(self, host: BrokerHost) -> None:
        """See `HostObserver`."""
        self.faults.exited(host)

    def rewritten(self, host: BrokerHost, name: TopicPartition) -> None:
        """See `HostObserver`."""
        self.state.rewritten(host, name)

    def process_failed(self, host: BrokerHost, what: str, failure: Failure) -> None:
        """See `HostObserver`."""
        self.environment.trace.add(host.name, f"{what}: {failure.getErrorMessage()}")
        if not self.faults.explain(host, failure.value):
            self.environment.violate("I12", f"{host.name} {what}: {failure.getTraceback()}")

    def log_line(self, record: logging.LogRecord) -> None:
        """A line of the log of the process that runs."""
        process = self.environment.current[0]
        if process is not None and not process.alive:
            return  # it was killed in the middle of this step
        who = process.name if process is not None else "-"
        self.environment.trace.add(who, f"{record.levelname[0]} {record.getMessage()}")
        if record.levelno >= logging.ERROR and not any(
            host.process is process and self.faults.excuses(host, record) for host in self.hosts.values()
        ):
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += "\n" + Failure(record.exc_info[1]).getTraceback()
            self.environment.violate("I12", f"{who} logs an error: {text}")
