"""Command lines in README and the documentation are valid: flags, subcommands, make's targets and variables.

Whole command lines are in blocks of `sh`; in a sentence, a command is mentioned by its name and some flags.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks, inline, read
from tests.support.cache import CHECKOUT
from txbroker.cli.main import build_parser
from txbroker.tap import Options

PUNCTUATION = {"|", "||", "&", "&&", ";", "(", ")"}
MAKEFILE = (CHECKOUT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
VARIABLES = set(re.findall(r"^(?:export )?(\w+) \?=", MAKEFILE, re.M)) | set(re.findall(r"\$\((ARGS|LOAD)\)", MAKEFILE))


def commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a shell script, without redirections and assignments."""
    for line in script.replace("\\\n", " ").splitlines():
        words: list[str] = []
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for word in [*lexer, ";"]:
            if word in PUNCTUATION:
                yield words
                words = []
            elif words or "=" not in word:
                words.append(word)


def problem(words: list[str]) -> str | None:
    """What is wrong with a command line of txbroker, twistd or make; None for other programs."""
    name, arguments = (Path(words[0]).name, words[1:]) if words else ("", [])
    if name == "txbroker":
        return parser_problem(arguments)
    if name == "twistd" and "txbroker" in arguments:
        Options().parseOptions(arguments[arguments.index("txbroker") + 1 :])
    if name == "make":
        for word in arguments:
            variable, equals, _ = word.partition("=")
            if word.isupper() and not equals:
                continue  # a placeholder
            if (variable not in VARIABLES) if equals else (word not in TARGETS):
                return f"make has no {word}"
    return None


@cache
def parser() -> argparse.ArgumentParser:
    return build_parser()


def parser_problem(arguments: list[str]) -> str | None:
    try:
        _, unknown = parser().parse_known_args([word for word in arguments if word not in (">", "<")])
    except SystemExit as ended:
        return f"exit status {ended.code}" if ended.code else None
    return f"unknown: {unknown}" if unknown and not set(arguments) & {">", "<"} else None


def mention_problem(words: list[str]) -> str | None:
    """What is wrong with a mention such as `txbroker log verify` or `make test`: the command and its flags must exist."""
    if words[0] == "make":
        return problem(words)
    command = parser()
    for word in words[1:]:
        below = next((action for action in command._actions if isinstance(action, argparse._SubParsersAction)), None)
        if word.startswith("-"):
            if word.partition("=")[0] not in command._option_string_actions:
                return f"{command.prog} has no {word}"
        elif below is not None and word != "COMMAND":
            if word not in below.choices:
                return f"{command.prog} has no command {word}"
            command = below.choices[word]
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_command_lines_are_valid(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {shlex.join(words): why for script in blocks(read(page), "sh") for words in commands(script) if (why := problem(words))}
    assert wrong == {}, capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_commands_that_are_mentioned_exist(page: Path) -> None:
    mentions = [text.split() for text in inline(read(page)) if text.startswith(("txbroker ", "make "))]
    assert {" ".join(words): why for words in mentions if (why := mention_problem(words))} == {}


def test_the_checks_can_fail(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("x=1 .venv/bin/txbroker topics --bootstrap-server a:1 --list | cat   # comment", "make run PORT=1", "txbroker log verify data")
    for line in lines:
        assert [why for words in commands(line) if (why := problem(words))] == [], line
    for line in ("cat | txbroker topics --list", "txbroker run --confg x", "txbroker no-such", "make no-such", "make run NOSUCH=1"):
        assert any(problem(words) for words in commands(line)), line
    for text in ("txbroker no-such", "txbroker log no-such", "txbroker topics --no-such", "make no-such"):
        assert mention_problem(text.split()), text
    assert mention_problem(["txbroker", "log", "verify"]) is None
