"""`Broker`: one of the brokers of a `Kafka`: its process and its connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from txbroker.testing.broker_process import BrokerProcess
from txbroker.testing.checked_calls import checked
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


def undo(broker: Broker) -> None:
    """Undo `pause` and `refuse`, unless the broker has ended since."""
    if broker.state == "paused":
        broker.resume()
    if broker.state == "refusing":
        broker.accept()


@checked
class ClusterMember:
    """A broker of a cluster, or one that was not started here, by its control port. `check`: KitError for one that test processes share.

    `is_changed`: whether it was paused or refused here.
    """

    def __init__(self, id_: int, control: ControlClient, check: Callable[[str], None]) -> None:
        self.id = id_
        self.is_changed = False
        self._control = control
        self._check = check

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
        self._check(f"{action}() would concern the clients of all")
        self.is_changed = self.is_changed or action in ("pause", "refuse")
        self._control.post(f"/brokers/{self.id}/{action}")

    def _shown(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(each for each in self._control.get("/brokers")["brokers"] if each["id"] == self.id)
        return found


@checked
class LoneBroker:
    """A broker alone: `kafka` has its process. `is_changed`: whether it was paused or refused here."""

    def __init__(self, id_: int, kafka: _Kafka, control: ControlClient) -> None:
        self.id = id_
        self.is_changed = False
        self._kafka = kafka
        self._control = control

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
        return self._kafka.process.is_paused

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
        self._running().pause()
        self.is_changed = True

    def resume(self) -> None:
        """See `Broker`."""
        self._running().resume()

    def refuse(self) -> None:
        """See `Broker`."""
        self._connections("refuse")

    def accept(self) -> None:
        """See `Broker`."""
        self._connections("accept")

    def _running(self) -> BrokerProcess:
        if not self._kafka.running:
            raise KitError("the broker does not run: start it first")
        return self._kafka.process

    def _connections(self, action: str) -> None:
        if self._running().is_paused:
            raise KitError("the broker is paused: resume it first")
        self.is_changed = True
        self._control.post(f"/brokers/{self.id}/{action}")


class _Kafka(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def running(self) -> bool: ...

    @property
    def process(self) -> BrokerProcess: ...

    def kill(self) -> None: ...

    def stop(self) -> None: ...

    def start(self) -> object: ...
