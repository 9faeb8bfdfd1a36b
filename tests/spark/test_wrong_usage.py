"""What is wrong with the flags, the brokers or the table is an error with exit status 2 before Spark starts, and nothing is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run
from tests.support.raw_admin import create_topic
from tests.support.server import Server

SERVER = ("--bootstrap-server", "127.0.0.1:9")  # nothing listens there
TOPIC = (*SERVER, "--topic", "orders")


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("txbroker.spark.session.open_session", fail)


@pytest.mark.parametrize("job", ["load", "upsert", "audit", "replay", "compaction-check"])
@pytest.mark.parametrize(("flags", "text"), [
    ((*SERVER,), "specify either --topic or --include"),
    ((*SERVER, "--topic", ""), "specify either --topic or --include"),
    ((*TOPIC, "--include", "o.*"), "specify either --topic or --include"),
    ((*SERVER, "--include", "o["), "--include is 'o[', which is not a regular expression"),
    (("--bootstrap-server", "host:port", "--topic", "orders"), "--bootstrap-server is 'host:port'; it must be comma-separated HOST:PORT"),
    ((*TOPIC, "--command-config", "GROUP"), "group.id cannot be set in the client's properties"),
    ((*TOPIC, "--command-config", "KERBEROS"), "correct the client's properties"),
    ((*TOPIC, "--conf", "executor.memory=1g"), "--conf executor.memory: the names of Spark's properties begin with spark."),
    ((*TOPIC, "--conf", "spark.master=local"), "--conf spark.master: specify --master instead"),
])  # fmt: skip
def test_of_every_job(tmp_path: Path, job: str, flags: tuple[str, ...], text: str) -> None:
    properties = {"GROUP": "group.id=g\n", "KERBEROS": "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n"}
    given = list(flags)
    if (found := properties.get(flags[-1])) is not None:
        (tmp_path / "client.properties").write_text(found)
        given[-1] = str(tmp_path / "client.properties")
    table = str(tmp_path / "table")
    own = {"load": ("--table", table), "upsert": ("--table", table), "audit": ("--table", table), "replay": ("--to-topic", "copy"),
           "compaction-check": ("--before", "--state", table)}[job]  # fmt: skip
    report = tmp_path / "report.json"
    report.write_text("of an earlier run")
    _, complaint = run("spark", job, *given, *own, "--json", str(report), status=2)
    assert complaint.startswith(f"txbroker spark {job}: ") and text in complaint
    assert not report.exists() and not Path(table).exists()


@pytest.mark.parametrize(("flags", "text"), [
    (("load", *TOPIC, "--table", "hdfs://x/y"), "--table is hdfs://x/y: only folders of a file system"),
    (("load", *TOPIC, "--table", "FULL"), "is not empty and has no table (file)"),
    (("load", *TOPIC, "--table", "NEW", "--dry-run", "--every", "5"), "--dry-run and --every exclude each other"),
    (("load", *TOPIC, "--table", "NEW", "--metrics", "127.0.0.1:9399"), "--metrics needs --every"),
    (("load", *TOPIC, "--table", "NEW", "--decode-value", "json"), "--decode-value json needs --schema FILE"),
    (("load", *TOPIC, "--table", "NEW", "--commit-group", ""), "--commit-group must be the name of a group"),
    (("load", *TOPIC, "--table", "NEW", "--commit-group", "g"), "no connection to 127.0.0.1:9"),
    (("upsert", *TOPIC, "--table", "FULL"), "is not empty and has no table (file)"),
    (("upsert", *TOPIC, "--table", "NEW", "--isolation-level", "read_uncommitted"), "upsert reads committed records only"),
    (("upsert", *TOPIC, "--table", "NEW", "--compaction-strategy", "header"), "need each other"),
    (("replay", *TOPIC, "--to-topic", "copy", "--max-gap", "PT1M"), "--max-gap needs --speed"),
    (("replay", "--from-table", "NEW", "--to-topic", "copy"), "--from-table needs --to-bootstrap-server"),
    (("audit", *TOPIC, "--table", "FULL"), "is not empty and has no table (file)"),
    (("audit", *TOPIC, "--table", "NEW"), "there is no table in NEW; correct --table, or fill it with `txbroker spark load`"),
    (("replay", "--from-table", "NEW", "--to-topic", "copy", "--to-bootstrap-server", SERVER[1]), "NEW has no table; run `txbroker spark"),
    (("upsert", *SERVER, "--from-table", "NEW", "--table", "OTHER"), "NEW has no table; run `txbroker spark load`"),
    (("load", *TOPIC, "--table", "NEW"), "no connection to 127.0.0.1:9"),
    (("upsert", *TOPIC, "--table", "NEW"), "no connection to 127.0.0.1:9"),
    (("replay", *TOPIC, "--to-topic", "copy"), "no connection to 127.0.0.1:9"),
    (("audit", *TOPIC, "--against-topic", "copy"), "no connection to 127.0.0.1:9"),
    (("compaction-check", "--before", *TOPIC, "--state", "NEW"), "no connection to 127.0.0.1:9"),
    (("audit", *TOPIC, "--group", "g", "--keys-table", "FULL"), "exists already; remove it, or specify another --keys-table"),
    (("audit", *TOPIC, "--group", "g", "--since", "yesterday"), "--since"),
    (("audit", "--topic", "orders", "--log-dir", "/a", "--table", "NEW"), "--log-dir and --against-log-dir need each other"),
    (("compaction-check", "--before", "--topic", "orders", "--state", "NEW"), "specify --bootstrap-server, --log-dir, or both"),
    (("compaction-check", "--after", *TOPIC, "--state", "NEW"), "has no snapshot, or only a part of one; take one with --before"),
    (("compaction-check", "--before", *TOPIC, "--state", "TAKEN"), "has a snapshot already"),
    (("compaction-check", "--before", *TOPIC, "--state", "NEW", "--isolation-level", "read_uncommitted"), "must be read_committed"),
])  # fmt: skip
def test_of_one_job(tmp_path: Path, flags: tuple[str, ...], text: str) -> None:
    for name, file in (("FULL", "file"), ("TAKEN", "manifest.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    places = ("FULL", "NEW", "TAKEN", "OTHER")
    _, complaint = run("spark", *(str(tmp_path / flag) if flag in places else flag for flag in flags), status=2)
    assert text in complaint.replace(f"{tmp_path}/", "")
    assert not (tmp_path / "NEW").exists() and not (tmp_path / "OTHER").exists()


@pytest.mark.process
@pytest.mark.parametrize("flags", [
    ("load", "--topic", "nope", "--table", "NEW"),
    ("upsert", "--topic", "nope", "--table", "NEW"),
    ("audit", "--topic", "nope", "--group", "g"),
    ("audit", "--topic", "TOPIC", "--against-topic", "nope"),
    ("replay", "--topic", "nope", "--to-topic", "TOPIC"),
    ("replay", "--topic", "TOPIC", "--to-topic", "nope"),
    ("compaction-check", "--before", "--topic", "nope", "--state", "NEW"),
])  # fmt: skip
def test_a_topic_that_does_not_exist(broker: Server, name: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    create_topic(broker, name, 1)
    places = {"NEW": str(tmp_path / "NEW"), "TOPIC": name}
    job, *given = (places.get(flag, flag) for flag in flags)
    _, complaint = run("spark", job, "--bootstrap-server", broker.address, *given, status=2)
    assert "topic nope does not exist; see `txbroker topics --list`" in complaint
    assert not (tmp_path / "NEW").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("job", ["load", "upsert"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, job: str) -> None:
    tmp_path.chmod(0o555)
    _, complaint = run("spark", job, *TOPIC, "--table", str(tmp_path / "a" / "table"), status=2)
    assert f"cannot be written (no permission to write in {tmp_path})" in complaint
