"""What `make mutate` is given: modules that exist, and the tests of their packages."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from tests.support import mutate
from tests.support.mutate import default_tests, main, prepare, settings


@pytest.mark.parametrize(("arguments", "problem"), [
    ([], "name the modules"), ([""], "name the modules"), (["txbroker/log/no_such.py"], "no module is named txbroker/log/no_such.py"),
])  # fmt: skip
def test_wrong_modules_are_named(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert problem in capsys.readouterr().err


def test_the_tests_of_a_module_are_those_of_its_package() -> None:
    assert default_tests(["txbroker/log/segments.py", "txbroker/log/segment*.py", "txbroker/groups/*"]) == ["tests/groups", "tests/log"]
    assert default_tests(["txbroker/errors.py"]) == []


def test_the_settings_are_read_back() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(settings(["txbroker/log/segments.py"], ["tests/log"]))
    assert parser["mutmut"]["only_mutate"].split() == ["txbroker/log/segments.py"]
    assert parser["mutmut"]["pytest_add_cli_args_test_selection"].split() == ["tests/log"]


def test_other_modules_start_again_and_the_same_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "COPY", tmp_path / "copy")
    monkeypatch.setattr(mutate, "FOLDERS", ("twisted",))
    done = tmp_path / "copy" / "mutants" / "done"
    for modules, kept in ((["txbroker/a.py"], False), (["txbroker/a.py"], True), (["txbroker/b.py"], False)):
        prepare(modules, ["tests/log"])
        assert done.exists() is kept
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
