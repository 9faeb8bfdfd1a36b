"""A replay in a process of its own, to be killed: `python -m tests.spark.killed_replay JARS PYSPARK MASTER SERVERS SOURCE TARGET`.

Its first line is the id of Spark's application.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Replay in small batches."""
    jars, pyspark, master, servers, source, target = sys.argv[1:]
    sys.path.append(pyspark)
    from txbroker.spark.brokers import Brokers
    from txbroker.spark.replay import ReplayOptions, replay
    from txbroker.spark.session import open_session
    from txbroker.spark.topic_source import TopicSource

    spark = open_session(master, Path(jars), delta=False, log=sys.stderr.buffer)
    print(spark.sparkContext.applicationId, flush=True)
    replay(spark, ReplayOptions(TopicSource(servers, [source]), Brokers.of(servers), target, batch_records=4))


if __name__ == "__main__":
    main()
