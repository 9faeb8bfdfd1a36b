"""The processes of the brokers of a cluster for tests: started, ended, paused. Blocks; not for the reactor's thread."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from txbroker.testing.broker_process import BROKER, BrokerProcess
from txbroker.testing.cluster_settings import broker_overrides
from txbroker.testing.cluster_view import Address, ClusterView
from txbroker.testing.control_client import ControlClient
from txbroker.testing.errors import KitError
from txbroker.testing.reserved_port import reserve
from txbroker.testing.rule_specs import known_brokers
from txbroker.testing.settings import HOST
from txbroker.testing.tally import SharedTally

TALLY = "tally"
RUNNING, STOPPED, PAUSED, REFUSING = "running", "stopped", "paused", "refusing"


class ClusterBroker:
    """One of them. `state`: that of its process. `port`: reserved for it as long as this process runs.

    `refuses`: whether it is to refuse connections; a broker that is paused follows when it goes on. `is_changing`: its process ends, or
    it starts or goes on and does not have yet what the others have, so that it is not asked.
    """

    def __init__(self, id_: int, directory: Path, process: BrokerProcess, reserved: socket.socket) -> None:
        self.id = id_
        self.directory = directory
        self.process = process
        self.port: int = reserved.getsockname()[1]
        self.refuses = False
        self.is_changing = False
        self._reserved = reserved

    @property
    def is_paused(self) -> bool:
        """Whether its process is paused."""
        return self.process.is_paused

    @property
    def state(self) -> str:
        """Of its process and its connections."""
        if not self.process.running:
            return STOPPED
        return PAUSED if self.is_paused else REFUSING if self.refuses else RUNNING

    @property
    def answers(self) -> bool:
        """Whether the test kit reaches it."""
        return self.process.running and not self.is_paused and not self.is_changing and bool(self.process.control_url)

    @property
    def control(self) -> ControlClient:
        """Its control port."""
        return ControlClient(self.process.control_url)

    @property
    def internal(self) -> Address:
        """Where other brokers and the test kit reach it."""
        host, _, port = self.process.addresses[1].rpartition(":")
        return host, int(port)

    def shown(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id, "state": self.state, "address": f"{HOST}:{self.port}", "pid": self.process.pid,
            "control_url": self.process.control_url,
        }  # fmt: skip


@contextmanager
def _changing(broker: ClusterBroker) -> Iterator[None]:
    broker.is_changing = True
    try:
        yield
    finally:
        broker.is_changing = False


class BeforeEnd(Protocol):
    """See `ClusterBrokers`."""

    def __call__(self, broker: ClusterBroker, *, may_hang: bool) -> None: ...


class ClusterBrokers:
    """All of them. `after_start(broker)` is called when a broker answers again, and ends `is_changing` when others may ask it.

    `before_end(broker, may_hang=)` is called before it does not answer any more; it must not fail for one that may hang.
    """

    def __init__(
        self, directory: Path, common: Mapping[str, str], ports: Sequence[int], data: str, socket_path: str, began_s: float,
        *, before_end: BeforeEnd, after_start: Callable[[ClusterBroker], None], as_version: str | None = None,
        protocol: str,
    ) -> None:  # fmt: skip
        """KitError if a port is in use; 0 takes a free one.

        `as_version`: the release of Kafka that clients see. `protocol`: their security protocol.
        """
        self._tally = SharedTally(str(directory / TALLY))
        self._before_end = before_end
        self._after_start = after_start
        self._change = threading.Lock()
        self._brokers: dict[int, ClusterBroker] = {}
        arguments = ["--tally", str(directory / TALLY), "--began", repr(began_s)]
        if as_version is not None:
            arguments += ["--as-version", as_version]
        for number, port in enumerate(ports):
            reserved = reserve(port)
            settings = broker_overrides(common, number, reserved.getsockname()[1], data, socket_path, protocol)
            own = directory / f"broker.{number}"
            process = BrokerProcess(
                own, settings, os.getpid(), remove=True, module=BROKER, arguments=arguments, log_path=directory / "broker.log"
            )
            id_ = int(settings["broker.id"])
            self._brokers[id_] = ClusterBroker(id_, own, process, reserved)
        self.view = ClusterView(lambda: {each.id: each.internal for each in self.all() if each.answers})

    @property
    def ids(self) -> Sequence[int]:
        """The ids of all."""
        return list(self._brokers)

    @property
    def tally(self) -> SharedTally:
        """The counts of all."""
        return self._tally

    def all(self) -> Sequence[ClusterBroker]:
        """All, by id."""
        return list(self._brokers.values())

    def answering(self) -> Sequence[ClusterBroker]:
        """Those that the test kit reaches."""
        return [each for each in self.all() if each.answers]

    def get(self, id_: int) -> ClusterBroker:
        """KitError if there is none with this id."""
        if id_ not in self._brokers:
            raise KitError(f"there is no broker {id_}; {known_brokers(self.ids)}")
        return self._brokers[id_]

    def start_all(self, timeout_s: float) -> None:
        """Start all, and wait until they know each other; KitError."""
        for each in self.all():
            each.directory.mkdir(exist_ok=True)
        self._each(lambda broker: broker.process.start(timeout_s))
        self.until_known("the start of the cluster")

    def stop_all(self) -> None:
        """Stop all cleanly."""
        for each in self.all():
            each.process.resume()  # all of them, before any stops: a leader waits for its followers
        self._each(lambda broker: broker.process.stop())

    def kill_all(self) -> None:
        """As `kill -9`."""
        self._each(lambda broker: broker.process.kill())

    def act(self, id_: int, action: str) -> ClusterBroker:
        """Do this with a broker, and return when all others know it; KitError."""
        broker = self.get(id_)
        with self._change:
            getattr(self, f"_{action}")(broker)
        return broker

    def _kill(self, broker: ClusterBroker) -> None:
        self._end(broker, broker.process.kill, may_hang=True)

    def _stop(self, broker: ClusterBroker) -> None:
        if broker.is_paused:
            raise KitError(f"broker {broker.id} is paused, and a clean stop needs it: resume it first, or kill it")
        self._end(broker, broker.process.stop, may_hang=False)

    def _end(self, broker: ClusterBroker, end: Callable[[], None], *, may_hang: bool) -> None:
        if broker.answers:
            self._before_end(broker, may_hang=may_hang)
        with _changing(broker):
            end()
        broker.refuses = False
        self.until_known(f"the end of broker {broker.id}")

    def _start(self, broker: ClusterBroker) -> None:
        if broker.process.running:
            return
        broker.refuses = False  # it may have ended by itself
        with _changing(broker):
            broker.process.start()
            self._after_start(broker)
        self.until_known(f"the start of broker {broker.id}")

    def _pause(self, broker: ClusterBroker) -> None:
        self._check_runs(broker)
        if not broker.is_paused:
            self._before_end(broker, may_hang=False)
            with self._tally.locked():  # or the paused broker might have the lock
                broker.process.pause()

    def _resume(self, broker: ClusterBroker) -> None:
        self._check_runs(broker)
        if broker.is_paused:
            with _changing(broker):
                broker.process.resume()
                self._after_start(broker)
            self.until_known(f"the return of broker {broker.id}")

    def _refuse(self, broker: ClusterBroker) -> None:
        self._connections(broker, "refuse")
        broker.refuses = True

    def _accept(self, broker: ClusterBroker) -> None:
        self._connections(broker, "accept")
        broker.refuses = False

    def _connections(self, broker: ClusterBroker, action: str) -> None:
        self._check_runs(broker)
        if broker.is_paused:
            raise KitError(f"broker {broker.id} is paused: resume it first")
        broker.control.post(f"/brokers/{broker.id}/{action}")

    def _check_runs(self, broker: ClusterBroker) -> None:
        if not broker.process.running:
            raise KitError(f"broker {broker.id} does not run: start it first")

    def until_known(self, what: str) -> None:
        """Wait until all that run know each other, and none that does not run; KitError."""
        alive = {each.id for each in self.all() if each.process.running}
        self.view.until_everywhere(
            lambda id_: self.view.knows_brokers(id_) and {each.node_id for each in self.view.metadata(id_).brokers} <= alive, what
        )
        self.view.until_everywhere(
            lambda id_: {each.node_id for each in self.view.metadata(id_).brokers} >= set(self.view.running()), what
        )

    def _each(self, work: Callable[[ClusterBroker], None]) -> None:
        with ThreadPoolExecutor(len(self._brokers)) as pool:
            futures = [pool.submit(work, broker) for broker in self.all()]
        for future in futures:
            future.result()
