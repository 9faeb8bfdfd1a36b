"""Wrong flags of the jobs are refused with exit status 2 before Spark starts, which takes seconds, and before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run

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
    (("load", *TOPIC, "--table", "NEW", "--decode-value", "json"), "--decode-value json needs --schema FILE"),
    (("load", *TOPIC, "--table", "NEW", "--commit-group", ""), "--commit-group must be the name of a group"),
    (("load", *TOPIC, "--table", "NEW", "--commit-group", "g"), "no connection to 127.0.0.1:9"),
    (("upsert", *TOPIC, "--table", "FULL"), "is not empty and has no table (file)"),
    (("upsert", *TOPIC, "--table", "NEW", "--isolation-level", "read_uncommitted"), "upsert reads committed records only"),
    (("upsert", *TOPIC, "--table", "NEW", "--compaction-strategy", "header"), "need each other"),
    (("replay", *TOPIC, "--to-topic", "copy", "--max-gap", "PT1M"), "--max-gap needs --speed"),
    (("replay", "--from-table", "NEW", "--to-topic", "copy"), "--from-table needs --to-bootstrap-server"),
    (("audit", *TOPIC, "--table", "FULL"), "is not empty and has no table (file)"),
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
    _, complaint = run("spark", *(str(tmp_path / flag) if flag in ("FULL", "NEW", "TAKEN") else flag for flag in flags), status=2)
    assert text in complaint
    assert not (tmp_path / "NEW").exists()
