"""Command lines: what is accepted, what is refused, and the messages. No test here connects to a broker."""

from __future__ import annotations

import json

import pytest

from txbroker.cli import consume, topics
from txbroker.cli.main import COMMANDS as MODULES
from txbroker.cli.main import build_parser, main
from txbroker.console.failures import BadUsage, warn

SERVER = ("--bootstrap-server", "127.0.0.1:9092")
COMMANDS: list[str] = list(build_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr, arg-type]


def test_each_command_has_its_module() -> None:
    assert list(MODULES) == COMMANDS
    for name in COMMANDS:
        (own,) = build_parser(name)._subparsers._group_actions[0].choices  # type: ignore[union-attr, misc]
        assert own == name


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The error message of an invalid command line, which must be one line with status 2."""
    try:
        status: int | str | None = main(argv)
    except SystemExit as left:
        status = left.code
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["nope"], "txbroker: there is no command nope"),
        (["--nope"], "txbroker: "),
        (["topics", "--list"], "txbroker topics: the following arguments are required: --bootstrap-server"),
        (["topics", *SERVER], "one of the arguments --create --list --describe --alter --delete is required"),
        (["topics", *SERVER, "--list", "--create"], "--create: not allowed with argument --list"),
        (["produce", "--broker-list", "x:9092", "--topic", "a"], "--broker-list was removed from Kafka's tools; use --bootstrap-server"),
        (["topics", "--zookeeper=x:2181", "--list"], "--zookeeper was removed from Kafka's tools; use --bootstrap-server"),
        (["consume", *SERVER, "--whitelist", "a.*"], "--whitelist was removed from Kafka's tools; use --include"),
        (["run", "--zookeeper", "x:2181"], "txbroker run: unrecognized arguments: --zookeeper x:2181"),
        (["topics", *SERVER, "--list", "--bogus", "7"], "txbroker topics: unrecognized arguments: --bogus 7"),
        (["topics", *SERVER, "--boot", "x:1", "--list"], "unrecognized arguments: --boot x:1"),
        (["topics", *SERVER, "--create", "--topic", "a", "--partitions", "0"], "--partitions: must be a whole number of 1 or more"),
        (["topics", *SERVER, "--create", "--topic", "a", "--config", "retention.ms"], "--config: must be KEY=VALUE, not 'retention.ms'"),
        (["topics", *SERVER, "--create"], "--create needs --topic"),
        (["topics", *SERVER, "--delete"], "--delete needs --topic"),
        (["topics", *SERVER, "--alter", "--topic", "a"], "--alter needs --partitions or --config"),
        (["topics", *SERVER, "--list", "--partitions", "2"], "--partitions is only valid with --create and --alter, not with --list"),
        (["topics", *SERVER, "--create", "--topic", "a", "--if-exists"], "--if-exists is only valid with --describe and --alter and"),
        (["topics", "--bootstrap-server", "host:port", "--list"], "--bootstrap-server is 'host:port'; it must be comma-separated"),
        (["topics", *SERVER, "--create", "--topic", "a", "--replica-assignment", "1:x"], "must be the brokers of each partition, like"),
        (["topics", *SERVER, "--create", "--topic", "a", "--replica-assignment", "1", "--partitions", "1"], "leave out the flags for"),
        (["topics", *SERVER, "--alter", "--topic", "a", "--replica-assignment", "1", "--partitions", "2"], "the brokers of all partitions"),
        (["topics", *SERVER, "--list", "--unavailable-partitions"], "--unavailable-partitions is only valid with --describe, not"),
        (["topics", *SERVER, "--describe", "--topic", "a", "--topic-id", "b"], "--topic-id and --topic cannot be used together"),
        (["topics", *SERVER, "--describe", "--topics-with-overrides", "--unavailable-partitions"], "-partitions cannot be used"),
        (["produce", *SERVER], "the following arguments are required: --topic"),
        (["produce", *SERVER, "--topic", "a", "--compression-codec", "zip"], "--compression-codec: invalid choice: 'zip'"),
        (["produce", *SERVER, "--topic", "a", "--property", "parse.kye=true"], "--reader-property parse.kye is not known; known are "),
        (["consume", *SERVER], "one of the arguments --topic --include is required"),
        (["consume", *SERVER, "--include", "*"], "--include '*' is neither a topic nor a regular expression"),
        (["consume", *SERVER, "--include", "a", "--partition", "0"], "--include and --partition cannot be used together"),
        (["consume", *SERVER, "--topic", "a", "--offset", "3"], "--offset needs --partition"),
        (["consume", *SERVER, "--topic", "a", "--partition", "0", "--offset", "-3"], "must be an offset of 0 or more, earliest or latest"),
        (["consume", *SERVER, "--topic", "a", "--partition", "0", "--group", "g"], "--group and --partition cannot be used together"),
        (["consume", *SERVER, "--topic", "a", "--partition", "0", "--offset", "3", "--from-beginning"], "cannot be used together"),
        (["consume", *SERVER, "--topic", "a", "--property", "print.key=yes"], "--formatter-property print.key is 'yes'; it must be "),
        (["consume", *SERVER, "--topic", "a", "--json", "--property", "print.key=true"], "print.key and --json cannot be used"),
        (["consume", *SERVER, "--topic", "a", "--isolation-level", "serializable"], "--isolation-level: invalid choice: 'serializable'"),
        (["configs", *SERVER, "--describe"], "specify --entity-type and --entity-name, or one of --topic, --broker"),
        (["configs", *SERVER, "--describe", "--topic", "a", "--broker", "1"], "or one of --topic, --broker and --broker-defaults"),
        (["configs", *SERVER, "--describe", "--entity-type", "addresses"], "--entity-type: invalid choice: 'addresses'"),
        (["configs", *SERVER, "--describe", "--ip", "10.0.0.1", "--user", "a"], "ips cannot be combined with users and clients"),
        (["configs", *SERVER, "--describe", "--entity-type", "users", "--topic", "a"], "users, clients and ips cannot be combined with"),
        (["configs", *SERVER, "--describe", "--client", "a", "--client-defaults"], "name at most one user and one client id"),
        (["configs", *SERVER, "--alter", "--entity-type", "users", "--add-config", "request_percentage=1"], "--alter needs --entity-n"),
        (["configs", *SERVER, "--alter", "--user", "u", "--add-config", "producer_byte_rate=many"], "must be a number, not 'many'"),
        (["configs", *SERVER, "--describe", "--entity-type", "topics", "--entity-default"], "is only valid with --entity-type brokers"),
        (["configs", *SERVER, "--describe", "--broker", "one"], "the name of a broker is its id, a number, not 'one'"),
        (["configs", *SERVER, "--describe", "--topic", "a", "--add-config", "a=b"], "are only valid with --alter, not with --describe"),
        (["configs", *SERVER, "--alter", "--topic", "a"], "--alter needs --add-config or --add-config-file, or --delete-config"),
        (["configs", *SERVER, "--alter", "--entity-type", "topics", "--add-config", "a=b"], "--alter needs --entity-name"),
        (["configs", *SERVER, "--alter", "--topic", "a", "--add-config", "a=1,b"], "must be comma-separated KEY=VALUE"),
        (["configs", *SERVER, "--alter", "--topic", "a", "--delete-config", "a=1"], "must be comma-separated keys, not 'a=1'"),
        (["configs", *SERVER, "--alter", "--topic", "a", "--add-config", "a=1", "--delete-config", "a"], "a is both added and deleted"),
        (["groups", *SERVER, "--describe"], "--describe needs either --group or --all-groups"),
        (["groups", *SERVER, "--delete", "--group", "a", "--all-groups"], "--delete needs either --group or --all-groups"),
        (["groups", *SERVER, "--list", "--group", "a"], "--group is only valid with --describe and --reset-offsets and --delete and"),
        (["groups", *SERVER, "--list", "--state", "Sleepy"], "--state: 'sleepy' is not one of the states Stable, "),
        (["groups", *SERVER, "--describe", "--group", "a", "--members", "--state"], "allows only one of --offsets, --members and --state"),
        (["groups", *SERVER, "--delete-offsets", "--group", "a"], "--delete-offsets needs one --group, and --topic"),
        (["groups", *SERVER, "--reset-offsets", "--group", "a", "--topic", "a"], "--reset-offsets needs one of --to-earliest,"),
        (["groups", *SERVER, "--reset-offsets", "--group", "a", "--to-offset", "0"], "needs either --topic or --all-topics"),
        (["groups", *SERVER, "--delete", "--group", "a", "--to-offset", "0"], "--to-offset is only valid with --reset-offsets"),
        (["groups", *SERVER, "--reset-offsets", "--group", "a", "--to-offset", "-1"], "--to-offset: must be a whole number of 0 or more"),
        (["groups", *SERVER, "--reset-offsets", "--group", "a", "--to-offset", "9" * 30], "--to-offset: must be at most 922337203685"),
        (["groups", *SERVER, "--reset-offsets", "--group", "a", "--to-earliest", "--to-latest"], "--reset-offsets needs one of --to-ear"),
        (["groups", *SERVER, "--reset-offsets", "--to-datetime", "yesterday"], "--to-datetime: must be a date and time like 2026-01-31T18"),
        (["groups", *SERVER, "--reset-offsets", "--by-duration", "1h"], "--by-duration: must be a duration like P7D, PT12H or"),
        (["get-offsets", *SERVER, "--time", "soon"], "must be latest, earliest, max-timestamp, earliest-local, latest-tiered or"),
        (["get-offsets", *SERVER, "--partitions", "0,x"], "--partitions: must be comma-separated numbers, not '0,x'"),
        (["get-offsets", *SERVER, "--topic", "*"], "--topic '*' is neither a topic nor a regular expression"),
        (["get-offsets", *SERVER, "--topic-partitions", "a:x"], "--topic-partitions is 'a:x'; it must be like topic:1,topic:0-3,"),
        (["get-offsets", *SERVER, "--topic-partitions", "a:1", "--topic", "a"], "cannot be used with --topic and --partitions"),
        (["delete-records", *SERVER], "the following arguments are required: --offset-json-file"),
        (["log-dirs", *SERVER], "the following arguments are required: --describe"),
        (["reassign-partitions", *SERVER, "--execute"], "--execute needs --reassignment-json-file"),
        (["reassign-partitions", *SERVER, "--generate", "--broker-list", "1"], "--generate needs --topics-to-move-json-file and"),
        (["reassign-partitions", *SERVER, "--list", "--additional"], "--additional is only valid with --execute, not with --list"),
        (["reassign-partitions", *SERVER, "--list", "--throttle", "1"], "--throttle is only valid with --execute, not with --list"),
        (["reassign-partitions", *SERVER, "--list", "--preserve-throttles"], "is only valid with --verify and --cancel, not with --list"),
        (["leader-election", *SERVER, "--election-type", "clean", "--all-topic-partitions"], "--election-type: invalid choice: 'clean'"),
        (["leader-election", *SERVER, "--election-type", "unclean"], "one of the arguments --topic --all-topic-partitions --path-to-json"),
        (["leader-election", *SERVER, "--election-type", "unclean", "--topic", "a"], "--topic and --partition belong together"),
        (["log-dirs", *SERVER, "--describe", "--broker-list", "1,-2"], "--broker-list: must be comma-separated numbers, not '1,-2'"),
        (["log-dirs", *SERVER, "--describe", "--topic-list", "a,"], "--topic-list: must be comma-separated names, not 'a,'"),
        (["dump-log"], "the following arguments are required: --files"),
        (["dump-log", "--files", "a.log,,b.log"], "--files contains an empty path"),
        (["dump-log", "--files", "a.log", "--offsets-decoder", "--transaction-log-decoder"], "not allowed with argument"),
        (["run", "--override", "log.dirs"], "txbroker run: argument --override: must be KEY=VALUE, not 'log.dirs'"),
        (["run", "--log-level", "loud"], "--log-level: must be LEVEL or LOGGER=LEVEL, where LEVEL is one of debug, info,"),
        (["run", "--log-level", "=info"], "--log-level: must be LEVEL or LOGGER=LEVEL, where LEVEL is one of debug, info,"),
        (["run", "--log-format", "xml"], "--log-format: invalid choice: 'xml'"),
    ],
)
def test_wrong_usage_is_one_sentence(argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, *argv)
    if "--json" in argv:
        line = f"{json.loads(line)['command']}: {json.loads(line)['error']}\n"
    assert complaint in line
    command = argv[0] if argv[0] in COMMANDS else ""
    assert line.endswith(f"see {' '.join(['txbroker', *([command] if command else [])])} --help\n")


def test_with_json_an_error_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["topics", *SERVER, "--create", "--json"], ["topics", "--json"], ["topics", "--json", "--bogus", *SERVER, "--list"]):
        row = json.loads(refused(capsys, *argv))
        assert (row["command"], row["status"], row["code"]) == ("txbroker topics", 2, None)
        assert row["error"].endswith("; see txbroker topics --help")
    assert refused(capsys, "topics").startswith("txbroker topics: "), "--json of one command line does not affect the next"


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in (*COMMANDS, "--override log.dirs=", "Exit status"):
        assert word in captured.err


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_and_explains_every_flag(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as left:
        main([*([command] if command else []), "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert "  txbroker " in text, "there is an example"
    parser = build_parser()
    if command:
        parser = parser._subparsers._group_actions[0].choices[command]  # type: ignore[union-attr, index, assignment]
    for action in parser._actions:
        assert action.help or not action.option_strings, f"{action.option_strings} is not explained"
    assert all(len(line) <= 140 for line in text.splitlines())


def test_flags_of_topics() -> None:
    wanted = ["topics", *SERVER, "--create", "--topic", "a", "--partitions", "3", "--replication-factor", "1"]
    configs = ["--config", "retention.ms=5", "--config", "cleanup.policy=compact,delete", "--config", "x=a=b"]
    arguments = build_parser().parse_args([*wanted, *configs])
    topics.check(arguments)
    assert (arguments.action, arguments.topic, arguments.partitions, arguments.replication_factor) == ("create", "a", 3, 1)
    assert arguments.config == {"retention.ms": "5", "cleanup.policy": "compact,delete", "x": "a=b"}
    assert build_parser().parse_args(wanted).config == {}, "parsers do not share collected values"


def test_flags_of_consume() -> None:
    for text, expected in (("earliest", "earliest"), ("latest", "latest"), ("0", 0), ("17", 17)):
        arguments = build_parser().parse_args(["consume", *SERVER, "--topic", "a", "--partition", "2", "--offset", text])
        consume.check(arguments)
        assert (arguments.partition, arguments.offset) == (2, expected)


def test_the_codec_without_a_name_is_gzip() -> None:
    flags = ["produce", *SERVER, "--topic", "a"]
    assert build_parser().parse_args(flags).compression_codec is None
    assert build_parser().parse_args([*flags, "--compression-codec"]).compression_codec == "gzip"
    assert build_parser().parse_args([*flags, "--compression-codec", "zstd"]).compression_codec == "zstd"


KNOWN = ["a.b", "axb", "orders", "orders-eu", "payments"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, KNOWN),
        ("orders", ["orders"]),
        ("a.b", ["a.b"]),  # as an expression it would match two topics
        ("a.[bc]", ["a.b", "axb"]),
        ("orders.*", ["orders", "orders-eu"]),
        ("order", []),  # an expression matches the whole name
        ("orders,payments", ["orders", "payments"]),
        ("nope", []),
    ],
)
def test_topics_by_name_or_expression(wanted: str | None, expected: list[str]) -> None:
    assert topics.select(reversed(KNOWN), wanted) == expected


def test_a_topic_name_that_is_an_invalid_expression() -> None:
    with pytest.raises(BadUsage, match=r"--topic '\*' is neither a topic nor a regular expression"):
        topics.select(KNOWN, "*")


def test_json_errors_end_with_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", *SERVER, "--create", "--json"]) == 2
    assert capsys.readouterr().err.startswith('{"error": ')
    warn("a later warning in this process")
    assert capsys.readouterr().err == "a later warning in this process\n"
