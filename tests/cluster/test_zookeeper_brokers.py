"""Brokers as processes on a real ZooKeeper: start, registration, lost and expired sessions, restarts, and why a start is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import MetadataRequest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.metrics.scraping import Scrape, get
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.cut_proxy import CutProxy
from tests.support.kafka import ZooKeeperProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, creation, find_coordinator, until_leaders
from tests.support.raw_log import batch, fetch, produce, produce_request
from tests.support.records import numbered, numbers
from tests.support.running import RUN, Running
from tests.support.server import ServerFailed, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.guard_process import guard_command

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("ignore:No chroot path exists")]
Start = Callable[..., BrokerProcess]
WITHOUT_GUARD = {"txbroker_failover_on_process_end": "false"}
UNKNOWN_TOPIC, REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, ALREADY_EXISTS, NOT_CONTROLLER = 3, 7, 10, 36, 41


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A client of ZooKeeper in the chroot of the test."""
    client = KazooClient(zookeeper)
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def proxy(zookeeper_process: ZooKeeperProcess) -> Iterator[CutProxy]:
    forwarding = CutProxy(zookeeper_process.address)
    yield forwarding
    forwarding.close()


@pytest.fixture
def start(tmp_path: Path, zookeeper: str) -> Iterator[Start]:
    """Starts a broker with this id; `connect` is zookeeper.connect."""
    started: list[BrokerProcess] = []

    def start(broker_id: int = 1, *, connect: str = zookeeper, directory: str | None = None, **overrides: str) -> BrokerProcess:
        keys = {key.replace("_", "."): value for key, value in overrides.items()}
        keys = {"zookeeper.session.timeout.ms": "6000", "zookeeper.connect": connect, "broker.id": str(broker_id), **keys}
        broker = BrokerProcess(tmp_path / (directory or str(broker_id)), keys)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.close()
        assert "Traceback" not in broker.log(), broker.log()


def registration(client: KazooClient, broker_id: int = 1) -> tuple[dict[str, Any], Any] | None:
    try:
        data, found = client.get(f"/brokers/ids/{broker_id}")
    except NoNodeError:
        return None
    return json.loads(data), found


def controller_and_brokers(server: BrokerProcess) -> tuple[int, set[int]]:
    """As this broker's metadata have them."""
    with RawConnection(server.address) as connection:
        found = connection.call(MetadataRequest(topics=[]), 1)
    return found.controller_id, {broker.node_id for broker in found.brokers}


def controller_is(client: KazooClient, broker_id: int) -> bool:
    try:
        return json.loads(client.get("/controller")[0])["brokerid"] == broker_id
    except NoNodeError:
        return False


def test_a_broker_serves_alone_and_a_second_one_registers(client: KazooClient, start: Start, name: str) -> None:
    """A configuration that is changed through the second takes effect at the first."""
    one = start()
    assert controller_is(client, 1)
    found = registration(client)
    assert found is not None
    assert found[0]["endpoints"] == [f"PLAINTEXT://{one.address}"] and found[1].version == 1
    with RawConnection(one.address) as connection:
        assert creation(connection, name, 1, 1, {}).error_code == 0
    assert sorted(json.loads(client.get(f"/brokers/topics/{name}")[0])["partitions"]) == ["0"]
    two = start(2, txbroker_metrics_port="0")
    assert registration(client, 2) is not None and controller_is(client, 1)
    until(lambda: get(two, "/readyz").status == 200, "the second broker has the cluster's metadata")
    until_leaders(two, name, 1)
    with RawConnection(two.address) as connection:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(name="max.message.bytes", config_operation=0, value="100")
        topic = resource(resource_type=2, resource_name=name, configs=[change])
        request = IncrementalAlterConfigsRequest(validate_only=False, resources=[topic])
        assert connection.call(request, 1).responses[0].error_code == 0
    with RawConnection(one.address) as connection:
        data = batch(numbered(1, size=1000))
        until(lambda: produce(connection, name, data).error_code == MESSAGE_TOO_LARGE, "the first broker has the changed configuration")
    assert two.stop() == 0 and one.stop() == 0
    assert not session_file(one).exists()
    assert client.get_children("/brokers/ids") == [] and client.exists("/controller") is None


