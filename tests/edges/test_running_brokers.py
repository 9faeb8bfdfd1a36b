"""Faults at the edges of running brokers: each says what is wrong, goes on, and has lost nothing that it acknowledged."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import IncrementalAlterConfigsRequest
from kafka.protocol.producer import InitProducerIdRequest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.support.broker import BrokerProcess
from tests.support.processes import Processes
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, creation, until_leaders
from tests.support.raw_log import batch, fetch, produce
from tests.support.records import numbered, numbers
from tests.support.running import patched
from tests.support.server import ServerFailed, free_port
from tests.support.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("ignore:No chroot path exists")]
UNKNOWN_SERVER_ERROR, MESSAGE_TOO_LARGE = -1, 10
READ_ONLY = [make_acl("world", "anyone", read=True, admin=True)]
# The observer of configurations fails twice for the topic `t`.
FAILING_OBSERVER = """
import txbroker.broker.dynamic as dynamic
apply, errors = dynamic.DynamicConfigs.__call__, [RuntimeError("one"), RuntimeError("two")]
def observe(self, entity, properties):
    if entity.name == "t" and errors:
        raise errors.pop()
    return apply(self, entity, properties)
dynamic.DynamicConfigs.__call__ = observe
"""


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A client of ZooKeeper in the chroot of the test."""
    client = KazooClient(zookeeper)
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def broker(tmp_path: Path, zookeeper: str) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "1", {"zookeeper.session.timeout.ms": "6000", "zookeeper.connect": zookeeper, "broker.id": "1"})
    broker.start()
    yield broker
    broker.close()
    assert "Traceback" not in broker.log(), broker.log()


def epoch(client: KazooClient) -> int:
    """The broker epoch of the registration; 0 without one."""
    try:
        found: int = client.get("/brokers/ids/1")[1].czxid
    except NoNodeError:
        return 0
    return found


def expire(broker: BrokerProcess, connect: str) -> None:
    saved = json.loads((broker.data / "txbroker-zookeeper-session").read_text())
    thief = KazooClient(connect, client_id=(saved["session"], bytes.fromhex(saved["password"])))
    thief.start(timeout=PATIENCE_S)
    thief.stop()
    thief.close()


def acknowledged(address: str, name: str, start: int) -> None:
    """Produce three records, which the leader acknowledges for all replicas."""
    with RawConnection(address) as connection:
        until(lambda: produce(connection, name, batch(numbered(3, start=start))).error_code == 0, "the records are acknowledged")


def stored(address: str, name: str) -> list[int]:
    with RawConnection(address) as connection:
        return numbers(fetch(connection, name, 0).records)


def test_a_renewal_that_zookeeper_refuses_is_repeated(client: KazooClient, broker: BrokerProcess, zookeeper: str, name: str) -> None:
    with RawConnection(broker.address) as connection:
        assert creation(connection, name, 1, 1, KEEP).error_code == 0
    until_leaders(broker, name, 1)
    acknowledged(broker.address, name, 0)
    before = epoch(client)
    client.set_acls("/brokers/ids", READ_ONLY)
    expire(broker, zookeeper)
    said = "this broker cannot use its new session with the metadata yet, retrying: ZooKeeper refuses the operation on node"
    until(lambda: said in broker.log(), "the broker says what is refused")
    assert "/brokers/ids/1 (NoAuth)" in broker.log()
    assert stored(broker.address, name) == [0, 1, 2]
    client.set_acls("/brokers/ids", OPEN_ACL_UNSAFE)
    until(lambda: epoch(client) > before, "the broker registers again")
    acknowledged(broker.address, name, 3)
    assert stored(broker.address, name) == [0, 1, 2, 3, 4, 5]
    assert broker.stop() == 0


TOPIC = "configs --alter --entity-type topics --entity-name NAME"
REFUSED = {  # by node that is read-only: what is refused then
    "/brokers/topics": ["topics --create --topic NAME-2", "/brokers/topics/NAME-2"],
    "/config/topics": ["topics --create --topic NAME-2", "/config/topics/NAME-2"],
    "/brokers/topics/NAME": ["topics --alter --topic NAME --partitions 2", "/brokers/topics/NAME"],
    "/admin/delete_topics": ["topics --delete --topic NAME", "/admin/delete_topics/NAME"],
    "/config/topics/NAME": [f"{TOPIC} --add-config retention.ms=5", "/config/topics/NAME"],
    "/config/changes": [f"{TOPIC} --add-config retention.ms=5", "/config/changes/config_change_"],
    "/config/users": ["configs --alter --entity-type users --entity-name u --add-config consumer_byte_rate=5", "/config/users/u"],
}


def test_each_request_that_zookeeper_refuses_names_the_node(
    client: KazooClient, broker: BrokerProcess, zookeeper: str, name: str
) -> None:
    chroot = zookeeper.partition("/")[2]
    with RawConnection(broker.address) as connection:
        assert creation(connection, name, 1, 1, {"retention.ms": "-1"}).error_code == 0
    until_leaders(broker, name, 1)
    acknowledged(broker.address, name, 0)
    for protected, (command, refused) in REFUSED.items():
        size = broker.log_size()
        client.set_acls(protected.replace("NAME", name), READ_ONLY)
        arguments = command.replace("NAME", name).split()
        ended = subprocess.run([sys.executable, "-m", "txbroker", arguments[0], "--bootstrap-server", broker.address, *arguments[1:]],
                               capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
        said = f"ZooKeeper refuses the operation on node /{chroot}{refused.replace('NAME', name)}"
        assert ended.returncode == 1 and said in ended.stdout + ended.stderr and "(NoAuth)" in ended.stdout + ended.stderr, ended
        assert broker.log(size).count(said) == 1, broker.log(size)
        client.set_acls(protected.replace("NAME", name), OPEN_ACL_UNSAFE)
    client.set_acls("/latest_producer_id_block", READ_ONLY)
    with RawConnection(broker.address) as connection:
        answer = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 3)
    assert answer.error_code == UNKNOWN_SERVER_ERROR, "producers do not repeat it"
    assert f"ZooKeeper refuses the operation on node /{chroot}/latest_producer_id_block (NoAuth)" in broker.log()
    acknowledged(broker.address, name, 3)
    assert stored(broker.address, name) == [0, 1, 2, 3, 4, 5]
    assert broker.stop() == 0


