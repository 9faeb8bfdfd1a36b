"""The scripts of `txbroker completion`, run in the installed shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S
from txbroker.cli.completion import SHELLS
from txbroker.cli.main import main

# The typed line -> the words that the shell must offer, and those that it must not offer.
CASES = [
    (["gr"], {"groups"}, {"topics"}),
    (["groups", "--desc"], {"--describe"}, {"--delete"}),
    (["topics", "--par"], {"--partitions"}, {"--topic"}),
    (["consume", "--isolation-level", "read_c"], {"read_committed"}, {"read_uncommitted"}),
    (["run", "--config", "server.p"], {"server.properties"}, {"--config"}),
]


@pytest.fixture(params=SHELLS)
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Write the script for a shell; its directory."""
    assert main(["completion", request.param]) == 0
    path = tmp_path / f"txbroker.{request.param}"
    path.write_text(capsys.readouterr().out)
    (tmp_path / "server.properties").touch()
    return path


def run(program: str, text: str, directory: Path) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    ended = subprocess.run([program, "-c", text], cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def offered(script: Path, words: list[str]) -> set[str]:
    """The completions of the last word."""
    shell = script.suffix[1:]
    quoted = " ".join(["txbroker", *words])
    if shell == "bash":
        setting = f"COMP_WORDS=({quoted}) COMP_CWORD={len(words)} COMP_LINE='{quoted}' COMP_POINT={len(quoted)} COMP_TYPE=9"
        call = "$(complete -p txbroker | sed 's/.*-F \\([^ ]*\\).*/\\1/') txbroker"
        text = f". ./{script.name}; {setting}; {call} '{words[-1]}' '{[*['txbroker'], *words][-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return set(run("bash", text, script.parent).split())
    if shell == "fish":
        answer = run("fish", f"source ./{script.name}; complete --do-complete '{quoted}'", script.parent)
        return {line.split("\t")[0] for line in answer.splitlines()}
    # zsh only completes in its line editor: here its parser checks the script.
    run("zsh", f"zsh -n ./{script.name}", script.parent)
    return set()


@pytest.mark.parametrize(("words", "wanted", "others"), CASES)
def test_the_shells_complete_words(script: Path, words: list[str], wanted: set[str], others: set[str]) -> None:
    found = offered(script, words)
    if script.suffix == ".zsh":
        text = script.read_text()
        assert text.startswith("#compdef txbroker")
        assert all(word in text for word in wanted if word != "server.properties")
        return
    assert wanted <= found
    assert not others & found
