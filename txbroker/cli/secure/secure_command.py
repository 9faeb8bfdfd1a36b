"""`txbroker secure`: what a secured broker and its clients need, and other certificates before these end."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from glob import escape, glob
from typing import Any

from txbroker.cli import secret_files
from txbroker.cli.arguments import add_properties, number
from txbroker.cli.secure import secured_files
from txbroker.cli.secure.overrides import AUTHORIZER_KEY, check_overrides
from txbroker.cli.secure.secured_files import ADMIN, CLIENT, Place
from txbroker.console.failures import DONE, BadUsage, CommandFailed
from txbroker.console.input_files import read_text

DESCRIPTION = """\
Write what a broker needs for TLS, logins and access control lists, and what its clients need; and give it other certificates in time.

  txbroker secure init DIR
  txbroker run --config DIR/broker.properties
  txbroker topics --bootstrap-server localhost:9092 --command-config DIR/admin.properties --list
"""

INIT_DESCRIPTION = """\
Write a directory with a certificate authority, a certificate of the broker, its configuration (SASL_SSL with SCRAM-SHA-512, access control
lists, super user admin), and the users admin and client with random passwords. For each user there are settings for Java's clients and
txbroker's commands (.properties), for librdkafka and kcat (-librdkafka.conf), and for kafka-python (-kafka-python.json).

  txbroker secure init /etc/txbroker --host broker.example.org --host 10.0.0.1
  txbroker secure init ./secured --broker 1=kafka1.example.org --broker 2=kafka2.example.org --zookeeper zookeeper:2181

With --broker there is a directory for each broker, broker-1 and so on, to be copied to its machine. DIR must not exist. Keep ca.key at a
place that no client and no broker can read; it is needed for `txbroker secure renew`. The commands need the package cryptography:
pip install 'txbroker[security]'.
"""

RENEW_DESCRIPTION = """\
Replace the certificates in a directory of `txbroker secure init` by others of the same authority, with the same names and another key. A
running broker of this machine uses them within ten seconds, and open connections go on. Copy the files of other machines there.

  txbroker secure renew /etc/txbroker
  txbroker secure renew ./secured --ca-key /media/usb/ca.key
