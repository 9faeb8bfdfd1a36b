"""The command line reference, from the parsers of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docs.reference_pages.markdown import block, code, escape, table
from txbroker.cli.main import build_parser

_HEAD = """\
# Commands

This page is generated from the command line's parsers. `txbroker COMMAND --help` prints the same text.

On a terminal the commands print tables that fit it; into a pipe or a file they print the lines of Kafka's tools; with `--json` they print
one JSON object per line. Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""
_WIDTH = 100


def commands_page() -> str:
    """Every command with its flags."""
    parsers = list(_leaves(build_parser()))
    rows = ([f"[`{parser.prog}`](#{parser.prog.replace(' ', '-')})", escape(summary)] for parser, summary in parsers)
    return _HEAD + "\n" + table(("command", "purpose"), rows) + "".join(_section(parser) for parser, _ in parsers)


def _leaves(parser: argparse.ArgumentParser, summary: str = "") -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """The commands below a parser, with the line that lists them; and itself if it is a command."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below or parser.get_default("command") is not None:
        yield parser, summary
    for action in below:
        summaries = {choice.dest: choice.help or "" for choice in action._get_subactions()}
        for name, command in action.choices.items():
            if name in summaries:  # the others are aliases
                yield from _leaves(command, summaries[name])


def _section(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.RawDescriptionHelpFormatter(parser.prog, width=_WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    text = f"\n## {parser.prog}\n\n{block(formatter.format_help())}\n{_prose(parser.description)}"
    shown = [each for each in parser._actions if each.help != argparse.SUPPRESS and not isinstance(each, argparse._SubParsersAction)]
    rows = [[", ".join(_names(action)), escape(_help(parser, action))] for action in shown]
    return text + "\n" + table(("argument", "meaning"), rows) + ("\n" + _prose(parser.epilog) if parser.epilog else "")


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _names(action: argparse.Action) -> Iterator[str]:
    if not action.option_strings:
        yield code(str(action.metavar or action.dest))
        return
    value = "" if action.nargs == 0 else " " + (str(action.metavar) if action.metavar else _choices(action))
    for flag in action.option_strings:
        yield code(flag + value)


def _choices(action: argparse.Action) -> str:
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


def _prose(text: str | None) -> str:
    """A description: indented lines are examples, the others are paragraphs, line by line as they stand."""
    parts: list[tuple[bool, list[str]]] = []
    for line in (text or "").strip("\n").splitlines():
        is_example = line.startswith(" ")
        if not parts or (line and parts[-1][0] != is_example):
            parts.append((is_example, []))
        parts[-1][1].append(line)
    page = ""
    for is_example, lines in parts:
        page += block("\n".join(line[2:] for line in lines)) if is_example else escape("\n".join(lines).strip()) + "\n"
        page += "\n"
    return page