@pytest.mark.parametrize("protected", ["/brokers/ids", "/", "/cluster", "/brokers/topics/t/partitions/0/state"])
def test_a_start_that_zookeeper_refuses_names_the_node(client: KazooClient, tmp_path: Path, zookeeper: str, protected: str) -> None:
    """The state of a partition concerns that partition: the broker starts."""
    client.ensure_path("/brokers/ids" if protected == "/" else protected)
    client.set_acls(protected, READ_ONLY)
    broker = BrokerProcess(tmp_path / "1", {"zookeeper.connect": zookeeper, "broker.id": "1"})
    try:
        if protected.startswith("/brokers/topics"):
            broker.start()
            assert broker.stop() == 0
            return
        with pytest.raises(ServerFailed):
            broker.start()
        assert "ZooKeeper refuses the operation on node /" in broker.log() and "(NoAuth)" in broker.log()
        assert "Traceback" not in broker.log(), broker.log()
    finally:
        broker.close()


def test_a_process_that_cannot_be_created_is_created_later(tmp_path: Path, name: str) -> None:
    """The limit of descriptors is reached when a broker that was killed starts again."""
    server = Processes(tmp_path / "processes")
    server.port = free_port()
    server.start()
    try:
        until(lambda: created(server, name), "the controller creates the topic")
        until_leaders(server, name, 1)
        leader = next(address for address in (server.address, server.second()) if leads(address, name))
        acknowledged(leader, name, 0)
        broker_id = (server.address, server.second()).index(leader)
        killed = server.child(f"--override broker.id={broker_id} ")
        limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
        os.kill(killed, signal.SIGKILL)
        until(lambda: "cannot be started: Too many open files; retrying" in server.log(), "the failed start is logged")
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        until(lambda: server.child(f"--override broker.id={broker_id} ") not in (0, killed), "the broker runs again")
        until(lambda: serves(leader, name), "the leader serves again")
        acknowledged(leader, name, 3)
        assert stored(leader, name) == [0, 1, 2, 3, 4, 5]
        assert server.stop() == 0
        assert "Traceback" not in server.log(), server.log()
    finally:
        server.close()


def test_a_stop_while_a_process_cannot_be_created(tmp_path: Path) -> None:
    server = Processes(tmp_path / "processes")
    server.port = free_port()
    server.start()
    try:
        killed, limits = server.child("--override broker.id=1 "), resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
        os.kill(killed, signal.SIGKILL)
        until(lambda: "cannot be started: Too many open files; retrying" in server.log(), "the failed start is logged")
        assert server.stop() == 0
    finally:
        server.close()


def created(server: Processes, name: str) -> bool:
    """Whether one of the brokers, the controller, has created the topic."""
    for address in (server.address, server.second()):
        with RawConnection(address) as connection:
            if creation(connection, name, 1, 1, KEEP).error_code in (0, 36):
                return True
    return False


def leads(address: str, name: str) -> bool:
    with RawConnection(address) as connection:
        return fetch(connection, name, 0).error_code == 0


def serves(address: str, name: str) -> bool:
    try:
        return leads(address, name)
    except OSError:
        return False


class Observed(BrokerProcess):
    """A broker whose observer of configurations fails."""

    def _command(self) -> list[str]:
        command = super()._command()
        return [*patched(FAILING_OBSERVER)[:3], *command[3:]]


def test_a_change_of_a_configuration_whose_observer_fails_takes_effect(tmp_path: Path) -> None:
    broker = Observed(tmp_path / "1")
    broker.start()
    try:
        with RawConnection(broker.address) as connection:
            for name in ("t", "u"):
                assert creation(connection, name, 1, 1, KEEP).error_code == 0
                until_leaders(broker, name, 1)
                acknowledged(broker.address, name, 0)
            resource_ = IncrementalAlterConfigsRequest.AlterConfigsResource
            change = resource_.AlterableConfig(name="max.message.bytes", config_operation=0, value="200")
            changes = [resource_(resource_type=2, resource_name=name, configs=[change]) for name in ("t", "u")]
            connection.call(IncrementalAlterConfigsRequest(validate_only=False, resources=changes), 1)
            too_large = batch(numbered(1, size=1000))
            until(lambda: produce(connection, "u", too_large).error_code == MESSAGE_TOO_LARGE, "the change of the other topic takes effect")
            until(lambda: produce(connection, "t", too_large).error_code == MESSAGE_TOO_LARGE, "the change takes effect")
        assert "the configuration at /config/topics/t cannot be applied, retrying: internal error: RuntimeError(" in broker.log()
        assert stored(broker.address, "u")[:3] == stored(broker.address, "t")[:3] == [0, 1, 2]
        assert broker.stop() == 0
    finally:
        broker.close()
