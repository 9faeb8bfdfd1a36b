"""`python -m tests.spark.crash`: kill the driver, its JVM or an executor of a load again and again.

The loads run on a standalone master with two workers, in turn into a Delta and a Parquet table. Before each round records are produced; in
each round a load is killed at a random step or moment. After each round the table's files are read without Spark: no offset may be there
twice, and none may have gone. At the end an undisturbed load must make both tables complete. The same seed makes the same choices.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kafka import KafkaProducer

from tests.spark.killed_load import EXECUTOR_KILLED
from tests.spark.standalone import Standalone, standalone
from tests.support import cache
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.spark.load import STEPS
from txbroker.spark.tables.manifests import Manifests

PARTITIONS = 3
RECORDS_MAX = 3000
DELAY_MS_MAX = 4000
TIMEOUT_S = 300.0
TOPIC = "crashed"
KILLS = (*STEPS[:-1], "writing", "driver", "jvm", "executor")
LOCKED = "another job writes to"


class Failed(Exception):
    """Rows are lost or doubled; or a load failed that nothing disturbed."""


class CrashTest:
    """A broker, a Spark cluster, and a table of one format. `kill` and `rounds` of loads end with `complete`."""

    def __init__(self, broker: Server, cluster: Standalone, table: Path, form: str, chance: random.Random) -> None:
        self._broker = broker
        self._cluster = cluster
        self._table = table
        self._form = form
        self._chance = chance
        self._topic = f"{TOPIC}-{form}"
        self._produced: Counter[int] = Counter()
        self._loaded: set[tuple[int, int]] = set()
        create_topic(broker, self._topic, PARTITIONS)

    def round(self, what: str, delay_ms: int | None = None) -> str:
        """Produce, and load with a kill, by default after a random time; what happened."""
        count = self._produce()
        delay = str(self._chance.randrange(DELAY_MS_MAX) if delay_ms is None else delay_ms)
        ended = self._load(what, delay)
        if ended.returncode == 0:
            outcome = f"{EXECUTOR_KILLED}, and the load finished" if EXECUTOR_KILLED in ended.stdout else "the load finished"
        elif ended.returncode == -signal.SIGKILL:
            outcome = "the driver was killed"
        elif what == "jvm" or LOCKED in ended.stderr:
            outcome = "the load failed"
        else:
            raise Failed(f"a load with the kill {what} ended with {ended.returncode}: {ended.stderr[-3000:]}")
        self._check(complete=ended.returncode == 0)
        return f"{count} records, {what} after {delay} ms: {outcome}, {len(self._loaded)} rows in the table"

    def complete(self) -> None:
        """Load without a kill, as soon as the last JVM has ended; then the table must have every record."""
        def ends() -> bool:
            ended = self._load("nothing")
            if ended.returncode and LOCKED not in ended.stderr:
                raise Failed(f"a load without a kill ended with {ended.returncode}: {ended.stderr[-3000:]}")
            return ended.returncode == 0

        until(ends, "a load gets the table", timeout_s=TIMEOUT_S)
        self._check(complete=True)

    def _produce(self) -> int:
        count = self._chance.randint(1, RECORDS_MAX)
        producer = KafkaProducer(bootstrap_servers=self._broker.address, linger_ms=20)
        for _ in range(count):
            partition = self._chance.randrange(PARTITIONS)
            producer.send(self._topic, self._chance.randbytes(50), partition=partition)
            self._produced[partition] += 1
        producer.close()
        return count

    def _load(self, what: str, delay: str = "0") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.spark.killed_load", str(cache.jar_directory(cache.SPARK)), str(cache.pyspark()),
                   self._cluster.url, self._broker.address, self._topic, str(self._table), self._form, what, delay]  # fmt: skip
        return subprocess.run(command, cwd=CHECKOUT, env=self._cluster.environment, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)  # fmt: skip

    def _check(self, *, complete: bool) -> None:
        """No row is there twice, and all that were there still are; after a whole load every record is."""
        found = rows(self._table)
        twice = [row for row, count in found.items() if count > 1]
        if twice:
            raise Failed(f"{len(twice)} rows are doubled, the first is partition and offset {min(twice)}")
        gone = self._loaded - found.keys()
        if gone:
            raise Failed(f"{len(gone)} rows have gone from the table, the first is partition and offset {min(gone)}")
        self._loaded = set(found)
        expected = {(partition, offset) for partition, count in self._produced.items() for offset in range(count)}
        if complete and self._loaded != expected:
            missing = sorted(expected - self._loaded)
            raise Failed(f"the table has {len(self._loaded)} of {len(expected)} rows; the first that is missing is {missing[:1]}")


def rows(table: Path) -> Counter[tuple[int, int]]:
    """How often each partition and offset is in a table, by its own log and without Spark."""
    import pyarrow.parquet

    found: Counter[tuple[int, int]] = Counter()
    for path in files(table):
        columns = pyarrow.parquet.ParquetFile(path).read(["partition", "offset"]).to_pydict()
        found.update(zip(columns["partition"], columns["offset"], strict=True))
    return found


def files(table: Path) -> list[Path]:
    """The data files of a Delta or Parquet table."""
    state = Manifests(table).newest()
    if state is not None:
        return [table / path for path in state.files]
    there: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                there[action["add"]["path"]] = None
            elif "remove" in action:
                del there[action["remove"]["path"]]
    return [table / path for path in there]


def main() -> int:
    """Exit status 0 if no row was lost or doubled, 1 otherwise: then the folder is kept."""
    parser = argparse.ArgumentParser(prog="make crash-spark ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=50, help="number of kills (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    directory = Path(tempfile.mkdtemp(prefix="crash-spark-"))
    sys.path.append(str(cache.pyspark()))
    cache.jars(cache.SPARK)
    print(f"{arguments.rounds} kills, seed {arguments.seed}")
    broker = BrokerProcess(directory / "broker")
    broker.start()
    try:
        with standalone(directory / "cluster") as cluster:
            tests = [CrashTest(broker, cluster, directory / form, form, chance) for form in ("delta", "parquet")]
            for number in range(1, arguments.rounds + 1):
                print(f"{number}: {tests[number % 2].round(chance.choice(KILLS))}", flush=True)
            for test in tests:
                test.complete()
    except Failed as failed:
        print(f"FAILED with seed {arguments.seed}: {failed}; the data is in {directory}")
        return 1
    finally:
        broker.close()
    shutil.rmtree(directory)
    print("each record is in its table exactly once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
