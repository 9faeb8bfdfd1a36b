"""The generated reference: nothing is missing, and it is what a broker serves."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from docs.reference_pages import REFERENCE_PAGES, metrics
from docs.reference_pages.configuration import valid_values
from docs.reference_pages.markdown import code, escape, table
from docs.reference_pages.protocol import known, served
from tests.docs.pages import read
from tests.metrics.scraping import ON, Scrape
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.server import Server
from txbroker.cli.main import COMMANDS
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.topic_keys import TOPIC_KEYS
from txbroker.spark.load_metrics import LoadMetrics
from txbroker.spark.snapshot import Snapshot
from txbroker.testing import pytest_plugin
from txbroker.testing.plugin_options import OPTIONS, PREFIX


@pytest.mark.parametrize(("name", "keys"), [("broker", BROKER_KEYS), ("topic", TOPIC_KEYS)], ids=["broker", "topic"])
def test_every_key_has_its_place(name: str, keys: dict[str, object]) -> None:
    page = REFERENCE_PAGES[f"reference/{name}-configuration.md"]()
    documented = re.findall(r"^### (\S+)$|^\| `(\S+)` \|", page, re.M)
    assert sorted(heading or cell for heading, cell in documented) == sorted(keys)


def test_what_a_key_allows_is_documented() -> None:
    assert [key.name for key in BROKER_KEYS.values() if key.check is not None and not valid_values(key)] == []
    assert valid_values(TOPIC_KEYS["min.cleanable.dirty.ratio"]) == "from 0 to 1"
    assert valid_values(TOPIC_KEYS["cleanup.policy"]) == "a list of compact, delete"


def test_every_command_has_its_place() -> None:
    page = REFERENCE_PAGES["reference/commands.md"]()
    headings = re.findall(r"^## txbroker (.*)$", page, re.M)
    assert {heading.split()[0] for heading in headings} == set(COMMANDS)
    assert "| `--bootstrap-server HOST:PORT` |" in page and "`--help`" in page


def test_the_protocol_table_is_what_is_advertised(broker: Server) -> None:
    if broker.kind != BrokerProcess.kind:
        pytest.skip("the table is txbroker's")
    with RawConnection(broker.address) as connection:
        answer = connection.call(ApiVersionsRequest(), 0)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    documented = {key: (api.versions.low, api.versions.high) for key, api in served().items() if api.advertised and not api.in_cluster}
    assert documented == advertised
    assert known().keys() > served().keys()


def load_metrics() -> set[str]:
    """The names of what `txbroker spark load --metrics` serves."""
    made = LoadMetrics(lambda: Snapshot("", ()), lambda: 0.0)
    counters = {f"{family.name}_total" for family in made.registry.collect()}
    return counters | {family.name for family in made.describe()}


@pytest.mark.process
def test_the_metrics_have_their_documentation_and_labels() -> None:
    found = {family.name: family for family in metrics.families()}
    assert all(family.documentation for family in found.values())
    assert found["kafka_consumergroup_lag"].labels == ("consumergroup", "partition", "topic")
    assert found["kafka_server_brokertopicmetrics_bytesin_total"][1:3] == ("counter", ("topic",))
    assert found["txbroker_cleaner_failures_total"].kind == "counter", "also what has no samples yet"
    assert len(found) > 90
    of_load = load_metrics()
    of_pytest = {*vars(pytest_plugin), *(f"{PREFIX}_{option.key}" for option in OPTIONS)}
    for page in sorted((CHECKOUT / "docs").glob("*.md")):
        named = re.findall(r"`((?:kafka|txbroker)_[a-z_]+[a-z])(?:\{[^`]*\})?`", read(page))
        assert [name for name in named if name not in found and name not in of_pytest and name not in of_load] == [], page.name
    assert of_load <= set(re.findall(r"txbroker_load_[a-z_]+", read(CHECKOUT / "docs" / "spark.md")))


def test_every_reason_of_a_refusal_is_explained(start_broker: Callable[..., Server]) -> None:
    server = start_broker(ON)
    section = read(CHECKOUT / "docs" / "operations.md").split("### Refusals")[1].split("\n## ")[0]
    explained = [name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(explained) == sorted(Scrape(server).by("txbroker_refusals_total", "reason"))


def test_text_from_the_code_is_shown_as_it_is() -> None:
    assert escape("a*b_c <x> | [y] `d_e*`") == r"a\*b\_c \<x\> \| \[y\] `d_e*`"
    assert code("a|b") == r"`a\|b`" and code("a`b") == "`` a`b ``"
    assert table(("x", "y"), [["1", "2"]]) == "| x | y |\n| --- | --- |\n| 1 | 2 |\n"
