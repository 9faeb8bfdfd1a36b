"""The environment that the Twisted service gives to its broker, on a reactor that the test turns."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tests.support.running_reactor import RunningReactor
from txbroker.broker.environment import Environment
from txbroker.broker_service import _environment
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.garbage_collection import GarbageCollection

OVERRIDES = ["listeners=PLAINTEXT://127.0.0.1:0", "txbroker.metrics.port=0"]  # only with metrics the pools are counted


class ServiceEnvironment(logging.Handler):
    """`environment` has real threads, disk, clocks and random numbers. Its timers follow `running.clock`, which `wait` moves."""

    def __init__(self, running: RunningReactor | None = None) -> None:
        super().__init__(logging.ERROR)
        self.running = running or RunningReactor()
        config = load_broker_config(parse_overrides(OVERRIDES, {}))
        self.environment: Environment = _environment(self.running.reactor, config, GarbageCollection())
        assert self.environment.instruments is not None
        self.pools = self.environment.instruments.pools
        self.problems: list[str] = []
        logging.getLogger("txbroker").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.problems.append(record.getMessage().strip().split(": ")[-1])

    def later(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        self.environment.later(delay_ms, work, done)

    def now_ms(self) -> int:
        return round(self.running.clock.now_s * 1000)

    def wait(self, ms: int) -> None:
        """Let time pass. Each timer is called at its time, and the jobs of workers end before time goes on."""
        self.running.advance(ms / 1000, self.settle)

    def settle(self) -> None:
        """Wait until no job is left."""
        self.running.until(lambda: not any(pool.unfinished for pool in self.pools.values()), "all jobs have ended")

    def close(self) -> None:
        logging.getLogger("txbroker").removeHandler(self)
        self.running.close()
        super().close()
