"""Wrong commands, flags and words: the error says what was probably meant."""

from __future__ import annotations

import pytest

from tests.cli.commands import run
from txbroker.cli.main import COMMANDS, build_parser
from txbroker.cli.suggestions import wrong_words


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        ("topic --list", "there is no command topic; did you mean topics?"),
        ("topcs --list", "there is no command topcs; did you mean topics?"),
        ("kafka-topics.sh --list", "there is no command kafka-topics.sh; did you mean topics?"),
        ("/opt/kafka/bin/kafka-console-consumer.sh", "did you mean consume?"),
        ("topics --bootstrap-servers B:1 --list", "there is no flag --bootstrap-servers; did you mean --bootstrap-server?"),
        ("topics --bootstrap-servers=B:1 --list", "there is no flag --bootstrap-servers; did you mean --bootstrap-server?"),
        ("consume --bootstrap-server B:1 --topic t --form-beginning", "there is no flag --form-beginning; did you mean --from-beginning?"),
        ("produce B:9092 hello", "unrecognized arguments: B:9092 hello; did you mean --bootstrap-server B:9092 --topic hello?"),
        ("topics --bootstrap-server B:1 --describe hello", "unrecognized arguments: hello; did you mean --topic hello?"),
        ("groups --bootstrap-server B:1 --describe g", "unrecognized arguments: g; did you mean --"),
        ("log verify --jsonn x", "there is no flag --jsonn; did you mean --json?"),
        ("nonsense", "there is no command nonsense; the commands are run, cluster,"),
    ],
)
def test_what_was_meant(argv: str, meant: str) -> None:
    _, complaint = run(*argv.split(), status=2)
    assert meant in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        "consume --topic t --bootstrap-server b --property a=b --max-messages 1",
        "produce --compression-codec --topic t", "produce --compression-codec gzip --topic t", "log verify data other",
        "run --override a=b", "perf-produce --producer-props a=b c=d --topic t --num-records 1",
        "transactions list --bootstrap-server b",
        "audit keys --topic t", "get-offsets --time -1 --topic t", "spark load --topic t -- --what",
    ],
)  # fmt: skip
def test_right_words_are_left_alone(argv: str) -> None:
    words = argv.split()
    assert wrong_words(build_parser(words[0]), words) is None


def test_every_flag_is_known_to_itself() -> None:
    for command in COMMANDS:
        parser = build_parser(command)
        assert wrong_words(parser, [command, "--help"]) is None
