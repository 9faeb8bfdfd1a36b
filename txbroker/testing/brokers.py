"""`Broker`: one of the brokers of a `Kafka`: its process and its connections."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any, Protocol

from txbroker.testing.control_client import ControlClient
from txbroker.testing.errors import KitError


class Broker(Protocol):
    """One broker. Each method returns when all other brokers that run know of it. KitError if it cannot be done.

    A broker that ends leaves its leaderships to others. A paused one keeps them until `Kafka.expire(session=...)`.
    """

    id: int

    @property
    def address(self) -> str:
        """HOST:PORT. It stays the same when the broker is started again."""

    @property
    def state(self) -> str:
        """running, stopped, paused or refusing."""

    def kill(self) -> None:
        """End its process like `kill -9`."""

    def stop(self) -> None:
        """Stop it cleanly: its leaderships move first."""

    def start(self) -> None:
        """Start it again with its data; without effect if it runs."""

    def pause(self) -> None:
        """Stop its process with SIGSTOP: connections stay, and nothing is answered."""

    def resume(self) -> None:
        """Let a paused process go on."""

    def refuse(self) -> None:
        """Close the connections of clients, and refuse new ones. It goes on with the other brokers."""

    def accept(self) -> None:
        """Take connections again."""


class ClusterMember:
    """A broker of a cluster, by the control port of the cluster."""

    def __init__(self, id_: int, control: ControlClient) -> None:
        self.id = id_
        self._control = control

    @property
    def address(self) -> str:
        """See `Broker`."""
        return str(self._shown()["address"])

    @property
    def state(self) -> str:
        """See `Broker`."""
        return str(self._shown()["state"])

    @property
    def pid(self) -> int:
        """The id of its process."""
        return int(self._shown()["pid"])

    def kill(self) -> None:
        """See `Broker`."""
        self._act("kill")

    def stop(self) -> None:
        """See `Broker`."""
        self._act("stop")

    def start(self) -> None:
        """See `Broker`."""
        self._act("start")

    def pause(self) -> None:
        """See `Broker`."""
        self._act("pause")

    def resume(self) -> None:
        """See `Broker`."""
        self._act("resume")

    def refuse(self) -> None:
        """See `Broker`."""
        self._act("refuse")

    def accept(self) -> None:
        """See `Broker`."""
        self._act("accept")

    def _act(self, action: str) -> None:
        self._control.post(f"/brokers/{self.id}/{action}")

    def _shown(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(each for each in self._control.get("/brokers")["brokers"] if each["id"] == self.id)
        return found


class LoneBroker:
    """A broker alone: `kafka` has its process."""

    def __init__(self, id_: int, kafka: _Kafka, control: ControlClient) -> None:
        self.id = id_
        self._kafka = kafka
        self._control = control
        self._paused: int | None = None  # the id of the process that was paused

    @property
    def address(self) -> str:
        """See `Broker`."""
        return self._kafka.bootstrap_servers

    @property
    def state(self) -> str:
        """See `Broker`."""
        if not self._kafka.running:
            return "stopped"
        return "paused" if self.is_paused else str(self._control.get("/brokers")["brokers"][0]["state"])

    @property
    def is_paused(self) -> bool:
        """Whether its process is paused; this needs no answer of it."""
        return self._kafka.running and self._paused == self._kafka.pid

    def kill(self) -> None:
        """See `Broker`."""
        self._kafka.kill()

    def stop(self) -> None:
        """See `Broker`."""
        if self.is_paused:
            raise KitError("the broker is paused, and a clean stop needs it: resume it first, or kill it")
        self._kafka.stop()

    def start(self) -> None:
        """See `Broker`."""
        self._kafka.start()

    def pause(self) -> None:
        """See `Broker`."""
        self._signal(signal.SIGSTOP)
        self._paused = self._kafka.pid
        os.waitid(os.P_PID, self._kafka.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """See `Broker`."""
        self._signal(signal.SIGCONT)
        self._paused = None

    def refuse(self) -> None:
        """See `Broker`."""
        self._connections("refuse")

    def accept(self) -> None:
        """See `Broker`."""
        self._connections("accept")

    def _signal(self, number: signal.Signals) -> None:
        if not self._kafka.running:
            raise KitError("the broker does not run: start it first")
        os.kill(self._kafka.pid, number)

    def _connections(self, action: str) -> None:
        if self.is_paused:
            raise KitError("the broker is paused: resume it first")
        self._control.post(f"/brokers/{self.id}/{action}")


class _Kafka(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def running(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def stop(self) -> None: ...

    def start(self) -> object: ...
