"""`txbroker completion`: a script for the completion of commands, flags and their values by a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from txbroker.console.failures import DONE

DESCRIPTION = """\
Print a script with which a shell completes commands, flags, file names, and the values of flags.

  eval "$(txbroker completion bash)"                                                  # in ~/.bashrc
  txbroker completion zsh > "${fpath[1]}/_txbroker"                                   # in a directory of fpath
  txbroker completion fish > ~/.config/fish/completions/txbroker.fish
"""

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "FILE,FILE...")


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("completion", help="print a completion script for a shell", description=DESCRIPTION)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from txbroker.cli.main import build_parser

    parser = build_parser()
    for action in _actions(parser):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(parser, arguments.shell))
    sys.stdout.write("\n")
    return DONE


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The flags of a parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
        else:
            yield action
