"""Parts of the parsers of several commands: errors of one sentence, common flags, and types of values."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from txbroker.console.failures import USAGE, complain


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, without the list of all flags. As in Kafka's tools, flags cannot be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        sys.exit(complain(self.prog, f"{message}; see {self.prog} --help", USAGE))


def key_value(text: str) -> tuple[str, str]:
    """KEY=VALUE. The value may be empty, and may contain equals signs."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not {text!r}")
    return key.strip(), value


INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1


class number:
    """The type of a flag whose value is a whole number from `low` to `high`, which is what a field of a request can hold."""

    def __init__(self, low: int, high: int = INT64_MAX) -> None:
        self._low = low
        self._high = high

    def __call__(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = self._low - 1
        if value < self._low:
            raise argparse.ArgumentTypeError(f"must be a whole number of {self._low} or more, not {text!r}")
        if value > self._high:
            raise argparse.ArgumentTypeError(f"must be at most {self._high}, not {text[:40]!r}")
        return value


def numbers(text: str) -> list[int]:
    """The type of a flag whose value is comma-separated whole numbers; sorted, each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"must be comma-separated numbers, not {text!r}")
    return sorted(set(map(int, parts)))


def add_properties(parser: argparse.ArgumentParser, flag: str, what: str, *other_names: str) -> None:
    """Add a repeatable flag for KEY=VALUE, parsed to `{key: value}`; the last value of a key applies. `other_names`: aliases."""
    what = f"{what}; can be specified several times"
    parser.add_argument(flag, *other_names, action=_Collect, type=key_value, default={}, metavar="KEY=VALUE", help=what)


class _Collect(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        key, value = values
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), key: value})


def add_client(parser: argparse.ArgumentParser, *other_names: str, client: str = "admin client", required: bool = True) -> None:
    """The flags of every command that connects to a broker: --bootstrap-server, --command-config and --json.

    `other_names` are other names of --command-config in Kafka's tool.
    """
    parser.add_argument("--bootstrap-server", required=required, metavar="HOST:PORT", help="comma-separated brokers to connect to first")
    config_help = f"a properties file for the {client}"
    parser.add_argument(*other_names, "--command-config", dest="command_config", metavar="FILE", help=config_help)
    parser.add_argument("--json", action="store_true", help="print results as JSON, one object per line")
