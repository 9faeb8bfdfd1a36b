"""`txbroker users`: users with SCRAM passwords, in a file that brokers read, or in the metadata of a running cluster."""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from txbroker.cli import clients, secret_files
from txbroker.cli.arguments import add_client, number
from txbroker.cli.results import Column, Results, results
from txbroker.cli.users_files import users_files
from txbroker.client.client_security import ITERATIONS_MAX as OWN_ITERATIONS_MAX
from txbroker.console.failures import DONE, BadUsage, CommandFailed, broker_error, warn
from txbroker.console.input_files import read_bytes
from txbroker.errors import ErrorCode, StorageError
from txbroker.log.os_disk import OsDisk
from txbroker.security import users_file
from txbroker.security.scram import SALT_BYTES, ScramCredential, can_log_in, salt_of
from txbroker.security.scram_credentials import ITERATIONS_MAX, MECHANISM_CODES
from txbroker.wire.scram import HASHES, ITERATIONS_MIN, salted_password

DESCRIPTION = """\
List, add and remove users who log in with SCRAM: in the metadata of a running cluster, or with --file in a file, for which no broker has to
run. Brokers read the file of txbroker.scram.users.file, and read it again when it changes. It has salted keys instead of passwords.

  txbroker users --file /etc/txbroker/users --add admin
  txbroker users --bootstrap-server 127.0.0.1:9092 --command-config admin.properties --add alice --password-file alice.password
  txbroker users --bootstrap-server 127.0.0.1:9092 --command-config admin.properties --list

The metadata does not show the users of files: they log in also if --list has them not, or --remove has removed their passwords of the
metadata. The command names the files that brokers read, as far as they show their configurations.

The password is read from --password-file, or from the standard input; on a terminal the command asks for it. A user who exists gets the new
password.
"""

