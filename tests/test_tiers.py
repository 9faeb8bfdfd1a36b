"""The tiers of the tests: what is in the short one, and the lists name tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.support.cache import CHECKOUT
from tests.tiers import EXTENDED, SHORT, is_extended

TESTS = CHECKOUT / "tests"
NAME = re.compile(r"^ *(?:async )?(?:def|class) (\w+)|^(\w+) = ", re.MULTILINE)


@pytest.mark.parametrize(("fixtures", "process", "extended"), [
    (set(), False, False),
    ({"tmp_path"}, False, False),
    ({"broker", "shared_broker", "all_server_directories"}, False, False),
    ({"broker", "shared_broker", "all_server_directories"}, True, False),
    (set(), True, True),
    ({"start_broker", "all_server_directories"}, False, True),
    ({"start_broker", "broker", "all_server_directories"}, False, True),
    ({"both", "all_server_directories"}, True, True),
    ({"broker", "all_server_directories", "spark_jars"}, False, True),
])  # fmt: skip
def test_what_a_test_starts_decides(fixtures: set[str], process: bool, extended: bool) -> None:
    assert is_extended("new/test_new.py", "test_new", fixtures, process=process) is extended


@pytest.mark.parametrize(("path", "name", "fixtures", "extended"), [
    ("kafka_tools/test_topics_and_console.py", "test_any", {"broker", "all_server_directories"}, True),
    ("kafka_tools/test_cluster_administration.py", "test_any", {"start_cluster", "all_server_directories"}, False),
    ("compat/test_java.py", "test_a_java_client[java_2_8_2]", {"broker", "all_server_directories"}, True),
    ("compat/test_java.py", "test_a_java_client[java_4_3_1]", {"broker", "all_server_directories"}, False),
    ("fakes/test_disks.py", "TestSideBySide::runTest", set(), True),
    ("fakes/test_disks.py", "test_paths_on_a_disk", set(), False),
    ("metrics/test_endpoint.py", "test_any[1]", {"start_broker", "all_server_directories"}, False),
])  # fmt: skip
def test_the_nearest_entry_of_the_lists_decides(path: str, name: str, fixtures: set[str], extended: bool) -> None:
    assert is_extended(path, name, fixtures, process=False) is extended


@pytest.mark.parametrize("entry", [*SHORT, *EXTENDED])
def test_entries_name_tests_that_exist(entry: str) -> None:
    path, _, name = entry.partition("::")
    assert (TESTS / path).exists()
    if name:
        assert name.partition("[")[0] in {first or second for first, second in NAME.findall((TESTS / path).read_text())}


def test_no_entry_is_in_both_lists() -> None:
    assert not SHORT.keys() & EXTENDED.keys()
