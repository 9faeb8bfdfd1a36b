"""What was probably meant by a wrong command, flag or word on the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from txbroker.names import similar_names

CUTOFF = 0.75  # how similar a suggestion must be
# Kafka's tools whose names differ in more than kafka- and .sh.
_TOOLS = {
    "console-producer": "produce",
    "console-consumer": "consume",
    "consumer-groups": "groups",
    "producer-perf-test": "perf-produce",
    "consumer-perf-test": "perf-consume",
    "mirror-maker": "mirror",
    "connect-mirror-maker": "mirror",
    "server-start": "run",
}
_ADDRESS = re.compile(r"(\w+://)?[\w.-]+:\d+(,.*)?")


def wrong_command(word: str, commands: Iterable[str]) -> str:
    """The error message for a command that does not exist."""
    known = list(commands)
    tool = word.rsplit("/", 1)[-1].removesuffix(".sh").removeprefix("kafka-")
    near = tool if tool in known else _TOOLS.get(tool) or next(iter(similar_names(tool, known)), None)
    hint = f"did you mean {near}?" if near else f"the commands are {', '.join(known)}"
    return f"there is no command {word}; {hint}"


def wrong_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """An error message with a suggestion, if the words after a command have a flag or a value that it does not know; else None."""
    parser, words = _innermost(parser, words)
    options: Mapping[str, argparse.Action] = parser._option_string_actions
    problems = []
    strays: list[str] = []
    for word, known in _parsed(options, words):
        if known:
            continue
        if word.startswith("-"):
            flag = word.partition("=")[0]
            near = similar_names(flag, options, cutoff=CUTOFF)
            if near:
                problems.append(f"there is no flag {flag}; did you mean {near[0]}?")
        else:
            strays.append(word)
    if problems:
        return " ".join(problems)
    takes_words = any(not action.option_strings for action in parser._actions)
    return None if takes_words or not strays else _with_flags(options, strays, words)


def _innermost(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[argparse.ArgumentParser, Sequence[str]]:
    """The parser of the subcommand, and the words after it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and words and words[0] in action.choices:
            return _innermost(action.choices[words[0]], words[1:])
    return parser, words


def _parsed(options: Mapping[str, argparse.Action], words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The flags, and the words that belong to none; with whether it is a known flag. After an unknown flag its value is not known."""
    values = 0.0
    for word in words:
        if word == "--":
            return
        if word.startswith("--") or word in options:
            flag, equals, _ = word.partition("=")
            action = options.get(flag)
            yield word, action is not None
            if action is None:
                values = float("inf")
            elif equals:
                values = 0
            else:
                values = _values(action.nargs)
        elif values > 0 or word.startswith("-"):
            values -= 1
        else:
            yield word, False


def _values(nargs: int | str | None) -> float:
    if nargs is None or nargs == "?":
        return 1
    return nargs if isinstance(nargs, int) else float("inf")


def _with_flags(options: Mapping[str, argparse.Action], strays: Sequence[str], words: Sequence[str]) -> str:
    """The flags that the words may belong to."""
    given = {word.partition("=")[0] for word in words}
    free = [flag for flag in ("--topic", "--group") if flag in options and flag not in given]
    guesses = []
    for word in strays:
        if _ADDRESS.fullmatch(word) and "--bootstrap-server" in options and "--bootstrap-server" not in given:
            guesses.append(f"--bootstrap-server {word}")
            given.add("--bootstrap-server")
        elif free and not _ADDRESS.fullmatch(word):
            guesses.append(f"{free.pop(0)} {word}")
    unknown = f"unrecognized arguments: {' '.join(strays)}"
    return f"{unknown}; did you mean {' '.join(guesses)}?" if guesses else unknown
