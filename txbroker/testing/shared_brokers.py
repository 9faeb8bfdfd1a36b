"""One broker for several processes of one test run: the first one that needs it starts it, and it ends with the run.

The processes share a directory that exists once one of them needs a broker. Each broker has a directory in it, with `state.json`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from txbroker.testing.broker_process import LOCK, STOP_TIMEOUT_S, BrokerProcess, log_text
from txbroker.testing.errors import KitError
from txbroker.testing.kafka import Kafka
from txbroker.testing.kafka_releases import release_of
from txbroker.testing.secured import PLAINTEXT, security_of
from txbroker.testing.settings import broker_settings

STATE = "state.json"
CONNECT_TIMEOUT_S = 10.0


class SharedBroker:
    """The broker with these settings in the directory of a test run, whose first process is `owner`. It stops when that one ends."""

    def __init__(
        self, directory: Path, owner: int, settings: Mapping[str, object], port: int, topics: Mapping[str, int],
        as_version: str | None = None, security: str = PLAINTEXT,
    ) -> None:  # fmt: skip
        own = sorted((name, str(value)) for name, value in settings.items())
        key = json.dumps([own, port, sorted(topics.items()), as_version, security])
        self.directory = directory / hashlib.sha256(key.encode()).hexdigest()[:16]
        self.log_path = self.directory / "broker.log"
        self._around = directory
        self._owner = owner
        self._settings = settings
        self._port = port
        self._topics = topics
        self._security = security_of(security, self.directory)
        self._form = [] if as_version is None else ["--as-version", release_of(as_version).name]

    def get(self, start_timeout_s: float) -> Kafka:
        """The broker, started if it does not run yet; KitError."""
        self._around.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._around / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.directory / STATE
            if state.exists():
                return self._running(json.loads(state.read_text(encoding="utf-8")))
            kafka = self._start(start_timeout_s)
            state.write_text(json.dumps({"address": kafka.bootstrap_servers, "control": kafka.control_url}), encoding="utf-8")
            return kafka

    def _start(self, timeout_s: float) -> Kafka:
        self.directory.mkdir(exist_ok=True)
        if self._security is not None:
            self._security.write()
        settings = broker_settings(self._settings, self._port, str(self.directory / "data"), self._security)
        process = BrokerProcess(self.directory, settings, self._owner, remove=True, arguments=self._form)
        process.start(timeout_s)
        kafka = self._kafka(process.address, process.control_url)
        try:
            for name, partitions in self._topics.items():
                kafka.create_topic(name, partitions)
            (self.directory / "pid").write_text(str(process.pid), encoding="utf-8")
        except BaseException:
            process.kill()
            raise
        process.detach()
        return kafka

    def _running(self, state: Mapping[str, str]) -> Kafka:
        host, _, port = state["address"].rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            tail = log_text(self.log_path)[-2000:]
            raise KitError(f"the broker that the test processes share has ended ({error}); its log ends with:\n{tail}") from None
        return self._kafka(state["address"], state["control"])

    def _kafka(self, address: str, control_url: str) -> Kafka:
        return Kafka.connect(address, control_url, log_path=self.log_path, is_shared=True, security=self._security)


def stop_all(directory: Path) -> None:
    """Stop the brokers of a test run, and remove their directory."""
    if not directory.exists():
        return
    running = []
    for pid_file in directory.glob("*/pid"):
        pid = int(pid_file.read_text(encoding="utf-8"))
        if _is_broker(pid, pid_file.parent):
            running.append(pid)
    for pid in running:
        _stop(pid)
    shutil.rmtree(directory, ignore_errors=True)


def _is_broker(pid: int, directory: Path) -> bool:
    """Whether the process is the broker of this directory, and not another one that has got its id since."""
    with contextlib.suppress(OSError):
        return str(directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def _stop(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGTERM)
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            if not ended.poll(STOP_TIMEOUT_S * 1000):
                os.kill(pid, signal.SIGKILL)
        finally:
            os.close(descriptor)
