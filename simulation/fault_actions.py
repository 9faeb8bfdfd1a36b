"""What faults do to brokers, disks, links and ZooKeeper, and how it is undone.

A fault that would rightly lose acknowledged records waits until it does not, or does not happen: without `durable`, a disk loses what was
not synced (or everything) only while the broker is in no ISR, as in Kafka on ZooKeeper nothing else protects these records.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping

from simulation.chance import stream
from simulation.clients.all_clients import AllClients
from simulation.ensemble import Server
from simulation.environment import Environment
from simulation.host_disk import HostDisk
from simulation.hosts import BrokerHost
from simulation.invariants.cluster_state import ClusterState
from simulation.plan import CONTROLLER, LEADER, Fault
from simulation.process import Process
from txbroker.errors import StartError, StartInterrupted

RESTART_S = 1.0  # a supervisor starts a process again that has ended itself
LOOK_S = 0.2
FULL_S = 3.0  # for so long a broker may report that a disk was full

# Why a broker may end itself, or not start: its session with the metadata has ended, or it has none.
SESSION_ENDED = ("session with the metadata ended", "SessionExpired", "ConnectionLost", "No ZooKeeper answers")
SESSION_FAULTS = frozenset({
    "pause", "isolate", "slow", "cut_tree", "drop_tree", "lag_tree", "elect_tree", "expire", "bounce", "depose",
    "late_failover", "late_roles", "lost_answers", "torn_epochs",
})  # fmt: skip


class FaultActions:
    """On the hosts of one run, until `heal`."""

    def __init__(self, environment: Environment, hosts: Mapping[int, BrokerHost], state: ClusterState, clients: AllClients) -> None:
        self.environment = environment
        self.hosts = hosts
        self.state = state
        self.clients = clients
        self._chance = stream(environment.plan.seed, "faults")
        self._held_down: dict[int, int] = {}  # hosts that a fault keeps from starting again
        self._disk_failed: set[int] = set()
        self._had_space_s: dict[int, float] = {}  # when the disk of a host was full the last time
        self._paused_clients: list[Process] = []
        self._over = False
        self._left_out: BrokerHost | None = None  # it does not start again

    def target(self, fault: Fault) -> BrokerHost:
        """The broker that a fault is for."""
        hosts, state = self.hosts, self.state
        found = None
        if fault.target == CONTROLLER:
            found = state.controller
        elif fault.target == LEADER:
            leaders = [partition.leader for _, partition, _ in state.states() if partition.leader >= 0]
            found = leaders[int(fault.detail * 1000) % len(leaders)] if leaders else None
        return hosts[fault.target % len(hosts) + 1] if found is None else hosts[found]

    def _after(self, seconds: float, call: Callable[[], object]) -> None:
        def undo() -> None:
            if not self._over:
                call()

        self.environment.scheduler.after(seconds, undo)

    def kill_for(self, host: BrokerHost, seconds: float) -> None:
        """Kill a broker, and start it again after some time."""
        self.environment.trace.add(host.name, "is killed")
        host.kill()
        self._down(host, seconds)

    def _down(self, host: BrokerHost, seconds: float) -> None:
        """Keep a host down for some time."""
        self._held_down[host.id] = self._held_down.get(host.id, 0) + 1
        self._after(seconds, lambda: self._up(host))

    def _up(self, host: BrokerHost) -> None:
        self._held_down[host.id] -= 1
        self._start(host)

    def _start(self, host: BrokerHost) -> None:
        if not host.is_running and not self._held_down.get(host.id):
            self.environment.trace.add(host.name, "starts")
            host.start()
            if host.id in self._disk_failed:
                self._set_disk(host, 0)
        elif host.is_running and host.stopping and not self._held_down.get(host.id):
            self._after(RESTART_S, lambda: self._start(host))

    def exited(self, host: BrokerHost) -> None:
        """A process has ended: a supervisor starts it again, unless a fault holds it down."""
        if self._over:
            self.environment.scheduler.after(RESTART_S, lambda: None if host.is_running or host is self._left_out else host.start())
        else:
            self._after(RESTART_S, lambda: self._start(host))

    def _disk(self, host: BrokerHost) -> HostDisk | None:
        return host.host_disk if host.is_running else None

    def cut_power(self, host: BrokerHost, seconds: float, lost_max: int) -> None:
        """Power is lost, and with it at most so many bytes of the end of each file."""
        self.environment.trace.add(host.name, "loses power")
        host.kill(silent=True)
        host.disk.power_cut(self._chance, lost_max)
        self.state.disk_lost(host)
        self._down(host, seconds)

    def wipe(self, host: BrokerHost, fault: Fault) -> None:
        """Replace the machine of a broker that runs."""
        host.kill(silent=True)
        self._lose(host, fault, host.replace_disk, always_waits=True)

    def _lose(self, host: BrokerHost, fault: Fault, lose: Callable[[], object], *, always_waits: bool = False) -> None:
        self._held_down[host.id] = self._held_down.get(host.id, 0) + 1

        def try_it() -> None:
            if host.is_running:
                self._held_down[host.id] -= 1
                return
            if (self.environment.plan.durable and not always_waits) or not self.state.in_sync(host.id):
                self.environment.trace.add(host.name, "its disk loses data")
                lose()
                self.state.disk_lost(host)
                self._up(host)
            elif tries:
                tries.pop()
                self._after(LOOK_S, try_it)
            else:
                self._up(host)  # it remains in an ISR: it keeps its data

        tries = [None] * 50
        self._after(fault.length_s, try_it)

    @property
    def _client_hosts(self) -> list[str]:
        """The hosts of all clients."""
        brokers = {host.name for host in self.hosts.values()}
        return [process.host for process in self.environment.processes if process.host not in brokers]

    def _cut_links(self, links: list[tuple[str, str]], seconds: float) -> None:
        network = self.environment.network
        for link in links:
            network.cut_link(*link)

        def heal() -> None:
            for link in links:
                network.heal_link(*link)

        self._after(seconds, heal)

    def _slow_links(self, links: list[tuple[str, str]], slow_s: float, seconds: float) -> None:
        latencies = self.environment.network.slow_s
        for link in links:
            latencies.add(link, slow_s)

        def end() -> None:
            for link in links:
                latencies.remove(link, slow_s)

        self._after(seconds, end)

    def lag(self, server: Server, seconds: float, lag_s: float) -> None:
        """Keep a server of ZooKeeper behind the others."""
        server.lags.append(lag_s)
        self._after(seconds, lambda: server.lags.remove(lag_s))

    def end_session(self, host: BrokerHost) -> bool:
        """End the session of a broker; False if it has none."""
        session = self.environment.ensemble.sessions.get(host.sessions[-1].credentials[0]) if host.sessions else None
        if session is not None:
            self.environment.ensemble.end_session(session)
        return session is not None

    def fill(self, host: BrokerHost) -> bool:
        """The disk becomes full; False if it is already, or if there is no process."""
        if not host.is_running or host.id in self._disk_failed:
            return False
        self._disk_failed.add(host.id)
        self._set_disk(host, errno.ENOSPC)
        return True

    def clear(self, host: BrokerHost) -> None:
        """The disk has space again."""
        self._disk_failed.discard(host.id)
        self._had_space_s[host.id] = self.environment.scheduler.now_s
        self._set_disk(host, 0)

    def _set_disk(self, host: BrokerHost, error: int) -> None:
        disk = self._disk(host)
        if disk is not None:
            disk.faults.fails = error

    def leave_out(self, target: int) -> int:
        """Undo all faults but for one broker, which does not come back: it is dead, silent, stopped, mute or deaf. Returns its id."""
        self.heal()
        environment = self.environment
        host = self.hosts[target % len(self.hosts) + 1]
        how = self._chance.choice(("dead", "silent", "stopped", "cut", "mute", "deaf"))
        self._left_out = host
        environment.trace.add(host.name, f"is left out: {how}")
        environment.counts[f"left out {how}"] += 1
        if how == "stopped" and host.process is not None:
            host.process.pause()
        elif how in ("dead", "silent"):
            host.kill(silent=how == "silent")
        else:
            others = [other.name for other in self.hosts.values() if other is not host]
            others += [server.name for server in environment.ensemble.servers]
            for other in others:
                if how != "deaf":
                    environment.network.cut_link(host.name, other)
                if how != "mute":
                    environment.network.cut_link(other, host.name)
        return host.id

    def heal(self) -> None:
        """Undo all faults, and begin no further one."""
        self._over = True
        self._left_out = None
        environment = self.environment
        environment.network.heal()
        for server in environment.ensemble.servers:
            server.lags.clear()
        for process in self._paused_clients:
            process.resume()
        for host in self.hosts.values():
            host.slow_disk_s = 0.0
            disk = self._disk(host)
            if disk is not None:
                if disk.faults.fails:
                    self.clear(host)
                disk.faults.changes_left = None
            if host.cleaners is not None:
                host.cleaners.disarm()
            if host.process is not None and host.process.paused:
                host.process.resume()
            if not host.is_running:
                host.start()

    def excuses(self, host: BrokerHost, record: logging.LogRecord) -> bool:
        """Whether an error in the log of a host is what a fault must cause: there is no space."""
        text = f"{record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        # A sync that finds no space has lost data: it takes the directory offline.
        return ("No space" in text or "is offline" in text) and self.disk_fails(host)

    def explain(self, host: BrokerHost, error: BaseException | None) -> bool:
        """Whether a fault explains why a broker cannot start, cannot stop, or ends itself."""
        if isinstance(error, StartInterrupted):
            return host.stopping
        if isinstance(error, StartError) and any(reason in str(error) for reason in SESSION_ENDED):
            return any(count for kind, count in self.environment.counts.items() if kind in SESSION_FAULTS or kind.startswith("left out"))
        return self.disk_fails(host)

    def disk_fails(self, host: BrokerHost) -> bool:
        """Whether a disk is full, or was a moment ago."""
        disk, had_space_s = self._disk(host), self._had_space_s.get(host.id)
        return (disk is not None and disk.faults.fails != 0) or (
            had_space_s is not None and self.environment.scheduler.now_s < had_space_s + FULL_S
        )
