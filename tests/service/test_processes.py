"""`txbroker run --processes N`: brokers of one cluster on one machine, whose processes are started again when they end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.metrics.scraping import ON, Scrape, get
from tests.support.broker import BrokerProcess
from tests.support.processes import PROCESSES, Processes
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, brokers, creation, until_leaders
from tests.support.raw_log import batch, fetch_request, fetched, produce
from tests.support.records import numbered, numbers
from tests.support.running import ENVIRONMENT, RUN, flags, patched
from tests.support.server import ServerFailed, free_port
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process

PARTITIONS = 6
REPLICAS = 1
FETCH_VERSION = 11
TOPIC_EXISTS = 36


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    server = Processes(tmp_path / "processes", ON)
    server.port = free_port()
    server.start()
    yield server
    server.close()
    assert "Traceback" not in server.log(), server.log()


def create(server: Processes, name: str, partitions: int) -> None:
    """Create a topic, at the broker that is the controller."""

    def attempt() -> bool:
        for address in (server.address, server.second()):
            with RawConnection(address) as connection:
                if creation(connection, name, partitions, REPLICAS, KEEP).error_code in (0, TOPIC_EXISTS):
                    return True
        return False

    until(attempt, "the controller creates the topic")


def serve(server: Processes, name: str, partition: int, start: int) -> list[int]:
    """Produce a record to the leader of a partition; all numbers of the partition."""
    sent: list[int] = []

    def attempt() -> bool:
        for address in (server.address, server.second()):
            with RawConnection(address) as connection:
                if produce(connection, name, batch(numbered(1, start=start)), partition=partition).error_code == 0:
                    request = fetch_request(name, 0)
                    request.topics[0].partitions[0].partition = partition
                    sent.extend(numbers(fetched(connection.call(request, FETCH_VERSION)).records))
                    return True
        return False

    def served() -> bool:
        try:
            return attempt()
        except OSError:
            return False  # it has not started again yet

    until(served, "the leader of the partition acknowledges")
    return sent


def gone(pid: int) -> bool:
    """Whether the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_what_ends_is_started_again_and_data_stays(processes: Processes, name: str) -> None:
    server = processes
    for address in (server.address, server.second()):
        with RawConnection(address) as connection:
            until(lambda connection=connection: brokers(connection) == PROCESSES, "it knows all brokers")
    create(server, name, PARTITIONS)
    until_leaders(server, name, PARTITIONS)
    for partition in range(PARTITIONS):
        assert serve(server, name, partition, 0) == [0]
    directories = [server.data / f"process.{number}" for number in range(PROCESSES)]
    counts = [len(list(directory.glob(f"{name}-*"))) for directory in directories]
    assert counts == [PARTITIONS // PROCESSES] * PROCESSES, "the partitions are spread over the processes"

    for killed in ("--override broker.id=1 ", "txbroker.tree_process", "--override broker.id=0 "):
        before, size = server.child(killed), server.log_size()
        assert before
        os.kill(before, signal.SIGKILL)
        until(lambda killed=killed, before=before: server.child(killed) not in (0, before), "it runs again")
        until(lambda size=size: "registered as broker" in server.log(size), "a broker registers again")
    for partition in range(PARTITIONS):
        assert serve(server, name, partition, 1) == [0, 1]

    create(server, f"{name}-2", PROCESSES)
    children = server.children()
    assert len(children) == PROCESSES + 1
    assert server.stop() == 0
    assert all(gone(pid) for pid in children)
    server.start()
    for partition in range(PARTITIONS):
        assert serve(server, name, partition, 2) == [0, 1, 2]


def test_one_metrics_port_for_all(processes: Processes) -> None:
    scraped = Scrape(processes)
    assert [scraped("kafka_server_kafkaserver_brokerstate", process=str(number)) for number in range(PROCESSES)] == [3, 3]
    controllers = [scraped("kafka_controller_kafkacontroller_activecontrollercount", process=str(number)) for number in range(PROCESSES)]
    assert sum(controllers) == 1
    assert get(processes, "/readyz") == get(processes, "/healthz") and get(processes, "/readyz").body == b"ok\n"
    assert (get(processes, host="evil.example").status, get(processes, host="localhost").status) == (421, 200)
    paused = processes.child("--override broker.id=1 ")
    os.kill(paused, signal.SIGSTOP)
    try:
        answer = get(processes, "/readyz")
    finally:
        os.kill(paused, signal.SIGCONT)
    assert answer.status == 503 and answer.body == b"process 1: it does not answer\n"
    assert "/readyz does not answer: no response within" in processes.log()


def test_its_end_ends_all(processes: Processes) -> None:
    children = processes.children()
    tree = Path(f"/proc/{processes.child('txbroker.tree_process')}/cmdline").read_text().split("\0")
    temporary = Path(tree[tree.index("txbroker.tree_process") + 1]).parent
    assert temporary.is_dir()
    processes.kill()
    until(lambda: all(gone(pid) for pid in children), "all processes have ended")
    assert not temporary.exists()
    processes.start()
    assert processes.stop() == 0


def test_the_metadata_is_served_until_all_brokers_have_stopped(processes: Processes) -> None:
    quick, slow, tree = (processes.child(what) for what in ("broker.id=0 ", "broker.id=1 ", "txbroker.tree_process"))
    os.kill(slow, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        try:
            stopped = pool.submit(processes.stop)
            until(lambda: gone(quick), "the first broker has stopped")
            os.kill(tree, signal.SIGKILL)
            until(lambda: processes.child("txbroker.tree_process") not in (0, tree), "it runs again")
        finally:
            os.kill(slow, signal.SIGCONT)
        assert stopped.result() == 0


def test_a_start_waits_for_the_processes_of_one_that_was_killed(processes: Processes) -> None:
    slow, size = processes.child("--override broker.id=1 "), processes.log_size()
    os.kill(slow, signal.SIGSTOP)
    processes.kill()
    with ThreadPoolExecutor(1) as pool:
        try:
            started = pool.submit(processes.start)
            until(lambda: "process.1 is in use by another broker: the start waits" in processes.log(size), "the start waits")
        finally:
            os.kill(slow, signal.SIGCONT)
        started.result()
    assert processes.stop() == 0


def test_a_start_does_not_wait_for_ever(processes: Processes) -> None:
    code = "import txbroker.broker_processes as b\nb.EARLIER_END_S = 0.2"
    command = [*patched(code), *flags(processes.data), "--processes", str(PROCESSES)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=ENVIRONMENT)
    assert ended.returncode == 1 and "is in use by another broker; stop that one, or choose another log.dirs" in ended.stderr


def test_a_start_without_the_metadata_is_refused(processes: Processes) -> None:
    assert processes.stop() == 0
    (processes.data / "txbroker-metadata.sqlite").unlink()
    with pytest.raises(ServerFailed, match=r"log.dirs belongs to cluster .*, and the metadata file txbroker-metadata.sqlite is new"):
        processes.start()


def test_a_process_that_hangs_is_killed_if_systemd_watches(tmp_path: Path) -> None:
    server = Processes(tmp_path / "processes", watchdog_s=6)
    server.port = free_port()
    server.start()
    try:
        for what in ("--override broker.id=1 ", "txbroker.tree_process"):
            hangs, size = server.child(what), server.log_size()
            os.kill(hangs, signal.SIGSTOP)
            until(lambda size=size: "has not reported for its watchdog time: it is killed" in server.log(size), "it is killed")
            until(lambda what=what, hangs=hangs: server.child(what) not in (0, hangs), "it is restarted")
            until(lambda size=size: "registered as broker" in server.log(size), "a broker registers again")
        assert server.stop() == 0
    finally:
        server.close()


@pytest.mark.parametrize(("directory", "code", "said"), [
    ("t" * 100, "", "AF_UNIX path too long; set TMPDIR to a directory with a short path"),
    ("t", "import tempfile\ntempfile.tempdir = '/missing'", "No such file or directory; set TMPDIR to a directory that can be"),
])  # fmt: skip
def test_a_start_without_usable_temporary_directory_is_refused(tmp_path: Path, directory: str, code: str, said: str) -> None:
    temporary = tmp_path / directory
    temporary.mkdir()
    command = [*patched(code), *flags(tmp_path / "data"), "--processes", "2"]
    environment = {**ENVIRONMENT, "TMPDIR": str(temporary)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert ended.returncode == 1 and said in ended.stderr and "Traceback" not in ended.stderr
    assert list(temporary.iterdir()) == []


def test_a_start_that_fails_in_an_unexpected_way_ends(tmp_path: Path) -> None:
    """It has removed the ready file of an earlier run, which would say that clients are served."""
    ready = tmp_path / "ready"
    ready.write_text("127.0.0.1:9092\n")
    command = [*patched("import txbroker.broker_processes as b\nb.process_overrides = None"), *flags(tmp_path / "data"), "--processes", "2",
               "--ready-file", str(ready)]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=ENVIRONMENT)
    assert ended.returncode == 1 and "internal error: " in ended.stderr and not ready.exists()


def test_a_start_that_fails_stops_all(tmp_path: Path) -> None:
    server = Processes(tmp_path / "processes")
    server.port = free_port()
    other = BrokerProcess(tmp_path / "other")
    other.port = server.port + 1
    other.start()
    with pytest.raises(ServerFailed, match="process 1 has ended during the start"):
        server.start()
    assert "Address already in use" in server.log()
    other.stop()


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["--processes", "0"], 2, "0 is neither auto nor a number from 1 to 256"),
    (["--processes", "\N{FULLWIDTH DIGIT TWO}"], 2, "is neither auto nor a number"),
    (["--processes", "two"], 2, "two is neither auto nor a number"),
    (["--processes", "2", "--override", "zookeeper.connect=localhost:2181"], 1, "zookeeper.connect is set, and the processes of"),
    (["--processes", "9", "--override", "listeners=PLAINTEXT://localhost:65530"], 1, "leaves no port for process 6"),
])  # fmt: skip
def test_bad_arguments(tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    command = [*RUN, "--override", f"log.dirs={tmp_path / 'data'}", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == status and said in ended.stderr and "Traceback" not in ended.stderr
