"""The command: exit statuses, messages, the report, and signals."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRONMENT, command, run
from tests.handover.feeding import send
from tests.support.cache import CHECKOUT
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

Both = tuple[Server, Server]


def mirror(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command("mirror", *flags), cwd=CHECKOUT, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_until_caught_up(both: Both, name: str, tmp_path: Path) -> None:
    source, target = both
    create_topic(source, name, 2)
    send(source, name, numbered(40))
    report = tmp_path / "report.json"
    flags = ("--from", source.address, "--to", target.address, "--topic", name, "--until-caught-up", "--json", str(report))
    done = mirror(*flags)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"{name}-{i}: copied to offset 20 of 20, the target ends at 20, 20 records in this run" for i in range(2)]
    assert lines[2].startswith("40 records, ") and lines[2].endswith(" unchanged")
    found = json.loads(report.read_text())
    assert (found["schema"], found["job"], found["ok"], found["records"], found["problems"]) == (1, "mirror", True, 40, [])
    assert [(each["partition"], each["copied_to"], each["lag"]) for each in found["partitions"]] == [(0, 20, 0), (1, 20, 0)]

    other = mirror("--from", source.address, "--to", target.address, "--include", name, "--name", "other", "--until-caught-up",
                   "--json", str(report))  # fmt: skip
    refused = [f"{name} is copied by the mirror 'mirror'; run that one, or promote the topic first",
               "txbroker mirror: 1 topic could not be copied, see above"]  # fmt: skip
    assert other.returncode == 1 and other.stderr.splitlines()[-2:] == refused
    assert json.loads(report.read_text())["ok"] is False

    send(source, name, numbered(20))
    delete_records(source, name, 25, 1)
    stopped = mirror(*flags)
    assert stopped.returncode == 1 and json.loads(report.read_text())["states"] == {"copying": 1, "stopped": 1}
    assert f"txbroker mirror: 1 partition could not be copied, the first is {name}-1: the source deleted offsets 20 to 24" in stopped.stderr


@pytest.mark.process
def test_a_service_that_is_stopped(both: Both, name: str, tmp_path: Path) -> None:
    source, target = both
    create_topic(source, name, 1, KEEP)
    send(source, name, numbered(40))
    log = tmp_path / "log"
    line = command("mirror", "--from", source.address, "--to", target.address, "--topic", name, "--progress-every", "1",
                   "--log-format", "json")  # fmt: skip
    with log.open("wb") as stream:
        process = subprocess.Popen(line, cwd=CHECKOUT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=stream)
    until(lambda: "lag 0 offsets" in log.read_text() or process.poll() is not None, "it shows its progress")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 0 and b"40 records" in output, log.read_text()
    messages = [json.loads(each)["message"] for each in log.read_text().splitlines()]
    assert "SIGTERM: stopping" in messages and not any("Traceback" in each for each in messages)


@pytest.mark.process
def test_failures(both: Both, name: str) -> None:
    source, target = both
    gone = "127.0.0.1:1"
    missing = mirror("--from", source.address, "--to", target.address, "--topic", name)
    assert missing.returncode == 2
    assert missing.stderr.splitlines()[-1].startswith(f"txbroker mirror: topic {name} does not exist on the source; see")
    unreachable = mirror("--from", source.address, "--to", gone, "--topic", name)
    assert unreachable.returncode == 2 and "no broker of the target answers: no connection to 127.0.0.1:1" in unreachable.stderr
    promoted = mirror("promote", "--to", target.address, "--topic", name)
    assert promoted.returncode == 2 and f"{name} is not a copy that a mirror made" in promoted.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--from and --to are required"),
        (("--from", "a:1", "--to", "b:1"), "specify the topics with --topic or --include"),
        (("--from", "a:1", "--to", "b:1", "--include", "("), "--include '(' is not a regular expression"),
        (("--from", "a:1", "--to", "b:x", "--topic", "t"), "--to is 'b:x'"),
        (("--from", "a:1", "--to", "b:1", "--topic", "t", "--progress-every", "0"), "must be a whole number of 1 or more"),
        (("promote", "--to", "b:1"), "--topic"),
    ],
)
def test_usage(flags: tuple[str, ...], message: str) -> None:
    if flags[:1] == ("promote",) or "0" in flags:
        ended = mirror(*flags)
        assert ended.returncode == 2 and message in ended.stderr
    else:
        assert message in run("mirror", *flags, status=2)[1]
