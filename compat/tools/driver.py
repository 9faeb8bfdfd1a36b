"""The driver of Kafka's tools: `driver HOST:PORT [TOOL ...]` prints a line of JSON per tool. It reads RELEASE and CLASSES (see `run`)."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from compat.matrix import FEATURES, TOOLS
from compat.saying import attempt, introduce
from compat.tools import console, groups, load, places, topics
from compat.tools.bench import Bench

_KNOWN: dict[str, Callable[[Bench, str], None]] = {
    "topics": topics.topics,
    "configs": topics.configs,
    "consumer-groups": groups.consumer_groups,
    "console-producer": console.console_producer,
    "console-consumer": console.console_consumer,
    "producer-perf-test": load.producer_perf_test,
    "consumer-perf-test": load.consumer_perf_test,
    "verifiable-producer": load.verifiable_producer,
    "verifiable-consumer": load.verifiable_consumer,
    "get-offsets": places.get_offsets,
    "delete-records": places.delete_records,
    "log-dirs": places.log_dirs,
    "dump-log": places.dump_log,
    "broker-api-versions": places.broker_api_versions,
}


def main() -> None:
    """Run the tools that are named, or all."""
    address, *names = sys.argv[1:]
    release = os.environ["RELEASE"]
    bench = Bench(address, release, Path(os.environ["CLASSES"]))
    introduce("Kafka's tools", release.removeprefix("kafka-"))
    for name in names or FEATURES[TOOLS]:
        bench.begin()
        attempt(name, functools.partial(_KNOWN[name], bench, f"compat-{name}-{time.time_ns() // 1_000_000}"))
    bench.close()


if __name__ == "__main__":
    main()
