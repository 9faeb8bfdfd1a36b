"""Decoders only raise errors that their callers expect, for any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.decoders import MESSAGES, OTHERS, SEEDS, decode_message, decode_other, example
from tests.fuzz.frames import mutated, pick_from
from tests.support.examples import examples

choices = st.binary(max_size=60)


@settings(max_examples=examples(1500))
@given(st.sampled_from(MESSAGES), st.integers(0, 3), choices)
def test_messages(which: tuple[type, int], seed: int, data: bytes) -> None:
    cls, version = which
    good = example(cls, version, seed)
    assert decode_message(cls, version, good)
    decode_message(cls, version, mutated(good, pick_from(data)) if good else data)


@settings(max_examples=examples(300))
@given(st.sampled_from(MESSAGES), st.binary(max_size=200))
def test_messages_of_random_bytes(which: tuple[type, int], data: bytes) -> None:
    decode_message(*which, data)


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=examples(120))
@given(choices, st.binary(max_size=100))
def test_decoders_of_files_nodes_and_names(name: str, data: bytes, tail: bytes) -> None:
    decode_other(name, tail)
    decode_other(name, mutated(SEEDS.get(name, b"\0\0\0\x05" + tail), pick_from(data)))


@pytest.mark.parametrize("name", SEEDS)
def test_the_seeds_are_valid(name: str) -> None:
    OTHERS[name][0](SEEDS[name])
