"""Valid requests with bad intent: while the broker handles one, other clients are served, and its memory stays within bounds.

The bounds do not measure performance; a request that is handled the wrong way exceeds them by far.
"""

from __future__ import annotations

import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import crc32c
import pytest
from kafka.protocol import admin, consumer, metadata

from tests.support.raw import ConnectionEnded, RawConnection, frame_of
from tests.support.raw_admin import create_topic, find_coordinator
from tests.support.raw_log import batch, produce
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

PARTITIONS = 500
STALL_CPU_S_MAX = 2.0  # of the broker's CPU time, so that a loaded machine makes no difference
GROWTH_MIB_MAX = 400
MIB = 1 << 20
TOPIC, BROKER = 2, 4
MESSAGE_TOO_LARGE = 10

WIDE = "wide"  # a topic of many partitions
GROUP = "large"  # a group with a large member and many offsets


@pytest.fixture(scope="module")
def server(shared_broker: Server) -> Server:
    """The shared broker, with a wide topic and a large group."""
    create_topic(shared_broker, WIDE, PARTITIONS)
    find_coordinator(shared_broker, GROUP)
    with RawConnection(shared_broker.address) as connection:
        assert produce(connection, WIDE, batch(numbered(10))).error_code == 0
        partition = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "m" * 100}
        topics = [{"name": WIDE, "partitions": [{"partition_index": i, **partition} for i in range(PARTITIONS)]}]
        commit = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        answer = connection.call(_make(consumer.OffsetCommitRequest, commit), 7)
        assert {p.error_code for topic in answer.topics for p in topic.partitions} == {0}
        _join(connection)
    return shared_broker


class Watch:
    """Another client, which sends requests all the time. Measures the most CPU time of the broker until a response, and the growth of its
    memory."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._before = 0.0
        self.asked = 0
        self.longest_cpu_s = 0.0

    def __enter__(self) -> Watch:
        Path(f"/proc/{self._server.pid}/clear_refs").write_text("5")  # reset the peak
        self._before = _peak_mib(self._server)
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._end.set()
        self._thread.join(PATIENCE_S)

    def _ask(self) -> None:
        with RawConnection(self._server.address) as connection:
            while not self._end.is_set() or not self.asked:
                start = _cpu_s(self._server)
                connection.call(metadata.ApiVersionsRequest(client_software_name="w", client_software_version="1"), 3)
                self.longest_cpu_s = max(self.longest_cpu_s, _cpu_s(self._server) - start)
                self.asked += 1
                self._end.wait(0.005)

    def check(self) -> None:
        assert self.longest_cpu_s < STALL_CPU_S_MAX, f"others waited for {self.longest_cpu_s:.1f} s of the broker's CPU time"
        grown = _peak_mib(self._server) - self._before
        assert grown < GROWTH_MIB_MAX, f"the broker grew by {grown:.0f} MiB"


def _cpu_s(server: Server) -> float:
    """CPU time of the broker's main thread, which runs its reactor, so far."""
    return int(Path(f"/proc/{server.pid}/task/{server.pid}/schedstat").read_text().split()[0]) / 1e9


def _peak_mib(server: Server) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _make(cls: Any, fields: dict[str, Any]) -> Any:
    """A message of kafka-python's from plain dictionaries and lists."""
    values = {}
    for name, value in fields.items():
        field = cls.fields[name]
        values[name] = [_make(field.data_class, item) for item in value] if field.is_struct_array() and value is not None else value
    return cls(**values)


def _join(connection: RawConnection) -> None:
    """Make a stable group of one member with a large subscription."""
    join = {"group_id": GROUP, "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "member_id": "",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": bytes(100_000)}]}
    joined = connection.call(_make(consumer.JoinGroupRequest, join), 2)
    sync = {"group_id": GROUP, "generation_id": joined.generation_id, "member_id": joined.member_id,
            "assignments": [{"member_id": joined.member_id, "assignment": bytes(100_000)}]}
    assert connection.call(_make(consumer.SyncGroupRequest, sync), 2).error_code == 0


def _topics_again(times: int) -> dict[str, Any]:
    return {"topics": [{"name": WIDE}] * times, "allow_auto_topic_creation": False}


def _resources_again(times: int, **more: Any) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, **more} for kind, name in ((TOPIC, WIDE), (BROKER, "")) for _ in range(times)]


def _fetch(partitions: list[int], *, version: int, max_wait_ms: int = 0, min_bytes: int = 0) -> tuple[Any, int]:
    wanted = [{"partition": p, "fetch_offset": 10 if p == 0 else 0, "partition_max_bytes": 1 << 20} for p in partitions]
    topics = [{"topic": WIDE, "partitions": wanted}]
    fields = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": 50 << 20, "session_id": 0, "session_epoch": -1,
              "topics": topics, "forgotten_topics_data": []}
    return _make(consumer.FetchRequest, fields), version


