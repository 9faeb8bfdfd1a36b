from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from txbroker.config.checks import Check, at_least, between, each_of, gzip_level, host_limits, kafka_version, one_of, throttled_replicas
from txbroker.config.keys import Importance, InvalidValue, Key, Type, Value, java_double


def key(type_: Type, check: Check | None = None) -> Key:
    return Key("k", type_, None, Importance.LOW, "Something.", check)


@pytest.mark.parametrize(
    ("type_", "text", "value", "printed"),
    [
        (Type.BOOLEAN, " TRUE ", True, "true"),
        (Type.BOOLEAN, "false", False, "false"),
        (Type.INT, " +0300\t", 300, "300"),
        (Type.INT, "-2147483648", -(2**31), "-2147483648"),
        (Type.SHORT, "32767", 32767, "32767"),
        (Type.LONG, "9223372036854775807", 2**63 - 1, "9223372036854775807"),
        (Type.DOUBLE, "0.50", 0.5, "0.5"),
        (Type.DOUBLE, ".5d", 0.5, "0.5"),
        (Type.DOUBLE, "1", 1.0, "1.0"),
        (Type.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308, "1.7976931348623157E308"),
        (Type.LIST, " compact , delete ", ("compact", "delete"), "compact,delete"),
        (Type.LIST, "", (), ""),
        (Type.LIST, "a,", ("a", ""), "a,"),
        (Type.STRING, " a b ", "a b", "a b"),
        (Type.CLASS, "org.X", "org.X", "org.X"),
        (Type.PASSWORD, " p ", "p", "p"),
    ],
)
def test_parsing_and_printing_of_values(type_: Type, text: str, value: Value, printed: str) -> None:
    parsed = key(type_).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)
    assert key(type_).format(parsed) == printed


def test_a_missing_value_is_printed_as_none() -> None:
    assert key(Type.INT).format(None) is None


INT_RANGE = "a whole number from -2147483648 to 2147483647"


@pytest.mark.parametrize(
    ("type_", "check", "text", "message"),
    [
        (Type.BOOLEAN, None, "yes", "k is 'yes'; it must be true or false"),
        (Type.BOOLEAN, None, "", "k is ''; it must be true or false"),
        (Type.INT, None, "abc", f"k is 'abc'; it must be {INT_RANGE}"),
        (Type.INT, None, "", f"k is ''; it must be {INT_RANGE}"),
        (Type.INT, None, "1e6", f"k is '1e6'; it must be {INT_RANGE}"),
        (Type.INT, None, "0x10", f"k is '0x10'; it must be {INT_RANGE}"),
        (Type.INT, None, "1_000", f"k is '1_000'; it must be {INT_RANGE}"),
        (Type.INT, None, "٣", f"k is '٣'; it must be {INT_RANGE}"),
        (Type.INT, None, "2147483648", f"k is '2147483648'; it must be {INT_RANGE}"),
        (Type.SHORT, None, "32768", "k is '32768'; it must be a whole number from -32768 to 32767"),
        (Type.LONG, None, "9" * 5000, f"k is '{'9' * 200}...'; it must be a whole number from {-(2**63)} to {2**63 - 1}"),
        (Type.DOUBLE, None, "nan", "k is 'nan'; it must be a number"),
        (Type.DOUBLE, None, ".", "k is '.'; it must be a number"),
        (Type.INT, at_least(1), "0", "k is '0'; it must be at least 1"),
        (Type.INT, between(1, 17), "18", "k is '18'; it must be from 1 to 17"),
        (Type.DOUBLE, between(0, 1), "1.5", "k is '1.5'; it must be from 0 to 1"),
        (Type.INT, gzip_level, "0", "k is '0'; it must be from 1 to 9, or -1"),
        (Type.STRING, one_of("a", "b"), "A", "k is 'A'; it must be one of a, b"),
        (Type.LIST, each_of("a", "b"), "a,c", "k is 'a,c'; it must be a list of a, b"),
        (Type.LIST, throttled_replicas, "0:1,x", "k is '0:1,x'; it must be * or a list of partition:broker"),
        (Type.LIST, throttled_replicas, "*,0:1", "k is '*,0:1'; it must be * or a list of partition:broker"),
        (Type.STRING, host_limits, "nonsense", "k is 'nonsense'; it must be a list of host:count"),
        (Type.STRING, kafka_version, "zzz", "k is 'zzz'; it must be a version of Kafka such as 3.0 or 3.0-IV1"),
        (Type.PASSWORD, one_of("x"), "secret", "k must be one of x"),
    ],
)
def test_errors_name_what_is_allowed(type_: Type, check: Check | None, text: str, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        key(type_, check).parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,10:1001"])
def test_throttled_replicas(text: str) -> None:
    key(Type.LIST, throttled_replicas).parse(text)


@pytest.mark.parametrize("text", ["0.8.0", "0.10.0-IV1", "2.8", "3.9-IV0", "4.1"])
def test_versions_of_kafka(text: str) -> None:
    assert key(Type.STRING, kafka_version).parse(text) == text


@pytest.mark.parametrize("text", ["", "127.0.0.1:3", "a.example:0 , [::1]:20"])
def test_host_limits(text: str) -> None:
    key(Type.STRING, host_limits).parse(text)


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (0.05, "0.05"), (0.001, "0.001"), (0.0001, "1.0E-4"), (-0.00015, "-1.5E-4"), (9999999.0, "9999999.0"),
        (1e7, "1.0E7"), (12345678.5, "1.23456785E7"), (5e-324, "5.0E-324"), (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_printed_as_java_prints_them(value: float, printed: str) -> None:
    assert java_double(value) == printed


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e23)
def test_printed_doubles_read_back(value: float) -> None:
    double = key(Type.DOUBLE)
    assert double.parse(java_double(value)) == value
