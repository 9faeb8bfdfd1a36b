"""The value of --table, before any JVM starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import run
from txbroker.console.failures import BadUsage
from txbroker.spark.tables.table_folder import folder


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "table"
    file.write_text("")
    for location in (file, file / "below", f"file://{file}"):
        with pytest.raises(BadUsage, match=f"{file} is a file; specify the folder of the table"):
            folder(str(location))
    assert folder(str(tmp_path / "new" / "table")) == tmp_path / "new" / "table"


@pytest.mark.parametrize("job", ["load --topic t", "upsert --topic t", "files"])
def test_each_job_with_a_table_refuses_a_file(job: str, tmp_path: Path) -> None:
    file = tmp_path / "table"
    file.write_text("")
    name, *flags = job.split()
    server = [] if name == "files" else ["--bootstrap-server", "127.0.0.1:1"]
    _, complaint = run("spark", name, *server, *flags, "--table", str(file), status=2)
    assert f"{file} is a file" in complaint
