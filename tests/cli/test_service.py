"""The service as a process: start, refusal, readiness and stop, with `txbroker run` and with twistd."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.support import raw, raw_admin, raw_log
from tests.support.cache import CHECKOUT
from tests.support.records import numbered
from tests.support.running import ENVIRONMENT, RUN, TWISTD, Running, flags, patched
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.process

HOSTS = pytest.mark.parametrize("host", [RUN, TWISTD], ids=["run", "twistd"])
CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(command: Sequence[str] = RUN, **settings: Sequence[signal.Signals]) -> Running:
        started.append(Running(command, tmp_path, **settings))
        return started[-1]

    yield begin
    for service in started:
        service.process.kill()
        service.process.wait()


def refused(host: Sequence[str], *arguments: str, directory: Path) -> str:
    """The sentence on standard error of a service whose start is refused with status 1."""
    ended = subprocess.run(
        [*host, *arguments], cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=ENVIRONMENT
    )
    sentence = ended.stderr
    if host is RUN:
        sentence = "".join(line for line in sentence.splitlines(keepends=True) if " INFO " not in line)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stdout + ended.stderr
    assert sentence.startswith("txbroker: ")
    assert sentence.count("\n") == 1
    assert "is listening" not in ended.stdout
    return sentence.removeprefix("txbroker: ").removesuffix("\n")


@HOSTS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_stops_it_cleanly(host: Sequence[str], number: signal.Signals, start: Callable[..., Running]) -> None:
    service = start(host)
    service.wait_ready()
    assert not (service.data / CLEAN).exists()
    (address,) = service.ready_file.read_text().splitlines()
    with socket.create_connection(("127.0.0.1", int(address.removeprefix("127.0.0.1:")))):
        assert service.end(number) == 0
    assert (service.data / CLEAN).read_text().startswith('{"version":0')
    assert not service.ready_file.exists()
    assert not (service.data.parent / "twistd.pid").exists()
    assert "[KafkaServer id=1001] started" in service.written
    assert f"{number.name}: stopping" in service.written


@pytest.mark.parametrize(("arguments", "listening"), [
    ([], r"PLAINTEXT on 127\.0\.0\.1:\d+"),
    (["--processes", "2"], r"127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+"),
], ids=["one process", "two"])  # fmt: skip
def test_first_steps_on_a_terminal(tmp_path: Path, arguments: Sequence[str], listening: str) -> None:
    ours, theirs = pty.openpty()
    command = [*RUN, *flags(tmp_path / "data"), *arguments]
    with (
        (tmp_path / "err").open("wb") as err,
        subprocess.Popen(command, stdout=theirs, stderr=err, env=ENVIRONMENT, cwd=tmp_path) as service,
    ):
        os.close(theirs)
        shown = b""
        while b"Ctrl-C stops it." not in shown:
            shown += os.read(ours, 65536)
        lines = shown.decode().splitlines()
        assert re.fullmatch(f"txbroker is listening: {listening}", lines[0])
        assert lines[1] == f"Its data is in {tmp_path / 'data'}"
        # The three lines work as printed.
        shell = ["bash", "-e", "-c", "\n".join(lines[3:6])]
        tried = subprocess.run(shell, capture_output=True, text=True, timeout=PATIENCE_S, env=ENVIRONMENT, cwd=tmp_path)
        assert (tried.returncode, tried.stdout) == (0, "Created topic hello.\nhello, world\n"), tried.stderr
        service.send_signal(signal.SIGINT)
        assert service.wait(PATIENCE_S) == 0
    rest = b""
    with contextlib.suppress(OSError):  # the terminal has no other end any more
        while more := os.read(ours, 65536):
            rest += more
    assert b"stops it" not in rest, "the first steps are printed once"
    os.close(ours)


def test_output_to_a_file_has_only_the_log(start: Callable[..., Running]) -> None:
    service = start()
    service.wait_ready()
    assert service.end(signal.SIGTERM) == 0
    assert service.out == ""
    assert f"listening: PLAINTEXT on 127.0.0.1:{service_port(service)}; data: {service.data}" in service.err


def service_port(service: Running) -> str:
    """The log has the port, and the ready file is removed at the end."""
    (port,) = re.findall(r"PLAINTEXT on 127\.0\.0\.1:(\d+)", service.err)
    return port


def test_with_json_logging_the_output_is_only_json(start: Callable[..., Running]) -> None:
    service = start([*RUN, "--log-format", "json"])
    service.wait_ready()
    assert service.end(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in service.written.splitlines()]
    assert "[KafkaServer id=1001] started" in [line["message"] for line in lines]


def test_repeated_sigterm_is_no_error(start: Callable[..., Running]) -> None:
    service = start()
    service.wait_ready()
    assert service.end(signal.SIGTERM, signal.SIGTERM, signal.SIGTERM) == 0
    assert (service.data / CLEAN).exists()


def test_a_second_ctrl_c_exits_at_once(start: Callable[..., Running]) -> None:
    service = start(patched("d.LogDirectories.close = lambda *a, **k: time.sleep(60)"))
    service.wait_ready()
    service.process.send_signal(signal.SIGINT)
    service.wait_for("SIGINT: stopping (Ctrl-C again ends the process at once)")
    service.process.send_signal(signal.SIGTERM)
    service.wait_for("this broker is no longer the controller")
    assert service.process.poll() is None, "it is still stopping, and SIGTERM has no effect"
    assert service.end(signal.SIGINT) == 130
    assert not (service.data / CLEAN).exists()


def test_sigterm_while_logs_are_loaded(start: Callable[..., Running]) -> None:
    slow = "def slow(*a):\n  print('loading', flush=True)\n  while not a[4](): time.sleep(0.01)\n  load(*a)"
    service = start(patched(f"load = d.LogDirectories.load\n{slow}\nd.LogDirectories.load = slow"))
    service.wait_for("loading")
    assert service.end(signal.SIGTERM) == 0
    assert (service.data / CLEAN).exists(), "the open directories are closed"
    assert "is listening" not in service.written
    assert "started" not in service.written
    assert not service.ready_file.exists()


def test_sigterm_while_logs_are_recovered(start_broker: Callable[..., Server], name: str) -> None:
    """The start ends before the next segment; the next start recovers the other segments, and nothing is lost."""
    server = start_broker()
    raw_admin.create_topic(server, name, 3)
    write(server, name, 100)
    server.kill()
    wait = "while not self._interrupted(): time.sleep(0.01)"
    # No line of the log has this text: the broker also says that it recovers logs, before the first segment.
    slow = f"def slow(self, *a):\n  print('next segment', flush=True)\n  {wait}\n  return recover(self, *a)"
    script = f"from txbroker.log.recovery import Loader\nrecover = Loader._recover_segment\n{slow}\nLoader._recover_segment = slow"
    service = Running(patched(script), server.directory, "--override", "num.recovery.threads.per.data.dir=1")
    try:
        service.wait_for("next segment")
        assert service.end(signal.SIGTERM) == 0
    finally:
        service.process.kill()
        service.process.wait()
    assert "the start was interrupted before " in service.written
    assert "could be loaded; the next start continues" in service.written
    assert service.out.count("next segment") == 1, "only the current segment is recovered"
    assert not (server.data / CLEAN).exists()
    server.start()
    with raw.RawConnection(server.address) as connection:
        assert len(raw_log.fetch(connection, name, 0).records) == 100


def test_an_internal_error_during_the_start_ends_the_process(start: Callable[..., Running]) -> None:
    service = start(patched("d.LogDirectories.open = lambda self: 1 / 0"))
    assert service.process.wait(PATIENCE_S) == 1
    sentence = "txbroker: internal error during the start: division by zero; the log has the traceback, please report it\n"
    assert sentence in service.written
    assert "ZeroDivisionError" in service.written


@HOSTS
def test_a_broker_that_cannot_continue_exits(host: Sequence[str], start: Callable[..., Running]) -> None:
    fails = "def started(self):\n  ready(self)\n  self._reactor.callLater(0.1, self._fail, 'no log directory is left')"
    service = start(patched(f"ready = tap.BrokerService._started\n{fails}\ntap.BrokerService._started = started", host))
    assert service.process.wait(PATIENCE_S) == 1
    assert re.search(r"(CRITICAL|critical\]) no log directory is left", service.written)
    assert (service.data / CLEAN).exists(), "the directories are closed"


def test_ignored_signals_stay_ignored(start: Callable[..., Running]) -> None:
    """As with nohup."""
    service = start(ignoring=[signal.SIGHUP])
    service.wait_ready()
    service.process.send_signal(signal.SIGHUP)
    assert service.end(signal.SIGTERM) == 0
    assert "SIGTERM: stopping" in service.written
    assert "SIGHUP" not in service.written


def test_output_to_a_closed_pipe_is_ignored(tmp_path: Path) -> None:
    with subprocess.Popen([*RUN, *flags(tmp_path / "data")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        log = read_until(process.stderr, b"started")
        process.send_signal(signal.SIGTERM)
        log += process.stderr.read()
    assert process.returncode == 0, log
    assert b"Traceback" not in log


def read_until(stream: IO[bytes], text: bytes) -> bytes:
    found = b""
    while text not in found:
        line = stream.readline()
        assert line, found
        found += line
    return found


@HOSTS
def test_unknown_keys_give_a_warning(host: Sequence[str], start: Callable[..., Running], tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("broker.id=7\n\nnum.partitons=3\n")
    service = start([*host, "--config", "server.properties"])
    service.wait_ready()
    assert service.end(signal.SIGTERM) == 0
    assert "server.properties:3: num.partitons is not a known key and is ignored" in service.written
    assert "[KafkaServer id=7] started" in service.written


@HOSTS
def test_an_invalid_value_refuses_the_start(host: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("broker.id=7\nnum.partitions=three\nlog.dirs=data\n")
    sentence = refused(host, "--config", "server.properties", directory=tmp_path)
    assert sentence.startswith("server.properties:2: num.partitions is 'three'; it must be a whole number")
    assert not (tmp_path / "data").exists(), "nothing is created with an invalid configuration"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "nowhere.properties"], "nowhere.properties cannot be read: No such file or directory; correct --config"),
        (["--config", "."], ". cannot be read: Is a directory; correct --config"),
        (["--override", "num.partitions=0"], "--override: num.partitions is '0'; it must be "),
        (["--override", "listeners=TLS://127.0.0.1:0"], "--override: listeners has the listener TLS, which has no protocol in "),
        (flags("data", "PLAINTEXT://192.0.2.1:0"), "listener PLAINTEXT cannot listen on 192.0.2.1:0: Cannot assign requested address; "),
        ([*flags("data"), "--ready-file", "no/such/ready"], "no/such/ready cannot be written: No such file or directory; correct "),
    ],
)
def test_other_invalid_input(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    assert refused(RUN, *arguments, directory=tmp_path).startswith(sentence)


@HOSTS
def test_a_port_in_use(host: Sequence[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        sentence = refused(host, *flags(tmp_path / "data", f"PLAINTEXT://{address}"), directory=tmp_path)
    advice = "stop what uses the port, or choose another in listeners"
    assert sentence == f"listener PLAINTEXT cannot listen on {address}: Address already in use; {advice}"
    assert not (tmp_path / "twistd.pid").exists()


@HOSTS
def test_a_directory_that_cannot_be_written(host: Sequence[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    data = file / "data"
    advice = "correct it, or choose another log.dirs"
    expected = f"none of the log directories can be used ({data}): cannot make {file}: File exists; {advice}"
    assert refused(host, *flags(data), directory=tmp_path) == expected


def test_refused_starts_lose_no_records(start_broker: Callable[..., Server], name: str, tmp_path: Path) -> None:
    """A directory in use, and one of another broker or cluster: its records are unchanged."""
    server = start_broker()
    raw_admin.create_topic(server, name, 1)
    write(server, name, 100)
    in_use = f"the log directory {server.data} is in use by another broker; stop that one, or choose another log.dirs"
    for host in (RUN, TWISTD):
        assert refused(host, *flags(server.data), directory=tmp_path) == in_use
    assert server.running
    server.kill()
    meta = server.data / "meta.properties"
    content = meta.read_text()
    for host in (RUN, TWISTD):
        other = refused(host, *flags(server.data), "--override", "broker.id=7", directory=tmp_path)
        assert other == f"{meta} belongs to broker 1001, but broker.id is 7; correct broker.id or log.dirs"
        meta.write_text(re.sub("cluster.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", content))
        other = refused(host, *flags(server.data), directory=tmp_path)
        assert other.startswith(f"{meta} belongs to cluster AAAAAAAAAAAAAAAAAAAAAA, but this broker is in cluster ")
        meta.write_text(content)
    server.start()
    write(server, name, 1)
    with raw.RawConnection(server.address) as connection:
        fetched = raw_log.fetch(connection, name, 0)
    assert [record.value for record in fetched.records][:100] == [sample.value for sample in numbered(100)]
    assert len(fetched.records) == 101


def write(server: Server, topic: str, count: int) -> None:
    with raw.RawConnection(server.address) as connection:
        for sample in numbered(count):
            assert raw_log.produce(connection, topic, raw_log.batch([sample])).error_code == 0


# What a broker alone with the usual configuration does not need before a request or a record requires it.
NOT_IMPORTED = (
    "kafka", "numpy", "lz4", "snappy", "zstandard", "kazoo", "secrets", "multiprocessing", "cryptography", "jwt", "prometheus_client",
    "twisted.web", "twisted.application", "twisted.plugin", "twisted.python.usage", "zipfile",
    "txbroker.api.acls", "txbroker.api.alter_configs", "txbroker.api.client_quotas", "txbroker.api.controller_requests",
    "txbroker.api.delegation_tokens", "txbroker.api.delete_topics", "txbroker.api.describe_configs", "txbroker.api.group_admin",
    "txbroker.api.log_dirs", "txbroker.api.sasl_handshake", "txbroker.api.scram_credentials", "txbroker.api.txn_offset_commit",
    "txbroker.broker.audit_file", "txbroker.broker_processes", "txbroker.client.client_machine", "txbroker.client.twisted_connection",
    "txbroker.cluster.fetcher_loop", "txbroker.cluster.replica_fetcher", "txbroker.cluster.tree.zookeeper_security", "txbroker.metrics",
    "txbroker.security.acl_store", "txbroker.security.audit_trail", "txbroker.security.delegation_tokens",
    "txbroker.security.token_store", "txbroker.tap", "txbroker.testing", "txbroker.wire.messages.create_acls",
    "txbroker.wire.messages.describe_configs",
)  # fmt: skip


def test_a_broker_imports_no_more_than_it_needs(start: Callable[..., Running]) -> None:
    """Imports take most of the time of a start, and most of the memory. Of dataclasses too: their methods are generated on first use."""
    service = start([sys.executable, "-X", "importtime", *RUN[1:]])
    service.wait_ready()
    assert service.end(signal.SIGTERM) == 0
    found = re.findall(r"^import time:.*\| +(\S+)$", service.err, re.MULTILINE)
    assert {"txbroker.broker.service", "txbroker.cluster.tree.sqlite", "txbroker.log.os_disk", "txbroker.api.fetch"} <= set(found)
    assert [name for name in found for prefix in NOT_IMPORTED if name == prefix or name.startswith(f"{prefix}.")] == []
    modules = [CHECKOUT.joinpath(*name.split(".")).with_suffix(".py") for name in found if name.startswith("txbroker.")]
    assert [path for path in modules if path.exists() and re.search(r"^@dataclass\b", path.read_text(), re.MULTILINE)] == []


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_python_m_txbroker(argument: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "txbroker", argument], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert "txbroker" in ended.stdout
    ended = subprocess.run([*TWISTD, argument], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert "txbroker" in ended.stdout or "--override" in ended.stdout
