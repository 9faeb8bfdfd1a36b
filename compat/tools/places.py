"""The tools that show offsets, files and versions: get-offsets, delete-records, log-dirs, dump-log, broker-api-versions."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from compat.adapter import Unsupported
from compat.samples import BASE_TIMESTAMP, PARTITIONS, STEP_MS, equal, sample_records
from compat.tools.bench import Bench
from tests.support.raw import RawConnection


def get_offsets(bench: Bench, topic: str) -> None:
    bench.filled(topic, 99)
    bench.plain.delete_records(topic, 1, 4)
    tenth = BASE_TIMESTAMP + 10 * PARTITIONS * STEP_MS  # the timestamp of record 10 in partition 0
    for arguments, wanted in (
        ((), {0: 33, 1: 33, 2: 33}),
        (("--time", "-1"), {0: 33, 1: 33, 2: 33}),
        (("--time", "earliest"), {0: 0, 1: 4, 2: 0}),
        (("--time", "max-timestamp"), {0: 32, 1: 32, 2: 32}),
        (("--time", "earliest-local"), {0: 0, 1: 4, 2: 0}),
        (("--time", str(tenth)), {0: 10, 1: 10, 2: 10}),
        (("--time", str(tenth + 1)), {0: 11, 1: 10, 2: 10}),
        (("--time", str(2 * BASE_TIMESTAMP)), {}),
        (("--partitions", "0,2"), {0: 33, 2: 33}),
        (("--exclude-internal-topics", "--time", "-2"), {0: 0, 1: 4, 2: 0}),
    ):
        equal(_offsets(bench.out("get-offsets", "--topic", topic, *arguments), topic), wanted, f"offsets by {' '.join(arguments)}")
    equal(_offsets(bench.out("get-offsets", "--topic-partitions", f"{topic}:1-2"), topic), {1: 33}, "offsets of a range of partitions")
    equal(_offsets(bench.out("get-offsets"), topic), {0: 33, 1: 33, 2: 33}, "offsets among those of all topics")
    bench.fails("get-offsets", "--topic", f"{topic}-none", saying="Could not match any topic-partitions")


def _offsets(printed: str, topic: str) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in re.findall(rf"^{topic}:(\d+):(\d+)$", printed, re.MULTILINE)}


def delete_records(bench: Bench, topic: str) -> None:
    bench.filled(topic, 99)
    printed = _delete(bench, topic, {0: 7, 1: -1})
    for partition, offset in ((0, 7), (1, 33)):
        assert re.search(rf"partition: {topic}-{partition}\s+low_watermark: {offset}$", printed, re.MULTILINE), printed
    equal([bench.plain.first_and_last(topic, partition) for partition in range(3)], [(7, 33), (33, 33), (0, 33)], "first and last offsets")
    assert "low_watermark: 7" in _delete(bench, topic, {0: 3}), "a deletion before the first offset changes nothing"
    assert "OffsetOutOfRangeException" in _delete(bench, topic, {0: 34})
    equal({record.offset for record in bench.plain.read(topic, 26 + 33) if record.partition == 0}, set(range(7, 33)), "remaining records")


def _delete(bench: Bench, topic: str, offsets: dict[int, int]) -> str:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "offsets.json"
        wanted = [{"topic": topic, "partition": partition, "offset": offset} for partition, offset in offsets.items()]
        path.write_text(json.dumps({"partitions": wanted, "version": 1}))
        ended = bench.run("delete-records", "--offset-json-file", str(path))
        return ended.out + ended.err


def log_dirs(bench: Bench, topic: str) -> None:
    bench.filled(topic, 99)
    report = _log_dirs(bench, "--topic-list", topic)
    equal([broker["broker"] for broker in report["brokers"]], [bench.broker_id], "brokers")
    (folder,) = report["brokers"][0]["logDirs"]
    equal(folder["error"], None, "error of the directory")
    equal(sorted(each["partition"] for each in folder["partitions"]), [f"{topic}-{partition}" for partition in range(3)], "partitions")
    here = Path(folder["logDir"])
    for each in folder["partitions"]:
        equal((each["offsetLag"], each["isFuture"]), (0, False), "lag and place")
        files = sum(path.stat().st_size for path in (here / each["partition"]).glob("*.log"))
        assert each["size"] == files if here.exists() else each["size"] > 0, each
    (whole,) = _log_dirs(bench, "--broker-list", str(bench.broker_id))["brokers"][0]["logDirs"]
    assert {each["partition"] for each in whole["partitions"]} > {f"{topic}-0"}, "not all partitions"
    unknown = bench.run("log-dirs", "--describe", "--broker-list", "77", status=1)
    assert "brokers do not exist" in unknown.out + unknown.err, unknown


def _log_dirs(bench: Bench, *arguments: str) -> Any:
    return json.loads(bench.out("log-dirs", "--describe", *arguments).splitlines()[-1])


def dump_log(bench: Bench, topic: str) -> None:
    """The files of the running broker."""
    records = [record for record in bench.filled(topic, 300) if record.partition == 0]
    bench.plain.read_in_group(topic, f"{topic}-group", 300)
    (folder,) = _log_dirs(bench, "--topic-list", topic)["brokers"][0]["logDirs"]
    here = Path(folder["logDir"])
    if not here.exists():
        raise Unsupported("the broker's files are not on this machine")
    log = here / f"{topic}-0" / f"{0:020}.log"
    printed = _dump(bench, log, "--deep-iteration", "--print-data-log")
    assert printed.count("isvalid: true") == len(re.findall(r"^baseOffset: ", printed, re.MULTILINE)) > 0, printed[:300]
    form = r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) .*?headerKeys: \[(.*?)\]"
    wanted = [(str(record.offset), str(record.timestamp), str(_size(record.key)), str(_size(record.value)),
               ",".join(name for name, _ in record.headers)) for record in records]
    equal(re.findall(form, printed, re.MULTILINE), wanted, "dumped records")
    text = next(record for record in sample_records(1))
    assert f"key: {(text.key or b'').decode()} payload: {(text.value or b'').decode()}" in printed
    index = _dump(bench, log.with_suffix(".index"), "--verify-index-only") + _dump(bench, log.with_suffix(".index"))
    assert "Mismatch" not in index and "mismatch" not in index and "Found" not in index, index[-500:]
    logs = ",".join(str(path) for path in here.glob("__consumer_offsets-*/*.log"))
    decoded = bench.run("dump-log", "--offsets-decoder", "--files", logs, server=False).out
    commit = rf'"group":"{topic}-group","topic":"{topic}","partition":0\D.*"offset":100\b'
    assert re.search(commit, decoded), "the group's commit is not there"


def _dump(bench: Bench, path: Path, *options: str) -> str:
    return bench.run("dump-log", *options, "--files", str(path), server=False).out


def _size(part: bytes | None) -> int:
    return -1 if part is None else len(part)


def broker_api_versions(bench: Bench, topic: str) -> None:
    """The tool prints what the broker answers."""
    printed = bench.out("broker-api-versions")
    assert f"{bench.address} (id: {bench.broker_id} rack: null" in printed, printed[:200]
    found = _ranges(printed)
    with RawConnection(bench.address) as connection:
        answer = connection.call(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
    advertised = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert len(found) > 30, f"{len(found)} APIs"
    equal({key: advertised.get(key) for key in found}, found, "versions")
    equal([line for line in printed.splitlines() if line.startswith("\tProduce(0)") and "usable: " not in line], [], "unusable")


def _ranges(printed: str) -> dict[int, tuple[int, int]]:
    lines = re.findall(r"^\t\S+\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+", printed, re.MULTILINE)
    return {int(key): (int(low), int(high or low)) for key, low, high in lines}
