"""Java, and Apache Kafka's command line tools from its jars."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support import cache
from tests.support.cache import KAFKA_NEW, KAFKA_OLD, Missing
from tests.support.waiting import PATIENCE_S

# A tool runs for a second or two: the fast compiler and the simple garbage collector start sooner.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

_LOG4J1 = """\
log4j.rootLogger={level}, E
log4j.appender.E=org.apache.log4j.ConsoleAppender
log4j.appender.E.target=System.err
log4j.appender.E.layout=org.apache.log4j.PatternLayout
log4j.appender.E.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_LOG4J2 = """\
rootLogger.level={level}
rootLogger.appenderRef.e.ref=E
appender.e.type=Console
appender.e.name=E
appender.e.target=SYSTEM_ERR
appender.e.layout.type=PatternLayout
appender.e.layout.pattern=[%d] %p %m (%c)%n
"""

# Apache Kafka's scripts and their main classes; by release where the class was renamed.
_MAIN_CLASSES: Mapping[str, str | Mapping[str, str]] = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": {KAFKA_OLD: "kafka.tools.ConsoleProducer", KAFKA_NEW: "org.apache.kafka.tools.ConsoleProducer"},
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-broker-api-versions": {KAFKA_OLD: "kafka.admin.BrokerApiVersionsCommand",
                                  KAFKA_NEW: "org.apache.kafka.tools.BrokerApiVersionsCommand"},
    "kafka-dump-log": {KAFKA_OLD: "kafka.tools.DumpLogSegments", KAFKA_NEW: "org.apache.kafka.tools.DumpLogSegments"},
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-server-start": "kafka.Kafka",
    "connect-mirror-maker": "org.apache.kafka.connect.mirror.MirrorMaker",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-acls": {KAFKA_OLD: "kafka.admin.AclCommand", KAFKA_NEW: "org.apache.kafka.tools.AclCommand"},
    "zookeeper-security-migration": "kafka.admin.ZkSecurityMigrator",
    "zookeeper-server-start": "org.apache.zookeeper.server.quorum.QuorumPeerMain",
}


# Tools that load most of the classes that others need too.
_LOAD_WHAT_TOOLS_SHARE = ("kafka-consumer-groups", "kafka-topics", "kafka-configs", "kafka-console-consumer")
_numbers = itertools.count(1)


@functools.cache
def java() -> str:
    """The java program; Missing with what to install when there is none."""
    program = shutil.which("java")
    if program is None:
        raise Missing("Java is not installed: run `make prepare` as root, or on Debian apt-get install default-jre-headless maven")
    return program


def main_class(tool: str, release: str) -> str:
    """The class behind one of Apache Kafka's scripts, e.g. "kafka-topics"."""
    name = _MAIN_CLASSES[tool]
    return name if isinstance(name, str) else name[release]


class ClassArchive:
    """The loaded classes of a JVM, kept in the cache (class data sharing): later JVMs start in half of the CPU time.

    The first process of a kind writes it when it exits: `options` ask for that as long as there is no archive. `keep` puts the archive in
    its place, once the process has ended.
    """

    def __init__(self, kind: str, release: str) -> None:
        cache.jars(release)  # may be the first use: the archive is in their folder
        self._path = cache.jar_directory(release) / "classes" / f"{kind}.jsa"
        self._written = self._path.with_suffix(f".{os.getpid()}-{next(_numbers)}")

    def options(self, *, write: bool = True) -> tuple[str, ...]:
        """Options for the JVM. Without `write` the process uses an archive but does not write one."""
        if self._path.exists():
            return (f"-XX:SharedArchiveFile={self._path}", "-Xlog:disable")
        if not write:
            return ()
        self._path.parent.mkdir(exist_ok=True)
        return (f"-XX:ArchiveClassesAtExit={self._written}", "-Xlog:disable")

    def keep(self) -> None:
        """Use the archive that the process wrote; it must have ended."""
        if self._written.exists():
            self._written.replace(self._path)


def command(tool: str, release: str, arguments: list[str], *, options: tuple[str, ...] = SHORT_LIVED, log_level: str = "WARN") -> list[str]:
    """The command line of one of Apache Kafka's tools, by its script's name, in `release`, a set of jars."""
    return [*class_path(release, options=options, log_level=log_level), main_class(tool, release), *arguments]


def class_path(release: str, *classes: Path, options: tuple[str, ...] = SHORT_LIVED, log_level: str = "WARN") -> list[str]:
    """The command line up to a main class, with folders of classes before the jars of `release`."""
    places = [*map(str, classes), *map(str, cache.jars(release))]
    return [java(), *options, _logging_option(release, log_level), "-cp", ":".join(places)]


def compiled(source: Path, directory: Path, release: str = KAFKA_NEW) -> Path:
    """The folder in `directory` with the classes of a program, compiled with the jars of `release` unless it was before."""
    classes = directory / f"{source.stem}-classes"
    if not classes.exists():
        compiler = shutil.which("javac")
        if compiler is None:
            raise Missing("There is no Java compiler: run `make prepare` as root, or on Debian apt-get install default-jdk-headless")
        jars = ":".join(map(str, cache.jars(release)))
        subprocess.run([compiler, "-nowarn", "-cp", jars, "-d", str(classes), str(source)], check=True, timeout=2 * PATIENCE_S)
    return classes


class ToolFailed(Exception):
    """A tool ended with a status other than 0."""


def run(tool: str, *arguments: str | Path, release: str = KAFKA_NEW, stdin: str | None = None, timeout_s: float = PATIENCE_S,
        options: tuple[str, ...] = SHORT_LIVED) -> str:
    """The standard output of a tool; ToolFailed with all of its output when its status is not 0."""
    archive = ClassArchive("tools", release)
    options = (*options, *archive.options(write=tool in _LOAD_WHAT_TOOLS_SHARE))
    line = command(tool, release, [str(argument) for argument in arguments], options=options)
    ended = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    archive.keep()
    if ended.returncode != 0:
        raise ToolFailed(f"{tool} of {release} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout


def _logging_option(release: str, level: str) -> str:
    """The option for the log4j configuration of the release: log to stderr. The file is in the cache beside the jars."""
    new = release != KAFKA_OLD
    path = cache.directory() / "jars" / f"{release}-{level.lower()}.properties"
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}-{next(_numbers)}")  # several threads may need it first
        fresh.write_text((_LOG4J2 if new else _LOG4J1).format(level=level))
        fresh.rename(path)
    return f"-Dlog4j2.configurationFile={path}" if new else f"-Dlog4j.configuration=file:{path}"
