"""The administrative commands on a real broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import fill, on_terminal, run
from tests.support.raw_admin import advertised, create_topic
from tests.support.server import Server
from tests.support.waiting import until

pytestmark = pytest.mark.process


def objects(*argv: str, status: int = 0) -> list[dict[str, Any]]:
    """What a command prints with --json."""
    return [json.loads(line) for line in run(*argv, "--json", status=status)[0].splitlines()]


def test_offsets(broker: Server, name: str) -> None:
    create_topic(broker, name, 3)
    fill(broker, name, {0: 5, 1: 7})
    server = ("get-offsets", "--bootstrap-server", broker.address)

    def offsets(*flags: str) -> list[str]:
        return run(*server, *flags)[0].splitlines()

    assert offsets("--topic", name) == [f"{name}:0:5", f"{name}:1:7", f"{name}:2:0"]
    assert offsets("--topic", f"{name[:-1]}.", "--partitions", "1,2", "--time", "earliest") == [f"{name}:1:0", f"{name}:2:0"]
    assert offsets("--topic-partitions", f"{name}:-1,{name}:2-") == [f"{name}:0:5", f"{name}:2:0"]
    assert offsets("--topic", name, "--time", "1700000000003") == [f"{name}:0:3", f"{name}:1:3"], "none in partition 2"
    assert offsets("--topic", name, "--time", "max-timestamp") == [f"{name}:0:4", f"{name}:1:6"]
    (row,) = objects(*server, "--topic", name, "--partitions", "1", "--time", "1700000000003")
    assert row == {"topic": name, "partition": 1, "offset": 3, "timestamp": 1700000000003}
    everything = offsets("--exclude-internal-topics")
    assert f"{name}:1:7" in everything
    assert not any(line.startswith("__") for line in everything)
    _, complaint = run(*server, "--topic", f"no-{name}", status=1)
    assert complaint == "txbroker get-offsets: no partition matches these flags; see `txbroker topics --list`\n"


def test_deleting_records(broker: Server, name: str, tmp_path: Path) -> None:
    create_topic(broker, name, 2)
    fill(broker, name, {0: 50, 1: 20})
    path = tmp_path / "offsets.json"

    def delete(offsets: dict[int, int], *flags: str, status: int = 0) -> tuple[str, str]:
        entries = [{"topic": name, "partition": partition, "offset": offset} for partition, offset in offsets.items()]
        path.write_text(json.dumps({"partitions": entries, "version": 1}))
        return run("delete-records", "--bootstrap-server", broker.address, "--offset-json-file", str(path), *flags, status=status)

    output, complaint = delete({0: 40, 1: -1})
    assert output.splitlines()[-2:] == [f"partition: {name}-0\tlow_watermark: 40", f"partition: {name}-1\tlow_watermark: 20"]
    assert complaint == ""
    advice = "; specify an offset up to the high watermark, which `txbroker get-offsets` shows, or -1"
    output, complaint = delete({0: 45, 1: 21, 2: 0}, "--json", status=1)
    assert [json.loads(line) for line in output.splitlines()] == [
        {"topic": name, "partition": 0, "low_watermark": 45, "error": None},
        {"topic": name, "partition": 1, "low_watermark": None, "error": "OFFSET_OUT_OF_RANGE"},
        {"topic": name, "partition": 2, "low_watermark": None, "error": "UNKNOWN_TOPIC_OR_PARTITION"},
    ]
    assert [json.loads(line)["warning"] for line in complaint.splitlines()] == [
        f"nothing was deleted from partition {name}-1: offset out of range (OFFSET_OUT_OF_RANGE){advice}",
        f"nothing was deleted from partition {name}-2: unknown topic or partition (UNKNOWN_TOPIC_OR_PARTITION); "
        "see `txbroker topics --list`",
    ]
    _, complaint = delete(dict.fromkeys((0, 1, 3, 4, 5, 6), 100), status=1)
    assert complaint == (
        f"nothing was deleted from 2 partitions ({name}-0, {name}-1): offset out of range (OFFSET_OUT_OF_RANGE){advice}\n"
        f"nothing was deleted from 4 partitions ({name}-3, {name}-4, {name}-5, ...): unknown topic or partition "
        "(UNKNOWN_TOPIC_OR_PARTITION); see `txbroker topics --list`\n"
    )
    found, _ = run("get-offsets", "--bootstrap-server", broker.address, "--topic", name, "--time", "earliest")
    assert found == f"{name}:0:45\n{name}:1:20\n", "the other records were deleted"
    change = ("configs", "--bootstrap-server", broker.address, "--alter", "--topic", name, "--add-config")
    run(*change, "cleanup.policy=compact")
    _, complaint = delete({0: 46}, status=1)
    assert complaint.startswith(f"nothing was deleted from partition {name}-0: policy violation (POLICY_VIOLATION); cleanup.policy of the ")
    run(*change, "cleanup.policy=[compact,delete]")
    assert delete({0: 46})[0].endswith(f"partition: {name}-0\tlow_watermark: 46\n")


def test_log_directories(broker: Server, name: str) -> None:
    create_topic(broker, name, 2)
    fill(broker, name, {0: 50})
    describe = ("log-dirs", "--bootstrap-server", broker.address, "--describe", "--topic-list", name)
    (row,) = objects(*describe)
    assert (row["log_dir"], row["error"]) == (str(broker.data), None)
    assert [(each["topic"], each["partition"], each["future"]) for each in row["partitions"]] == [(name, 0, False), (name, 1, False)]
    sizes = [(broker.partition_directory(name, i) / f"{0:020}.log").stat().st_size for i in range(2)]
    assert [each["size"] for each in row["partitions"]] == sizes
    document = json.loads(run(*describe)[0].splitlines()[-1])
    (directory,) = document["brokers"][0]["logDirs"]
    assert directory["partitions"][0] == {"partition": f"{name}-0", "size": sizes[0], "offsetLag": 0, "isFuture": False}
    assert (directory["logDir"], directory["error"], document["version"]) == (str(broker.data), None, 1)
    assert f"{name}-1" in on_terminal(*describe, columns=200)
    assert all(len(line) <= 40 for line in on_terminal(*describe, columns=40).splitlines())
    (same,) = objects(*describe, "--broker-list", str(row["broker"]))
    assert same["partitions"] == row["partitions"]
    _, complaint = run(*describe, "--broker-list", "777", status=1)
    assert complaint == f"txbroker log-dirs: there is no broker 777; the brokers are {row['broker']}\n"
    assert "does not exist" in run(*describe[:-1], f"no-{name}", status=1)[1]


def test_configurations(broker: Server, name: str, tmp_path: Path) -> None:
    create_topic(broker, name, 1, {})
    server = ("configs", "--bootstrap-server", broker.address)
    topic = ("--entity-type", "topics", "--entity-name", name)
    assert run(*server, "--describe", *topic) == (f"Dynamic configs for topic {name} are:\n", "")
    added = ("--add-config", "cleanup.policy=[compact,delete],max.message.bytes=4000")
    assert run(*server, "--alter", *topic, *added) == (f"Completed updating config for topic {name}.\n", "")
    lines = run(*server, "--describe", "--topic", name)[0].splitlines()
    policy = "cleanup.policy=compact,delete"
    assert lines[1].startswith(f"  {policy} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{policy}, ")
    assert lines[2:] == [
        "  max.message.bytes=4000 sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=4000, DEFAULT_CONFIG:message.max.bytes=1048588}"
    ]
    settings = tmp_path / "topic.properties"
    settings.write_text("retention.ms = 60000\ncleanup.policy=delete\n")
    run(*server, "--alter", *topic, "--add-config-file", str(settings), "--delete-config", "max.message.bytes")
    (row,) = objects(*server, "--describe", *topic)
    assert (row["entity_type"], row["entity_name"]) == ("topics", name)
    assert {each["name"]: each["value"] for each in row["configs"]} == {"cleanup.policy": "delete", "retention.ms": "60000"}
    (everything,) = objects(*server, "--describe", *topic, "--all")
    assert len(everything["configs"]) > 20
    assert all(len(line) <= 60 for line in on_terminal(*server, "--describe", *topic, columns=60).splitlines())
    _, complaint = run(*server, "--alter", *topic, "--add-config", "retention.ms=soon", status=1)
    assert complaint.startswith(f"txbroker configs: topic {name} was not altered: ")
    assert complaint.endswith("(INVALID_CONFIG)\n")
    _, complaint = run(*server, "--alter", *topic, "--delete-config", "retention.ms,segment.ms,neverset", status=1)
    assert complaint == (
        f"txbroker configs: Invalid config(s): segment.ms,neverset: not set for topic {name}; set are cleanup.policy, retention.ms\n"
    )
    run(*server, "--alter", *topic, "--delete-config", "retention.ms,cleanup.policy")
    _, complaint = run(*server, "--alter", *topic, "--delete-config", "retention.ms", status=1)
    assert complaint == f"txbroker configs: Invalid config(s): retention.ms: not set for topic {name}; none is set\n"
    missing = ("--entity-type", "topics", "--entity-name", f"no-{name}")
    for action in (("--describe",), ("--alter", *added)):
        assert f"topic no-{name} does not exist; see" in run(*server, *action, *missing, status=1)[1]


def test_configurations_of_brokers(broker: Server) -> None:
    server = ("configs", "--bootstrap-server", broker.address)
    changed = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.cleaner.backoff.ms=1700")
    try:
        assert run(*server, *changed)[0] == "Completed updating default config for brokers in the cluster.\n"
        first = "  log.cleaner.backoff.ms=1700 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER"
        until(lambda: first in run(*server, "--describe", "--broker-defaults")[0], "the default is altered")
        assert run(*server, "--describe", "--broker-defaults")[0].startswith("Default configs for brokers in the cluster are:\n")
        _, warned = run(*server, "--alter", "--broker-defaults", "--add-config", "file.delete.delay.ms=1,log.cleaner.backoff.ms=1700")
        assert warned == (
            "txbroker configs: warning: file.delete.delay.ms is a key of topics and is ignored; use log.segment.delete.delay.ms\n"
        )
        assert "  file.delete.delay.ms=null sensitive=true" in run(*server, "--describe", "--broker-defaults")[0]
    finally:
        run(*server, "--alter", "--broker-defaults", "--delete-config", "log.cleaner.backoff.ms,file.delete.delay.ms")
    def dynamic() -> set[str]:
        defaults = objects(*server, "--describe", "--entity-type", "brokers")[-1]
        assert defaults["entity_name"] is None
        return {each["name"] for each in defaults["configs"]}

    # The broker applies altered defaults shortly after they are stored.
    until(lambda: "log.cleaner.backoff.ms" not in dynamic(), "the default is deleted")
    *brokers, _ = objects(*server, "--describe", "--entity-type", "brokers")
    (everything,) = objects(*server, "--describe", "--broker", brokers[0]["entity_name"], "--all")
    sources = {each["name"]: each["source"] for each in everything["configs"]}
    assert sources["group.initial.rebalance.delay.ms"] == "STATIC_BROKER_CONFIG"
    _, complaint = run(*server, "--describe", "--broker", "777", status=1)
    assert complaint == "txbroker configs: there is no broker 777; see `txbroker broker-api-versions`\n"


def test_versions(broker: Server) -> None:
    command = ("broker-api-versions", "--bootstrap-server", broker.address)
    offered = advertised(broker)
    output, _ = run(*command)
    assert re.match(rf"{broker.address} \(id: \d+ rack: null isFenced: false\) -> \(\n", output)
    low, high = offered[0]
    assert re.search(rf"\n\tProduce\(0\): {low} to {high} \[usable: \d+\],\n", output)
    assert output.endswith("\n)\n")
    (row,) = objects(*command)
    assert {each["api_key"]: (each["min_version"], each["max_version"]) for each in row["api_versions"]} == offered
    assert not {each["api_key"] for each in row["unsupported"]} & offered.keys()
    assert all(len(line) <= 80 for line in on_terminal(*command).splitlines())