"""

DAYS = 365
PORT = 9092
PORT_MAX = 65_535
BROKER_ID_MAX = 999  # above it Kafka generates ids (reserved.broker.max.id is 1000)
_BROKER = re.compile(r"(?P<id>[0-9]{1,3})=(?P<host>\[[0-9A-Fa-f:.]+\]|[^:,\[\]]+)(:(?P<port>[0-9]{1,5}))?(?P<names>(,[^,]+)*)", re.ASCII)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("secure", help="make certificates, users and configurations of secured brokers", description=DESCRIPTION)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    init = commands.add_parser("init", help="write the files of secured brokers and their clients", description=INIT_DESCRIPTION)
    init.add_argument("directory", metavar="DIR", help="the directory to create")
    host_help = (
        "a name or address of the broker in its certificate, can be specified several times; clients connect to the first one, which is"
        " localhost by default"
    )
    init.add_argument("--host", action="append", type=_host, default=[], metavar="HOST", help=host_help)
    port_help = "the port of the broker (default: %(default)s)"
    init.add_argument("--port", type=number(1, PORT_MAX), default=PORT, metavar="PORT", help=port_help)
    broker_help = (
        "a broker of a cluster, with the host and port of its listener and further names for its certificate; can be specified several"
        " times"
    )
    init.add_argument("--broker", action="append", type=_broker, default=[], metavar="ID=HOST[:PORT][,NAME...]", help=broker_help)
    init.add_argument("--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="with --broker: zookeeper.connect of the brokers")
    init.add_argument("--on-machine", metavar="PATH",
                      help="with --broker: where the files of a broker will be on its machine (default: where they are written)")
    add_properties(init, "--override", "a configuration value of every broker, such as log.dirs")
    _add_days(init)
    init.set_defaults(command=run_init, command_name="txbroker secure init")
    renew = commands.add_parser("renew", help="replace certificates before they end", description=RENEW_DESCRIPTION)
    renew.add_argument("directory", metavar="DIR", help="a directory that `txbroker secure init` has written")
    renew.add_argument("--ca-key", metavar="FILE", help="the key of the authority (default: ca.key in DIR)")
    _add_days(renew)
    renew.set_defaults(command=run_renew, command_name="txbroker secure renew")


def _add_days(parser: argparse.ArgumentParser) -> None:
    days_help = "how many days the certificates of brokers are valid (default: %(default)s)"
    parser.add_argument("--days", type=number(1, 36_500), default=DAYS, metavar="N", help=days_help)


def _host(text: str) -> str:
    from txbroker.cli.secure.host_names import check_host

    try:
        return check_host(text)
    except ValueError as error:
        has_port = re.fullmatch(r"[^:]+:[0-9]+", text, re.ASCII)
        advice = "; specify the port with --port, or in --broker as ID=HOST:PORT" if has_port else ""
        raise argparse.ArgumentTypeError(f"{error}{advice}") from None


def _broker(text: str) -> tuple[int, tuple[str, ...], int | None]:
    """Id, names, port."""
    found = _BROKER.fullmatch(text)
    if found is None or not 0 <= int(found["id"]) <= BROKER_ID_MAX:
        raise argparse.ArgumentTypeError(f"must be ID=HOST[:PORT][,NAME...] with an ID from 0 to {BROKER_ID_MAX}, not {text!r}")
    port = None if found["port"] is None else number(1, PORT_MAX)(found["port"])
    names = (found["host"].strip("[]"), *found["names"].split(",")[1:])
    return int(found["id"]), tuple(map(_host, names)), port


def run_init(arguments: argparse.Namespace) -> int:
    """Write the directory whole or not at all; BadUsage, CommandFailed."""
    directory = os.path.abspath(arguments.directory)
    if any(ord(character) < 0x20 for character in directory) or directory != directory.strip():
        raise BadUsage("the path of DIR must not have control characters, or blanks at its end")
    if os.path.lexists(directory):
        raise BadUsage(f"{directory} exists, and is left as it is; name a directory that does not exist")
    places = _places(arguments, directory)
    if places[0].names[0].startswith("*"):
        raise BadUsage("the first --host is the one that clients connect to; it must not have a wildcard")
    check_overrides(arguments.override, places, arguments.zookeeper)
    _write_directory(directory, _files(arguments, directory, places))
    _print_first_steps(arguments, directory, places)
    return DONE


def _places(arguments: argparse.Namespace, directory: str) -> list[Place]:
    if not arguments.broker:
        for flag, value in (("--zookeeper", arguments.zookeeper), ("--on-machine", arguments.on_machine)):
            if value is not None:
                raise BadUsage(f"{flag} is for clusters; name their brokers with --broker")
        names = tuple(dict.fromkeys(arguments.host)) or ("localhost", "127.0.0.1", "::1")
        return [Place(1, names, arguments.port, directory)]
    if arguments.host:
        raise BadUsage("--host is for one broker alone; name the hosts of a cluster with --broker ID=HOST,NAME")
    if arguments.zookeeper is None:
        raise BadUsage("a cluster needs --zookeeper: the servers of ZooKeeper, which all its brokers use")
    if arguments.on_machine is not None and not os.path.isabs(arguments.on_machine):
        raise BadUsage("--on-machine must be an absolute path")
    ids = [broker_id for broker_id, _, _ in arguments.broker]
    if len(set(ids)) < len(ids):
        raise BadUsage("two --broker have the same ID")
    places = []
    for broker_id, names, port in arguments.broker:
        where = os.path.join(directory, f"broker-{broker_id}") if arguments.on_machine is None else arguments.on_machine
        places.append(Place(broker_id, tuple(dict.fromkeys(names)), port or arguments.port, where))
    addresses = [place.address for place in places]
    if len(set(addresses)) < len(addresses):
        raise BadUsage("two --broker have the same host and port; give them ports: ID=HOST:PORT")
    if any(place.names[0].startswith("*") for place in places):
        raise BadUsage("the HOST of a broker must not have a wildcard")
    return places


def _files(arguments: argparse.Namespace, directory: str, places: Sequence[Place]) -> dict[str, tuple[str, int]]:
    """Texts and modes by their paths in the directory."""
    from txbroker.security import certificate_maker

    now = datetime.now(UTC)
    days = max(certificate_maker.AUTHORITY_DAYS, arguments.days)
    authority = certificate_maker.Authority.new(f"txbroker authority {secrets.token_hex(4)}", now, days)
    passwords = secured_files.random_passwords()
    users = secured_files.users_text(passwords)
    own = authority.pair
    files = {"ca.pem": (own.certificate, secret_files.PUBLIC), "ca.key": (own.key, secret_files.PRIVATE)}
    for place in places:
        pair = authority.issue(place.names, arguments.days)
        properties = secured_files.broker_properties(
            place, passwords, arguments.override, zookeeper=arguments.zookeeper, brokers=len(places)
        )
        of_broker = {"broker.pem": pair.key + pair.certificate, "users": users, "broker.properties": properties}
        folder = f"broker-{place.broker_id}/" if arguments.broker else ""
        files |= {f"{folder}{name}": (text, secret_files.PRIVATE) for name, text in of_broker.items()}
        files[f"{folder}ca.pem"] = own.certificate, secret_files.PUBLIC
    bootstrap = ",".join(place.address for place in places)
    for user in (ADMIN, CLIENT):
        texts = secured_files.client_files(user, passwords[user], bootstrap, os.path.join(directory, "ca.pem"))
        files |= {name: (text, secret_files.PRIVATE) for name, text in texts.items()}
    return files


def _write_directory(directory: str, files: Mapping[str, tuple[str, int]]) -> None:
    """Beside it, then renamed; CommandFailed, and nothing is left."""
    parent = os.path.dirname(directory)
    try:
        beside = tempfile.mkdtemp(prefix=f".{os.path.basename(directory)}.", dir=parent)
    except OSError as error:
        raise CommandFailed(f"{parent}: {error.strerror}") from None
    try:
        for name, (text, mode) in files.items():
            path = os.path.join(beside, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            secret_files.write_new(path, text.encode(), mode)
        for folder in {os.path.dirname(os.path.join(beside, name)) for name in files}:
            os.chmod(folder, 0o755)
            secret_files.sync_directory(folder)
        os.rename(beside, directory)
        secret_files.sync_directory(parent)
    except OSError as error:
        raise CommandFailed(f"{directory} was not written: {error.strerror}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _print_first_steps(arguments: argparse.Namespace, directory: str, places: Sequence[Place]) -> None:
    admin = f"--bootstrap-server {places[0].address} --command-config {directory}/admin.properties"
    print(f"{directory} has an authority, certificates for {arguments.days} days, the users admin and client, and their settings.")
    if arguments.broker:
        for place in places:
            print(f"Copy broker-{place.broker_id}/ to {place.directory} on {place.names[0]}, and start that broker there:")
            print(f"  txbroker run --config {place.directory}/broker.properties")
    else:
        print("Start the broker:")
        print(f"  txbroker run --config {directory}/broker.properties")
    has_acls = arguments.override.get(AUTHORIZER_KEY) != ""
    print(f"Create a topic, {'and allow the user client to use it' if has_acls else 'which every user may use, as there are no ACLs'}:")
    print(f"  txbroker topics {admin} --create --topic hello")
    if has_acls:
        print(f"  txbroker acls {admin} --add --allow-principal User:client --producer --consumer --topic hello --group '*'")
    print(f"  txbroker produce --bootstrap-server {places[0].address} --command-config {directory}/client.properties --topic hello")


def run_renew(arguments: argparse.Namespace) -> int:
    """Replace all certificates or none; CommandFailed."""
    from txbroker.security import certificate_maker

    directory = os.path.abspath(arguments.directory)
    certificate = _read(directory, "ca.pem")
    key = os.path.join(directory, "ca.key") if arguments.ca_key is None else os.path.abspath(arguments.ca_key)
    if arguments.ca_key is None and not os.path.lexists(key):
        raise CommandFailed(f"{directory} has no ca.key, the key of the authority: name the file where you keep it with --ca-key")
    own = certificate_maker.Pair(read_text(key), certificate)
    authority = certificate_maker.Authority.load(own, datetime.now(UTC))
    paths = sorted(glob(os.path.join(escape(directory), "broker.pem")) + glob(os.path.join(escape(directory), "broker-*", "broker.pem")))
    if not paths:
        raise CommandFailed(f"{directory} has no broker.pem, neither itself nor in a directory broker-N; `txbroker secure init` writes one")
    renewed = {}
    for path in paths:
        try:
            renewed[path] = authority.renew(_read(*os.path.split(path)), arguments.days)
        except CommandFailed as failure:
            raise CommandFailed(f"{path}: {failure}") from None
    for path, (pem, ends) in renewed.items():
        try:
            secret_files.replace(path, pem.encode())
        except OSError as error:
            raise CommandFailed(f"{path} was not replaced: {error.strerror}; repair this, and run the command again") from None
        print(f"{path}: valid until {ends:%Y-%m-%d}")
    return DONE


def _read(directory: str, name: str) -> str:
    path = os.path.join(directory, name)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}; `txbroker secure renew` needs a directory that `txbroker secure init` has "
                            "written") from None  # fmt: skip
