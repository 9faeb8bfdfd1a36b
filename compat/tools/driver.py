"""Each of Kafka's tools: `driver HOST:PORT [TOOL ...]` prints a line of JSON a tool. RELEASE and CLASSES in the environment: see `run`."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat.adapter import Unsupported
from compat.matrix import FEATURES, TOOLS
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
    _print(client="Kafka's tools", version=release.removeprefix("kafka-"))
    for name in names or FEATURES[TOOLS]:
        _print(feature=name, **_attempt(name, bench, f"compat-{name}-{time.time_ns() // 1_000_000}"))
    bench.close()


def _attempt(name: str, bench: Bench, topic: str) -> dict[str, Any]:
    bench.begin()
    try:
        _KNOWN[name](bench, topic)
    except Unsupported as reason:
        return {"ok": None, "detail": str(reason)}
    except Exception as problem:  # whatever goes wrong is a cell that says no
        traceback.print_exc()
        return {"ok": False, "detail": f"{type(problem).__name__}: {problem}"}
    return {"ok": True, "detail": ""}


def _print(**line: Any) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
