"""The metrics port of several brokers that are processes of one machine: /metrics, /healthz and /readyz of all of them.

Each sample has the label `process`. A process that does not answer has no samples, and makes /healthz and /readyz answer 503.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.error import CannotListenError
from twisted.web.client import Agent, readBody
from twisted.web.http_headers import Headers

from txbroker.errors import StartError
from txbroker.metrics.host_names import HostNames
from txbroker.metrics.http import TEXT, Answer, Pages

OK, UNAVAILABLE = 200, 503
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TIMEOUT_S = 5.0

log = logging.getLogger("txbroker.metrics")

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.+)")
_ENDINGS = re.compile(r"_(total|created|bucket|count|sum|info)$")

Fetched = tuple[int, bytes]  # status and body


class ProcessPages:
    """Serves the pages on `host`, to requests that use one of its `names` (`HostNames`).

    `urls` returns the metrics address of each process, None for one that does not serve clients.
    """

    def __init__(self, reactor: Any, host: str, names: Sequence[str], urls: Callable[[], Sequence[str | None]]) -> None:
        self._agent = Agent(reactor, connectTimeout=TIMEOUT_S)
        self._reactor = reactor
        self._urls = urls
        pages = {b"/metrics": self._metrics, b"/healthz": lambda _: self._all("healthz"), b"/readyz": lambda _: self._all("readyz")}
        self._host = host
        self._pages = Pages(reactor, pages, HostNames(host, names))

    def start(self, port: int) -> str:
        """Bind the port; returns the address. StartError."""
        host = self._host
        try:
            listening = self._reactor.listenTCP(port, self._pages, interface=host)
        except CannotListenError as error:
            why = f"the metrics port cannot be bound on {host or '*'}:{port}: {error.socketError}"
            raise StartError(f"{why}; correct txbroker.metrics.port") from error
        address = f"http://{host or '0.0.0.0'}:{listening.getHost().port}/metrics"
        log.info("serving metrics of all processes on %s", address)
        return address

    def _metrics(self, accept: str) -> Deferred[Answer]:
        def merged_answer(fetched: list[Fetched | None]) -> Answer:
            texts = [(number, one[1].decode()) for number, one in enumerate(fetched) if one is not None and one[0] == OK]
            return Answer(OK, METRICS_TYPE, [merged(texts).encode()])

        return self._fetch_all("metrics").addCallback(merged_answer)

    def _all(self, page: str) -> Deferred[Answer]:
        def answer(fetched: list[Fetched | None]) -> Answer:
            wrong = [
                f"process {number}: {'it does not answer' if one is None else one[1].decode().strip()}\n"
                for number, one in enumerate(fetched)
                if one is None or one[0] != OK
            ]
            return Answer(UNAVAILABLE if wrong else OK, TEXT, ["".join(wrong or ["ok\n"]).encode()])

        return self._fetch_all(page).addCallback(answer)

    def _fetch_all(self, page: str) -> Deferred[list[Fetched | None]]:
        return gatherResults([self._fetch(url, page) for url in self._urls()])

    def _fetch(self, url: str | None, page: str) -> Deferred[Fetched | None]:
        if url is None:
            return succeed(None)
        address = url.removesuffix("metrics") + page
        asked: Deferred[Any] = self._agent.request(b"GET", address.encode(), Headers({"Accept": ["text/plain"]}))
        asked.addCallback(lambda response: readBody(response).addCallback(lambda body: (response.code, body)))
        asked.addTimeout(TIMEOUT_S, self._reactor, _late)
        return asked.addErrback(self._failed, address)

    def _failed(self, failure: Any, address: str) -> None:
        log.warning("%s does not answer: %s", address, failure.getErrorMessage())


def _late(_: object, timeout_s: float) -> NoReturn:
    raise TimeoutError(f"no response within {timeout_s:.0f} s")


def merged(texts: Sequence[tuple[int, str]]) -> str:
    """One text of the metrics of several processes, whose numbers are labels. Families stay together, as the format requires."""
    headers: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                lines = headers.setdefault(family, [])
                if line not in lines:
                    lines.append(line)
                continue
            found = _SAMPLE.fullmatch(line)
            if found is None:
                continue
            name, labels, value = found.groups()
            own = f'process="{number}"'
            where = family if name == family or _ENDINGS.sub("", name) == family else name
            samples.setdefault(where, []).append(f"{name}{{{own}{',' + labels if labels else ''}}} {value}")
    return "".join(f"{line}\n" for family in {**headers, **samples} for line in (*headers.get(family, ()), *samples.get(family, ())))
