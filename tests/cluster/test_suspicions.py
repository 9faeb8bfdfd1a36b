"""Which brokers are suspected: the rules, and what holds for any reports at any time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txbroker.cluster.suspicions import HOLD_MAX_S, HOLD_S, REPORTS_MIN, Report, Suspicion, Suspicions, parse_report

THREE = {1: 11, 2: 12, 3: 13}
GONE = [Report(3, 13, 1), Report(3, 13, 2)]


def test_two_reports_are_needed() -> None:
    suspicions = Suspicions(1)
    assert suspicions.look(0.0, THREE, GONE[:1]) == ({}, [])
    assert suspicions.look(0.1, THREE, GONE) == ({3: Suspicion(13, (1, 2))}, [])
    assert suspicions.look(0.2, THREE, GONE) == ({}, [])
    assert suspicions.suspected == {3: Suspicion(13, (1, 2))}
    assert suspicions.look(0.3, THREE, GONE[:1]) == ({}, [3])
    assert not suspicions.suspected


def test_reports_of_another_start_of_itself_or_of_brokers_that_are_gone_do_not_count() -> None:
    suspicions = Suspicions(1)
    assert not suspicions.look(0.0, THREE, [Report(3, 13, 1), Report(3, 12, 2), Report(3, 14, 2)]).new
    assert not suspicions.look(0.0, THREE, [Report(3, 13, 1), Report(3, 13, 3)]).new
    assert not suspicions.look(0.0, {1: 11, 3: 13, 4: 14, 5: 15}, GONE).new


def test_a_restart_ends_a_suspicion() -> None:
    suspicions = Suspicions(1)
    assert suspicions.look(0.0, THREE, GONE).new
    assert suspicions.look(0.1, {**THREE, 3: 14}, GONE) == ({}, [3])
    assert suspicions.look(0.2, {**THREE, 3: 14}, [Report(3, 14, 1), Report(3, 14, 2)]).new == {3: Suspicion(14, (1, 2))}


def test_half_of_the_brokers_are_not_suspected_at_once() -> None:
    four = {**THREE, 4: 14}
    reports = [*GONE, Report(4, 14, 1), Report(4, 14, 2)]
    assert not Suspicions(1).look(0.0, four, reports).new
    assert Suspicions(1).look(0.0, {**four, 5: 15}, reports).new.keys() == {3, 4}


def test_a_broker_that_is_reported_itself_suspects_none_and_its_reports_do_not_count() -> None:
    five = {**THREE, 4: 14, 5: 15}
    reports = [Report(1, 11, 2), Report(1, 11, 3), Report(5, 15, 1), Report(5, 15, 2)]
    assert not Suspicions(1).look(0.0, five, reports).new
    assert Suspicions(4).look(0.0, five, reports).new == {1: Suspicion(11, (2, 3))}


def test_a_broker_that_comes_and_goes_is_suspected_less_and_less_often() -> None:
    suspicions, now_s, pauses = Suspicions(1), 0.0, []
    assert suspicions.look(now_s, THREE, GONE).new
    for _ in range(9):
        assert suspicions.look(now_s, THREE, []).ended == [3]
        assert not suspicions.look(now_s, THREE, GONE).new
        assert suspicions.next_s is not None and not suspicions.suspected
        assert not suspicions.look(suspicions.next_s - 0.001, THREE, GONE).new
        pauses.append(suspicions.next_s - now_s)
        now_s = suspicions.next_s
        assert suspicions.look(now_s, THREE, GONE).new and suspicions.next_s is None
    assert pauses[:3] == [HOLD_S, 2 * HOLD_S, 4 * HOLD_S] and pauses[-1] == HOLD_MAX_S


def test_names_of_nodes() -> None:
    report = Report(3, 2**62, 1)
    assert parse_report(report.name) == report
    assert [parse_report(name) for name in ("", "3-5", "3-5-1-1", "-3-5-1", "a-5-1", "3-5-1 ", "9" * 11 + "-5-1", "٣-5-1")] == [None] * 8


IDS = st.integers(1, 6)
LOOKS = st.lists(
    st.tuples(
        st.floats(0, 200),
        st.dictionaries(IDS, st.integers(10, 12), min_size=1),
        st.sets(st.builds(Report, IDS, st.integers(10, 12), IDS), max_size=40),
    ),
    max_size=12,
)


@given(LOOKS)
def test_what_holds_for_any_reports(looks: list[tuple[float, dict[int, int], set[Report]]]) -> None:
    suspicions, now_s = Suspicions(1), 0.0
    last: dict[tuple[int, int], float] = {}
    for passed_s, registered, reports in looks:
        now_s += passed_s
        before = dict(suspicions.suspected)
        changes = suspicions.look(now_s, registered, reports)
        suspected = suspicions.suspected
        assert 1 not in suspected and 2 * len(suspected) < max(1, len(registered))
        assert changes.new.keys() <= suspected.keys()
        assert before.keys() - suspected.keys() <= set(changes.ended)
        for id_, suspicion in suspected.items():
            assert registered[id_] == suspicion.epoch and len(suspicion.reported_by) >= REPORTS_MIN
            for by in suspicion.reported_by:
                assert by in registered and by not in suspected and Report(id_, suspicion.epoch, by) in reports
        for id_, suspicion in changes.new.items():
            epoch, suspected_s = last.get(id_, (-1, 0.0))
            assert epoch != suspicion.epoch or now_s - suspected_s >= HOLD_S
            last[id_] = suspicion.epoch, now_s
        for id_ in last.keys() - registered.keys():
            del last[id_]
