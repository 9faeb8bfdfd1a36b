"""The command line's entry: subcommands and exit statuses (0 done, 1 failed, 2 usage, 130 interrupted)."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Sequence

from txbroker import __version__
from txbroker.cli import (
    broker_api_versions,
    completion,
    config,
    configs,
    consume,
    delete_records,
    dump_log,
    get_offsets,
    groups,
    log_dirs,
    produce,
    run,
    topics,
)
from txbroker.cli.arguments import Parser
from txbroker.cli.failures import FAILED, INTERRUPTED, USAGE, BadUsage, CommandFailed, warn
from txbroker.cli.perf import consume as perf_consume
from txbroker.cli.perf import produce as perf_produce

DESCRIPTION = """\
A broker that speaks Kafka's wire protocol, and the tools to use it: their flags are those of Kafka's tools.

  txbroker run --override listeners=PLAINTEXT://127.0.0.1:9092 --override log.dirs=./data
  txbroker topics --bootstrap-server 127.0.0.1:9092 --create --topic hello --partitions 3
  echo 'hello, world' | txbroker produce --bootstrap-server 127.0.0.1:9092 --topic hello
  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --from-beginning --max-messages 1
"""

EPILOG = """\
Help on one: txbroker COMMAND --help
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

TRACEBACK_VARIABLE = "TXBROKER_TRACEBACK"
# In the order of the list that --help prints.
COMMANDS = (
    run, config, topics, configs, groups, produce, consume, get_offsets, delete_records, log_dirs, broker_api_versions, dump_log,
    perf_produce, perf_consume, completion,
)  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """All subcommands; what they need is imported when they run."""
    parser = Parser(prog="txbroker", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"txbroker {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="name")
    for module in COMMANDS:
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    if sys.stdout is None:  # closed by whoever wants nothing of it
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    name = f"txbroker {arguments.name}" if arguments.name else "txbroker"
    if unknown:
        return _complain(f"{name}: unrecognized arguments: {' '.join(unknown)}; see {name} --help", USAGE)
    if arguments.name is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        status: int = arguments.command(arguments)
        sys.stdout.flush()
    except BadUsage as wrong:
        return _complain(f"{name}: {wrong}; see {name} --help", USAGE)
    except CommandFailed as failure:
        return _complain(f"{name}: {failure}", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # whoever read it has enough
        return FAILED
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _drop_output()
            return _complain(f"{name}: there is no room for the output ({error.strerror}); make some, or write elsewhere", FAILED)
        if TRACEBACK_VARIABLE in os.environ:
            traceback.print_exc()
        what = f"a fault of this command ({type(error).__name__}: {error})"
        return _complain(f"{name}: {what}; {TRACEBACK_VARIABLE}=1 in the environment shows where, for a report", FAILED)
    return status


def _drop_output() -> None:
    """What is still buffered goes nowhere, without a complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(sentence: str, status: int) -> int:
    warn(sentence)
    return status
