"""Entry point of the command line: subcommands and exit statuses (0 done, 1 failed, 2 wrong usage, 130 interrupted)."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module

from txbroker import __version__
from txbroker.build_info import version_text
from txbroker.cli.arguments import Parser
from txbroker.cli.suggestions import wrong_command, wrong_words
from txbroker.client.client_errors import ClientError
from txbroker.console.failures import FAILED, INTERRUPTED, USAGE, BadUsage, CommandFailed, client_failure, complain, complain_as_json
from txbroker.console.streams import whole_lines

DESCRIPTION = """\
A broker that speaks Kafka's wire protocol, and the tools to use it: their flags are those of Kafka's tools.

  txbroker run --override listeners=PLAINTEXT://127.0.0.1:9092 --override log.dirs=./data
  txbroker topics --bootstrap-server 127.0.0.1:9092 --create --topic hello --partitions 3
  echo 'hello, world' | txbroker produce --bootstrap-server 127.0.0.1:9092 --topic hello
  txbroker consume --bootstrap-server 127.0.0.1:9092 --topic hello --from-beginning --max-messages 1
"""

EPILOG = """\
Help for a command: txbroker COMMAND --help
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
`txbroker mirror` and the jobs of `txbroker spark`: 1 something is wrong with the data, 2 failed or wrong usage.
`txbroker acls explain`: 0 the client may, 1 it may not, 2 failed or wrong usage.
"""

TRACEBACK_VARIABLE = "TXBROKER_TRACEBACK"
# The modules of the commands, in the order of --help. Only the module of the command that is run is imported.
COMMANDS = {
    "run": "run",
    "cluster": "cluster.cluster_command",
    "config": "config",
    "topics": "topics",
    "configs": "configs",
    "users": "users",
    "groups": "groups",
    "acls": "acls.acls_command",
    "secure": "secure.secure_command",
    "produce": "produce",
    "consume": "consume",
    "get-offsets": "get_offsets",
    "delete-records": "delete_records",
    "transactions": "transactions.transactions_command",
    "log-dirs": "log_dirs",
    "reassign-partitions": "reassign.reassign_command",
    "leader-election": "leader_election",
    "broker-api-versions": "broker_api_versions",
    "dump-log": "dump_log",
    "log-cleaner": "log_cleaner",
    "log": "log.log_command",
    "import": "handover.importing",
    "export": "handover.exporting",
    "perf-produce": "perf.perf_produce",
    "perf-consume": "perf.perf_consume",
    "doctor": "doctor.doctor_command",
    "audit": "audit.keys_command",
    "mirror": "mirror.mirror_command",
    "spark": "spark.spark_command",
    "test-server": "server_for_tests",
    "completion": "completion",
}
# Flags that Kafka removed from its tools, and their replacements.
REMOVED_FLAGS = {
    "--broker-list": "--bootstrap-server",
    "--zookeeper": "--bootstrap-server",
    "--new-consumer": "--bootstrap-server",
    "--whitelist": "--include",
    "--blacklist": "--include",
}


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or of one."""
    parser = Parser(prog="txbroker", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"txbroker {version_text(__version__)}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="name")
    for name in COMMANDS if command is None else [command]:
        import_module(f"txbroker.cli.{COMMANDS[name]}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    argv = sys.argv[1:] if argv is None else argv
    complain_as_json("--json" in argv)
    try:
        with redirect_stdout(whole_lines(sys.stdout)):
            return _main(argv)
    finally:
        complain_as_json(False)


def _main(argv: Sequence[str]) -> int:
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        return complain("txbroker", f"{wrong_command(argv[0], COMMANDS)}; see txbroker --help", USAGE)
    parser = build_parser(argv[0] if argv and argv[0] in COMMANDS else None)
    name = f"txbroker {argv[0]}" if argv and argv[0] in COMMANDS else "txbroker"
    removed = _removed_flag(parser, argv)
    if removed is not None:
        return complain(name, f"{removed}; see {name} --help", USAGE)
    wrong = wrong_words(parser, argv)
    if wrong is not None and not {"-h", "--help"}.intersection(argv):
        return complain(name, f"{wrong}; see {name} --help", USAGE)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        return complain(name, f"unrecognized arguments: {' '.join(unknown)}; see {name} --help", USAGE)
    if arguments.name is None:
        parser.print_help(sys.stderr)
        return USAGE
    failed: int = getattr(arguments, "failed_status", FAILED)
    name = getattr(arguments, "command_name", name)
    try:
        status: int = arguments.command(arguments)
        sys.stdout.flush()
    except BadUsage as wrong:
        return complain(name, f"{wrong}; see {name} --help", USAGE)
    except CommandFailed as failure:
        return complain(name, str(failure), failed, failure.code)
    except ClientError as problem:
        known = client_failure(problem)
        return complain(name, str(known), failed, known.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the process that read the output has ended
        return failed
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _drop_output()
            return complain(name, f"no space left for the output ({error.strerror}); free some, or write to another disk", failed)
        if isinstance(error, OSError) and not _has_current_directory():
            return complain(name, "the current directory does not exist any more, or cannot be read: change to another one", failed)
        if TRACEBACK_VARIABLE in os.environ:
            traceback.print_exc()
        what = f"internal error of this command ({type(error).__name__}: {error})"
        return complain(name, f"{what}; set {TRACEBACK_VARIABLE}=1 in the environment to see where, and report it", failed)
    return status


def _removed_flag(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str | None:
    """An error message if the command line contains a flag that Kafka removed, else None."""
    if not argv or argv[0] not in COMMANDS:
        return None
    (subparsers,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    known = subparsers.choices[argv[0]]._option_string_actions
    flags = [word.partition("=")[0] for word in argv[1:]]
    removed = next((flag for flag in flags if flag not in known and REMOVED_FLAGS.get(flag) in known), None)
    return None if removed is None else f"{removed} was removed from Kafka's tools; use {REMOVED_FLAGS[removed]}"


def _has_current_directory() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _drop_output() -> None:
    """Discard buffered output, whose flush would fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
