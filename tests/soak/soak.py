"""The soak test: a broker, its clients, and the checks at the end."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.admin import Administrator
from tests.soak.checks import Trend, log_problems, trends
from tests.soak.clients import ENDS, GOES, PROGRAMS, KcatSlot, MemberSlot, ProducerSlot, Slot
from tests.soak.ledgers import Ledgers
from tests.soak.misbehaving import MisbehavingConnections
from tests.soak.plan import OVERRIDES, REPEATED, TOPICS, Plan
from tests.soak.reader import Reader
from tests.soak.sampling import Sample, Sampler, describe, descriptors
from tests.support.broker import BrokerProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, find_coordinator
from tests.support.raw_log import LATEST
from tests.support.waiting import PATIENCE_S, until

THREADS_MAX = 40
# What must have happened at the end, besides the actions of `MisbehavingConnections`.
HAPPENS = (*ENDS, "topics created", "topics deleted", "configurations changed", "visits of kcat to a group",
           "times that records were deleted", "samples of acknowledgements", "records given to members of groups")


@dataclass
class Verdict:
    """The result. `faults`: why the test failed, in sentences."""

    faults: list[str]
    trends: list[Trend]
    counts: dict[str, int]
    samples: list[Sample] = field(repr=False)

    def __str__(self) -> str:
        lines = [*map(str, self.trends), *(f"{count:10,}  {what}" for what, count in self.counts.items())]
        return "\n".join([*lines, *(f"FAULT: {fault}" for fault in self.faults)])


class Soak:
    """One run, which writes its files to `directory`."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._plan = plan
        self._directory = directory
        self._ledgers = Ledgers([(topic.name, number) for topic in TOPICS for number in range(topic.partitions)])
        directory.mkdir(parents=True, exist_ok=True)
        self._server = BrokerProcess(directory / "broker", OVERRIDES)
        self._stop = threading.Event()

    def run(self) -> Verdict:
        """Run the whole soak test."""
        server = self._server
        server.start()
        try:
            for topic in (*TOPICS, REPEATED):
                create_topic(server, topic.name, topic.partitions, topic.configs)
            find_coordinator(server, "visitor")
            return self._with_clients(self._quiet_sockets(), server.log_size())
        finally:
            self._stop.set()
            server.close()

    def _with_clients(self, quiet: int, log_start: int) -> Verdict:
        plan, server, ledgers = self._plan, self._server, self._ledgers
        slots = self._slots()
        misbehaving = [
            MisbehavingConnections(
                server.address, ledgers, random.Random(f"{plan.seed} misbehaving {n}"), self._stop, plan.wait_s_max, first=4 * n
            )
            for n in range(2)
        ]
        administrator = Administrator(server, ledgers, random.Random(f"{plan.seed} administrator"))
        sampler = Sampler(server.pid, server.data, self._directory / "samples.csv", plan.sample_s, lambda: ledgers.read)
        reader = Reader(server.address, ledgers)
        for slot in slots:
            slot.start(self._stop)
        others = [self._again(f"connections {n}", connections.act, pause_s=0.5) for n, connections in enumerate(misbehaving)]
        others.append(self._again("administrator", administrator.act, pause_s=plan.administrator_pause_s))
        what_happens = [*misbehaving[0].names, *HAPPENS]
        self._wait(sampler, what_happens)
        self._stop.set()
        plan.say("stopping all clients; the last members and the reader read to the end")
        for slot in slots:
            slot.join()
        for other in others:
            other.join(60)
        sampler.close()
        faults = ledgers.faults
        if server.running:
            self._finish(slots, administrator, reader, quiet)
        else:
            faults.add(f"the broker ended:\n{server.log_tail()}")
        if sampler.problem:
            faults.add(sampler.problem)
        suspects = set().union(*(connections.suspects for connections in misbehaving))
        found = trends(sampler.samples)
        for trend in found:
            if not trend.flat:
                faults.add(f"grows: {trend}")
        for sample in sampler.samples:
            if sample.threads > THREADS_MAX:
                faults.add(f"{sample.threads} threads after {sample.elapsed_s:.0f} s")
                break
        for problem in log_problems(server.log(log_start).splitlines(), suspects)[:20]:
            faults.add(f"the broker logged: {problem}")
        for what in self._missing(what_happens):
            faults.add(f"this never happened: {what}")
        shutil.copyfile(server.log_path, self._directory / "broker.log")
        return Verdict(faults.sentences, found, {**ledgers.counts.all(), "records read, each once": ledgers.read}, sampler.samples)

    def _slots(self) -> list[Slot]:
        plan, address, ledgers, directory = self._plan, self._server.address, self._ledgers, self._directory
        common = plan, address, ledgers, directory
        return [
            *(ProducerSlot(*common, library) for library in PROGRAMS),
            KcatSlot(*common),
            MemberSlot(*common, 1, "confluent", ("confluent",), ("sized", "timed")),
            MemberSlot(*common, 1, "kafka-python", ("kafka_python",), ("sized", "stamped")),
            MemberSlot(*common, 1, "aiokafka", ("aio",), ("erased", "recompressed")),
            MemberSlot(*common, 1, "mixed", PROGRAMS, ("sized",)),
            MemberSlot(*common, 2, "mixed", PROGRAMS, ("sized",)),
            MemberSlot(*common, 1, "static", ("confluent",), ("timed",), static=True),
        ]

    def _again(self, name: str, act: Callable[[], None], pause_s: float) -> threading.Thread:
        def work() -> None:
            while not self._stop.wait(pause_s):
                try:
                    act()
                except Exception as error:
                    if not self._stop.is_set():
                        self._ledgers.faults.add(f"{name}: {type(error).__name__}: {error}")
                        self._stop.wait(1)

        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def _missing(self, what_happens: Sequence[str]) -> list[str]:
        return [what for what in what_happens if not self._ledgers.counts[what]]

    def _wait(self, sampler: Sampler, what_happens: Sequence[str]) -> None:
        """Until the time is over and every action has happened, which takes longer on a loaded machine."""
        plan, start = self._plan, time.monotonic()
        shown = 0
        while self._server.running:
            left = plan.duration_s - (time.monotonic() - start)
            if left <= 0 and (left < -PATIENCE_S or not self._missing(what_happens)):
                break
            self._stop.wait(min(plan.progress_s, left) if left > 0 else 1.0)
            if sampler.samples:
                plan.say(f"{(time.monotonic() - start) / 60:6.1f} min  {describe(sampler.samples[-1])}")
            for fault in self._ledgers.faults.sentences[shown:]:
                shown += 1
                plan.say(f"FAULT: {fault}")

    # --- checks at the end ---

    def _finish(self, slots: list[Slot], administrator: Administrator, reader: Reader, quiet: int) -> None:
        faults = self._ledgers.faults
        try:
            administrator.finish()
            self._read_out(slots)
            reader.close()
            for ledger in self._ledgers.partitions.values():
                ledger.check_promises()
            until(lambda: descriptors(self._server.pid).sockets == quiet, f"the broker has {quiet} sockets, as before the first client")
            self._until_no_deleted_file()
        except AssertionError as error:
            faults.add(f"after all clients ended: {error}")
        status = self._server.stop()
        if status:
            faults.add(f"the broker ended with {status}")

    def _read_out(self, slots: list[Slot]) -> None:
        """A last member of each group, and the reader, read to the end."""
        ends = self._ends()
        until(lambda: all(self._ledgers.partitions[at].position >= end for at, end in ends.items()), "the reader is at the end")
        groups = {slot.group: slot for slot in slots if isinstance(slot, MemberSlot)}
        members = [slot.last() for slot in groups.values()]
        expected = [(slot.group, (topic.name, number)) for slot in groups.values() for topic in TOPICS if topic.name in slot.topics
                    for number in range(topic.partitions)]

        def missing() -> list[str]:
            late = []
            for group, partition in expected:
                ledger = self._ledgers.groups.get((group, partition))
                seen = ledger.end if ledger else 0
                if seen < ends[partition] and self._ledgers.partitions[partition].log_start < ends[partition]:
                    late.append(f"{group} is at offset {seen} of {ends[partition]} in {partition[0]}-{partition[1]}")
            return late

        try:
            until(lambda: not missing(), "every group is at the end", every_s=0.2)
        except AssertionError:
            for sentence in missing():
                self._ledgers.faults.add(f"a group did not reach the end: {sentence}")
        for member in members:
            member.end(GOES, 0, self._stop)

    def _ends(self) -> dict[tuple[str, int], int]:
        from kafka.protocol.consumer import ListOffsetsRequest

        topics = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(timeout_ms=30_000, topics=[
            topics(name=topic.name, partitions=[topics.ListOffsetsPartition(partition_index=n, timestamp=LATEST)
                                                for n in range(topic.partitions)])
            for topic in TOPICS])
        with RawConnection(self._server.address) as connection:
            answer = connection.call(request, 7)
        return {(topic.name, part.partition_index): part.offset for topic in answer.topics for part in topic.partitions}

    def _until_no_deleted_file(self) -> None:
        pid = self._server.pid
        try:
            until(lambda: not descriptors(pid).deleted, "no deleted file is open")
        except AssertionError as error:
            raise AssertionError(f"deleted files are still open: {descriptors(pid).deleted}") from error

    def _quiet_sockets(self) -> int:
        """The number of sockets without clients."""
        counts: list[int] = []

        def settled() -> bool:
            counts.append(descriptors(self._server.pid).sockets)
            return len(counts) > 10 and len(set(counts[-10:])) == 1

        until(settled, "the number of sockets stays the same")
        return counts[-1]
