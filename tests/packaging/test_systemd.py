"""The systemd unit: only known settings, and a valid command line."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT
from txbroker.cli.main import build_parser, main

UNIT = CHECKOUT / "packaging" / "txbroker.service"
PROPERTIES = CHECKOUT / "packaging" / "server.properties"


def setting(name: str) -> str:
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith(f"{name}=")]
    return line.partition("=")[2]


def test_its_command_lines_are_valid() -> None:
    for name in ("ExecStart", "ExecStartPre"):
        program, *arguments = shlex.split(setting(name))
        assert Path(program).name == "txbroker"
        assert build_parser().parse_args(arguments).config == ["/etc/txbroker/server.properties"]
    assert setting("Type") == "notify"


def test_its_configuration_starts_a_broker_in_the_state_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--check", "--config", str(PROPERTIES)]) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "PLAINTEXT://:9092 is on all addresses" in warning
    parsed = configparser.ConfigParser()
    parsed.read_string("[x]\n" + PROPERTIES.read_text())
    assert parsed["x"]["log.dirs"].startswith(f"/var/lib/{setting('StateDirectory')}/")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="wants systemd-analyze (Debian: apt-get install systemd)")
def test_systemd_accepts_it(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("txbroker")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/txbroker/bin/txbroker", str(program)))
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    ended = subprocess.run(verify, capture_output=True, text=True, check=False, env={**os.environ, "SYSTEMD_LOG_LEVEL": "info"})
    assert (ended.returncode, [line for line in ended.stderr.splitlines() if UNIT.name in line]) == (0, [])
