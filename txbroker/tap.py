"""Makes the broker a service of twistd: `twistd -n txbroker --config server.properties --override key=value`.

It runs what `txbroker run` runs with the same options, which does not import this module.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Any, ClassVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, Logger, LogLevel, STDLibLogObserver
from twisted.python import usage
from twisted.python.logfile import LogFile

from txbroker import __version__, log_output
from txbroker.broker_service import BrokerService
from txbroker.build_info import version_text
from txbroker.console.streams import whole_lines
from txbroker.errors import StartError
from txbroker.startup import choose_platform, read_startup

log = logging.getLogger("txbroker")


class Options(usage.Options):
    """Command line of `twistd txbroker`: the options of `txbroker run`."""

    synopsis = "[--config FILE]... [--override KEY=VALUE]..."
    optFlags: ClassVar = [["env", None, "read KAFKA_... environment variables, as the container images of Kafka do"]]
    optParameters: ClassVar = [
        ["ready-file", None, None, "when clients are served, write host:port of each listener into this file"],
        ["log-format", None, log_output.TEXT, "text, or json: one object per line"],
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self["config"] = []
        self["override"] = []
        self["log-level"] = []

    def opt_config(self, path: str) -> None:
        """A server.properties file with Kafka's keys; may be given several times, the last value of a key wins."""
        self["config"].append(path)

    opt_c = opt_config

    def opt_override(self, text: str) -> None:
        """KEY=VALUE, which overrides files and environment; may be given several times."""
        self["override"].append(text)

    def opt_log_level(self, text: str) -> None:
        """LEVEL or LOGGER=LEVEL: the log level (default: info), in general or of one logger; may be given several times."""
        self["log-level"].append(text)

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"txbroker {version_text(__version__)}")
        sys.exit(0)

    def postOptions(self) -> None:
        try:
            self["levels"] = log_output.parse_levels(self["log-level"])
        except ValueError as error:
            raise usage.UsageError(f"--log-level {error}") from error
        if self["log-format"] not in log_output.FORMATS:
            raise usage.UsageError(f"--log-format is {self['log-format']}; it must be one of {', '.join(log_output.FORMATS)}")


class TwistdService(BrokerService, Service):
    """The broker under twistd. twistd writes the log, unless it is JSON, which is written to the same place directly."""

    def __init__(self, options: Options) -> None:
        try:
            startup = read_startup(options["config"], options["override"], environment=bool(options["env"]))
            choose_platform(startup.config)
        except StartError as error:
            raise SystemExit("\n".join(f"txbroker: {problem}" for problem in str(error).split("\n"))) from error
        super().__init__(startup, options["ready-file"], refuse=_refuse_under_twistd)
        sys.stdout = whole_lines(sys.stdout)  # twistd takes it for its log after this
        self._as_json = options["log-format"] == log_output.JSON
        if self._as_json:
            log_output.write_log(_twistd_stream(options.parent), log_output.JSON, options["levels"])
        else:
            logging.getLogger().addHandler(_ToTwisted())
            log_output.set_levels(options["levels"])

    def startService(self) -> None:
        Service.startService(self)
        BrokerService.startService(self)

    def stopService(self) -> Deferred[None]:
        Service.stopService(self)
        return BrokerService.stopService(self)

    def setServiceParent(self, parent: Any) -> None:
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]
        if self._as_json:
            # twistd adds no observer of its own if the application has one.
            parent.setComponent(ILogObserver, STDLibLogObserver("twisted"))


def _twistd_stream(options: Any) -> Any:
    """The stream to which twistd would write its log with these options."""
    if options is None or (options["nodaemon"] and options["logfile"] in (None, "-")):
        return sys.stdout
    if options["syslog"]:
        raise SystemExit("txbroker: --log-format json cannot be written to syslog; remove one of the two options")
    return LogFile.fromFullPath(options["logfile"] or "twistd.log", rotateLength=None)


def makeService(options: Options) -> BrokerService:
    """The service for twistd. It opens only its log before `startService`."""
    service = TwistdService(options)
    service._reactor.addSystemEventTrigger("after", "shutdown", _keep_exit_status, service)
    return service


def _refuse_under_twistd(why: str) -> None:
    """twistd redirects standard error to its log, so write to the original one too; a daemon has none."""
    log.critical("%s", why)
    if sys.__stderr__ is not None:
        print(f"txbroker: {why}", file=sys.__stderr__, flush=True)


def _keep_exit_status(service: BrokerService) -> None:
    """twistd always exits with 0: exit with the service's status instead, after twistd has removed its pid file."""
    if service.exit_status:
        atexit.register(_exit_with, service.exit_status)


def _exit_with(status: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


class _ToTwisted(logging.Handler):
    """Sends standard logging to twistd's log: file, syslog or terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        level = LogLevel.lookupByName("critical" if record.levelno >= logging.CRITICAL else _LEVELS.get(record.levelno, "info"))
        Logger(namespace=record.name).emit(level, "{text}", text="\n".join(log_output.lines(self.format(record))))


_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}