COLUMNS = (Column("user", "USER"), Column("mechanism", "MECHANISM"), Column("iterations", "ITERATIONS"))
_NAMES = {code: mechanism for mechanism, code in MECHANISM_CODES.items()}


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("users", help="list, add and remove users with passwords", description=DESCRIPTION)
    add_client(parser, required=False)
    parser.add_argument("--file", metavar="FILE", help="a file of users, instead of the metadata of a cluster")
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--list", action="store_true", help="list users, without what is checked")
    actions.add_argument("--add", metavar="NAME", help="add a user, or set another password")
    actions.add_argument("--remove", metavar="NAME", help="remove a user")
    mechanism_help = "with --add: SCRAM-SHA-256 or SCRAM-SHA-512; default: both"
    parser.add_argument("--mechanism", action="append", choices=tuple(HASHES), metavar="MECHANISM", help=mechanism_help)
    iterations_help = (
        f"with --add: how often the password is hashed, at least {ITERATIONS_MIN}, the default; at most {ITERATIONS_MAX} in the metadata"
    )
    iterations = number(ITERATIONS_MIN, OWN_ITERATIONS_MAX)
    parser.add_argument("--iterations", type=iterations, default=ITERATIONS_MIN, metavar="N", help=iterations_help)
    parser.add_argument("--password-file", metavar="FILE", help="with --add: a file with the password in its first line")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Do the one action; BadUsage, CommandFailed."""
    if (arguments.file is None) == (arguments.bootstrap_server is None):
        raise BadUsage("specify one of --file and --bootstrap-server")
    if arguments.add is None and (arguments.mechanism or arguments.password_file):
        raise BadUsage("--mechanism and --password-file are only valid with --add")
    name = arguments.add if arguments.add is not None else arguments.remove
    if not arguments.list and (not name or name in (".", "..")):
        raise BadUsage("the name of a user must not be empty, . or ..")
    if arguments.add is not None and not can_log_in(arguments.add):
        raise BadUsage(f"the user {arguments.add} could never log in: names of SCRAM users are in ASCII, as in Kafka; choose another name")
    if arguments.file is None and arguments.iterations > ITERATIONS_MAX:
        raise BadUsage(f"--iterations is {arguments.iterations}; brokers take at most {ITERATIONS_MAX} for users in the metadata")
    shown = results(arguments)
    if arguments.file is not None:
        return _in_file(arguments, shown)
    with clients.administering(arguments) as admin:
        return _in_metadata(arguments, admin, shown)


def _password(arguments: argparse.Namespace) -> str:
    """BadUsage."""
    if arguments.password_file is not None:
        data = read_bytes(arguments.password_file)
    elif sys.stdin.isatty():
        text = getpass.getpass(f"Password of {arguments.add}: ")
        if getpass.getpass("Again: ") != text:
            raise BadUsage("the passwords differ")
        data = text.encode(errors="surrogateescape")
    else:
        data = sys.stdin.buffer.readline()
    try:
        password = data.split(b"\n")[0].removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise BadUsage("the password is not in UTF-8, in which clients send it; convert it") from None
    if not password:
        raise BadUsage("the password is empty")
    return password


def _salted(arguments: argparse.Namespace) -> dict[str, tuple[bytes, bytes]]:
    """Salt and salted password by mechanism."""
    password = _password(arguments)
    made = {}
    for mechanism in arguments.mechanism or HASHES:
        salt = salt_of(os.urandom(SALT_BYTES))
        made[mechanism] = salt, salted_password(HASHES[mechanism], password, salt, arguments.iterations)
    return made


def _in_file(arguments: argparse.Namespace, shown: Results) -> int:
    disk, path = OsDisk(), os.path.abspath(arguments.file)
    try:
        data = disk.read(path)
        if data is None and arguments.add is None:
            raise CommandFailed(f"{path} does not exist")
        known = users_file.parse_users(data or b"")
        if arguments.list:
            _show(shown, ((user, mechanism, one.iterations) for mechanism, users in known.items() for user, one in users.items()))
            return DONE
        name = arguments.add if arguments.add is not None else arguments.remove
        before = {mechanism: users[name] for mechanism, users in known.items() if name in users}
        if arguments.add is None:
            if not before:
                raise CommandFailed(f"{path} has no user {name}")
            after: dict[str, ScramCredential] = {}
        else:
            after = {
                mechanism: ScramCredential.of_salted(mechanism, salt, salted, arguments.iterations)
                for mechanism, (salt, salted) in _salted(arguments).items()
            }
            if arguments.mechanism:
                after = {**before, **after}
        secret_files.replace(path, users_file.changed(data or b"", name, after))
    except users_file.InvalidUsers as error:
        raise CommandFailed(f"{path}: {error}") from None
    except StorageError as error:
        raise CommandFailed(error.message or str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{path} was not replaced: {error.strerror}") from None
    also = ""
    if before:
        flag = f"--remove {shlex.quote(name)}"
        also = f" A password of this user in the metadata still counts: `txbroker users --bootstrap-server HOST:PORT {flag}` removes it."
    _done(shown, arguments, path, also)
    return DONE


def _in_metadata(arguments: argparse.Namespace, admin: Any, shown: Results) -> int:
    from kafka.protocol.admin import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest

    def described(*names: str) -> Iterable[Any]:
        users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names] or None
        answer = clients.send(admin, DescribeUserScramCredentialsRequest(users=users))
        if answer.error_code != ErrorCode.NONE:
            raise broker_error("the users cannot be listed", answer.error_code, answer.error_message)
        return list(answer.results)

    files = users_files(admin) if arguments.add is None or arguments.mechanism else None
    if arguments.list:
        if files is not None:
            warn(f"{files.where}: this list does not have these users, {files.advice('--list')} shows them")
        _show(shown, ((one.user, _NAMES[each.mechanism], each.iterations) for one in described() for each in one.credential_infos))
        return DONE
    upsertions, deletions = [], []
    if arguments.add is not None:
        for mechanism, (salt, salted) in _salted(arguments).items():
            code, count = MECHANISM_CODES[mechanism], arguments.iterations
            upsertions.append(AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=arguments.add, mechanism=code, iterations=count, salt=salt, salted_password=salted,
            ))  # fmt: skip
    else:
        (known,) = described(arguments.remove)
        deletions = [AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=arguments.remove, mechanism=each.mechanism)
                     for each in known.credential_infos]  # fmt: skip
        if not deletions:
            missing = f"there is no user {arguments.remove} with a SCRAM password in the metadata"
            also = "" if files is None else f"; {files.where}: {files.advice(_removal(arguments))} removes one there"
            raise CommandFailed(missing + also)
    # Apache Kafka 4 takes one mechanism of a user in a request.
    for changed in [{"upsertions": [each], "deletions": []} for each in upsertions] + [
        {"upsertions": [], "deletions": [each]} for each in deletions
    ]:
        request = AlterUserScramCredentialsRequest(**changed)
        (result,) = clients.send_to_controller(admin, request, lambda answer: answer.results).results
        if result.error_code != ErrorCode.NONE:
            raise broker_error(f"user {result.user} was not altered", result.error_code, result.error_message)
    _done(shown, arguments, "the metadata")
    if files is not None and arguments.remove is not None:
        warn(f"{files.where}: a user {arguments.remove} there still logs in, with the password there, until "
             f"{files.advice(_removal(arguments))}")  # fmt: skip
    elif files is not None and arguments.mechanism:
        warn(f"{files.where}: a password of {arguments.add} there still counts for mechanisms that have none in the metadata; see "
             f"{files.advice('--list')}")  # fmt: skip
    return DONE


def _removal(arguments: argparse.Namespace) -> str:
    return f"--remove {shlex.quote(arguments.remove)}"


def _done(shown: Results, arguments: argparse.Namespace, place: str, also: str = "") -> None:
    if arguments.add is not None:
        shown.done(f"User {arguments.add} has this password in {place} now.{also}", user=arguments.add, place=place)
    else:
        shown.done(f"User {arguments.remove} was removed from {place}.{also}", user=arguments.remove, place=place)


def _show(shown: Results, found: Iterable[tuple[str, str, int]]) -> None:
    rows: list[Mapping[str, Any]] = [
        {"user": user, "mechanism": mechanism, "iterations": iterations} for user, mechanism, iterations in sorted(found)
    ]
    shown.rows(COLUMNS, rows)
