"""The container image without a container engine: the files it copies exist, and its scripts behave as Kafka's."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT
from tests.support.running import ENVIRONMENT, Running
from tests.support.server import HOST
from tests.support.waiting import PATIENCE_S
from txbroker.cli.main import main

IMAGE = CHECKOUT / "packaging" / "docker"
DOCKERFILE = IMAGE / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments), without comments and with continuation lines joined."""
    text = "\n".join(line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#"))
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def copied() -> list[tuple[list[str], str]]:
    """The (source, target) pairs that are copied from the checkout."""
    plain = [re.sub(r"--chmod=\S+ ", "", rest).split() for rest in arguments("COPY") if "--from" not in rest]
    return [(words[:-1], words[-1]) for words in plain]


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    allowed = [line[1:] for line in (IMAGE / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [source for names, _ in copied() for source in names]
    assert sources
    for source in sources:
        assert (CHECKOUT / source).exists(), source
        assert any(source == name or source.startswith(f"{name}/") for name in allowed), source
    assert all((CHECKOUT / name).exists() for name in allowed)


def test_user_volumes_and_paths_are_those_of_kafkas_image(capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments("EXPOSE") == ["9092"]
    assert arguments("STOPSIGNAL") == ["SIGTERM"]
    assert arguments("USER") == ["1000:1000"], "a number, so that Kubernetes can check that it is not root"
    assert set(json.loads(arguments("VOLUME")[0])) == {"/var/lib/kafka/data", "/mnt/shared/config", "/etc/kafka/secrets"}
    entry = json.loads(arguments("ENTRYPOINT")[0])
    assert entry == ["/etc/kafka/docker/run"], "testcontainers uses this path"
    assert main(["config", "--print", "--json", "--config", str(IMAGE / "server.properties")]) == 0
    values = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)["values"]}
    assert values["log.dirs"] == "/var/lib/kafka/data"


def test_everything_that_starts_is_executable_and_a_script() -> None:
    for name in ("run", "healthcheck"):
        assert os.access(IMAGE / name, os.X_OK)
        ended = subprocess.run(["sh", "-n", IMAGE / name], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")


class Container:
    """A directory with the paths and the environment that the image's scripts expect."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mounted = directory / "mounted.properties"
        self.ready_file = directory / "run-ready"
        own = directory / "own.properties"
        own.write_text(f"log.dirs={directory}/data\n")
        self.environment = {
            **{name: value for name, value in ENVIRONMENT.items() if not name.startswith("KAFKA_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TXBROKER_IMAGE_CONFIG": str(own),
            "TXBROKER_MOUNTED_CONFIG": str(self.mounted),
            "TXBROKER_READY_FILE": str(self.ready_file),
            "KAFKA_LISTENERS": f"PLAINTEXT://{HOST}:0,CONTROLLER://:1",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_NODE_ID": "1",
        }
        self.services: list[Running] = []

    def start(self, *arguments: str) -> Running:
        service = Running([str(IMAGE / "run"), "run", *arguments], self.directory, settings=[], environment=self.environment)
        self.services.append(service)
        return service

    def call(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [IMAGE / script, *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    for service in made.services:
        service.process.kill()
        service.process.wait()


@pytest.mark.process
@pytest.mark.skipif(shutil.which("txbroker", path=str(Path(sys.executable).parent)) is None, reason="wants the command beside Python")
def test_the_entry_point_starts_a_broker_that_is_healthy_until_it_stops(container: Container) -> None:
    container.mounted.write_text("num.partitions=3\nlog.retention.hours=5\n")
    container.environment["KAFKA_NUM_PARTITIONS"] = "4"
    assert container.call("healthcheck").returncode != 0
    service = container.start("--override", "log.retention.hours=6")
    service.wait_ready()
    server = ["--bootstrap-server", service.address]
    made = container.call("run", "topics", *server, "--create", "--topic", "t")
    assert (made.returncode, made.stdout) == (0, "Created topic t.\n"), made.stderr
    described = container.call("run", "txbroker", "topics", *server, "--describe", "--topic", "t")
    assert "PartitionCount: 4" in described.stdout, "a variable overrides the mounted file"
    assert service.end(signal.SIGTERM) == 0, "the broker replaces the shell and receives the signal"
    assert (container.directory / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.process
def test_healthcheck(container: Container) -> None:
    container.environment["TXBROKER_READY_FILE"] = str(container.directory / "ready")
    service = container.start()
    service.wait_ready()
    assert container.call("healthcheck").returncode == 0
    assert service.end(signal.SIGTERM) == 0
    assert container.call("healthcheck").returncode != 0


def test_any_other_command_is_executed(container: Container) -> None:
    """testcontainers starts a shell, and that starts /etc/kafka/docker/run when it knows the ports."""
    assert container.call("run", "sh", "-c", "echo $KAFKA_NODE_ID").stdout == "1\n"
    assert container.call("run", "/bin/echo", "x").stdout == "x\n"
    assert container.call("run", "--version-of-nothing").returncode == 2
