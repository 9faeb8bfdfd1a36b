"""The programs in README and the documentation run as they stand there, and print what the pages say."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import blocks, read
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.server import HOST, Server
from tests.support.waiting import PATIENCE_S, until

DOCS = CHECKOUT / "docs"
ADDRESS = "127.0.0.1:9092"  # of every example
VENV = Path(sys.prefix)


def python(program: str, broker: Server) -> str:
    """What a program prints with this broker in place of the one on port 9092."""
    assert ADDRESS in program
    command = [sys.executable, "-c", program.replace(ADDRESS, broker.address)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_an_out_of_order_change_stream_in_the_three_strategies(broker: Server) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("KIP-280 is in no release of Apache Kafka")
    page = read(DOCS / "compaction.md")
    program, printed = blocks(page, "python")[0], blocks(page, "text")[0]
    assert "compaction.strategy" in program
    assert python(program, broker) == printed


def test_the_program_of_the_readme(start_broker: Callable[..., Server]) -> None:
    server = start_broker()
    program = blocks(read(CHECKOUT / "README.md"), "python")[0]
    assert python(program, server) == "b'from Python'\n"
    command = [sys.executable, "-m", "txbroker", "audit", "keys", "--bootstrap-server", server.address, "--topic", "hello"]
    audited = subprocess.run([*command, "--group", "readers"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert audited.returncode == 0 and "readers 1    0" in audited.stdout, audited.stderr


def test_the_clients_of_the_clients_page(broker: Server) -> None:
    kafka_python, confluent, _ = blocks(read(DOCS / "clients.md"), "python")
    assert python(kafka_python, broker) == "b'from Python'\n"
    assert python(confluent, broker) == "b'from Python'\n", "the first record of the topic, for another group"


@pytest.mark.process
def test_the_programs_of_the_page_about_tests(tmp_path: Path) -> None:
    first, marker, kafka, release, time, faults, edited, function, cluster, unittest = blocks(read(DOCS / "testing.md"), "python")
    (_, readme) = blocks(read(CHECKOUT / "README.md"), "python")
    tests = {"first": first, "marker": marker, "readme": readme, "release": release, "time": time, "faults": faults, "edited": edited}
    tests |= {"function": function, "cluster": cluster, "unittest": unittest}
    for name, text in tests.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "txbroker.testing.pytest_plugin"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert ended.returncode == 0 and "11 passed" in ended.stdout, ended.stdout + ended.stderr
    command = [sys.executable, "-c", kafka]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert ended.returncode == 0 and ended.stdout.splitlines()[1:] == ["0 0 None b'plain'", "0 1 b'key' b'value'"], ended


@pytest.mark.process
@pytest.mark.parametrize("page", [CHECKOUT / "README.md", DOCS / "quick-start.md"], ids=["readme", "docs"])
@pytest.mark.skipif(not (VENV / ".installed").exists(), reason="the tests do not run in the virtual environment of `make venv`")
def test_the_quick_start(page: Path, tmp_path: Path) -> None:
    run, use = blocks(read(page), "sh")[:2]
    (line,) = run.splitlines()
    assert line.split("#")[0].strip() == "make run"
    port = free_port()
    log = (tmp_path / "log").open("wb")
    command = ["make", "run", f"PORT={port}", f"DATA={tmp_path / 'data'}", f"VENV={VENV}"]
    broker = subprocess.Popen(command, cwd=CHECKOUT, stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: listens(port) or broker.poll() is not None, "the broker listens")
        script = use.replace(ADDRESS, f"{HOST}:{port}").replace(".venv/bin/", f"{VENV}/bin/")
        assert script != use
        ended = subprocess.run(["sh", "-e", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "hello, world"), ended.stderr + (tmp_path / "log").read_text()
        os.killpg(broker.pid, signal.SIGINT)  # Ctrl-C goes to make and to the broker
        broker.wait(PATIENCE_S)
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    finally:
        broker.kill()
        log.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True
