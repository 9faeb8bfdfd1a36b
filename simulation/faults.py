"""Has the faults of a plan happen: those of one step, which are the methods of this class, and the directed ones."""

from __future__ import annotations

from collections.abc import Mapping

from simulation.clients.all_clients import AllClients
from simulation.directed_faults import DIRECTED, Steps, run
from simulation.environment import Environment
from simulation.fault_actions import FaultActions
from simulation.hosts import BrokerHost
from simulation.invariants.cluster_state import ClusterState
from simulation.plan import Fault

BLACKOUT_S = 1.0  # disks are slow for so long before a blackout
CLOCK_MS = 7_200_000


class Faults(FaultActions):
    """Of one run, whose environment counts what has happened."""

    def __init__(self, environment: Environment, hosts: Mapping[int, BrokerHost], state: ClusterState, clients: AllClients) -> None:
        super().__init__(environment, hosts, state, clients)
        self._directed: list[Steps] = []

    def heal(self) -> None:
        """Undo all faults, and begin no further one."""
        for steps in self._directed:
            steps.close()  # now: later it would heal links of the broker that is left out
        super().heal()

    def schedule(self, begun_s: float) -> None:
        """Have the faults of the plan happen. Their times count from `begun_s`."""
        for fault in self.environment.plan.faults:
            self.environment.scheduler.at(begun_s + fault.at_s, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        if self._over:
            return
        directed = DIRECTED.get(fault.kind)
        host = self.target(fault)
        if directed is not None:
            steps = directed(self, fault)
            begun = run(self.environment.scheduler, steps, lambda: self._over)
            self._directed.append(steps)
        else:
            begun = getattr(self, f"_{fault.kind}")(host, fault) is not False
        if begun:
            self.environment.counts[fault.kind] += 1
            self.environment.trace.add(host.name, f"fault {fault.kind} for {fault.length_s:.1f} s")

    # Processes

    def _kill(self, host: BrokerHost, fault: Fault) -> bool | None:
        if not host.is_running:
            return False
        host.kill(silent=fault.detail < 0.3)
        self._down(host, fault.length_s)
        return None

    def _stop(self, host: BrokerHost, fault: Fault) -> bool | None:
        if not host.is_running:
            return False
        host.stop()
        self._down(host, fault.length_s)
        return None

    def _pause(self, host: BrokerHost, fault: Fault) -> bool | None:
        process = host.process
        if process is None or not process.alive or process.paused:
            return False
        process.pause()
        self._after(fault.length_s, process.resume)
        return None

    def _pause_client(self, host: BrokerHost, fault: Fault) -> bool | None:
        """A client stands still: what it sends afterwards may belong to a session, a generation or a leader of before."""
        hosts = self._client_hosts
        clients = [process for process in self.environment.processes if process.host in hosts and not process.paused]
        if not clients:
            return False
        process = clients[int(fault.detail * 1000) % len(clients)]
        process.pause()
        self._paused_clients.append(process)
        self.environment.trace.add(process.name, f"pauses for {fault.length_s:.1f} s")
        self._after(fault.length_s, process.resume)
        return None

    def _torn(self, host: BrokerHost, fault: Fault) -> bool | None:
        """Kill the process in the middle of a step: before one of its next changes of the disk."""
        disk = self._disk(host)
        if disk is None:
            return False

        def kill() -> None:
            host.kill()
            self._down(host, fault.length_s)

        disk.faults.kill = kill
        if host.cleaners is not None and fault.detail > 0.3:  # in the middle of a swap of cleaned segments
            host.cleaners.before_swap = lambda: setattr(disk.faults, "changes_left", self._chance.randrange(12))
        else:
            disk.faults.changes_left = int(fault.detail * 40)
        return None

    def _power(self, host: BrokerHost, fault: Fault) -> bool | None:
        """Power is lost: what was not synced may be gone."""
        if not host.is_running:
            return False
        host.kill(silent=True)
        self._lose(host, fault, lambda: host.disk.power_cut(self._chance))
        return None

    def _blackout(self, host: BrokerHost, fault: Fault) -> bool | None:
        """All brokers lose power together, some of them while their disks are slow. Only topics that sync each message survive that."""
        hosts = list(self.hosts.values())
        if not self.environment.plan.durable:
            return False
        for other in hosts:
            if self._chance.random() < 0.5:
                self._slow_disk(other, fault._replace(length_s=BLACKOUT_S, detail=self._chance.random()))

        def cut() -> None:
            self.environment.trace.add("cluster", "the power fails")
            for other in hosts:
                if other.is_running:
                    other.kill(silent=True)
                    other.disk.power_cut(self._chance)
                    self.state.disk_lost(other)
                    self._down(other, fault.length_s * (0.5 + self._chance.random()))

        self._after(BLACKOUT_S * self._chance.random(), cut)
        return None

    def _wipe(self, host: BrokerHost, fault: Fault) -> bool | None:
        """The machine is replaced by one with an empty disk."""
        if not host.is_running:
            return False
        self.wipe(host, fault)
        return None

    # Network

    def _cut(self, host: BrokerHost, fault: Fault) -> bool | None:
        """Between two brokers, in one direction or both."""
        others = [other for other in self.hosts.values() if other is not host]
        if not others:
            return False
        other = others[int(fault.detail * 1000) % len(others)]
        links = [(host.name, other.name), (other.name, host.name)][: 1 + int(fault.detail * 100) % 2]
        self._cut_links(links, fault.length_s)
        return None

    def _isolate(self, host: BrokerHost, fault: Fault) -> None:
        """A broker from everything, or from everything but ZooKeeper."""
        names = [other.name for other in self.hosts.values() if other is not host]
        if fault.detail < 0.5:
            names += [server.name for server in self.environment.ensemble.servers]
        if fault.detail < 0.8:
            names += self._client_hosts
        both = [(host.name, name) for name in names] + [(name, host.name) for name in names]
        self._cut_links(both, fault.length_s)

    def _cut_tree(self, host: BrokerHost, fault: Fault) -> None:
        """A broker from ZooKeeper, or from one of its servers."""
        servers = self.environment.ensemble.servers
        if fault.detail < 0.4:
            servers = [servers[int(fault.detail * 100) % len(servers)]]
        links = [(host.name, server.name) for server in servers] + [(server.name, host.name) for server in servers]
        if fault.detail > 0.8:
            links = links[: len(servers)] if fault.detail > 0.9 else links[len(servers) :]
        self._cut_links(links, fault.length_s)

    def _slow(self, host: BrokerHost, fault: Fault) -> None:
        """All links of a broker."""
        names = [other.name for other in self.hosts.values() if other is not host]
        names += [server.name for server in self.environment.ensemble.servers] + self._client_hosts
        links = [(host.name, name) for name in names] + [(name, host.name) for name in names]
        self._slow_links(links, 0.05 + fault.detail, fault.length_s)

    def _slow_link(self, host: BrokerHost, fault: Fault) -> bool | None:
        """One link between two brokers, in one direction: what it carries comes after what was decided later."""
        others = [other for other in self.hosts.values() if other is not host]
        if not others:
            return False
        link = host.name, others[int(fault.detail * 1000) % len(others)].name
        self._slow_links([link], 0.3 + 2.5 * fault.detail, fault.length_s)
        return None

    def _drop(self, host: BrokerHost, fault: Fault) -> bool | None:
        """The connections of a broker with one other host are reset."""
        return self.environment.network.reset_some(host.name, fault.detail) or False

    def _refuse(self, host: BrokerHost, fault: Fault) -> bool | None:
        """A broker that runs refuses the connections of some or all other brokers, and perhaps they refuse its own."""
        network, others = self.environment.network, [other.name for other in self.hosts.values() if other is not host]
        if not others:
            return False
        first = int(fault.detail * 1000) % len(others)
        some = [*others[first:], *others[:first]][: 1 + int(fault.detail * 100) % len(others)]
        links = [(other, host.name) for other in some]
        if fault.detail < 0.3:
            links += [(host.name, other) for other in some]
        for link in links:
            network.refuse_link(*link)

        def accept() -> None:
            for link in links:
                network.accept_link(*link)

        self._after(fault.length_s, accept)
        return None

    # ZooKeeper

    def _drop_tree(self, host: BrokerHost, fault: Fault) -> bool | None:
        if not host.is_running or not host.sessions:
            return False
        host.sessions[-1].drop()
        return None

    def _lag_tree(self, host: BrokerHost, fault: Fault) -> None:
        """One server is behind the others."""
        servers = self.environment.ensemble.servers
        self.lag(servers[int(fault.detail * 100) % len(servers)], fault.length_s, 0.1 + fault.detail)

    def _elect_tree(self, host: BrokerHost, fault: Fault) -> bool | None:
        if self.environment.ensemble.electing:
            return False
        self.environment.ensemble.elect(fault.length_s)
        return None

    def _expire(self, host: BrokerHost, fault: Fault) -> bool | None:
        """ZooKeeper ends the session of a broker, which notices it when it connects again."""
        return None if self.end_session(host) else False

    def _depose(self, host: BrokerHost, fault: Fault) -> bool | None:
        """The controller's node is deleted, and the controller reads that last: its server is behind, and no broker reaches it."""
        controller = self.hosts.get(self.state.controller or 0)
        server = None if controller is None or not controller.sessions else controller.sessions[-1].server
        if controller is None or server is None:
            return False
        self.lag(server, fault.length_s, fault.length_s)
        others = [other.name for other in self.hosts.values() if other is not controller]
        links = [(controller.name, other) for other in others] + [(other, controller.name) for other in others]
        self._cut_links(links, fault.length_s * (0.5 + fault.detail))
        self.environment.ensemble.delete("/controller")
        return None

    def _bounce(self, host: BrokerHost, fault: Fault) -> bool | None:
        """A session ends and the broker registers again before the controller, whose server is behind, reads that it has ended."""
        controller = self.hosts.get(self.state.controller or 0)
        server = None if controller is None or not controller.sessions else controller.sessions[-1].server
        if server is None or controller is host:
            return False
        self.lag(server, fault.length_s, 0.5 + fault.detail)
        return self._expire(host, fault)

    # Disks and clocks

    def _full(self, host: BrokerHost, fault: Fault) -> bool | None:
        """The disk is full, or cannot be written at all."""
        if not self.fill(host):
            return False
        self._after(fault.length_s, lambda: self.clear(host))
        return None

    def _slow_disk(self, host: BrokerHost, fault: Fault) -> bool | None:
        """Each sync, and other work in threads, takes up to some tenths of a second longer."""
        if host.slow_disk_s:
            return False
        host.slow_disk_s = 0.02 + 0.4 * fault.detail
        self._after(fault.length_s, lambda: setattr(host, "slow_disk_s", 0.0))
        return None

    def _clock(self, host: BrokerHost, fault: Fault) -> None:
        """The wall clock jumps."""
        host.clock_offset_ms = int((fault.detail - 0.5) * 2 * CLOCK_MS)

    def _prefer(self, host: BrokerHost, fault: Fault) -> None:
        """The controller's node is deleted by hand."""
        self.environment.ensemble.delete("/controller")
