"""A load in a process of its own that is killed by SIGKILL.

`python -m tests.spark.killed_load JARS PYSPARK SERVERS TOPIC TABLE FORMAT STEP`

STEP is one of `txbroker.spark.load.STEPS`, or `writing`: as soon as a file of the table's data is there.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path


def kill() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_when_writing(table: Path) -> None:
    """Kill when the first file with data appears."""
    while not any(table.glob("**/part-*")):
        time.sleep(0.001)
    kill()


def main() -> None:
    """Load until the step."""
    jars, pyspark, servers, topic, table, form, step = sys.argv[1:]
    sys.path.append(pyspark)
    from txbroker.spark.load import LoadOptions, load
    from txbroker.spark.session import open_session
    from txbroker.spark.topic_source import TopicSource

    spark = open_session("local[2]", Path(jars), delta=True)
    if step == "writing":
        threading.Thread(target=kill_when_writing, args=[Path(table)], daemon=True).start()
    options = LoadOptions(TopicSource(servers, [topic]), table, format=form)
    load(spark, options, on_step=lambda reached: kill() if reached == step else None)


if __name__ == "__main__":
    main()
