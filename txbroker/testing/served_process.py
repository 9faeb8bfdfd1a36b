"""The process of one broker for tests, once `server.py` has paused the garbage collector."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from txbroker.broker.environment import Environment
from txbroker.broker.identity import is_clustered
from txbroker.broker.service import Broker
from txbroker.broker_service import BrokerService, log_twisted, monotonic_reactor
from txbroker.errors import StartError
from txbroker.log_output import TEXT, parse_levels, write_log
from txbroker.ready_file import write_whole
from txbroker.startup import Startup, choose_platform, log_directories, read_startup
from txbroker.testing.broker_process import LOCK
from txbroker.testing.control_port import open_control
from txbroker.testing.fault_ports import FaultPorts
from txbroker.testing.faults import Faults
from txbroker.testing.kafka_releases import release_of
from txbroker.testing.moved_clock import MovedClock
from txbroker.testing.operations import Operations
from txbroker.testing.process_end import watch_process
from txbroker.testing.served_broker import Served
from txbroker.testing.snapshots import Snapshots, recover
from txbroker.testing.tally import SharedTally

FAILED = 1


def run() -> int:
    """Run until SIGTERM or the end of the watched process; the exit status."""
    arguments = _arguments()
    write_log(sys.stderr, TEXT, parse_levels(arguments.log_level))
    try:
        startup = read_startup([], arguments.override)
        _refuse_unknown(startup)
        choose_platform(startup.config)
    except StartError as error:
        for problem in str(error).split("\n"):
            _refuse(problem.removeprefix("--override: "))
        return FAILED
    log_twisted()
    reactor = monotonic_reactor()
    ready = os.path.join(arguments.directory, "ready")
    if arguments.control:
        clock = MovedClock(arguments.directory)
        served = _served(arguments, startup, reactor, clock)
        operations = Operations(reactor, clock, served.faults)

        def on_ready(broker: Broker) -> None:
            served.ready(broker)
            operations.serve(broker)

        adapt = partial(_controlled, served.faults, clock)
        service = BrokerService(startup, ready, refuse=_refuse, on_ready=on_ready, adapt=adapt)
        if not is_clustered(startup.config):
            restart = partial(_restart, service, arguments.override)
            data = log_directories(startup.config)[0]
            recover(data)
            operations.keep(Snapshots(data, startup.config.int("broker.id"), restart, deferToThread))
    else:
        service = BrokerService(startup, ready, refuse=_refuse)
    service.startService()
    if arguments.control:
        write_whole(os.path.join(arguments.directory, "control"), open_control(reactor, served, operations))
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    watched = _Watched(reactor, arguments.stop_with)
    reactor.callWhenRunning(watched.start)
    reactor.run()
    if watched.has_ended and arguments.remove:
        _remove(arguments.directory)
    return service.exit_status


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m txbroker.testing.server", description="A broker for tests.")
    parser.add_argument("--directory", required=True, help="of this broker")
    parser.add_argument("--stop-with", type=int, required=True, metavar="PID", help="stop when this process has ended")
    parser.add_argument("--remove", action="store_true", help="remove the directory if the broker stops because that process has ended")
    parser.add_argument("--control", action="store_true", help="rules for faults, and a journal, by HTTP")
    parser.add_argument("--as-version", metavar="RELEASE", help="the release of Kafka that clients see")
    parser.add_argument("--tally", metavar="FILE", help="the counts that the brokers of a cluster share")
    parser.add_argument("--began", type=float, metavar="SECONDS", help="when the journals of the cluster began, on the monotonic clock")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--log-level", action="append", default=[], metavar="[LOGGER=]LEVEL", help="as of `txbroker run`")
    return parser.parse_args()


def _served(arguments: argparse.Namespace, startup: Startup, reactor: Any, clock: MovedClock) -> Served:
    tally = None if arguments.tally is None else SharedTally(arguments.tally)
    served = Served(Faults(reactor, clock.now_ms, startup.config.int("broker.id"), tally, arguments.began))
    served.faults.shown_release = None if arguments.as_version is None else release_of(arguments.as_version)
    return served


def _controlled(faults: Faults, clock: MovedClock, environment: Environment) -> Environment:
    return replace(environment, ports=partial(FaultPorts, faults), now_ms=clock.over(environment.now_ms))


def _restart(service: BrokerService, overrides: list[str], between: Callable[[], Deferred[None] | None]) -> Deferred[None]:
    """Stop and start the broker, at the ports that it has."""
    listeners = ",".join(f"{name}://{host}:{port}" for name, (host, port) in service.bound.items())
    return service.restart(read_startup([], [*overrides, f"listeners={listeners}"]), between)


class _Watched:
    """The process that this broker is started for."""

    def __init__(self, reactor: Any, pid: int) -> None:
        self._reactor = reactor
        self._pid = pid
        self.has_ended = False

    def start(self) -> None:
        watch_process(self._reactor, self._pid, self._end)

    def _end(self) -> None:
        self.has_ended = True
        os.kill(os.getpid(), signal.SIGTERM)


def _refuse_unknown(startup: Startup) -> None:
    """A broker in operation ignores unknown keys, as Kafka does. In a test a misspelt key would change what the test shows."""
    for name in startup.config.static.unknown:
        warning = next((each for each in startup.warnings if f"{name} is not a known key" in each), f"{name} is not a known key")
        raise StartError(warning.replace(" and is ignored", "") + "; correct or remove it")


def _refuse(why: str) -> None:
    print(f"txbroker: {why}", file=sys.stderr, flush=True)


def _remove(directory: str) -> None:
    """Remove the directory of this broker, and the one around it if that was for brokers only and this was the last."""
    shutil.rmtree(directory, ignore_errors=True)
    around = os.path.dirname(directory)
    with contextlib.suppress(OSError):
        if os.listdir(around) == [LOCK]:
            os.unlink(os.path.join(around, LOCK))
            os.rmdir(around)