def test_answers_to_writes_of_the_controller_may_be_lost(
    client: KazooClient, proxy: CutProxy, start: Start, zookeeper: str, name: str
) -> None:
    """It cannot know whether it was replaced: it runs for election again, and does what is left to do."""
    broker = start(connect=through(proxy, zookeeper))
    until(lambda: controller_is(client, 1), "there is a controller")
    with RawConnection(broker.address) as connection:
        proxy.lose_answers(f"/config/topics/{name}".encode(), b"/partitions/0/state")
        created = [creation(connection, name, 1, 1, {}).error_code]
        until(lambda: created.append(creation(connection, name, 1, 1, {}).error_code) or created[-1] == ALREADY_EXISTS, "the topic exists")
    assert set(created) <= {0, NOT_CONTROLLER, ALREADY_EXISTS}
    until_leaders(broker, name, 1)
    proxy.lose_answers(f"/admin/delete_topics/{name}".encode(), f"/brokers/topics/{name}/partitions".encode())
    with RawConnection(broker.address) as connection:
        until(lambda: connection.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5).responses[0].error_code in
              (0, UNKNOWN_TOPIC), "the topic is deleted")
    until(lambda: client.exists(f"/brokers/topics/{name}") is None and client.exists(f"/admin/delete_topics/{name}") is None, "it is gone")
    assert proxy.losing == []
    assert broker.stop() == 0


def session_file(broker: BrokerProcess) -> Path:
    return broker.data / "txbroker-zookeeper-session"


def expire(connect: str, broker: BrokerProcess) -> None:
    """End the broker's session, as another process with its credentials can."""
    saved = json.loads(session_file(broker).read_text())
    thief = KazooClient(connect, client_id=(saved["session"], bytes.fromhex(saved["password"])))
    thief.start(timeout=PATIENCE_S)
    thief.stop()
    thief.close()


def epoch(client: KazooClient, broker_id: int = 1) -> int:
    found = registration(client, broker_id)
    return 0 if found is None else found[1].czxid


def through(proxy: CutProxy, connect: str) -> str:
    return proxy.address + connect[connect.index("/"):]


def test_a_session_that_expires_is_followed_by_another(client: KazooClient, start: Start, zookeeper: str, name: str) -> None:
    """Again and again: the broker registers with a new epoch, and is the controller in a new controller epoch."""
    broker = start()
    with RawConnection(broker.address) as connection:
        assert creation(connection, name, 1, 1, {}).error_code == 0
        until_leaders(broker, name, 1)
        for _ in range(3):
            before, controller_epoch = epoch(client), int(client.get("/controller_epoch")[0])
            expire(zookeeper, broker)
            until(lambda before=before: epoch(client) > before, "the broker registers again")
            until(lambda: controller_is(client, 1), "the broker is the controller again")
            assert int(client.get("/controller_epoch")[0]) > controller_epoch
        assert creation(connection, f"{name}-2", 1, 1, {}).error_code == 0
        until_leaders(broker, f"{name}-2", 1)
    assert broker.stop() == 0


def test_changes_of_a_time_without_a_session_take_effect(
    client: KazooClient, proxy: CutProxy, start: Start, zookeeper: str, name: str
) -> None:
    """A broker that is cut off serves on. The node of the change is gone when it returns."""
    broker = start(connect=through(proxy, zookeeper), txbroker_metrics_port="0")
    data = batch(numbered(1, size=1000))
    with RawConnection(broker.address) as connection:
        assert creation(connection, name, 1, 1, {}).error_code == 0
        until_leaders(broker, name, 1)
        proxy.cut()
        assert produce(connection, name, data).error_code == 0
        until(lambda: epoch(client) == 0, "the session has ended")
        until(lambda: get(broker, "/readyz").status == 503, "the broker reports that it is not registered")
        assert get(broker, "/readyz").body == b"not registered: there is no session with the metadata\n"
        assert get(broker, "/healthz").status == 200
        assert produce(connection, name, data).error_code == 0
        client.set(f"/config/topics/{name}", b'{"version":1,"config":{"max.message.bytes":"100"}}')
        assert creation(connection, f"{name}-2", 1, 1, {}).error_code == NOT_CONTROLLER
        proxy.restore()
        until(lambda: epoch(client) > 0, "the broker registers again")
        until(lambda: produce(connection, name, data).error_code == MESSAGE_TOO_LARGE, "the limit of the topic is in effect")
    until(lambda: get(broker, "/readyz").status == 200, "the broker is ready again")
    metrics = Scrape(broker)
    listener = "kafka_server_sessionexpirelistener_zookeeper"
    found = [metrics(f"{listener}{what}_total") for what in ("syncconnects", "disconnects", "expires")]
    assert found == [2, 1, 1] and metrics("txbroker_zookeeper_connected") == 1
    latency = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
    assert metrics(f"{latency}_count") > 20 and metrics(latency, quantile="0.50") > 0
    assert broker.stop() == 0


