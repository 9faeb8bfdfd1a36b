"""Byte streams between hosts, as TCP gives them: in order within a connection, in any order between connections.

A cut link holds bytes back until it is whole again. Nothing is lost, as TCP sends again; clients and brokers have their own timeouts.
The end of a process resets its connections; a host that lost power answers nothing until it runs again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from twisted.internet.error import ConnectionDone, ConnectionLost

from simulation.scheduler import Scheduler

Link = tuple[str, str]

SPLIT_CHANCE = 0.05  # a write arrives in two pieces


class NetworkProcess(Protocol):
    """A process that has ports and connections. See `process.py`."""

    alive: bool
    host: str

    def step(self, call: Callable[[], object]) -> None: ...

    def callLater(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> Any: ...


class Accepting:
    """A listening port. `connected(end)` is called with the server's end of each connection."""

    def __init__(self, process: NetworkProcess, connected: Callable[[End], None]) -> None:
        self.process = process
        self.connected = connected


class Pipe:
    """One direction of a connection: what is put in is done at the other host, in order, after the latency of the link."""

    __slots__ = ("_last_s", "_network", "_queue", "_scheduled", "_waiting", "link", "requests")

    def __init__(self, network: Network, link: Link) -> None:
        self.link = link
        self.requests = False  # of the side that has made the connection
        self._network = network
        self._queue: deque[Callable[[], object]] = deque()
        self._last_s = 0.0
        self._scheduled = 0  # arrivals
        self._waiting = False

    def put(self, arrival: Callable[[], object]) -> None:
        """Send something: `arrival` is called when it arrives."""
        self._queue.append(arrival)
        if not self._waiting:
            self._schedule()

    def _schedule(self) -> None:
        network = self._network
        scheduler = network.scheduler
        self._last_s = time_s = max(self._last_s + 1e-6, scheduler.now_s + network.latency_s(self.link, requests=self.requests))
        self._scheduled += 1
        scheduler.at(time_s, self._arrive)

    def _arrive(self) -> None:
        self._scheduled -= 1
        if self._waiting:
            return
        cut = self._network.cut
        if cut and self.link in cut:
            self._waiting = True
            self._network.stalled.setdefault(self.link, []).append(self)
            return
        self._queue.popleft()()

    def healed(self) -> None:
        """The link is whole again."""
        self._waiting = False
        for _ in range(len(self._queue) - self._scheduled):
            self._schedule()


class End:
    """One end of a connection. The owner calls `own` with what is called as steps of its process; until then, what comes waits."""

    def __init__(self, network: Network, process: NetworkProcess, peer_host: str, port: int) -> None:
        self.process = process
        self.peer_host = peer_host
        self.port = port
        self._early: list[bytes] = []
        self._received: Callable[[bytes], None] = self._early.append
        self.lost: Callable[[Exception], None] = lambda reason: None
        self.open = True
        self.outgoing = False  # it has made the connection
        self.peer: End | None = None
        self._network = network
        self._pipe = Pipe(network, (process.host, peer_host))
        network.opened(self)

    def own(self, received: Callable[[bytes], None], lost: Callable[[Exception], None]) -> None:
        """Set what is called with data, and with the reason when the peer or the network ends the connection."""
        self._received, self.lost = received, lost
        for data in self._early:
            received(data)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        peer = self.peer
        if self.open and peer is not None and self.process.alive:
            network = self._network
            if len(data) > 1 and network.chance.random() < SPLIT_CHANCE:
                cut = network.chance.randrange(1, len(data))
                self._pipe.put(partial(peer._arrived, data[:cut]))
                data = data[cut:]
            self._pipe.put(partial(peer._arrived, data))

    def send(self, message: Callable[[], object]) -> None:
        """Send a message instead of bytes: a call that is made when it arrives, unless the peer has closed the connection."""
        peer = self.peer
        if self.open and peer is not None:
            self._pipe.put(lambda: peer.process.step(message) if peer.open else None)

    def close(self, *, reset: bool = False) -> None:
        """Close the connection after what was written; `reset`: as an abort or the end of the process does."""
        if self.open:
            self.open = False
            self._network.closed(self)
            peer, reason = self.peer, (ConnectionLost() if reset else ConnectionDone())
            if peer is not None:
                self._pipe.put(lambda: peer._ended(reason))

    def vanish(self) -> None:
        """Its host lost power: the peer does not notice."""
        self.open = False
        self._network.closed(self)

    def break_off(self) -> None:
        """A fault: the connection ends without notice of the other side."""
        if self.open:
            self.process.step(lambda: self._lost(ConnectionLost()))

    def _arrived(self, data: bytes) -> None:
        if self.open:
            self.process.step(partial(self._deliver, data))
        elif self.peer is not None and self._network.is_up(self.process.host):
            self._pipe.put(lambda peer=self.peer: peer._ended(ConnectionLost()))  # type: ignore[misc]  # a reset

    def _deliver(self, data: bytes) -> None:
        if self.open:
            self._received(data)

    def _ended(self, reason: Exception) -> None:
        if self.open:
            self.process.step(lambda: self._lost(reason))

    def _refused(self, refused: Callable[[], None]) -> None:
        if self.open:
            self.open = False
            self._network.closed(self)
            refused()

    def _lost(self, reason: Exception) -> None:
        if self.open:
            self.open = False
            self._network.closed(self)
            self.lost(reason)


