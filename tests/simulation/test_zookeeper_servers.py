"""The simulated ZooKeeper: a client never reads older states than it has seen, whichever server it is connected to."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from simulation.chance import stream
from simulation.ensemble import Ensemble, Server
from simulation.hosts import SimulatedThreads
from simulation.network import Network
from simulation.process import Process
from simulation.scheduler import Scheduler
from simulation.zookeeper_session import SimulatedSession
from txbroker.cluster.tree.zookeeper import open_zookeeper_tree


@pytest.mark.parametrize("seed", range(10))
def test_a_server_that_is_behind_refuses_a_client(seed: int) -> None:
    scheduler = Scheduler()
    network = Network(scheduler, stream(seed, "network"), latency_s=0.001)
    ensemble = Ensemble(scheduler, network, stream(seed, "tree"))
    process = Process("p", "p", scheduler, network, stream(seed, "process"), on_step=lambda: None, on_crash=lambda error: None)
    sessions: list[SimulatedSession] = []

    def opened(*arguments: Any, **named: Any) -> SimulatedSession:
        sessions.append(SimulatedSession(process, ensemble, *arguments, **named))
        return sessions[-1]

    def result(work: Deferred[Any], within_s: float = 30.0) -> Any:
        outcomes: list[Any] = []
        work.addBoth(outcomes.append)
        scheduler.run(scheduler.now_s + within_s)
        (outcome,) = outcomes
        return outcome

    threads: Any = SimulatedThreads(process, lambda job: succeed(job()))
    opening = open_zookeeper_tree(
        ensemble.connect, session_timeout_ms=100_000, connection_timeout_ms=6000, threads=threads, open_session=opened
    )
    tree = result(opening, 1.0)
    result(tree.create("/a", b"1"), 1.0)
    connected = sessions[0].server
    assert connected is not None
    behind: list[Server] = [server for server in ensemble.servers if server is not connected]
    for server in behind:
        server.lags.append(20.0)
    result(tree.set("/a", b"2"), 1.0)
    stale = [server for server in behind if server.nodes.zxid < ensemble.nodes.zxid]
    assert stale
    sessions[0]._servers.sort(key=lambda name: name == connected.name)  # the next attempt goes to another server
    sessions[0].drop()
    data, _ = result(tree.get("/a"))
    assert data == b"2" and sessions[0].server is not None and sessions[0].server.nodes.zxid == ensemble.nodes.zxid