def test_sessions_that_expire_at_any_step(client: KazooClient, start: Start, zookeeper: str, name: str) -> None:
    """Each session ends as soon as its credentials are saved: before, while or after the broker registers and is elected."""
    broker = start()
    with RawConnection(broker.address) as connection:
        assert creation(connection, name, 3, 1, {}).error_code == 0
    ended = b""
    for _ in range(12):
        until(lambda ended=ended: session_file(broker).read_bytes() != ended, "another session is open")
        ended = session_file(broker).read_bytes()
        expire(zookeeper, broker)
    until(lambda: controller_is(client, 1) and epoch(client) > 0, "the broker is registered and the controller")
    with RawConnection(broker.address) as connection:
        until(lambda: creation(connection, f"{name}-2", 1, 1, {}).error_code in (0, ALREADY_EXISTS), "the controller serves")
    until_leaders(broker, f"{name}-2", 1)
    assert broker.stop() == 0


def test_each_answer_to_a_write_of_the_start_may_be_lost(client: KazooClient, proxy: CutProxy, start: Start, zookeeper: str) -> None:
    """The writes have taken effect. The broker finds them, and none of their nodes is taken for another broker's."""
    epoch_node = b"/controller_epoch\0\0\0\x010"
    proxy.lose_answers(b"/latest_producer_id_block", b'"id":"', b'"endpoints"', epoch_node, b'"brokerid"', b'"features":{}')
    broker = start(connect=through(proxy, zookeeper))
    until(lambda: controller_is(client, 1), "the broker is the controller")
    until(lambda: "this broker is the controller" in broker.log(), "the term has begun")
    assert proxy.losing == [] and epoch(client) > 0
    assert "is in use by" not in broker.log()
    assert broker.stop() == 0


def test_a_restart_after_a_crash_ends_the_session_of_the_crash(client: KazooClient, start: Start) -> None:
    broker = start(zookeeper_session_timeout_ms="10000", **WITHOUT_GUARD)
    before = epoch(client)
    assert stat.S_IMODE(session_file(broker).stat().st_mode) == 0o600
    broker.kill()
    assert epoch(client) == before
    broker.start()
    assert epoch(client) > before and controller_is(client, 1)
    assert "ended the ZooKeeper session" in broker.log() and "is in use by" not in broker.log()


@pytest.mark.parametrize("left", [None, b"", b"{}", b'{"session":1e300,"password":""}', b'{"session":5,"password":"00"}', b"[" * 10_000])
def test_a_restart_without_the_session_of_the_crash_waits_for_its_end(client: KazooClient, start: Start, left: bytes | None) -> None:
    broker = start(zookeeper_session_timeout_ms="1000", **WITHOUT_GUARD)
    before = epoch(client)
    broker.kill()
    session_file(broker).unlink()
    if left is not None:
        session_file(broker).write_bytes(left)
    broker.start()
    assert epoch(client) > before


def test_the_id_of_a_broker_that_runs_is_refused(client: KazooClient, start: Start) -> None:
    broker = start(zookeeper_session_timeout_ms="1000")
    before = epoch(client)
    with pytest.raises(ServerFailed, match=f"Broker id 1 is in use by another broker of this cluster, PLAINTEXT://{broker.address}"):
        start(directory="other", zookeeper_session_timeout_ms="1000")
    assert epoch(client) == before


def test_a_broker_that_hangs_keeps_its_session(client: KazooClient, start: Start) -> None:
    """Its log directories are locked, so another process cannot end its session."""
    broker = start(zookeeper_session_timeout_ms="10000")
    before = epoch(client)
    broker.pause()
    with pytest.raises(ServerFailed, match="is in use by another broker; stop that one"):
        start()
    broker.resume()
    assert epoch(client) == before
    assert broker.stop() == 0