class Latencies:
    """The additional latency of links. If several faults make a link slow, the slowest one counts."""

    def __init__(self) -> None:
        self._links: dict[Link, list[float]] = {}

    def __bool__(self) -> bool:
        return bool(self._links)

    def of(self, link: Link) -> float:
        """Of one link, in seconds."""
        return max(self._links.get(link, ()), default=0.0)

    def add(self, link: Link, seconds: float) -> None:
        """A fault begins."""
        self._links.setdefault(link, []).append(seconds)

    def remove(self, link: Link, seconds: float) -> None:
        """It ends."""
        found = self._links.get(link, [])
        if seconds in found:
            found.remove(seconds)
            if not found:
                del self._links[link]

    def clear(self) -> None:
        """All of them end."""
        self._links.clear()


class Network:
    """`cut`: how many faults have each link hold everything back, as (from, to); `refused`: how many have it refuse connections.

    `slow_s`: additional latency of a link; `slow_requests_s`: only on connections that its first host has made.
    `down`: hosts without power.
    """

    def __init__(self, scheduler: Scheduler, chance: Random, *, latency_s: float) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.cut: Counter[Link] = Counter()
        self.refused: Counter[Link] = Counter()
        self.slow_s = Latencies()
        self.slow_requests_s = Latencies()
        self.down: set[str] = set()
        self.stalled: dict[Link, list[Pipe]] = {}
        self._latency_s = latency_s
        self._ports: dict[tuple[str, int], Accepting] = {}
        self._ends: dict[NetworkProcess, dict[End, None]] = {}
        self._local_port = 40_000

    def latency_s(self, link: Link, *, requests: bool = False) -> float:
        """Of one message: mostly short, sometimes much longer, as after a lost packet."""
        if link[0] == link[1]:
            return 30e-6
        chance = self.chance.random()
        latency_s = self._latency_s * (0.2 + chance)
        if chance > 0.998:
            latency_s += 0.2
        if self.slow_s:
            latency_s += self.slow_s.of(link)
        if self.slow_requests_s and requests:
            latency_s += self.slow_requests_s.of(link)
        return latency_s

    def is_up(self, host: str) -> bool:
        """Whether the host has power."""
        return host not in self.down

    # Faults

    def cut_link(self, source: str, target: str) -> None:
        """Hold back what is sent in this direction."""
        self.cut[source, target] += 1

    def heal_link(self, source: str, target: str) -> None:
        """Deliver again, unless another fault has cut the link, too."""
        link = source, target
        if self.cut[link] > 1:
            self.cut[link] -= 1
            return
        del self.cut[link]
        for pipe in self.stalled.pop((source, target), []):
            pipe.healed()

    def refuse_link(self, source: str, target: str) -> None:
        """Refuse connections from one host to the other, and reset those that there are, as a firewall can."""
        self.refused[source, target] += 1
        for process, ends in self._ends.items():
            for end in [end for end in ends if process.host == source and end.peer_host == target]:
                peer = end.peer
                if end.outgoing and peer is not None:
                    end.break_off()
                    peer.break_off()

    def accept_link(self, source: str, target: str) -> None:
        """Accept connections again, unless another fault has them refused."""
        self.refused[source, target] -= 1

    def heal(self) -> None:
        """All links are whole and fast."""
        self.refused.clear()
        self.slow_s.clear()
        self.slow_requests_s.clear()
        for link in sorted(self.cut):
            self.cut[link] = 1
            self.heal_link(*link)

    def reset_some(self, host: str, which: float) -> bool:
        """Reset the connections between a host and one of its peers; False if it has none."""
        ends = [end for process, ends in self._ends.items() if process.host == host for end in ends if end.peer is not None]
        peers = sorted({end.peer_host for end in ends})
        if not peers:
            return False
        self.reset(host, peers[int(which * 1000) % len(peers)])
        return True

    def reset(self, host: str, other: str) -> None:
        """Reset the connections between two hosts: what is on its way is lost."""
        for end in [end for process, ends in self._ends.items() if process.host == host for end in ends]:
            peer = end.peer
            if end.peer_host == other and peer is not None:
                end.break_off()
                peer.break_off()

    def clear(self) -> None:
        """The end of the run: no connections, and no ports."""
        self._ends.clear()
        self._ports.clear()
        self.stalled.clear()

    # Ports and connections

    def listen(self, host: str, port: int, accepting: Accepting) -> bool:
        """Bind a port; False if it is in use."""
        held = self._ports.get((host, port))
        if held is not None and held.process.alive:
            return False
        self._ports[host, port] = accepting
        return True

    def stop_listening(self, host: str, port: int, accepting: Accepting) -> None:
        """Free a port."""
        if self._ports.get((host, port)) is accepting:
            del self._ports[host, port]

    def opened(self, end: End) -> None:
        """A connection begins."""
        self._ends.setdefault(end.process, {})[end] = None

    def closed(self, end: End) -> None:
        """An end of a connection is closed."""
        self._ends.get(end.process, {}).pop(end, None)

    def ends(self, process: NetworkProcess) -> list[End]:
        """The ends of the connections that a process has."""
        return list(self._ends.get(process, ()))

    def ended(self, process: NetworkProcess, *, silent: bool) -> None:
        """A process ends: its ports are free, and its connections are reset."""
        for address in [address for address, accepting in self._ports.items() if accepting.process is process]:
            del self._ports[address]
        for end in list(self._ends.pop(process, {})):
            if silent:
                end.vanish()
            else:
                end.close(reset=True)

    def new_local_port(self) -> int:
        """The number of a port for a client's end of a connection."""
        self._local_port += 1
        return self._local_port

    def dial(self, process: NetworkProcess, host: str, port: int, connected: Callable[[End], None], refused: Callable[[], None]) -> End:
        """Begin to connect. One of the two is called as a step of the process, unless the host does not answer."""
        end = End(self, process, host, port)
        end.outgoing = end._pipe.requests = True

        def arrive() -> None:
            accepting = self._ports.get((host, port))
            if not self.is_up(host):
                return  # no answer
            back = Pipe(self, (host, process.host))
            if accepting is None or not accepting.process.alive or self.refused[process.host, host] > 0:
                back.put(lambda: process.step(lambda: end._refused(refused)))
                return
            if not end.open:
                return
            server = End(self, accepting.process, process.host, port)
            server.peer, end.peer = end, server
            server._pipe.put(lambda: process.step(lambda: connected(end) if end.open else None))
            accepting.process.step(lambda: accepting.connected(server))

        end._pipe.put(arrive)
        return end
