"""Client processes that start, stop, hang and are killed, one after the other in each slot."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from tests.soak.ledgers import Ledgers
from tests.soak.plan import CODECS, TOPICS, Plan, Topic
from tests.support.cache import CHECKOUT, Missing

PROGRAMS = ("confluent", "kafka_python", "aio")
# How a client ends: by SIGTERM, killed, suspended for a while and then by SIGTERM, suspended and then killed.
GOES, KILLED, HANGS, HANGS_AND_IS_KILLED = "clients stopped", "clients killed", "clients suspended", "clients killed while suspended"
ENDS = (GOES, KILLED, HANGS, HANGS_AND_IS_KILLED)
LEAVE_S = 90.0

_numbers = itertools.count(1)


def kcat() -> str:
    """The path of kcat; Missing when it is not installed."""
    program = shutil.which("kcat")
    if program is None:
        raise Missing("kcat is not installed: run `make prepare` as root, or on Debian apt-get install kcat")
    return program


class Child:
    """One process; a thread reads its output line by line."""

    def __init__(self, command: list[str], ledgers: Ledgers, errors: Path, *, feeds: bool = False) -> None:
        self.command = command
        self._ledgers = ledgers
        self._ready = False
        self._errors_path = errors
        with errors.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=CHECKOUT,
                                            stdin=subprocess.PIPE if feeds else subprocess.DEVNULL)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._ready = True
            try:
                if line != b"ready\n":
                    self.line(line.decode())
            except Exception as error:
                self._ledgers.faults.add(f"{self.command}: {line[:200]!r}: {error!r}")

    def line(self, text: str) -> None:
        """One line of its output."""

    def ended(self, timeout_s: float) -> int | None:
        """The exit status, after all output was read; None when the process does not end in time."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._thread.join(30)
        return status

    def end(self, how: str, hang_s: float, stop: threading.Event) -> None:
        """End the process. After SIGTERM its exit status must be 0."""
        if how in (HANGS, HANGS_AND_IS_KILLED):
            self.process.send_signal(signal.SIGSTOP)
            stop.wait(hang_s)
        if how in (KILLED, HANGS_AND_IS_KILLED):
            self.process.kill()
        if how == HANGS:
            self.process.send_signal(signal.SIGCONT)
            stop.wait(3)  # time to notice what it missed
        if how in (GOES, HANGS):
            self.process.terminate()
        status = self.ended(LEAVE_S)
        if status is None:
            self.process.kill()
            self.ended(LEAVE_S)
            self._ledgers.faults.add(f"{' '.join(self.command)}: did not end within {LEAVE_S:.0f} s after SIGTERM\n{self._errors()}")
        elif how in (GOES, HANGS) and status and (self._ready or status != -signal.SIGTERM):
            self._ledgers.faults.add(f"{' '.join(self.command)}: ended with {status}\n{self._errors()}")
        self._ledgers.counts.add(how)

    def _errors(self) -> str:
        return self._errors_path.read_text(errors="replace")[-1500:]


class _ProducerChild(Child):
    topic: str
    name: str

    def line(self, text: str) -> None:
        what, *values = text.split()
        numbers = [int(value) for value in values]
        ledger = self._ledgers.partitions[self.topic, numbers[0]]
        if what == "acked":
            ledger.acknowledged(numbers[1], self.name, numbers[2])
            self._ledgers.counts.add("samples of acknowledgements")
        elif what == "last":
            ledger.promised(self.name, numbers[1])


class _MemberChild(Child):
    group: str

    def line(self, text: str) -> None:
        what, *values = text.split()
        if what == "read":
            topic, (number, first, last) = values[0], map(int, values[1:])
            self._ledgers.given(self.group, (topic, number), first, last)
        elif what == "rebalanced":
            self._ledgers.counts.add("commits that came too late")


