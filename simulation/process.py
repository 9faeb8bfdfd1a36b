"""One process of a host, as the reactor of the code that runs in it: a kill ends it between two steps, a pause delays its steps.

A step is a call of the reactor: a timer, data from the network, the result of a worker. Calls without a delay keep their order, and happen
a little later each, so that other processes come in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IHostnameResolver, IReactorPluggableNameResolver
from zope.interface import implementer

from simulation.client_transport import Connector
from simulation.network import Network
from simulation.scheduler import Scheduler

SOON_S = 50e-6  # the mean delay of a call without a delay


class Killed(BaseException):
    """The process has ended: nothing that it does has an effect."""


class Timer:
    """A call in the future: Twisted's IDelayedCall."""

    __slots__ = ("_arguments", "_call", "_cancelled", "_named", "_process", "pending", "time_s")

    def __init__(
        self, process: Process, time_s: float, call: Callable[..., object], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self._process = process
        self._call = call
        self._arguments = arguments
        self._named = named
        self._cancelled = False
        self.pending = True
        self.time_s = time_s

    def __call__(self) -> None:
        if self.pending:
            if self._process.seconds() < self.time_s:  # it was delayed
                self._process.schedule(self)
                return
            self.pending = False
            self._call(*self._arguments, **self._named)

    def active(self) -> bool:
        """Whether the call is still to be made."""
        return self.pending

    def cancel(self) -> None:
        """Do not make the call; AlreadyCalled, AlreadyCancelled."""
        self._check_pending()
        self.pending = False
        self._cancelled = True

    def getTime(self) -> float:
        """When the call is made."""
        return self.time_s

    def reset(self, delay_s: float) -> None:
        """Make the call so much later from now; AlreadyCalled, AlreadyCancelled."""
        self._check_pending()
        time_s = self._process.seconds() + delay_s
        earlier, self.time_s = time_s < self.time_s, time_s
        if earlier:
            self._process.schedule(self)

    def delay(self, delay_s: float) -> None:
        """Make the call so much later, or earlier if negative; AlreadyCalled, AlreadyCancelled."""
        self._check_pending()
        self.time_s += delay_s
        if delay_s < 0:
            self._process.schedule(self)

    def _check_pending(self) -> None:
        if not self.pending:
            raise AlreadyCancelled if self._cancelled else AlreadyCalled


@implementer(IReactorPluggableNameResolver)
class Process:
    """A process, and its reactor: `seconds`, `callLater`, `callFromThread` and `connectTCP` are Twisted's.

    `on_step` is called after each step; `on_crash` with an exception that a step has raised.
    """

    def __init__(
        self, name: str, host: str, scheduler: Scheduler, network: Network, chance: Random, *, on_step: Callable[[], None],
        on_crash: Callable[[Exception], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.host = host
        self.alive = True
        self.paused = False
        self.current: list[Process | None] = [None]  # of all processes: which one runs now
        self.nameResolver = _Names()
        self._scheduler = scheduler
        self._network = network
        self._chance = chance.random
        self._on_step = on_step
        self._on_crash = on_crash
        self._held: deque[Callable[[], object]] = deque()  # while it is paused, and until they are served
        self._soon_s = 0.0
        self.seconds = scheduler.seconds

    # The reactor

    def callLater(self, delay_s: float, call: Callable[..., object], *arguments: Any, **named: Any) -> Timer:
        """Call after a delay."""
        assert delay_s >= 0, f"{delay_s} is not a delay"
        if delay_s == 0:
            time_s = max(self._scheduler.now_s, self._soon_s) + self._chance() * 2 * SOON_S
            self._soon_s = time_s
        else:
            time_s = self._scheduler.now_s + delay_s
        timer = Timer(self, time_s, call, arguments, named)
        self.schedule(timer)
        return timer

    def callFromThread(self, call: Callable[..., object], *arguments: Any, **named: Any) -> None:
        """Call soon, in the order of these calls."""
        self.callLater(0, call, *arguments, **named)

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: object = None) -> object:
        """Connect to a listener of the network."""
        connector = Connector(self._network, self, host, port, factory, timeout)
        connector.begin()
        return connector

    # What others do with it

    def schedule(self, timer: Timer) -> None:
        """Make a timer's call at its time."""
        if self.alive:
            self._scheduler.at(timer.time_s, partial(self._due, timer))

    def _due(self, timer: Timer) -> None:
        """The time of a timer. It is no step if it was cancelled or delayed, unless the process serves it later."""
        if self.paused or self._held or not self.alive:
            self.step(timer)
        elif timer.pending:
            if self._scheduler.now_s < timer.time_s:
                self.schedule(timer)
            else:
                self._run(timer)

    def step(self, call: Callable[[], object]) -> None:
        """Make a call as a step of this process: now, after its pause, or never after its end."""
        if not self.alive:
            return
        if self.paused or self._held:
            self._held.append(call)
            return
        self._run(call)

    def _run(self, call: Callable[[], object]) -> None:
        before, self.current[0] = self.current[0], self
        try:
            call()
        except Killed:
            pass
        except Exception as error:
            if self.alive:
                self._on_crash(error)
        self._on_step()
        self.current[0] = before

    def pause(self) -> None:
        """Stop it, as SIGSTOP does."""
        self.paused = True

    def resume(self) -> None:
        """Continue: what happened meanwhile is served now, in its order."""
        if self.paused and self.alive:
            self.paused = False
            self._scheduler.after(SOON_S, self._serve_held)

    def _serve_held(self) -> None:
        if self.alive and not self.paused and self._held:
            self._run(self._held[0])
            if self._held:  # else it has ended
                self._held.popleft()
            self._scheduler.after(SOON_S, self._serve_held)

    def remains(self) -> list[object]:
        """Its pending calls, to be kept referenced until the process ends."""
        timers = [call for call in self._scheduler.pending() if isinstance(call, partial) and getattr(call.func, "__self__", None) is self]
        return [*timers, *self._held, *self._network.ends(self)]

    def kill(self, *, silent: bool = False) -> None:
        """End it. Its connections are reset; `silent`: the machine lost power, so that peers notice nothing."""
        self.alive = False
        self._held.clear()
        self._network.ended(self, silent=silent)


@implementer(IHostnameResolver)
class _Names:
    """Every name is its own address."""

    def resolveHostName(self, receiver: Any, hostName: str, portNumber: int = 0, addressTypes: Any = None,
                        transportSemantics: str = "TCP") -> Any:  # fmt: skip
        resolution = _Resolution(hostName)
        receiver.resolutionBegan(resolution)
        receiver.addressResolved(IPv4Address("TCP", hostName, portNumber))
        receiver.resolutionComplete()
        return receiver


class _Resolution:
    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """It is complete."""
