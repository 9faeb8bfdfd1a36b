"""Carries out the faults of a plan, and undoes them.

A fault that would rightly lose acknowledged records waits until it does not, or does not happen: without `durable`, a disk loses what was
not synced (or everything) only while the broker is in no ISR, as in Kafka on ZooKeeper nothing else protects these records.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from simulation.chance import stream
from simulation.directed_faults import DIRECTED, Steps, run
from simulation.ensemble import Server
from simulation.host_disk import HostDisk
from simulation.plan import CONTROLLER, LEADER, Fault
from txbroker.errors import StartError, StartInterrupted

if TYPE_CHECKING:
    from simulation.hosts import BrokerHost
    from simulation.process import Process
    from simulation.world import World

RESTART_S = 1.0  # a supervisor starts a process again that has ended itself
LOOK_S = 0.2
BLACKOUT_S = 1.0  # disks are slow for so long before a blackout
CLOCK_MS = 7_200_000
FULL_S = 3.0  # for so long a broker may report that a disk was full

# Why a broker may end itself, or not start: its session with ZooKeeper has ended, or it has none.
SESSION_ENDED = ("session ended", "SessionExpired", "ConnectionLost", "No ZooKeeper answers")
SESSION_FAULTS = frozenset({
    "pause", "isolate", "slow", "cut_tree", "drop_tree", "lag_tree", "elect_tree", "expire", "bounce", "depose",
    "late_failover", "late_roles", "lost_answers", "torn_epochs",
})  # fmt: skip


class Faults:
    """Of one world. `counts` of the world counts what has happened."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = stream(world.plan.seed, "faults")
        self._held_down: dict[int, int] = {}  # hosts that a fault keeps from starting again
        self._disk_failed: set[int] = set()
        self._had_space_s: dict[int, float] = {}  # when the disk of a host was full the last time
        self._paused_clients: list[Process] = []
        self._directed: list[Steps] = []
        self._over = False
        self._left_out: BrokerHost | None = None  # it does not start again

    def schedule(self, begun_s: float) -> None:
        """Have the faults of the plan happen. Their times count from `begun_s`."""
        for fault in self._world.plan.faults:
            self._world.scheduler.at(begun_s + fault.at_s, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        if self._over:
            return
        directed = DIRECTED.get(fault.kind)
        host = self.target(fault)
        if directed is not None:
            steps = directed(self._world, self, fault)
            begun = run(self._world, steps, lambda: self._over)
            self._directed.append(steps)
        else:
            begun = getattr(self, f"_{fault.kind}")(host, fault) is not False
        if begun:
            self._world.counts[fault.kind] += 1
            self._world.trace.add(host.name, f"fault {fault.kind} for {fault.length_s:.1f} s")

    def target(self, fault: Fault) -> BrokerHost:
        """The broker that a fault is for."""
        hosts, state = self._world.hosts, self._world.state
        found = None
        if fault.target == CONTROLLER:
            found = state.controller
        elif fault.target == LEADER:
            leaders = [partition.leader for _, partition, _ in state.states() if partition.leader >= 0]
            found = leaders[int(fault.detail * 1000) % len(leaders)] if leaders else None
        return hosts[fault.target % len(hosts) + 1] if found is None else hosts[found]

    def _after(self, seconds: float, call: object) -> None:
        def undo() -> None:
            if not self._over:
                call()  # type: ignore[operator]

        self._world.scheduler.after(seconds, undo)

    # Processes

    def _kill(self, host: BrokerHost, fault: Fault) -> bool | None:
        if not host.is_running:
            return False
        host.kill(silent=fault.detail < 0.3)
        self._down(host, fault.length_s)
        return None

    def kill_for(self, host: BrokerHost, seconds: float) -> None:
        """Kill a broker, and start it again after some time."""
        self._world.trace.add(host.name, "is killed")
        host.kill()
        self._down(host, seconds)

    def _stop(self, host: BrokerHost, fault: Fault) -> bool | None:
        if not host.is_running:
            return False
        host.stop()
        self._down(host, fault.length_s)
        return None

    def _down(self, host: BrokerHost, seconds: float) -> None:
        """Keep a host down for some time."""
        self._held_down[host.id] = self._held_down.get(host.id, 0) + 1
        self._after(seconds, lambda: self._up(host))

    def _up(self, host: BrokerHost) -> None:
        self._held_down[host.id] -= 1
        self._start(host)

    def _start(self, host: BrokerHost) -> None:
        if not host.is_running and not self._held_down.get(host.id):
            self._world.trace.add(host.name, "starts")
            host.start()
            if host.id in self._disk_failed:
                self._set_disk(host, 0)
        elif host.is_running and host.stopping and not self._held_down.get(host.id):
            self._after(RESTART_S, lambda: self._start(host))

    def exited(self, host: BrokerHost) -> None:
        """A process has ended: a supervisor starts it again, unless a fault holds it down."""
        if self._over:
            self._world.scheduler.after(RESTART_S, lambda: None if host.is_running or host is self._left_out else host.start())
        else:
            self._after(RESTART_S, lambda: self._start(host))

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
        clients = [process for process in self._world.processes if process.host in hosts and not process.paused]
        if not clients:
            return False
        process = clients[int(fault.detail * 1000) % len(clients)]
        process.pause()
        self._paused_clients.append(process)
        self._world.trace.add(process.name, f"pauses for {fault.length_s:.1f} s")
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

    def _disk(self, host: BrokerHost) -> HostDisk | None:
        return host.host_disk if host.is_running else None

    def _power(self, host: BrokerHost, fault: Fault) -> bool | None:
        """Power is lost: what was not synced may be gone."""
        if not host.is_running:
            return False
        host.kill(silent=True)
        self._lose(host, fault, lambda: host.disk.power_cut(self._chance))
        return None

    def _blackout(self, host: BrokerHost, fault: Fault) -> bool | None:
        """All brokers lose power together, some of them while their disks are slow. Only topics that sync each message survive that."""
        hosts = list(self._world.hosts.values())
        if not self._world.plan.durable:
            return False
        for other in hosts:
            if self._chance.random() < 0.5:
                self._slow_disk(other, fault._replace(length_s=BLACKOUT_S, detail=self._chance.random()))

        def cut() -> None:
            self._world.trace.add("world", "the power fails")
            for other in hosts:
                if other.is_running:
                    other.kill(silent=True)
                    other.disk.power_cut(self._chance)
                    self._world.state.disk_lost(other)
                    self._down(other, fault.length_s * (0.5 + self._chance.random()))

        self._after(BLACKOUT_S * self._chance.random(), cut)
        return None

    def cut_power(self, host: BrokerHost, seconds: float, lost_max: int) -> None:
        """Power is lost, and with it at most so many bytes of the end of each file."""
        self._world.trace.add(host.name, "loses power")
        host.kill(silent=True)
        host.disk.power_cut(self._chance, lost_max)
        self._world.state.disk_lost(host)
        self._down(host, seconds)

    def _wipe(self, host: BrokerHost, fault: Fault) -> bool | None:
        """The machine is replaced by one with an empty disk."""
        if not host.is_running:
            return False
        self.wipe(host, fault)
        return None

    def wipe(self, host: BrokerHost, fault: Fault) -> None:
        """Replace the machine of a broker that runs."""
        host.kill(silent=True)
        self._lose(host, fault, host.replace_disk, always_waits=True)

    def _lose(self, host: BrokerHost, fault: Fault, lose: object, *, always_waits: bool = False) -> None:
        self._held_down[host.id] = self._held_down.get(host.id, 0) + 1

        def try_it() -> None:
            if host.is_running:
                self._held_down[host.id] -= 1
                return
            if (self._world.plan.durable and not always_waits) or not self._world.state.in_sync(host.id):
                self._world.trace.add(host.name, "its disk loses data")
                lose()  # type: ignore[operator]
                self._world.state.disk_lost(host)
                self._up(host)
            elif tries:
                tries.pop()
                self._after(LOOK_S, try_it)
            else:
                self._up(host)  # it remains in an ISR: it keeps its data

        tries = [None] * 50
        self._after(fault.length_s, try_it)

    # Network

    def _cut(self, host: BrokerHost, fault: Fault) -> bool | None:
        """Between two brokers, in one direction or both."""
        others = [other for other in self._world.hosts.values() if other is not host]
        if not others:
            return False
        other = others[int(fault.detail * 1000) % len(others)]
        links = [(host.name, other.name), (other.name, host.name)][: 1 + int(fault.detail * 100) % 2]
        self._cut_links(links, fault.length_s)
        return None

    def _isolate(self, host: BrokerHost, fault: Fault) -> None:
        """A broker from everything, or from everything but ZooKeeper."""
        names = [other.name for other in self._world.hosts.values() if other is not host]
        if fault.detail < 0.5:
            names += [server.name for server in self._world.ensemble.servers]
        if fault.detail < 0.8:
            names += self._client_hosts
        both = [(host.name, name) for name in names] + [(name, host.name) for name in names]
        self._cut_links(both, fault.length_s)

    @property
    def _client_hosts(self) -> list[str]:
        """The hosts of all clients."""
        brokers = {host.name for host in self._world.hosts.values()}
        return [process.host for process in self._world.processes if process.host not in brokers]

    def _cut_tree(self, host: BrokerHost, fault: Fault) -> None:
        """A broker from ZooKeeper, or from one of its servers."""
        servers = self._world.ensemble.servers
        if fault.detail < 0.4:
            servers = [servers[int(fault.detail * 100) % len(servers)]]
        links = [(host.name, server.name) for server in servers] + [(server.name, host.name) for server in servers]
        if fault.detail > 0.8:
            links = links[: len(servers)] if fault.detail > 0.9 else links[len(servers) :]
        self._cut_links(links, fault.length_s)

    def _cut_links(self, links: list[tuple[str, str]], seconds: float) -> None:
        network = self._world.network
        for link in links:
            network.cut_link(*link)

        def heal() -> None:
            for link in links:
                network.heal_link(*link)

        self._after(seconds, heal)

    def _slow(self, host: BrokerHost, fault: Fault) -> None:
        """All links of a broker."""
        names = [other.name for other in self._world.hosts.values() if other is not host]
        names += [server.name for server in self._world.ensemble.servers] + self._client_hosts
        links = [(host.name, name) for name in names] + [(name, host.name) for name in names]
        self._slow_links(links, 0.05 + fault.detail, fault.length_s)

    def _slow_link(self, host: BrokerHost, fault: Fault) -> bool | None:
        """One link between two brokers, in one direction: what it carries comes after what was decided later."""
        others = [other for other in self._world.hosts.values() if other is not host]
        if not others:
            return False
        link = host.name, others[int(fault.detail * 1000) % len(others)].name
        self._slow_links([link], 0.3 + 2.5 * fault.detail, fault.length_s)
        return None

    def _slow_links(self, links: list[tuple[str, str]], slow_s: float, seconds: float) -> None:
        latencies = self._world.network.slow_s
        for link in links:
            latencies.add(link, slow_s)

        def end() -> None:
            for link in links:
                latencies.remove(link, slow_s)

        self._after(seconds, end)

    def _drop(self, host: BrokerHost, fault: Fault) -> bool | None:
        """The connections of a broker with one other host are reset."""
        return self._world.network.reset_some(host.name, fault.detail) or False

    def _refuse(self, host: BrokerHost, fault: Fault) -> bool | None:
        """A broker that runs refuses the connections of some or all other brokers, and perhaps they refuse its own."""
        network, others = self._world.network, [other.name for other in self._world.hosts.values() if other is not host]
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
        servers = self._world.ensemble.servers
        self.lag(servers[int(fault.detail * 100) % len(servers)], fault.length_s, 0.1 + fault.detail)

    def lag(self, server: Server, seconds: float, lag_s: float) -> None:
        """Keep a server of ZooKeeper behind the others."""
        server.lags.append(lag_s)
        self._after(seconds, lambda: server.lags.remove(lag_s))

    def _elect_tree(self, host: BrokerHost, fault: Fault) -> bool | None:
        if self._world.ensemble.electing:
            return False
        self._world.ensemble.elect(fault.length_s)
        return None

    def _expire(self, host: BrokerHost, fault: Fault) -> bool | None:
        """ZooKeeper ends the session of a broker, which notices it when it connects again."""
        return None if self.end_session(host) else False

    def end_session(self, host: BrokerHost) -> bool:
        """End the session of a broker; False if it has none."""
        session = self._world.ensemble.sessions.get(host.sessions[-1].credentials[0]) if host.sessions else None
        if session is not None:
            self._world.ensemble.end_session(session)
        return session is not None

    def _depose(self, host: BrokerHost, fault: Fault) -> bool | None:
        """The controller's node is deleted, and the controller reads that last: its server is behind, and no broker reaches it."""
        controller = self._world.hosts.get(self._world.state.controller or 0)
        server = None if controller is None or not controller.sessions else controller.sessions[-1].server
        if controller is None or server is None:
            return False
        self.lag(server, fault.length_s, fault.length_s)
        others = [other.name for other in self._world.hosts.values() if other is not controller]
        links = [(controller.name, other) for other in others] + [(other, controller.name) for other in others]
        self._cut_links(links, fault.length_s * (0.5 + fault.detail))
        self._world.ensemble.delete("/controller")
        return None

    def _bounce(self, host: BrokerHost, fault: Fault) -> bool | None:
        """A session ends and the broker registers again before the controller, whose server is behind, reads that it has ended."""
        controller = self._world.hosts.get(self._world.state.controller or 0)
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
        self._had_space_s[host.id] = self._world.scheduler.now_s
        self._set_disk(host, 0)

    def _slow_disk(self, host: BrokerHost, fault: Fault) -> bool | None:
        """Each sync, and other work in threads, takes up to some tenths of a second longer."""
        if host.slow_disk_s:
            return False
        host.slow_disk_s = 0.02 + 0.4 * fault.detail
        self._after(fault.length_s, lambda: setattr(host, "slow_disk_s", 0.0))
        return None

    def _set_disk(self, host: BrokerHost, error: int) -> None:
        disk = self._disk(host)
        if disk is not None:
            disk.faults.fails = error

    def _clock(self, host: BrokerHost, fault: Fault) -> None:
        """The wall clock jumps."""
        host.clock_offset_ms = int((fault.detail - 0.5) * 2 * CLOCK_MS)

    def _prefer(self, host: BrokerHost, fault: Fault) -> None:
        """The controller's node is deleted by hand."""
        self._world.ensemble.delete("/controller")

    # The end

    def leave_out(self, target: int) -> int:
        """Undo all faults but for one broker, which does not come back: it is dead, silent, stopped, mute or deaf. Returns its id."""
        self.heal()
        world = self._world
        host = world.hosts[target % len(world.hosts) + 1]
        how = self._chance.choice(("dead", "silent", "stopped", "cut", "mute", "deaf"))
        self._left_out = host
        world.trace.add(host.name, f"is left out: {how}")
        world.counts[f"left out {how}"] += 1
        if how == "stopped" and host.process is not None:
            host.process.pause()
        elif how in ("dead", "silent"):
            host.kill(silent=how == "silent")
        else:
            others = [other.name for other in world.hosts.values() if other is not host]
            others += [server.name for server in world.ensemble.servers]
            for other in others:
                if how != "deaf":
                    world.network.cut_link(host.name, other)
                if how != "mute":
                    world.network.cut_link(other, host.name)
        return host.id

    def heal(self) -> None:
        """Undo all faults, and begin no further one."""
        self._over = True
        self._left_out = None
        world = self._world
        for steps in self._directed:
            steps.close()  # now: later it would heal links of the broker that is left out
        world.network.heal()
        for server in world.ensemble.servers:
            server.lags.clear()
        for process in self._paused_clients:
            process.resume()
        for host in world.hosts.values():
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
            return any(count for kind, count in self._world.counts.items() if kind in SESSION_FAULTS or kind.startswith("left out"))
        return self.disk_fails(host)

    def disk_fails(self, host: BrokerHost) -> bool:
        """Whether a disk is full, or was a moment ago."""
        disk, had_space_s = self._disk(host), self._had_space_s.get(host.id)
        return (disk is not None and disk.faults.fails != 0) or (
            had_space_s is not None and self._world.scheduler.now_s < had_space_s + FULL_S
        )