REPEATED: dict[str, Callable[[], tuple[Any, int]]] = {
    "metadata": lambda: (_make(metadata.MetadataRequest, _topics_again(20_000)), 8),
    "describe configs": lambda: (_make(admin.DescribeConfigsRequest, {
        "resources": _resources_again(5_000, configuration_keys=None), "include_synonyms": True, "include_documentation": True}), 3),
    "alter configs": lambda: (_make(admin.IncrementalAlterConfigsRequest, {
        "resources": _resources_again(5_000, configs=[{"name": "retention.ms", "config_operation": 0, "value": "-1"}]),
        "validate_only": False}), 1),
    "describe groups": lambda: (_make(admin.DescribeGroupsRequest, {"groups": [GROUP] * 20_000, "include_authorized_operations": True}), 5),
    "offset fetch": lambda: (_make(consumer.OffsetFetchRequest, {
        "groups": [{"group_id": GROUP, "topics": None}] * 5_000, "require_stable": False}), 8),
    "describe producers": lambda: (_make(admin.DescribeProducersRequest, {
        "topics": [{"name": WIDE, "partition_indexes": [0] * 20_000}]}), 0),
    "list offsets": lambda: (_make(consumer.ListOffsetsRequest, {"replica_id": -1, "isolation_level": 0, "topics": [
        {"name": WIDE, "partitions": [{"partition_index": 0, "timestamp": 1}] * 20_000}]}), 5),
    "fetch": lambda: _fetch([0] * 20_000, version=11),
}


@pytest.mark.parametrize("what", REPEATED)
def test_a_name_that_occurs_many_times(broker: Server, server: Server, what: str) -> None:
    request, version = REPEATED[what]()
    with RawConnection(server.address) as connection, Watch(server) as watch:
        for _ in range(3):
            connection.send(request, version)
            connection.receive_frame()
    watch.check()


@pytest.mark.parametrize("partitions", [[1] * 20_000, list(range(1, PARTITIONS))], ids=["one again and again", "many"])
def test_many_waiting_fetches_while_others_produce(broker: Server, server: Server, partitions: list[int]) -> None:
    fetch = frame_of(*_fetch(partitions, version=11, max_wait_ms=30_000, min_bytes=1 << 20))
    with ExitStack() as stack:
        for _ in range(50):
            waiting = stack.enter_context(RawConnection(server.address))
            waiting.send_bytes(fetch)
        producer = stack.enter_context(RawConnection(server.address))
        with Watch(server) as watch:
            for _ in range(30):
                assert produce(producer, WIDE, batch(numbered(1)), partition=1).error_code == 0
        watch.check()


def test_large_batches_that_are_refused(broker: Server, name: str) -> None:
    """Their memory is released."""
    create_topic(broker, name)
    size = 32 << 20
    data = struct.pack(">qiib", 0, size - 12, 0, 2) + bytes(size - 17)  # base offset, length, leader epoch, magic
    with RawConnection(broker.address) as connection, Watch(broker) as watch:
        for _ in range(3 * GROWTH_MIB_MAX * MIB // size):
            assert produce(connection, name, data).error_code == MESSAGE_TOO_LARGE
    watch.check()


# An empty record: length, attributes, timestamp, offset, no key, no value, no headers.
NOTHING = b"\x0c\0\0\0\x01\x01\0"


def bomb(records: int) -> bytes:
    """A batch of very many empty records, very small once compressed."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    body = packer.compress(NOTHING * records) + packer.flush()
    after_crc = struct.pack(">hiqqqhii", 1, records - 1, 1000, 1000, -1, -1, -1, records) + body
    head = struct.pack(">qiibI", 0, 9 + len(after_crc), 0, 2, crc32c.crc32c(after_crc))
    return head + after_crc


@pytest.fixture
def bombed(broker: Server, name: str) -> Iterator[str]:
    """A topic whose limits allow such a batch."""
    create_topic(broker, name)
    data = bomb(5_000_000)
    with RawConnection(broker.address) as connection, Watch(broker) as watch:
        produce(connection, name, data)
    watch.check()
    yield name


@pytest.mark.parametrize("version", [1, 2, 11])
def test_a_small_batch_of_very_many_records(broker: Server, bombed: str, version: int) -> None:
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50 << 20, "session_id": 0, "session_epoch": -1,
              "topics": [{"topic": bombed, "partitions": wanted}], "forgotten_topics_data": []}
    with RawConnection(broker.address) as connection, Watch(broker) as watch:
        try:
            connection.send(_make(consumer.FetchRequest, fields), version)
            connection.receive_frame()
        except ConnectionEnded:
            pass
    watch.check()
