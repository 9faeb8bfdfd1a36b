"""Committed offsets of one group: what is seen when, in whatever order writes end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from txbroker.groups.group_offsets import GroupOffsets
from txbroker.groups.group_results import CommittedOffset
from txbroker.names import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, commit_ms=0)


def test_a_write_is_seen_once_it_succeeded():
    offsets = GroupOffsets()
    write = offsets.begin({A: at(1), B: at(2)})
    assert offsets.get(A) is None
    assert offsets.is_unstable(A)
    offsets.settle(write, True)
    assert dict(offsets) == {A: at(1), B: at(2)}
    assert not offsets.is_unstable(A)


def test_a_write_that_failed_leaves_what_was_there():
    offsets = GroupOffsets()
    offsets.replay(A, at(1))
    offsets.settle(offsets.begin({A: at(2)}), False)
    assert offsets.get(A) == at(1)
    offsets.settle(offsets.begin({A: None}), False)
    assert offsets.get(A) == at(1)


def test_writes_that_end_out_of_order_leave_the_last_in_the_log():
    offsets = GroupOffsets()
    first, second = offsets.begin({A: at(1)}), offsets.begin({A: at(2)})
    offsets.settle(second, True)
    offsets.settle(first, True)
    assert offsets.get(A) == at(2)


def test_a_removal_is_not_undone_by_a_write_before_it():
    offsets = GroupOffsets()
    write, removal = offsets.begin({A: at(1)}), offsets.begin({A: None})
    offsets.settle(removal, True)
    offsets.settle(write, True)
    assert offsets.get(A) is None
    assert offsets.is_unused


def test_a_write_after_a_removal_counts():
    offsets = GroupOffsets()
    removal, write = offsets.begin({A: None}), offsets.begin({A: at(1)})
    offsets.settle(write, True)
    offsets.settle(removal, True)
    assert offsets.get(A) == at(1)


def test_transactional_offsets_wait_for_their_marker():
    offsets = GroupOffsets()
    offsets.replay(A, at(1))
    offsets.replay_transactional(7, A, at(5))
    offsets.replay_transactional(8, B, at(6))
    assert offsets.get(A) == at(1)
    assert offsets.is_unstable(A) and offsets.is_unstable(B)
    assert not offsets.is_unused
    offsets.end_transaction(7, True)
    offsets.end_transaction(8, False)
    offsets.end_transaction(9, True)
    assert dict(offsets) == {A: at(5)}
    assert not offsets.is_unstable(B)


def test_a_commit_between_a_transactional_offset_and_its_marker_is_newer():
    offsets = GroupOffsets()
    offsets.replay_transactional(7, A, at(5))
    offsets.replay_transactional(7, B, at(5))
    offsets.replay(A, at(9))
    offsets.replay(B, None)
    offsets.end_transaction(7, True)
    assert dict(offsets) == {A: at(9)}


@given(st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.booleans()), max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=examples(200))
def test_the_end_is_what_the_log_says_whatever_the_order_of_answers(writes, chance):
    offsets = GroupOffsets()
    begun = [(offsets.begin({A: None if n is None else at(n)}), n, ok) for n, ok in writes]
    chance.shuffle(begun)
    for write, _, ok in begun:
        offsets.settle(write, ok)
    in_log = [n for n, ok in writes if ok]
    expected = at(in_log[-1]) if in_log and in_log[-1] is not None else None
    assert offsets.get(A) == expected
    assert offsets.is_unused == (expected is None)
    assert not offsets.is_unstable(A)
