"""The samples of a broker's metrics port, parsed by prometheus-client."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ON = {"txbroker.metrics.port": "0"}

Labels = frozenset[tuple[str, str]]


class Answered(NamedTuple):
    status: int
    content_type: str
    body: bytes


def address(server: Server) -> tuple[str, int]:
    """Host and port of the metrics, from the ready file."""
    url = urlsplit((server.directory / "ready").read_text().splitlines()[-1])
    assert url.scheme == "http" and url.path == "/metrics" and url.hostname and url.port
    return url.hostname, url.port


def get(server: Server, path: str = "/metrics", accept: str = "", method: str = "GET", host: str = "") -> Answered:
    """Send one request; the whole response."""
    connection = HTTPConnection(*address(server), timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers={name: value for name, value in (("Accept", accept), ("Host", host)) if value})
        answer = connection.getresponse()
        return Answered(answer.status, answer.headers["Content-Type"], answer.read())
    finally:
        connection.close()


class Scrape:
    """All samples by name and labels."""

    def __init__(self, server: Server, accept: str = "") -> None:
        answer = get(server, accept=accept)
        assert answer.status == 200
        parse = parse_openmetrics if accept else parse_text
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in parse(answer.body.decode()):
            assert family.documentation
            for sample in family.samples:
                of_name = self.samples.setdefault(sample.name, {})
                labels = frozenset(sample.labels.items())
                assert labels not in of_name, f"{sample.name} has {sample.labels} twice"
                of_name[labels] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        """The sample with exactly these labels; KeyError when there is none."""
        return self.samples[name][frozenset(labels.items())]

    def by(self, name: str, label: str) -> dict[str, float]:
        """The samples of a name by the value of a label."""
        return {dict(labels)[label]: value for labels, value in self.samples.get(name, {}).items() if label in dict(labels)}
