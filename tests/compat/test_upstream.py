"""The tests of SASL and ACLs that clients' projects publish pass on this broker."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compat import upstream
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT


@pytest.mark.process
@pytest.mark.extended
def test_tests_of_go_clients_pass() -> None:
    command = [sys.executable, "-m", "compat.upstream", BrokerProcess.kind]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if ended.returncode == upstream.CANNOT_RUN:
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcomes = dict(line.rsplit(maxsplit=1) for line in ended.stdout.splitlines())
    assert len(outcomes) > 20 and set(outcomes.values()) == {"PASS"}
    for suite in upstream.SUITES:
        assert any(name.startswith(suite.name) for name in outcomes)
