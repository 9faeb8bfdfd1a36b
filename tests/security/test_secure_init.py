"""`txbroker secure init`: from nothing to a secured broker, with the files as they are written, for clients of three libraries."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from kafka import KafkaConsumer, KafkaProducer

from tests.cli.commands import command
from tests.cli.commands import run as txbroker
from tests.soak.clients import kcat
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.java import run as java_tool
from tests.support.kafka import ZooKeeperProcess
from tests.support.server import free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.cli.main import main

SECRETS = {"ca.key", "broker.pem", "broker.properties", "users", "admin.properties", "admin-librdkafka.conf", "admin-kafka-python.json",
           "client.properties", "client-librdkafka.conf", "client-kafka-python.json"}  # fmt: skip
TOPIC = "hello"


class Secured(BrokerProcess):
    """`txbroker run` with a written configuration and nothing else."""

    def __init__(self, written: Path, directory: Path) -> None:
        super().__init__(directory)
        self._written = written

    def _command(self) -> list[str]:
        self._ready_file.unlink(missing_ok=True)
        return command("run", "--config", str(self._written / "broker.properties"), "--ready-file", str(self._ready_file))


@pytest.fixture
def written(server_directory: Path, name: str) -> Path:
    """A directory of `secure init` for a broker on a free port, whose path needs escapes."""
    directory = server_directory / f"{name} ü"
    txbroker("secure", "init", str(directory), "--port", str(free_port()))
    return directory


@pytest.fixture
def secured(written: Path, server_directory: Path, name: str) -> Iterator[Secured]:
    server = Secured(written, server_directory / f"{name}-process")
    server.start()
    yield server
    server.close()


def librdkafka(path: Path) -> dict[str, Any]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


@pytest.mark.process
@pytest.mark.extended
def test_all_clients_connect_with_the_files_as_they_are(secured: Secured, written: Path) -> None:
    address = f"localhost:{secured.port}"
    admin = ("--bootstrap-server", address, "--command-config", str(written / "admin.properties"))
    txbroker("topics", *admin, "--create", "--topic", TOPIC)
    denied, _ = txbroker("acls", *admin, "explain", "--principal", "User:client", "--operation", "Write", "--topic", TOPIC, status=1)
    assert "may not do Write" in denied
    txbroker("acls", *admin, "--add", "--allow-principal", "User:client", "--producer", "--consumer", "--topic", TOPIC, "--group", "*")

    java = str(written / "client.properties")
    java_tool("kafka-console-producer", "--bootstrap-server", address, "--topic", TOPIC, "--command-config", java, stdin="by Java\n")
    settings = ["-F", str(written / "client-librdkafka.conf")]
    subprocess.run([kcat(), *settings, "-P", "-t", TOPIC], input=b"by kcat\n", check=True, timeout=PATIENCE_S)
    producer = confluent_kafka.Producer(librdkafka(written / "client-librdkafka.conf"))
    producer.produce(TOPIC, b"by confluent-kafka")
    assert producer.flush(PATIENCE_S) == 0
    python = json.loads((written / "client-kafka-python.json").read_text())
    with KafkaProducer(**python) as own:
        own.send(TOPIC, b"by kafka-python").get(PATIENCE_S)

    expected = ["by Java", "by kcat", "by confluent-kafka", "by kafka-python"]
    read = java_tool("kafka-console-consumer", "--bootstrap-server", address, "--topic", TOPIC, "--command-config", java,
                     "--from-beginning", "--max-messages", "4")  # fmt: skip
    assert read.splitlines() == expected
    read = subprocess.run([kcat(), *settings, "-C", "-t", TOPIC, "-c", "4", "-q"], check=True, timeout=PATIENCE_S, stdout=subprocess.PIPE,
                          text=True).stdout  # fmt: skip
    assert read.splitlines() == expected
    consumer = KafkaConsumer(TOPIC, **python, auto_offset_reset="earliest", group_id="of kafka-python")
    assert [next(consumer).value.decode() for _ in expected] == expected
    consumer.close()

    log = secured.log()
    passwords = [json.loads((written / f"{user}-kafka-python.json").read_text())["sasl_plain_password"] for user in ("admin", "client")]
    assert [password for password in passwords if password in log] == []


@pytest.mark.process
@pytest.mark.extended
def test_a_running_broker_uses_a_renewed_certificate(secured: Secured, written: Path) -> None:
    before = certificate(written / "broker.pem")
    assert shown_certificate(written, secured.port) == before
    txbroker("secure", "renew", str(written), "--days", "700")
    after = certificate(written / "broker.pem")
    assert after != before
    until(lambda: shown_certificate(written, secured.port) == after, "the broker has loaded its certificate again")


def shown_certificate(written: Path, port: int) -> x509.Certificate:
    """What the broker shows a client that verifies it."""
    context = ssl.create_default_context(cafile=str(written / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown)


@pytest.mark.process
@pytest.mark.extended
def test_a_cluster_of_two(server_directory: Path, name: str) -> None:
    """Brokers log in at each other with what is written, and replicate."""
    zookeeper = ZooKeeperProcess(server_directory / f"{name}-zookeeper")
    zookeeper.port = free_port()
    written = server_directory / f"{name}-written"
    servers: list[Secured] = []
    try:
        zookeeper.start()
        brokers = [f"{broker_id}=localhost:{free_port()},127.0.0.1" for broker_id in (1, 2)]
        flags = [part for each in brokers for part in ("--broker", each)]
        txbroker("secure", "init", str(written), *flags, "--zookeeper", f"127.0.0.1:{zookeeper.port}/secured",
                 "--override", "offsets.topic.num.partitions=2")  # fmt: skip
        for broker_id in (1, 2):
            servers.append(Secured(written / f"broker-{broker_id}", server_directory / f"{name}-process-{broker_id}"))
            servers[-1].start()
        python = json.loads((written / "admin-kafka-python.json").read_text())
        assert len(python["bootstrap_servers"]) == 2
        admin = ("--bootstrap-server", ",".join(python["bootstrap_servers"]), "--command-config", str(written / "admin.properties"))
        until(lambda: txbroker("cluster", "list-endpoints", *admin)[0].count("localhost") == 2, "both brokers are registered")
        txbroker("topics", *admin, "--create", "--topic", TOPIC, "--replication-factor", "2", "--config", "min.insync.replicas=2")
        with KafkaProducer(**python, acks="all") as producer:
            producer.send(TOPIC, b"on both").get(PATIENCE_S)
    finally:
        for server in servers:
            server.close()
        zookeeper.close()


def test_certificates(tmp_path: Path) -> None:
    hosts = ["broker.example.org", "10.0.0.1", "2001:db8::1", "*.example.org"]
    txbroker("secure", "init", str(tmp_path / "made"), *[part for host in hosts for part in ("--host", host)], "--days", "30")
    authority, own = certificate(tmp_path / "made" / "ca.pem"), certificate(tmp_path / "made" / "broker.pem")
    own.verify_directly_issued_by(authority)
    for each, is_authority in ((authority, True), (own, False)):
        constraints = each.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = each.extensions.get_extension_for_class(x509.KeyUsage)
        assert constraints.critical and constraints.value.ca is is_authority
        assert usage.critical and usage.value.key_cert_sign is is_authority and usage.value.digital_signature is not is_authority
        each.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    issuer = own.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example.org", "*.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "2001:db8::1"]
    purposes = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(purposes) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert (own.not_valid_after_utc - own.not_valid_before_utc).days == 30
    assert (authority.not_valid_after_utc - own.not_valid_after_utc).days > 3000


def test_renewal_keeps_names_and_authority(tmp_path: Path) -> None:
    made = tmp_path / "made"
    txbroker("secure", "init", str(made), "--broker", "1=a.example.org,10.0.0.1", "--broker", "2=b.example.org", "--zookeeper", "z:2181")
    paths = [made / f"broker-{broker_id}" / "broker.pem" for broker_id in (1, 2)]
    before = [certificate(path) for path in paths]
    os.chmod(paths[0], 0o640)
    txbroker("secure", "renew", str(made), "--days", "9999")
    authority = certificate(made / "ca.pem")
    for path, old in zip(paths, before, strict=True):
        new = certificate(path)
        new.verify_directly_issued_by(authority)
        assert new.subject == old.subject and new.public_key() != old.public_key()
        names = x509.SubjectAlternativeName
        assert new.extensions.get_extension_for_class(names) == old.extensions.get_extension_for_class(names)
        assert new.not_valid_after_utc == authority.not_valid_after_utc  # no later than the authority
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o640, 0o600]


def test_renewal_replaces_all_or_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    txbroker("secure", "init", str(made), "--broker", "1=a.example.org", "--broker", "2=b.example.org", "--zookeeper", "z:2181")
    foreign = tmp_path / "foreign"
    txbroker("secure", "init", str(foreign))
    (made / "broker-2" / "broker.pem").write_bytes((foreign / "broker.pem").read_bytes())
    before = (made / "broker-1" / "broker.pem").read_bytes()
    _, complaint = txbroker("secure", "renew", str(made), status=1)
    assert "broker-2/broker.pem: its certificate was not signed by ca.pem of this directory" in complaint
    assert (made / "broker-1" / "broker.pem").read_bytes() == before
    _, complaint = txbroker("secure", "renew", str(tmp_path), status=1)
    assert "ca.pem: No such file or directory; `txbroker secure renew` needs a directory that `txbroker secure init`" in complaint


def test_the_key_of_the_authority_may_be_elsewhere(tmp_path: Path) -> None:
    made, elsewhere = tmp_path / "made", tmp_path / "elsewhere.key"
    txbroker("secure", "init", str(made))
    (made / "ca.key").rename(elsewhere)
    before = certificate(made / "broker.pem")
    _, complaint = txbroker("secure", "renew", str(made), status=1)
    assert f"{made} has no ca.key, the key of the authority: name the file where you keep it with --ca-key" in complaint
    _, complaint = txbroker("secure", "renew", str(made), "--ca-key", str(tmp_path / "none"), status=1)
    assert f"{tmp_path / 'none'} cannot be read: No such file or directory" in complaint
    assert certificate(made / "broker.pem") == before
    txbroker("secure", "renew", str(made), "--ca-key", str(elsewhere))
    after = certificate(made / "broker.pem")
    after.verify_directly_issued_by(certificate(made / "ca.pem"))
    assert after != before and not (made / "ca.key").exists()


def test_only_the_owner_reads_secrets(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        txbroker("secure", "init", str(tmp_path / "made"))
    finally:
        os.umask(previous)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").iterdir()}
    assert modes == {**dict.fromkeys(SECRETS, 0o600), "ca.pem": 0o644}
    other = tmp_path / "other"
    txbroker("secure", "init", str(other))
    passwords = {json.loads((folder / f"{user}-kafka-python.json").read_text())["sasl_plain_password"]
                 for folder in (other, tmp_path / "made") for user in ("admin", "client")}  # fmt: skip
    assert len(passwords) == 4


@pytest.mark.parametrize("existing", ["directory", "file", "dangling"])
def test_what_exists_is_left(tmp_path: Path, existing: str) -> None:
    path = tmp_path / "made"
    if existing == "directory":
        path.mkdir()
    elif existing == "file":
        path.touch()
    else:
        path.symlink_to("nowhere")
    _, complaint = txbroker("secure", "init", str(path), status=2)
    assert f"{path} exists, and is left as it is; name a directory that does not exist" in complaint
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = os.fsync
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    _, complaint = txbroker("secure", "init", str(tmp_path / "made"), status=1)
    assert f"{tmp_path}/made was not written: No space left on device" in complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("flags", "problem"), [
    (["--host", "bröker"], "'bröker' is neither a host name in ASCII nor an IP address"),
    (["--host", "10.0.0.300"], "'10.0.0.300' is neither a host name in ASCII nor an IP address"),
    (["--host", "*.example.org"], "the first --host is the one that clients connect to; it must not have a wildcard"),
    (["--broker", "1=a"], "a cluster needs --zookeeper"),
    (["--broker", "1=a", "--host", "b"], "--host is for one broker alone"),
    (["--broker", "1=a", "--broker", "1=b", "--zookeeper", "z:2181"], "two --broker have the same ID"),
    (["--broker", "1=a", "--broker", "2=a", "--zookeeper", "z:2181"], "two --broker have the same host and port"),
    (["--broker", "a", "--zookeeper", "z:2181"], "must be ID=HOST[:PORT][,NAME...]"),
    (["--zookeeper", "z:2181"], "--zookeeper is for clusters; name their brokers with --broker"),
    (["--host", "kafka1:19092"], "specify the port with --port"),
    (["--override", "listeners=SASL_SSL://localhost:19092"],
     "has no port 9092, at which the files of the clients expect a broker; specify the port with --port"),
    (["--port", "19092", "--override", "advertised.listeners=SASL_SSL://localhost:9092"], "has no port 19092, at which the files"),
    (["--override", "sasl.enabled.mechanisms=PLAIN"],
     "with these --override the broker would not start: broker.properties:"),
    (["--override", "sasl.enabled.mechanisms=SCRAM-SHA-256"], "are for SCRAM-SHA-512: add it to sasl.enabled.mechanisms"),
    (["--override", "listeners=PLAINTEXT://localhost:9092", "--override", "advertised.listeners=PLAINTEXT://localhost:9092",
      "--override", "security.inter.broker.protocol=PLAINTEXT"],
     "are for SASL_SSL at port 9092: give the listener with this port that protocol"),
    (["--override", "super.users=User:root"], "--override super.users must have User:admin, too"),
    (["--override", "super.users=root"], "with these --override the broker would not start: broker.properties:"),
    (["--override", "txbroker.scram.users.file="], "without txbroker.scram.users.file no user could log in"),
    (["--override", "num.partitions=0"], "num.partitions is '0'; it must be at least 1"),
    (["--broker", "1=a", "--broker", "2=b", "--zookeeper", "z:2181", "--override", "broker.id=3"],
     "--override broker.id would be the same for all brokers"),
    (["--broker", "1=a", "--zookeeper", "z:2181", "--override", "super.users=User:admin"],
     "--override super.users must have User:broker, too"),
    (["--days", "0"], "must be a whole number of 1 or more"),
])  # fmt: skip
def test_wrong_flags(tmp_path: Path, flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(["secure", "init", str(tmp_path / "made"), *flags])
    except SystemExit as ended:  # of argparse
        status = ended.code
    assert status == 2
    assert problem in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['cryptography'] = None; from txbroker.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    ended = subprocess.run([sys.executable, "-c", program, "secure", "init", str(tmp_path / "made")], env=environment, check=False,
                           capture_output=True, text=True, timeout=PATIENCE_S)  # fmt: skip
    assert ended.returncode == 1
    assert "pip install 'txbroker[security]'" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_another_listener_may_be_added(tmp_path: Path) -> None:
    listeners = "SASL_SSL://localhost:19092,PLAINTEXT://localhost:19093"
    txbroker("secure", "init", str(tmp_path / "made"), "--port", "19092", "--override", f"listeners={listeners}")
    assert f"listeners={listeners}" in (tmp_path / "made" / "broker.properties").read_text()


def test_without_acls_the_first_steps_have_none(tmp_path: Path) -> None:
    output, _ = txbroker("secure", "init", str(tmp_path / "made"), "--override", "authorizer.class.name=")
    assert "txbroker topics" in output and "txbroker acls" not in output and "there are no ACLs" in output
    written = (tmp_path / "made" / "broker.properties").read_text()
    assert "authorizer.class.name=\n" in written and "super.users" not in written
    output, _ = txbroker("secure", "init", str(tmp_path / "with"), "--override", "log.dirs=${env:DATA}")
    assert "txbroker acls" in output
