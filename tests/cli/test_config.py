"""`txbroker config`: every value with its origin, and the same errors as a start."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cache import CHECKOUT
from tests.support.certificates import Authority
from tests.support.examples import quarter
from txbroker.cli.main import main
from txbroker.cluster.tree.sqlite import check_format

FILE = """\
# comment
num.partitions=3
log.retention.hours=5
delegation.token.secret.key=hunter2
zookeeper.metadata.migration.enable=true
"""


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    assert main(["config", "--print", "--json", *argv]) == 0
    shown = json.loads(capsys.readouterr().out)
    return {row["name"]: row for row in shown["values"]}, shown["warnings"]


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Restores logging after the test: a refused start configures it for a standard error that is closed later."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "server.properties"
    path.write_text(FILE + f"log.dirs={tmp_path}/data\n")
    return path


def test_every_value_is_printed_with_its_origin(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    monkeypatch.setenv("KAFKA_MESSAGE_MAX_BYTES", "2000")
    flags = ["--config", file.name, "--env", "--override", "message.max.bytes=3000"]
    values, warnings = printed(capsys, *flags)
    assert (values["num.partitions"]["value"], values["num.partitions"]["origin"]) == ("4", "environment variable KAFKA_NUM_PARTITIONS")
    assert (values["message.max.bytes"]["value"], values["message.max.bytes"]["origin"]) == ("3000", "--override")
    assert values["log.retention.hours"]["origin"] == "server.properties:3"
    assert (values["log.retention.ms"]["value"], values["log.retention.ms"]["origin"]) == (
        str(5 * 3600 * 1000), "server.properties:3 (log.retention.hours)",
    )
    assert (values["log.segment.bytes"]["value"], values["log.segment.bytes"]["origin"]) == ("1073741824", "default")
    assert values["zookeeper.metadata.migration.enable"]["effective"] is False
    assert "num.io.threads" not in values
    assert [warning for warning in warnings if "server.properties:5: zookeeper.metadata.migration.enable is accepted" in warning]
    assert "num.io.threads" in printed(capsys, *flags, "--all")[0]


def test_without_env_the_environment_is_ignored(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    assert printed(capsys, "--config", file.name)[0]["num.partitions"]["value"] == "3"


def test_later_files_have_precedence(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("more.properties").write_text("num.partitions=9\n")
    values, _ = printed(capsys, "--config", file.name, "--config", "more.properties")
    assert values["num.partitions"]["origin"] == "more.properties:1"
    assert values["log.retention.hours"]["origin"] == "server.properties:3"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_are_hidden(file: Path, form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text() + "my.plugin.password=hunter2\nlistener.name.a.sasl.jaas.config=hunter2\n")
    assert main(["config", "--print", "--all", "--config", file.name, *form]) == 0
    ended = capsys.readouterr()
    assert "hunter2" not in ended.out + ended.err
    assert ended.out.count("[hidden]") == 3


def test_text_output_has_a_line_for_each_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text() + "num.io.threads=3\n")
    assert main(["config", "--print", "--config", file.name]) == 0
    ended = capsys.readouterr()
    lines = [line.split("  # ") for line in ended.out.splitlines()]
    assert {tuple(part.strip() for part in line) for line in lines} >= {
        ("num.partitions=3", "server.properties:2"), ("listeners=PLAINTEXT://:9092", "default"), ("broker.rack=", "default"),
    }
    assert all(len(line) == 2 for line in lines)
    places = "zookeeper.metadata.migration.enable (server.properties:5), num.io.threads (server.properties:7)"
    assert f"txbroker config: warning: {places}" in ended.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("num.partitions=three", "server.properties:1: num.partitions is 'three'; it must be a whole number"),
        ("listeners=TLS://:1", "server.properties:1: listeners has the listener TLS, which has no protocol in listener.security"),
        ("log.dirs=/a,/a", "server.properties:1: log.dirs names /a twice"),
    ],
)
@pytest.mark.parametrize("what", ["--print", "--check"])
def test_errors_are_those_of_a_start(
    file: Path, what: str, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["config", what, "--config", file.name]) == 1
    refused = capsys.readouterr().err.removeprefix("txbroker config: ")
    assert refused.startswith(sentence)
    assert main(["run", "--config", file.name]) == 1
    assert capsys.readouterr().err.removeprefix("txbroker: ") == refused


def test_a_check_prints_warnings_and_that_a_broker_would_start(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--check", "--config", file.name]) == 0
    ended = capsys.readouterr()
    assert ended.out == "A broker would start with this configuration, with 2 warnings.\n"
    assert ended.err.count("\n") == 2
    assert "PLAINTEXT://:9092 is on all addresses" in ended.err
    assert main(["config", "--check", "--json", "--config", "nowhere"]) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error.startswith("nowhere cannot be read")


def test_all_errors_are_reported(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("num.partitions=three\nlog.dirs=/a,/a\nlisteners=TLS://:1\n")
    assert main(["config", "--check", "--config", file.name]) == 1
    ended = capsys.readouterr()
    assert [line.partition(": ")[2][:20] for line in ended.err.splitlines()] == [
        "server.properties:1:", "server.properties:2:", "server.properties:3:",
    ]
    assert main(["config", "--check", "--json", "--config", file.name]) == 1
    assert [error[:20] for error in json.loads(capsys.readouterr().out)["errors"]] == [
        "server.properties:1:", "server.properties:2:", "server.properties:3:",
    ]
    assert main(["run", "--config", file.name]) == 1
    assert capsys.readouterr().err == ended.err.replace("txbroker config: ", "txbroker: ")


def test_values_and_directories_are_checked_together(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("log.dirs=/proc/one,/proc/two\nbroker.rack=${env:NO_SUCH}\nnum.partitions=three\nretention.ms=1\n\nbroker.id=${x\\u12")
    assert main(["config", "--check", "--config", file.name, "--override", "x=${env:NO_SUCH}"]) == 1
    assert [line.removeprefix("txbroker config: ").partition("; ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "warning: server.properties:4: retention.ms is a key of topics and is ignored",
        "server.properties:2: broker.rack: the environment variable NO_SUCH is not set",
        "server.properties:6: broker.id: \\u must be followed by four hexadecimal digits",
        "--override x: the environment variable NO_SUCH is not set",
        "server.properties:3: num.partitions is 'three'",
        "server.properties:1: cannot create /proc/one: No such file or directory",
        "server.properties:1: cannot create /proc/two: No such file or directory",
    ]


META = "version=0\nbroker.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"


PROBLEMS: list[tuple[str, dict[str, str], list[str], str]] = [
    ("/proc/none", {}, [], "--override: cannot create /proc/none: No such file or directory; correct it, or choose another log.dirs"),
    ("a-file", {"a-file": ""}, [], "cannot write to {tmp}/a-file: Not a directory; correct it, or choose another log.dirs"),
    ("a-file/below", {"a-file": ""}, [], "cannot create {tmp}/a-file/below: Not a directory"),
    ("data,/proc/none", {}, [], "no usable log directory has the metadata file txbroker-metadata.sqlite, and /proc/none"),
    ("data", {"data/meta.properties": "version=1\nnode.id=7"}, [], "belongs to KRaft node 7 (version 1)"),
    ("data", {"data/meta.properties": META}, ["broker.id=2"], "belongs to broker 1, but broker.id is 2"),
    ("data,more", {"data/meta.properties": META, "more/meta.properties": META.replace("id=1", "id=2")}, [], "must all belong to one"),
    ("data", {"data/topic-0/00000000000000000000.log": ""}, [], "data has logs, such as topic-0, but no directory of log.dirs has"),
    ("data", {"data/txbroker-metadata.sqlite": "no database" * 100}, [], "metadata.sqlite cannot be read: file is not a database"),
]


def log_directories(where: Path, log_dirs: str, files: dict[str, str], flags: list[str]) -> list[str]:
    """Write files; the flags of a broker whose log directories they are."""
    for name, content in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(content)
    return [f"--override={setting}" for setting in (f"log.dirs={log_dirs}", "listeners=PLAINTEXT://127.0.0.1:0", *flags)]


@pytest.mark.parametrize(("log_dirs", "files", "flags", "sentence"), PROBLEMS)
def test_problems_of_log_directories_are_reported(
    log_dirs: str, files: dict[str, str], flags: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = log_directories(tmp_path, log_dirs, files, flags)
    before = sorted(tmp_path.rglob("*"))
    assert main(["config", "--check", *overrides]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("txbroker config: ")
    assert sentence.format(tmp=tmp_path) in error
    assert sorted(tmp_path.rglob("*")) == before, "no file is changed"


@pytest.mark.parametrize("problem", quarter(PROBLEMS))
def test_problems_of_log_directories_prevent_a_start(problem: tuple[str, dict[str, str], list[str], str], tmp_path: Path) -> None:
    log_dirs, files, flags, _ = problem
    overrides = log_directories(tmp_path, log_dirs, files, flags)
    started = subprocess.run([sys.executable, "-m", "txbroker", "run", *overrides], capture_output=True, text=True, cwd=tmp_path,
                             env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, check=False)  # fmt: skip
    assert started.returncode == 1 and "Traceback" not in started.stderr


ZOOKEEPER = ["zookeeper.connect=127.0.0.1:1"]  # no server is there
# What is wrong, and a part of the error. {tmp}: the directory of the test.
SECURED: dict[str, tuple[list[str], str]] = {
    "no key store": (["ssl.keystore.location=/nonexist.pem"], "ssl.keystore.location is /nonexist.pem, which cannot be read"),
    "a pipe": (["ssl.keystore.location={tmp}/pipe"], "which cannot be read: it is not a regular file"),
    "no users": (["txbroker.scram.users.file=/nonexist"], "txbroker.scram.users.file is /nonexist: the file does not exist"),
    "bad users": (["txbroker.scram.users.file={tmp}/pipe"], "it is not a regular file, but a pipe or a device"),
    "a password for PEM": (["listener.name.ssl.ssl.keystore.password=x"], "listener.name.ssl.ssl.keystore.password is not used"),
    "a key beside a file": (["listener.name.ssl.ssl.keystore.key=x"], "listener.name.ssl.ssl.keystore.key and ssl.keystore.location"),
    "no trust store": (["listener.name.ssl.ssl.truststore.location="], "ssl.client.auth is required, so ssl.truststore.location"),
    "rules": (["ssl.principal.mapping.rules=CN"], "ssl.principal.mapping.rules is not valid"),
    "two of them": (["ssl.keystore.location=/a", "txbroker.scram.users.file=/b"], "ssl.keystore.location is /a, which cannot be read"),
    "audit": (["txbroker.audit.file=/nonexist/audit"], "txbroker.audit.file is /nonexist/audit: cannot"),
    "stores of ZooKeeper": ([*ZOOKEEPER, "zookeeper.ssl.client.enable=true", "zookeeper.ssl.truststore.location=/no.pem"],
                            "zookeeper.ssl.truststore.location is /no.pem, which cannot be read"),
    "a login for ZooKeeper": ([*ZOOKEEPER, "txbroker.zookeeper.jaas.file=/nonexist"],
                              "txbroker.zookeeper.jaas.file is /nonexist, which cannot be read"),
}  # fmt: skip


def secured(where: Path, more: list[str]) -> list[str]:
    """The flags of a broker with mutual TLS."""
    authority = Authority(where)
    os.mkfifo(where / "pipe")
    settings = ["listeners=SSL://127.0.0.1:0", "security.inter.broker.protocol=SSL", f"log.dirs={where}/data", "ssl.keystore.type=PEM",
                f"ssl.keystore.location={authority.issue('own').pem()}", "ssl.truststore.type=PEM",
                f"ssl.truststore.location={authority.pem()}", "ssl.client.auth=required"]  # fmt: skip
    return [f"--override={setting.format(tmp=where)}" for setting in (*settings, *more)]


@pytest.mark.parametrize("what", SECURED)
def test_a_check_reports_what_a_start_would_not_read(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more, sentence = SECURED[what]
    overrides = secured(tmp_path, more)
    before = sorted(tmp_path.rglob("*"))
    assert main(["config", "--check", *overrides]) == 1
    ended = capsys.readouterr()
    assert ended.out == "" and sentence in ended.err
    assert sorted(tmp_path.rglob("*")) == before, "no file is changed"


def test_a_check_accepts_what_a_start_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "users").write_text("")
    more = [f"txbroker.scram.users.file={tmp_path}/users", f"txbroker.audit.file={tmp_path}/audit"]
    before = sorted(tmp_path.rglob("*"))
    assert main(["config", "--check", *secured(tmp_path, more)]) == 0
    assert "A broker would start with this configuration" in capsys.readouterr().out
    made = {tmp_path / "pipe", tmp_path / "own.pem", tmp_path / "authority.pem"}
    assert set(tmp_path.rglob("*")) - set(before) == made, "the check writes no file"


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize("what", SECURED)
def test_a_start_has_the_errors_of_a_check(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = secured(tmp_path, SECURED[what][0])
    assert main(["config", "--check", *overrides]) == 1
    errors = [line.removeprefix("txbroker config: ") for line in capsys.readouterr().err.splitlines()]
    started = subprocess.run([sys.executable, "-m", "txbroker", "run", *overrides], capture_output=True, text=True, cwd=tmp_path,
                             env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, check=False)  # fmt: skip
    refused = [line.removeprefix("txbroker: ") for line in started.stderr.splitlines() if line.startswith("txbroker: ")]
    assert started.returncode == 1 and len(refused) == 1
    assert refused[0] in errors


def test_an_unusable_directory_is_a_warning_when_others_are_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, blocked = tmp_path / "data", tmp_path / "blocked"
    data.mkdir()
    shutil.copy(CHECKOUT / "setup.cfg", blocked)
    with contextlib.closing(sqlite3.connect(data / "txbroker-metadata.sqlite")) as metadata:
        check_format(metadata, "new")
    assert main(["config", "--check", "--override", f"log.dirs={data},{blocked}"]) == 0
    warned = capsys.readouterr().err
    assert f"txbroker config: warning: --override: cannot write to {blocked}: Not a directory: the broker starts without" in warned


@pytest.mark.parametrize("argv", [[], ["--print", "--check"], ["--check", "--all"]])
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", *argv]) == 2
