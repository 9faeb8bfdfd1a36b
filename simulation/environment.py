"""What all parts of one run share: its plan, simulated time, network and ZooKeeper, the processes, the trace and the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from twisted.python.failure import Failure

from simulation.chance import stream
from simulation.ensemble import Ensemble
from simulation.ledger import Ledger
from simulation.network import Network
from simulation.plan import Plan
from simulation.process import Process
from simulation.rules import SimulatedRules
from simulation.scheduler import Scheduler
from simulation.trace import Trace

START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Violation:
    """What must not happen. `at_s`: simulated seconds."""

    invariant: str
    text: str
    at_s: float


class Environment:
    """`violation`: the first one, which ends the run. `counts`: what has happened. `current`: the process that runs now, if one does."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.scheduler = Scheduler()
        self.trace = Trace(self.scheduler.seconds, keep_all=keep_trace)
        self.violation: Violation | None = None
        self.counts: Counter[str] = Counter()
        self.current: list[Process | None] = [None]
        self.network = Network(self.scheduler, stream(plan.seed, "network"), latency_s=plan.latency_s)
        self.ensemble = Ensemble(self.scheduler, self.network, stream(plan.seed, "tree"))
        self.ledger = Ledger(self.violate, self.now_ms, self.scheduler.seconds)
        self.ledger.exactly_once = all(producer.idempotent for producer in plan.producers)
        self.processes: list[Process] = []
        self.rules = SimulatedRules(self.now_ms)

    def now_ms(self) -> int:
        """The true time of day, which the clocks of machines may differ from."""
        return START_MS + int(self.scheduler.now_s * 1000)

    def process(self, name: str, host: str, *, on_step: Callable[[], None] = lambda: None) -> Process:
        """A new process on a host."""
        process = Process(
            name, host, self.scheduler, self.network, stream(self.plan.seed, f"process {name}"), on_step=on_step, on_crash=self._crashed
        )
        process.current = self.current
        self.processes.append(process)
        return process

    def violate(self, invariant: str, text: str) -> None:
        """An invariant does not hold: the run ends."""
        if self.violation is None:
            self.violation = Violation(invariant, text, self.scheduler.now_s)
            self.trace.add("VIOLATED", f"{invariant}: {text}")
            self.scheduler.stop()

    def clear(self) -> None:
        """The end of the run: nothing happens any more."""
        self.scheduler.clear()
        self.network.clear()
        self.ensemble.clear()

    def _crashed(self, error: Exception) -> None:
        process = self.current[0]
        text = "".join(Failure(error).getTraceback())
        self.violate("I12", f"{process.name if process else '?'}: a step failed: {text}")
