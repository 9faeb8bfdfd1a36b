"""Imports from a real ZooKeeper with the nodes of Apache Kafka 3.9, and exports into it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.cli.commands import run
from tests.support.kafka import ZooKeeperProcess
from tests.support.secure_zookeeper import SecureZooKeeper, access, login
from tests.support.secure_zookeeper import client as logged_in
from txbroker.cluster.node_data import decode_state
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.cluster.tree.sqlite_file import read_tree

pytestmark = pytest.mark.process
SAMPLES = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"
CLUSTER = "lvr4NfIWTo6tu8cpVcm0iw"
TOPIC_ID = "F-TFO20uRGmiysMY-DWj_w"
NOBODY_MOVES = '"adding_replicas":{},"removing_replicas":{},"version":3'
STATE = '"controller_epoch":11,"version":1'
SCRAM = "salt=c2FsdA==,stored_key=c2FsdA==,server_key=c2FsdA==,iterations=4096"
NODES = {
    "/cluster/id": f'{{"version":"1","id":"{CLUSTER}"}}',
    "/controller_epoch": "12",
    "/brokers/ids": "",
    "/brokers/topics/s-txn": f'{{"partitions":{{"0":[1],"1":[2,1]}},"topic_id":"{TOPIC_ID}",{NOBODY_MOVES}}}',
    "/brokers/topics/s-txn/partitions/0/state": f'{{{STATE},"leader":-1,"leader_epoch":7,"isr":[1]}}',
    "/brokers/topics/s-txn/partitions/1/state": f'{{{STATE},"leader":2,"leader_epoch":3,"isr":[2]}}',
    "/brokers/topics/gone": f'{{"partitions":{{"0":[1]}},"topic_id":"AAAAAAAAAAAAAAAAAAAABA",{NOBODY_MOVES}}}',
    "/admin/delete_topics/gone": "",
    "/config/topics/s-txn": '{"version":1,"config":{"retention.ms":"-1","segment.bytes":"no number"}}',
    "/config/brokers/1": '{"version":1,"config":{"log.cleaner.threads":"2","listener.name.x.ssl.keystore.password":"very-hidden"}}',
    "/config/brokers/<default>": '{"version":1,"config":{"log.retention.ms":"86400000"}}',
    "/config/users/alice": f'{{"version":1,"config":{{"SCRAM-SHA-256":"{SCRAM}"}}}}',
    "/config/users/bob": '{"version":1,"config":{"producer_byte_rate":"1048576"}}',
    "/config/users/bob/clients/app": '{"version":1,"config":{"consumer_byte_rate":"1048576"}}',
    "/config/clients/app": '{"version":1,"config":{"request_percentage":"50.0"}}',
    "/kafka-acl/Topic/s-txn": '{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}',
    "/delegation_token/tokens/an-id": '{"tokenId":"an-id","owner":"User%3Aalice","version":3}',
    "/kafka-acl-extended/prefixed/Group/pre": '{"acls":[],"version":1}',
    "/latest_producer_id_block": '{"version":1,"broker":2,"block_start":"5000","block_end":"5999"}',
}  # fmt: skip


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    process.start()
    yield process
    process.kill()


@pytest.fixture
def client(zookeeper: ZooKeeperProcess) -> Iterator[Any]:
    client = KazooClient(zookeeper.address)
    client.start(30)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def chroot(client: Any, name: str) -> str:
    """The nodes of a cluster in a chroot."""
    for path, data in NODES.items():
        client.create(f"/{name}{path}", data.encode(), makepath=True)
    return f"/{name}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "kafka"))


def plan(*arguments: str, status: int = 0) -> tuple[Any, str]:
    output, complaint = run(*arguments, "--json", status=status)
    return json.loads(output.splitlines()[0]), complaint


def test_everything_is_imported_or_reported(zookeeper: ZooKeeperProcess, chroot: str, directory: Path) -> None:
    places = ("--log-dirs", str(directory), "--zookeeper", f"{zookeeper.address}{chroot}")
    found, complaint = plan("import", *places, status=1)
    assert "--yes" in complaint and not (directory / FILE_NAME).exists()
    assert {topic["topic"]: topic["configs"] for topic in found["topics"]} == {"s-txn": ["retention.ms=-1"], "gone": []}
    assert found["configs"] == {"broker": {"log.cleaner.threads": "2"}, "all_brokers": {"log.retention.ms": "86400000"}}
    assert found["next_producer_id"] == 6000 and found["cluster_id"] == CLUSTER
    concerns, notes = "\n".join(found["concerns"]), "\n".join(found["notes"])
    for said in (
        "replicas of 1 partition (s-txn-1)",
        "not in sync for 1 partition",
        "1 topic (gone) marked for deletion",
        "the log of 1 partition (gone-0)",
        "listener.name.x.ssl.keystore.password of broker 1 is not imported, so that the listener uses what the file of the broker has: ",
    ):
        assert said in concerns
    for said in ("segment.bytes of topic s-txn", "SCRAM credentials of 4 entities (", "does not know 7 topics",
                 "the ACLs of 2 resources count once the broker has the authorizer.class.name",
                 "1 delegation token can be used once"):
        assert said in notes
    assert "very-hidden" not in json.dumps(found) + complaint

    run("import", *places, "--yes")
    tree = read_tree(str(directory / FILE_NAME))
    states = [decode_state(tree[f"/brokers/topics/s-txn/partitions/{number}/state"], 0) for number in (0, 1)]
    assert [(state.leader, state.isr, state.leader_epoch) for state in states] == [(1, (1,), 8), (1, (1,), 4)]
    assert {state.controller_epoch for state in states} == {12}
    copied = [path for path in NODES if path.startswith(("/kafka-acl", "/config/users/", "/config/clients/", "/delegation_token/"))]
    assert len(copied) == 7 and {path: tree[path] for path in copied} == {path: NODES[path].encode() for path in copied}


def test_a_registered_broker_must_be_stopped_first(zookeeper: ZooKeeperProcess, client: Any, chroot: str, directory: Path) -> None:
    client.create(f"{chroot}/brokers/ids/1", b"{}", ephemeral=True)
    _, complaint = plan("import", "--log-dirs", str(directory), "--zookeeper", f"{zookeeper.address}{chroot}", "--yes", status=1)
    assert "broker 1 is registered" in complaint and not (directory / FILE_NAME).exists()


def test_other_missing_and_damaged_clusters_are_distinguished(
    zookeeper: ZooKeeperProcess, client: Any, chroot: str, directory: Path
) -> None:
    client.set(f"{chroot}/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAABA"}')
    place = ("import", "--log-dirs", str(directory), "--yes", "--zookeeper")
    _, complaint = plan(*place, f"{zookeeper.address}{chroot}", status=1)
    assert "to cluster AAAAAAAAAAAAAAAAAAAABA" in complaint
    _, complaint = run(*place, f"{zookeeper.address}/nowhere", status=1)
    assert "check the chroot" in complaint
    client.set(f"{chroot}/brokers/topics/s-txn", b'{"partitions": 5}')
    _, complaint = run(*place, f"{zookeeper.address}{chroot}", status=1)
    assert "is damaged" in complaint and "fault" not in complaint


def test_an_export_to_an_empty_chroot_can_be_imported(
    zookeeper: ZooKeeperProcess, client: Any, name: str, directory: Path
) -> None:
    place = f"{zookeeper.address}/{name}/deep"
    run("import", "--log-dirs", str(directory), "--topic-config", "*:retention.ms=-1")
    before = read_tree(str(directory / FILE_NAME))
    exported, _ = plan("export", "--log-dirs", str(directory), "--zookeeper", place, "--dry-run")
    assert {topic["what"] for topic in exported["topics"]} == {"new"} and (directory / FILE_NAME).exists()
    assert client.exists(f"/{name}") is None
    run("export", "--log-dirs", str(directory), "--zookeeper", place)
    assert not (directory / FILE_NAME).exists() and (directory / f"{FILE_NAME}.exported").exists()
    assert client.get(f"/{name}/deep/brokers/topics/s-txn")[0] == before["/brokers/topics/s-txn"]
    found, _ = plan("import", "--log-dirs", str(directory), "--zookeeper", place)
    assert found["concerns"] == [] and len(found["topics"]) == 8
    after = read_tree(str(directory / FILE_NAME))
    assert after.keys() == before.keys()
    for path in before:
        if path.endswith("/state"):
            assert decode_state(after[path], 0).leader_epoch == decode_state(before[path], 0).leader_epoch + 2
        elif path not in ("/controller_epoch",):
            assert (after[path] or None) == (before[path] or None), path


@pytest.mark.extended
def test_a_zookeeper_that_requires_a_login(tmp_path: Path, directory: Path) -> None:
    """Commands log in as the broker whose configuration they read, and create nodes as it does."""
    zookeeper = SecureZooKeeper(tmp_path / "zookeeper", requires_login=True)
    zookeeper.start()
    try:
        config = tmp_path / "server.properties"
        place = ("--log-dirs", str(directory), "--zookeeper", f"{zookeeper.address}/secured")
        run("import", "--log-dirs", str(directory), "--topic-config", "*:retention.ms=-1")
        _, complaint = run("export", *place, status=1)
        assert "requires a login: set txbroker.zookeeper.jaas.config" in complaint
        escaped = login("kafka").replace("\\", "\\\\")
        config.write_text(f"zookeeper.set.acl=true\ntxbroker.zookeeper.jaas.config={escaped}\n")
        run("export", *place, "--config", str(config))
        with logged_in(zookeeper.address, "kafka") as kafka:
            found = access(kafka)
        assert found["/secured"] == found["/secured/brokers/topics/s-txn"] == {"sasl:kafka:31", "world:anyone:1"}
        assert found["/secured/config/users"] == {"sasl:kafka:31"}
        plan("import", *place, "--config", str(config))
        config.write_text(f"txbroker.zookeeper.jaas.config={login('kafka', 'guess')}\n")
        _, complaint = run("export", *place, "--config", str(config), status=1)
        assert "refuses the login of 'kafka': correct the user or the password" in complaint and "guess" not in complaint
    finally:
        zookeeper.kill()