class Slot(ABC):
    """Runs one client after the other, until the soak test ends."""

    def __init__(self, plan: Plan, address: str, ledgers: Ledgers, directory: Path, name: str) -> None:
        self.name = name
        self._plan = plan
        self._address = address
        self._ledgers = ledgers
        self._directory = directory
        self._chance = random.Random(f"{plan.seed} {name}")
        self._thread: threading.Thread | None = None

    def start(self, stop: threading.Event) -> None:
        self._thread = threading.Thread(target=self._run, args=(stop,), name=self.name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the last client has ended."""
        assert self._thread is not None
        self._thread.join(2 * LEAVE_S + 60)
        if self._thread.is_alive():
            self._ledgers.faults.add(f"{self.name} did not end in time")

    def _run(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self.one(stop)
        except Exception as error:
            self._ledgers.faults.add(f"{self.name} failed: {type(error).__name__}: {error}")

    @abstractmethod
    def one(self, stop: threading.Event) -> None:
        """One client, from its start to its end."""

    def _errors(self) -> Path:
        return self._directory / f"{self.name}.log"

    def _live(self, child: Child, stop: threading.Event) -> None:
        """Let a client run for a while, then end it; it must not end by itself."""
        stop.wait(self._chance.uniform(*self._plan.client_life_s))
        how = GOES if stop.is_set() else self._chance.choice((GOES, *ENDS))
        if child.process.poll() is not None:
            how = GOES
        child.end(how, self._chance.uniform(*self._plan.hang_s), stop)

    def _program(self, library: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tests.soak.programs", library, "--address", self._address, *arguments]


class ProducerSlot(Slot):
    """Producers of one library, with all codecs, with and without idempotence."""

    def __init__(self, plan: Plan, address: str, ledgers: Ledgers, directory: Path, library: str) -> None:
        super().__init__(plan, address, ledgers, directory, f"producer-{library}")
        self._library = library

    def one(self, stop: threading.Event) -> None:
        topic = self._chance.choice(TOPICS)
        codec = self._chance.choice(CODECS)
        acks = self._chance.choice(("all", "all", "1", "0"))
        idempotent = acks == "all" and self._chance.random() < 0.6
        name = f"{self._library}-{next(_numbers)}"
        for number in range(topic.partitions):
            self._ledgers.partitions[topic.name, number].expect(name, idempotent=idempotent)
        command = self._program(
            self._library, "produce", "--name", name, "--topic", topic.name, "--partitions", str(topic.partitions), "--codec", codec,
            "--acks", acks, "--rate", str(self._plan.records_per_s), *(["--idempotent"] if idempotent else []))
        child = _ProducerChild(command, self._ledgers, self._errors())
        child.topic, child.name = topic.name, name
        self._live(child, stop)
        self._ledgers.counts.add(f"producers of {self._library}")


class KcatSlot(Slot):
    """kcat, as a producer of lines from standard input and as the only member of a new group."""

    def __init__(self, plan: Plan, address: str, ledgers: Ledgers, directory: Path) -> None:
        super().__init__(plan, address, ledgers, directory, "kcat")
        self._kcat = kcat()

    def one(self, stop: threading.Event) -> None:
        topic = self._chance.choice(TOPICS)
        self._produce(topic, self._chance.randrange(topic.partitions), stop)
        if not stop.is_set():
            self._visit(topic)

    def _produce(self, topic: Topic, partition: int, stop: threading.Event) -> None:
        name = f"kcat-{next(_numbers)}"
        idempotent = self._chance.random() < 0.5
        ledger = self._ledgers.partitions[topic.name, partition]
        ledger.expect(name, idempotent=idempotent)
        command = [self._kcat, "-P", "-b", self._address, "-t", topic.name, "-p", str(partition), "-z", self._chance.choice(CODECS),
                   "-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "linger.ms=20", "-X", "batch.size=65536"]
        child = Child(command, self._ledgers, self._errors(), feeds=True)
        assert child.process.stdin is not None
        count = 0
        for _ in range(self._chance.randint(3, 20)):
            lines = [f"{name} {number} {'text ' * self._chance.randint(1, 100)}\n" for number in range(count + 1, count + 21)]
            count += len(lines)
            child.process.stdin.write("".join(lines).encode())
            child.process.stdin.flush()
            if stop.wait(0.5):
                break
        child.process.stdin.close()
        status = child.ended(LEAVE_S)
        if status == 0:
            ledger.promised(name, count)
        else:
            self._ledgers.faults.add(f"{' '.join(command)}: ended with {status}")
        self._ledgers.counts.add("producers of kcat")

    def _visit(self, topic: Topic) -> None:
        """A new group that reads to the end of all partitions, at most 1,000 records: under load it may not reach an end."""
        command = [self._kcat, "-b", self._address, "-G", f"visitor-{next(_numbers)}", "-q", "-e", "-c", "1000",
                   "-X", "auto.offset.reset=earliest", "-X", "check.crcs=true", "-f", "%p %o\\n", topic.name]
        child = Child(command, self._ledgers, self._errors())
        status = child.ended(LEAVE_S)
        if status != 0:
            child.process.kill()
            self._ledgers.faults.add(f"{' '.join(command)}: ended with {status}")
        self._ledgers.counts.add("visits of kcat to a group")


class MemberSlot(Slot):
    """Members of one group, each of a library of `libraries`."""

    def __init__(self, plan: Plan, address: str, ledgers: Ledgers, directory: Path, number: int, group: str, libraries: tuple[str, ...],
                 topics: tuple[str, ...], *, static: bool = False) -> None:
        super().__init__(plan, address, ledgers, directory, f"member-{group}-{number}")
        self.group = group
        self.topics = topics
        self._libraries = libraries
        self._static = self.name if static else None

    def one(self, stop: threading.Event) -> None:
        library = self._chance.choice(self._libraries)
        child = self._child(library, self._static)
        self._live(child, stop)
        self._ledgers.counts.add(f"members of {library}")

    def _child(self, library: str, static: str | None) -> _MemberChild:
        command = self._program(library, "consume", "--group", self.group, "--topics", ",".join(self.topics),
                                *(["--static", static] if static else []))
        child = _MemberChild(command, self._ledgers, self._errors())
        child.group = self.group
        return child

    def last(self) -> Child:
        """A last member, which reads the remaining records."""
        return self._child(self._libraries[0], self._static)