def guard_of(broker: BrokerProcess) -> int:
    """The process that ends the session; 0 while there is none."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    return int(children[0]) if children else 0


def test_the_session_of_a_killed_broker_ends_at_once(client: KazooClient, start: Start) -> None:
    broker = start(zookeeper_session_timeout_ms="40000")
    guard = guard_of(broker)
    os.kill(guard, signal.SIGTERM)
    os.kill(guard, signal.SIGINT)
    broker.kill()
    until(lambda: "The broker's process has ended: its ZooKeeper session" in broker.log(), "the guard has reported")
    assert " is closed" in broker.log() and registration(client) is None and not controller_is(client, 1)
    broker.start()
    assert "is in use by" not in broker.log()


def test_the_guard_of_a_session_is_started_again_and_ends_with_the_broker(client: KazooClient, start: Start, zookeeper: str) -> None:
    broker = start(zookeeper_session_timeout_ms="40000")
    first = guard_of(broker)
    os.kill(first, signal.SIGKILL)
    until(lambda: "restarting it" in broker.log(), "the end of the guard is reported")
    until(lambda: guard_of(broker) not in (0, first), "it runs again")
    before = epoch(client)
    expire(zookeeper, broker)
    until(lambda: epoch(client) > before, "the broker is registered in its next session")
    second = guard_of(broker)
    assert broker.stop() == 0
    until(lambda: not Path(f"/proc/{second}").exists(), "it has ended")
    assert "The broker's process has ended" not in broker.log()


SESSION = b'"session": 5, "password": "00", "security": [null, null]}'


@pytest.mark.parametrize(("sent", "reported"), [
    (b"", ""),
    (b"null\n", ""),
    (b'{"servers": "SERVERS", "timeout_ms": 10000, ' + SESSION + b"\nnull\n", ""),
    (b'{"servers": "SERVERS", "timeout_ms": 10000, ' + SESSION + b"\nnul", "0x5 had already expired"),
    (b'{"servers": "127.0.0.1:1,SERVERS", "timeout_ms": 10000, ' + SESSION + b"\n", "0x5 had already expired"),
    (b'{"servers": "127.0.0.1:1", "timeout_ms": 300, ' + SESSION + b"\n", "no ZooKeeper server answers at 127.0.0.1:1"),
])  # fmt: skip
def test_what_the_guard_does_at_the_end_of_its_input(zookeeper_process: ZooKeeperProcess, sent: bytes, reported: str) -> None:
    sent = sent.replace(b"SERVERS", zookeeper_process.address.encode())
    ended = subprocess.run(guard_command(), input=sent, capture_output=True, timeout=PATIENCE_S, check=True)
    assert reported in ended.stderr.decode() and (reported or not ended.stderr)


def partition_state(client: KazooClient, topic: str) -> tuple[int, list[int], int]:
    """Leader, ISR and leader epoch of partition 0."""
    found = json.loads(client.get(f"/brokers/topics/{topic}/partitions/0/state")[0])
    return found["leader"], sorted(found["isr"]), found["leader_epoch"]


def test_a_leader_without_a_session_acknowledges_nothing_for_all(
    client: KazooClient, proxy: CutProxy, start: Start, zookeeper: str, name: str
) -> None:
    """It leads on in its old epoch, and cannot remove the follower, which leads now, from the ISR. Later it copies what that one has."""
    keys = {"replica_lag_time_max_ms": "1000", "controlled_shutdown_retry_backoff_ms": "1"}
    cut, other = start(connect=through(proxy, zookeeper), **keys), start(2, **keys)
    until(lambda: "brokers started: [2]" in cut.log(), "the controller knows both brokers")
    with RawConnection(cut.address) as connection:
        topic = CreateTopicsRequest.CreatableTopic
        keep = [topic.CreatableTopicConfig(name=key, value=value) for key, value in KEEP.items()]
        wanted = topic(name=name, num_partitions=-1, replication_factor=-1, configs=keep,
                       assignments=[topic.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])])
        created = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 5).topics
        assert [one.error_code for one in created] == [0]
        until_leaders(cut, name, 1)
        assert produce(connection, name, batch(numbered(1))).error_code == 0
        proxy.cut()
        until(lambda: partition_state(client, name)[0] == 2, "the other broker leads")
        with RawConnection(other.address) as second:  # it may not know it yet, and still copy from its predecessor
            until(lambda: produce(second, name, batch(numbered(1, start=1))).error_code == 0, "the other broker knows that it leads")
        request = produce_request(name, batch(numbered(1, start=666)))
        request.timeout_ms = 3000
        assert connection.call(request, 8).responses[0].partition_responses[0].error_code == REQUEST_TIMED_OUT
        proxy.restore()
        until(lambda: partition_state(client, name)[1] == [1, 2], "the broker is in sync again")
        assert other.stop() == 0
        until_leaders(cut, name, 1)
        assert numbers(fetch(connection, name, 0).records) == [0, 1]
    assert cut.stop() == 0


def test_a_short_time_without_zookeeper_changes_nothing(
    client: KazooClient, proxy: CutProxy, start: Start, zookeeper: str, name: str
) -> None:
    """B12: shorter than the session. The broker leads and coordinates on, in the same broker epoch, and its ISRs change later."""
    keys = {"replica_lag_time_max_ms": "1000", "offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1",
            "zookeeper_session_timeout_ms": "30000"}  # fmt: skip
    cut = start(connect=through(proxy, zookeeper), **keys)
    find_coordinator(cut, name)  # broker 1, while it is alone
    other = start(2, **keys)
    until(lambda: "brokers started: [2]" in cut.log(), "the controller knows both brokers")
    with RawConnection(cut.address) as connection:
        assert creation(connection, name, 1, 2, KEEP).error_code == 0
        leader = cut if partition_state(client, name)[0] == 1 else other
        before = epoch(client), epoch(client, 2), partition_state(client, name)
        proxy.cut()
        until(lambda: "the connection to ZooKeeper at" in cut.log(), "the broker notices it")
        with RawConnection(leader.address) as to_leader:
            assert produce(to_leader, name, batch(numbered(3))).error_code == 0
        topics = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topics.OffsetCommitRequestPartition(partition_index=0, committed_offset=2, committed_metadata="")
        commit = OffsetCommitRequest(group_id=name, topics=[topics(name=name, partitions=[part])])
        committed = connection.call(commit, 8).topics[0].partitions[0]
        assert committed.error_code == 0
        proxy.restore()
        until(lambda: partition_state(client, name)[1] == [1, 2], "both are in sync")
        assert (epoch(client), epoch(client, 2), partition_state(client, name)) == before
        other.kill()
        until(lambda: partition_state(client, name)[:2] == (1, [1]), "the ISR changes as the other broker ends")
        # The controller has written that this broker leads; its request to the broker follows.
        until(lambda: numbers(fetch(connection, name, 0).records) == [0, 1, 2], "the records are read from the broker that is left")
    assert cut.stop() == 0


def test_a_clean_stop_moves_leadership_first(client: KazooClient, start: Start, name: str) -> None:
    keys = {"controlled_shutdown_retry_backoff_ms": "3600000"}
    brokers = {1: start(1, **keys), 2: start(2, **keys)}
    until(lambda: "brokers started: [2]" in brokers[1].log(), "the controller knows both brokers")
    with RawConnection(brokers[1].address) as connection:
        assert creation(connection, name, 1, 2, {}).error_code == 0
    until(lambda: partition_state(client, name)[1] == [1, 2], "both are in sync")
    leader, _, leader_epoch = partition_state(client, name)
    follower = 3 - leader
    with RawConnection(brokers[leader].address) as to_leader:  # before that the broker does not know that it leads
        until(lambda: produce(to_leader, name, batch(numbered(1))).error_code == 0, "the leader leads")
    assert brokers[leader].stop() == 0
    assert "controlled shutdown: this broker leads no partition that another one can lead" in brokers[leader].log()
    until(lambda: controller_and_brokers(brokers[follower]) == (follower, {follower}), "the other broker is the controller, and knows it")
    assert partition_state(client, name)[:2] == (follower, [follower])
    # No election followed the end of its session.
    assert partition_state(client, name)[2] == leader_epoch + 1
    # Now there is no other replica in sync.
    assert brokers[follower].stop() == 0
    ended = brokers[follower].log()
    assert "controlled shutdown, attempt 1 of 3: no other replica in sync can lead 1 partition, such as " + name in ended
    assert "not retrying: no other live replica" in ended


def test_a_broker_without_zookeeper_does_not_start(start: Start) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ServerFailed, match=f"No ZooKeeper answers at {address}: start it, or correct zookeeper.connect"):
        start(connect=address, zookeeper_connection_timeout_ms="300")


@pytest.mark.parametrize("registered", [False, True])
def test_a_stop_does_not_wait_for_zookeeper(zookeeper: str, start: Start, tmp_path: Path, registered: bool) -> None:
    """While a broker waits for a connection, or for the end of a registration with its id."""
    connect = f"127.0.0.1:{free_port()}"
    if registered:
        start()
        connect = zookeeper
    overrides = [f"zookeeper.connect={connect}", "broker.id=1", "zookeeper.session.timeout.ms=1000000"]
    keys = [part for override in overrides for part in ("--override", override)]
    waiting = Running(RUN, tmp_path, *keys)
    waiting.wait_for("broker id 1 is in use by PLAINTEXT" if registered else "cannot connect to ZooKeeper")
    assert waiting.end(signal.SIGTERM) == 0
    assert "the start was interrupted while it waited for the metadata" in waiting.written


@pytest.mark.parametrize(("path", "data", "why"), [
    ("/cluster/id", b"{", r"The cluster id in the metadata tree \(/cluster/id\) is damaged"),
    ("/controller_epoch", b"x", "The controller cannot read the metadata: b'x' is not a controller epoch"),
    ("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}', "belongs to cluster .* but this broker is in cluster AAAAAAAAAAAA"),
    ("/cluster/id", None, "log.dirs belongs to cluster .*, and ZooKeeper at 127.0.0.1.* has no cluster: correct zookeeper.connect"),
])
def test_nodes_that_stop_a_start(client: KazooClient, start: Start, path: str, data: bytes | None, why: str) -> None:
    broker = start()
    assert broker.stop() == 0
    if data is None:
        client.delete(path)
    else:
        client.set(path, data)
    with pytest.raises(ServerFailed, match=why):
        broker.start()


def test_damaged_nodes_of_others_do_not_stop_a_broker(client: KazooClient, start: Start, name: str) -> None:
    broker = start()
    with RawConnection(broker.address) as connection:
        assert creation(connection, name, 1, 1, {}).error_code == 0
    assert broker.stop() == 0
    damaged = {
        "/brokers/ids/7": b"{}",
        "/brokers/ids/x": b"",
        "/brokers/topics/bad": b"[1",
        "/config/topics/bad": b"null",
        "/config/brokers/<default>": b"\xff",
        "/config/brokers/1": b'{"version":1,"config":{"a":5}}',
        "/controller_epoch": b"7",
        "/config/changes/config_change_0000000000": b"?",
        "/admin/delete_topics/none": b"?",
        "/isr_change_notification/isr_change_1": b"?",
        "/log_dir_event_notification/log_dir_event_0000000000": b"?",
        "/latest_producer_id_block": b"?",
        f"/config/topics/{name}": b'{"version":1,"config":{"retention.ms":"x"}}',
    }
    for path, data in damaged.items():
        client.ensure_path(path)
        client.set(path, data)
    broker.start()
    until_leaders(broker, name, 1)
    with RawConnection(broker.address) as connection:
        assert creation(connection, f"{name}-2", 1, 1, {}).error_code == 0
    until_leaders(broker, f"{name}-2", 1)
    assert client.get("/controller_epoch")[0] == b"8"
    assert broker.stop() == 0


def test_a_zookeeper_that_lost_its_data_ends_a_broker(server_directory: Path, start: Start) -> None:
    """It would serve topics of which no other broker knows."""
    zookeeper = ZooKeeperProcess(server_directory / "losing-zookeeper")
    zookeeper.start()
    broker = start(connect=zookeeper.address)
    zookeeper.kill()
    shutil.rmtree(zookeeper.data)
    zookeeper.start()
    until(lambda: not broker.running, "the broker has ended")
    assert "and the metadata has no cluster now: restore it" in broker.log()
    zookeeper.close()


def test_a_broker_alone_does_not_load_a_client_of_zookeeper() -> None:
    script = "import sys, txbroker.broker_service, txbroker.broker.service; assert 'kazoo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_S, cwd=CHECKOUT)


def test_a_broker_of_a_cluster_loads_what_followers_need_at_the_start() -> None:
    """Later a descriptor may be missing for it, and the partition would copy nothing until the next leader epoch."""
    script = """
import sys
from txbroker.api.registry import Registry
from txbroker.broker import service
from txbroker.broker.cluster_handlers import register_for_cluster

register_for_cluster(Registry(), None, None, None)
assert {"txbroker.client.twisted_connection", "txbroker.cluster.fetcher_loop", "txbroker.cluster.replica_fetcher"} <= set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_S, cwd=CHECKOUT)
