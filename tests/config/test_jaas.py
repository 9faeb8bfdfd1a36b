"""Login configurations: what Kafka's own parser makes of the same texts."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import java
from tests.support.waiting import PATIENCE_S
from txbroker.config.jaas import InvalidJaas, LoginModule, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PARTS = ["a", "required", "REQUIRED", "Optional", "requisite", "x.y-z_$", "user_a", "=", "=", "=", ";", ";", " ", " ", "\n", "\r", "\t",
         '"', "'", "\\", "\\n", "\\101", "\\7", "\\477", "/", "//", "/*", "*/", "*", "-", "-5", ".", "1.5.2", "12a", "\xe9", "\x80", "\x7f",
         "\u20ac", "\U0001f511", '"b c"', "'d'", '"\\""', ",", "#", "username", "password", MODULE]  # fmt: skip


def test_options_and_comments() -> None:
    text = f"""{MODULE} required // username=no;
        /* password="no" */ username="a\\"b" password='p;=\\x' user_c=d-e.f_$9 "quoted key"=v username=last;"""
    assert parse_jaas(text) == LoginModule(MODULE, {"username": "last", "password": "p;=x", "user_c": "d-e.f_$9", "quoted key": "v"})


@pytest.mark.parametrize(("text", "problem"), [
    ("", "must have one login module, and has none"),
    ("a required; b required;", "must have one login module, and has 2"),
    ("a required username=x", "has no semicolon at its end"),
    ("a username=x;", "has no control flag after the login module; write `required` there"),
    ("a required username;", 'has no value for the option username; write name="value"'),
    ("a required password=123;", "has no value for the option password"),
    ("a required password=/secret;", "has no value for the option password"),
    ("a required = ;", "has no value for option 1"),
    ("a required password=\"a\" part-of-it;", "has no value for option 2;"),
    ("12 required;", "does not begin with the class of a login module"),
])  # fmt: skip
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidJaas, match=problem):
        parse_jaas(text)


@given(st.text(), st.text(alphabet="abc_$.-", min_size=1))
def test_a_quoted_value_is_read_back(value: str, word: str) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if ord(c) < 0x80 else c for c in value)
    assert parse_jaas(f'x required a="{escaped}" b{word}="c";').options == {"a": value, f"b{word}": "c"}


@given(st.text(alphabet=st.sampled_from("ab;='\"/\\*-.9 \n\x00\xe9\u20ac"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(text)
    except InvalidJaas as error:
        assert "\n" not in str(error)


@pytest.mark.extended
def test_kafka_reads_the_same(tmp_path: Path) -> None:
    chance = random.Random(7)
    texts = ["".join(chance.choices(PARTS, k=chance.randrange(12))) for _ in range(5_000)]
    # Most random texts are refused early: these are refused late, or not.
    texts += [f"{MODULE} required {''.join(chance.choices(PARTS, k=chance.randrange(14)))};" for _ in range(20_000)]
    texts += [f'{MODULE} required {" ".join(f"k{n}={value}" for n, value in enumerate(chance.choices(PARTS, k=3)))};' for _ in range(5_000)]
    classes = java.compiled(Path(__file__).parent / "JaasOptions.java", tmp_path)
    command = [*java.class_path(java.KAFKA_NEW, classes, log_level="FATAL"), "JaasOptions"]
    lines = "".join(base64.b64encode(text.encode()).decode() + "\n" for text in texts)
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    theirs = ended.stdout.splitlines()
    assert len(theirs) == len(texts) and sum(line != "refused" for line in theirs) > 1_000
    assert [(text, line) for text, line in zip(texts, theirs, strict=True) if line != ours(text)][:5] == []


def ours(text: str) -> str:
    try:
        module = parse_jaas(text)
    except InvalidJaas:
        return "refused"
    options = sorted(module.options.items(), key=lambda option: option[0].encode("utf-16-be"))
    return " ".join([encoded(module.name), *(f"{encoded(name)}={encoded(value)}" for name, value in options)])


def encoded(text: str) -> str:
    return f"'{base64.b64encode(text.encode('utf-16-be', 'surrogatepass')).decode()}'"
