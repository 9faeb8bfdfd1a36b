"""ZooKeeper for a cluster on one machine: Debian's package if it is installed, else jars that Maven fetches once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from txbroker.console.java_programs import cache_folder, fetch_jars, java_program

POM = Path(__file__).with_name("pom.xml")
DEBIAN_JARS = Path("/usr/share/java")
# What the server of Debian's package zookeeper loads; the versions are in the files behind these links.
_DEBIAN_NAMES = ("zookeeper", "zookeeper-jute", "metrics-core", "snappy-java", "slf4j-api", "slf4j-log4j12", "log4j-1.2")
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"

_CONFIGURATION = """\
# Written by `txbroker cluster` at every start.
dataDir={data}
clientPort={port}
clientPortAddress={host}
tickTime=1000
maxClientCnxns=0
admin.enableServer=false
autopurge.purgeInterval=1
"""
_LOGGING = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m%n
"""


def jars(announce: Callable[[str], None], debian: Path = DEBIAN_JARS) -> list[Path]:
    """The class path of a ZooKeeper server; fetched with Maven if it is missing. CommandFailed."""
    packaged = [debian / f"{name}.jar" for name in _DEBIAN_NAMES]
    if all(jar.exists() for jar in packaged):
        return packaged
    names = _names()
    folder = cache_folder(names[0].removesuffix(".jar"))
    found = [folder / name for name in names]
    if not all(jar.exists() for jar in found):
        announce(f"fetching ZooKeeper with Maven into {folder}")
        fetch_jars(POM, folder, names)
    return found


def command(directory: Path, host: str, port: int, class_path: list[Path]) -> list[str]:
    """Write the configuration of a server into `directory`; its command line."""
    configuration, logging = directory / "zoo.cfg", directory / "log4j.properties"
    configuration.write_text(_CONFIGURATION.format(data=directory / "data", host=host, port=port))
    logging.write_text(_LOGGING)
    options = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{logging}")
    return [java_program(), *options, "-cp", ":".join(map(str, class_path)), _MAIN_CLASS, str(configuration)]


def _names() -> list[str]:
    """The files of the jars in `pom.xml`, ZooKeeper's own first."""
    dependencies = ElementTree.parse(POM).getroot().iter(f"{_NAMESPACE}dependency")
    return [f"{each.findtext(_NAMESPACE + 'artifactId')}-{each.findtext(_NAMESPACE + 'version')}.jar" for each in dependencies]
