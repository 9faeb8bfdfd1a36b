"""A load in a process of its own, that something kills by SIGKILL.

`python -m tests.spark.killed_load JARS PYSPARK MASTER SERVERS TOPIC TABLE FORMAT KILL [DELAY_MS]`

KILL is `nothing`; one of `txbroker.spark.load.STEPS`: this process, after the step; `writing`: this process, when a file of the table's
data is there; `driver`, `jvm` or `executor`: this process, Spark's JVM or one executor, DELAY_MS after the load was planned. The load goes
on without the executor.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXECUTOR_KILLED = "an executor was killed"


def kill() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_when_writing(table: Path) -> None:
    """Kill when the first file with data appears."""
    while not any(table.glob("**/part-*")):
        time.sleep(0.001)
    kill()


def kill_executor(spark: Any) -> None:
    """Kill the first one that there is."""
    from tests.spark.standalone import executor_processes

    while not (found := executor_processes(spark.sparkContext.applicationId)):
        time.sleep(0.001)
    os.kill(found[0], signal.SIGKILL)
    print(EXECUTOR_KILLED, flush=True)


def main() -> None:
    """Load until it is killed."""
    jars, pyspark, master, servers, topic, table, form, what, *delay = sys.argv[1:]
    sys.path.append(pyspark)
    from txbroker.spark.load import LoadOptions, load
    from txbroker.spark.session import open_session
    from txbroker.spark.topic_source import TopicSource

    spark = open_session(master, Path(jars), delta=True, log=sys.stderr.buffer)
    jvm = spark.sparkContext._gateway.proc
    actions: dict[str, Callable[[], None]] = {"driver": kill, "jvm": jvm.kill, "executor": lambda: kill_executor(spark)}

    def on_step(step: str) -> None:
        if step == what:
            kill()
        if step == "planned" and what in actions:
            timer = threading.Timer(int(delay[0]) / 1000, actions[what])
            timer.daemon = True
            timer.start()

    if what == "writing":
        threading.Thread(target=kill_when_writing, args=[Path(table)], daemon=True).start()
    load(spark, LoadOptions(TopicSource(servers, [topic]), table, format=form), on_step=on_step)


if __name__ == "__main__":
    main()
