"""`python -m compat.demo_spark`: Debian's package index and a day of keyed updates, from topics into tables with Spark, and an audit.

The commands are those that a user types. Everything is left in a folder: the tables, the report as JSON and as HTML.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import sys
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from compat.demo.failure import DemoFailed
from compat.demo.packages import Package, read_packages
from compat.demo.produce import produce
from compat.progress import step
from tests.support import cache
from tests.support.broker import BrokerProcess
from tests.support.cache import Missing
from tests.support.java import java
from tests.support.server import ServerFailed
from txbroker.cli.main import main as txbroker

INDEX, UPDATES = "debian-packages", "package-installs"
PARTITIONS = 4
PACKAGES, DAY_UPDATES, LATE_UPDATES = 5_000, 60_000, 500
DAY_MS, LATE_MS = 86_400_000, 600_000
SEED = 11
FLUSH_S = 60.0


def main() -> int:
    """The exit status: 1 if the audit found something wrong, or a step failed."""
    parser = argparse.ArgumentParser(prog="python -m compat.demo_spark", description=__doc__)
    directory_help = "for the tables and the reports; it is emptied first (default: demo-spark)"
    parser.add_argument("--directory", type=Path, default=Path("demo-spark"), metavar="DIR", help=directory_help)
    parser.add_argument("--no-browser", action="store_true", help="do not open the report")
    options = parser.parse_args()
    started_s = time.monotonic()
    try:
        java()
        cache.jars(cache.SPARK)
        sys.path.append(str(cache.pyspark()))
        report = _demonstrate(options.directory.absolute())
    except (DemoFailed, Missing, ServerFailed, KafkaError, KafkaException) as problem:
        print(f"The demonstration cannot continue: {problem}", file=sys.stderr)
        return 1
    print(f"\nThe report is in {report} ({time.monotonic() - started_s:.0f} s in all)")
    if not options.no_browser and sys.stdout.isatty() and os.environ.get("DISPLAY"):
        webbrowser.open(report.as_uri())
    return 0


def _demonstrate(directory: Path) -> Path:
    """All steps; the path of the report."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    broker = BrokerProcess(directory)
    try:
        with step("start a broker") as progress:
            broker.start()
            progress.finish(broker.address)
        packages = _produce_index(broker.address)
        now_ms = time.time_ns() // 1_000_000
        chance = random.Random(SEED)
        _produce_updates(broker.address, packages, chance, DAY_UPDATES, now_ms - DAY_MS, now_ms - LATE_MS)
        servers = ["--bootstrap-server", broker.address]
        spark = [*servers, "--jars", str(cache.jar_directory(cache.SPARK))]
        loaded, latest, report = directory / "loaded", directory / "latest", directory / "audit.html"
        topics = ["--topic", INDEX, "--topic", UPDATES]
        _run("spark", "load", *spark, *topics, "--table", str(loaded))
        _run("log-cleaner", *servers, "--compact-now", UPDATES, "--roll", "--wait")
        _produce_updates(broker.address, packages, chance, LATE_UPDATES, now_ms - LATE_MS, now_ms)
        _run("spark", "upsert", *spark, "--from-table", str(loaded), "--topic", UPDATES, "--table", str(latest))
        _run("spark", "audit", *spark, *topics, "--table", str(loaded), "--html", str(report), "--json", str(directory / "audit.json"))
        return report
    finally:
        broker.close()


def _run(*arguments: str) -> None:
    """A command of txbroker, in this process: the JVM of Spark is started once."""
    print(f"\n$ txbroker {shlex.join(arguments)}", flush=True)
    status = txbroker(list(arguments))
    if status:
        raise DemoFailed(f"the command ended with status {status}")


def _produce_index(address: str) -> Sequence[Package]:
    with step("read apt's package index") as progress:
        packages = read_packages(progress.note)
        progress.finish(f"{len(packages):,} packages, {sum(len(stanza) for _, stanza in packages):,} bytes")
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        created = {"num_partitions": PARTITIONS, "replication_factor": 1}
        admin.create_topics({INDEX: created, UPDATES: {**created, "configs": {"cleanup.policy": "compact"}}}, wait_for_metadata=True)
    finally:
        admin.close()
    with step(f"produce {INDEX}", len(packages)) as progress:
        sent = produce(address, INDEX, packages, "lz4", progress.advance)
        progress.finish(f"{sent.count:,} records")
    return packages


def _produce_updates(address: str, packages: Sequence[Package], chance: random.Random, count: int, from_ms: int, to_ms: int) -> None:
    """How often packages were installed so far, over time. Some packages change often, some are removed."""
    names = [name for name, _ in packages[:: max(len(packages) // PACKAGES, 1)]]
    installs = dict.fromkeys(names, 0)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "enable.idempotence": True, "compression.codec": "lz4"})
    with step(f"produce {UPDATES}", count) as progress:
        for i in range(count):
            name = names[int(len(names) * chance.random() ** 3)]
            installs[name] += chance.randrange(1, 50)
            value = None if chance.random() < 0.002 else json.dumps({"installs": installs[name]}).encode()
            producer.produce(UPDATES, value, name, timestamp=from_ms + (to_ms - from_ms) * i // count)
            producer.poll(0)
            progress.advance()
        if left := producer.flush(FLUSH_S):
            raise DemoFailed(f"{left} of {count} updates were not acknowledged")
        progress.finish(f"{count:,} records")


if __name__ == "__main__":
    sys.exit(main())
