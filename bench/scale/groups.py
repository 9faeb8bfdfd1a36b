"""Groups of one member each: the cost of commits, heartbeats and rebalances, and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.measures import Sample, Settings
from bench.process_tree import CpuMeter, rss_mb
from bench.rawload import Load, run
from bench.requests import BrokerClient, Refused, frame
from bench.scale.sweep import Curve, ServerSweep
from tests.support.server import HOST, Server
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CONNECTIONS = 16
DEPTH = 8
TOPIC = "committed"
SESSION_MS = 1_800_000  # no heartbeats are sent between measurements
REBALANCES = 500  # per measurement
MEMBER_ID_REQUIRED = 79
LOADING = (14, 15, 16)  # while the coordinator loads
IDLE_S = 3.0


@dataclass
class _Group:
    name: str
    member_id: str = ""
    generation: int = -1


class _Groups:
    def __init__(self, server: Server, settings: Settings, client: BrokerClient) -> None:
        self._server = server
        self._settings = settings
        self._client = client
        self._groups: list[_Group] = []
        self._warm = False
        self._memory_mb = 0.0
        self._grown_mb = 0.0

    def grow(self, size: int) -> None:
        if not self._groups:
            self._groups.append(_Group("group-0"))
            self._join(self._groups[0])
        if not self._warm:
            self._warm = True
            for load in self._loads().values():
                run(replace(load, seconds=self._settings.first_warmup_s))
            for _ in range(int(REBALANCES * 4 * self._settings.scale)):
                self._join(self._groups[0])
            self._memory_mb = rss_mb(self._server.pid)
        while len(self._groups) < size:
            group = _Group(f"group-{len(self._groups)}")
            self._join(group)
            self._groups.append(group)
        self._grown_mb = rss_mb(self._server.pid) - self._memory_mb

    def _join(self, group: _Group) -> None:
        """A whole rebalance: join and sync."""
        joined = self._asked(group, self._join_request)
        group.member_id, group.generation = joined.member_id, joined.generation_id
        assignments = [SyncGroupRequestAssignment(member_id=group.member_id, assignment=bytes(100))]
        request = SyncGroupRequest(
            group_id=group.name,
            generation_id=group.generation,
            member_id=group.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        error = self._client.call(request).error_code
        if error:
            raise Refused(f"SyncGroup was answered with error {error}")

    def _join_request(self, group: _Group) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=group.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(100))],
        )

    def _asked(self, group: _Group, request: Any) -> Any:
        while True:
            answer = self._client.call(request(group))
            if answer.error_code == MEMBER_ID_REQUIRED:
                group.member_id = answer.member_id
            elif answer.error_code in LOADING:
                time.sleep(0.05)
            elif answer.error_code:
                raise Refused(f"JoinGroup was answered with error {answer.error_code}")
            else:
                return answer

    def _loads(self) -> dict[str, Load]:
        groups = self._groups
        return {"commit": self._load([frame(_commit(g)) for g in groups]), "heartbeat": self._load([frame(_beat(g)) for g in groups])}

    def _load(self, frames: Sequence[bytes]) -> Load:
        of_connections = [frames[number::CONNECTIONS] or frames for number in range(CONNECTIONS)]
        return Load(HOST, self._server.port, of_connections, CONNECTIONS, DEPTH, self._settings.seconds, self._settings.warmup_s)

    def measure(self) -> Sample:
        sample = {"idle CPU": self._idle(), "memory per group": max(0.0, self._grown_mb) * 1e3 / len(self._groups)}
        for name, load in self._loads().items():
            result = run(load, self._server.pid)
            assert result.cpu_us_per_answer is not None
            sample[f"{name}s/s"] = result.answers_per_s
            sample[f"CPU per {name}"] = result.cpu_us_per_answer
        cpu, begin = CpuMeter(self._server.pid), time.perf_counter()
        count = int(REBALANCES * self._settings.scale)
        for number in range(count):
            self._join(self._groups[number % len(self._groups)])
        sample["rebalances/s"] = count / (time.perf_counter() - begin)
        sample["CPU per rebalance"] = cpu.seconds() / count * 1e6
        return sample

    def _idle(self) -> float:
        cpu = CpuMeter(self._server.pid)
        time.sleep(IDLE_S * self._settings.scale)
        return cpu.share() * 1e3

    def afterwards(self) -> Sample:
        return {}


def _commit(group: _Group) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group.name,
        generation_id_or_member_epoch=group.generation,
        member_id=group.member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def _beat(group: _Group) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group.name, generation_id=group.generation, member_id=group.member_id)


@contextmanager
def _subject(server: Server, settings: Settings) -> Iterator[_Groups]:
    with BrokerClient(server.address) as client:
        client.create_topic(TOPIC, 1)
        while client.call(FindCoordinatorRequest(coordinator_keys=["group-0"])).coordinators[0].error_code:
            time.sleep(0.05)
        yield _Groups(server, settings, client)


SWEEP = ServerSweep(
    "groups",
    f"Groups of one member: {CONNECTIONS} connections x {DEPTH} requests in flight send commits, or heartbeats, for all groups in turn; "
    "one rebalances them in turn",
    "groups",
    (1, 10, 100, 1000),
    (
        Curve("memory per group", "KB"),
        Curve("idle CPU", "ms/s"),
        Curve("commits/s", "requests/s", 0),
        Curve("CPU per commit", "µs", growth_max=1.3),
        Curve("heartbeats/s", "requests/s", 0),
        Curve("CPU per heartbeat", "µs", growth_max=1.3),
        Curve("rebalances/s", "rebalances/s", 0),
        Curve("CPU per rebalance", "µs", growth_max=1.3),
    ),
    _subject,
)
