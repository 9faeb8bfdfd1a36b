"""The metrics of several processes in one text."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from txbroker.metrics.process_pages import merged

ONE = """\
# HELP a_total Records
# TYPE a_total counter
a_total{topic="x} y"} 1.0
a_total{topic="z"} 2.0
# HELP b Seconds
# TYPE b histogram
b_bucket{le="+Inf"} 3.0
b_count 3.0
b_sum 4.5
"""
TWO = """\
# HELP b Seconds
# TYPE b histogram
b_bucket{le="+Inf"} 1.0
b_count 1.0
b_sum 0.5
# HELP c Only here
# TYPE c gauge
c NaN
"""


def test_samples_have_the_number_of_their_process() -> None:
    families = {family.name: family for family in text_string_to_metric_families(merged([(0, ONE), (2, TWO)]))}
    assert {name: family.type for name, family in families.items()} == {"a": "counter", "b": "histogram", "c": "gauge"}
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families.values() for s in f.samples if f.name != "c"}
    assert samples == {
        ("a_total", (("process", "0"), ("topic", "x} y"))): 1.0,
        ("a_total", (("process", "0"), ("topic", "z"))): 2.0,
        ("b_bucket", (("le", "+Inf"), ("process", "0"))): 3.0,
        ("b_bucket", (("le", "+Inf"), ("process", "2"))): 1.0,
        ("b_count", (("process", "0"),)): 3.0,
        ("b_count", (("process", "2"),)): 1.0,
        ("b_sum", (("process", "0"),)): 4.5,
        ("b_sum", (("process", "2"),)): 0.5,
    }
    assert [s.labels for s in families["c"].samples] == [{"process": "2"}]


def test_nothing_of_no_process() -> None:
    assert merged([]) == ""
