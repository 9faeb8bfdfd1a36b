"""The protocol reference: which API keys are served in which versions, from the handlers and what their modules say."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import txbroker.api
import txbroker.wire.messages
from docs.reference_pages.markdown import escape, table
from txbroker.api.authorization import denial
from txbroker.api.registry import api_name
from txbroker.api.resources import AclResource, Rights, refused_of, rights_of
from txbroker.wire.schema import Request, VersionRange

_HEAD = """\
# Protocol

This page is generated from the handlers of requests. `ApiVersions` advertises these keys and versions, but for those that are marked as
not advertised, or only on listeners with SASL, and those that only a broker of a cluster (`zookeeper.connect`) serves;
`txbroker broker-api-versions` prints what a running broker advertises. Some APIs are answered with an error only, so that clients that
require them fail at once and with a reason.

With an [authorizer](../security.md#access-control-lists) a request needs operations on the resources that it names, as in Apache Kafka.
The table has all that requests of an API may ask for: of some one is enough, such as on the topic or on the cluster. The last column has
the errors without them; an API without an error leaves out what the client may not see.

"""
_TITLES = ("Behaviour", "Version notes")
_NOT_SERVED = """\
## Not served

These APIs of Apache Kafka are not advertised. A request for one is refused, and its connection is closed.

"""


class Served(NamedTuple):
    """One API of the broker."""

    request: type[Request]
    versions: VersionRange
    module: ModuleType
    advertised: bool
    for_login: bool
    in_cluster: bool
    rights: Rights
    refused: Sequence[AclResource]


def served() -> Mapping[int, Served]:
    """The APIs that have a handler, by key."""
    found: dict[int, Served] = {}
    for module in _modules(txbroker.api):
        for value in vars(module).values():
            request = getattr(value, "request", None) if inspect.isclass(value) and value.__module__ == module.__name__ else None
            if inspect.isclass(request) and issubclass(request, Request):
                found[request.api_key] = Served(
                    request,
                    getattr(value, "versions", request.versions),
                    module,
                    getattr(value, "advertised", True),
                    getattr(value, "for_login", False),
                    getattr(value, "in_cluster", False),
                    rights_of(value),
                    refused_of(value),
                )
    return dict(sorted(found.items()))


def known() -> Mapping[int, type[Request]]:
    """Every request class of the protocol, by key."""
    classes = (value for module in _modules(txbroker.wire.messages) for value in vars(module).values())
    requests = (value for value in classes if inspect.isclass(value) and issubclass(value, Request) and value is not Request)
    return dict(sorted((request.api_key, request) for request in requests))


def protocol_page() -> str:
    """The table, then what each module of handlers says of its APIs."""
    apis = served()
    rows = []
    for key, api in apis.items():
        link = f"[{api_name(api.request)}](#{_anchor(api.module)})"
        versions = f"{api.versions}, in a cluster" if api.in_cluster else str(api.versions)
        versions += "" if api.advertised else ", on listeners with SASL" if api.for_login else ", not advertised"
        rights = "; ".join(f"{operation.title} on {resource.title}" for operation, resource in api.rights)
        errors = ", ".join(denial(resource).code.name for resource in api.refused)
        rows.append([str(key), link, versions, str(api.request.versions), rights, errors])
    page = _HEAD + table(("key", "API", "versions served", "versions in Kafka", "operations that it may need", "errors without them"), rows)
    for module in dict.fromkeys(api.module for api in apis.values()):
        names = ", ".join(f"{api_name(api.request)} ({key})" for key, api in apis.items() if api.module is module)
        page += f"\n({_anchor(module)})=\n## {names}\n\n{_docstring(module)}"
    others = ([str(key), api_name(request), str(request.versions)] for key, request in known().items() if key not in apis)
    return page + "\n" + _NOT_SERVED + table(("key", "API", "versions in Kafka"), others)


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(package.__path__):
        if not info.ispkg:
            yield import_module(f"{package.__name__}.{info.name}")


def _anchor(module: ModuleType) -> str:
    return "api-" + module.__name__.rpartition(".")[2].replace("_", "-")


def _docstring(module: ModuleType) -> str:
    """Its paragraphs; those that begin with a title such as "Behaviour:" as paragraphs of their own. The heading has the names."""
    _, _, text = inspect.cleandoc(module.__doc__ or "").partition(": ")
    page = ""
    for line in _capital(text).splitlines():
        title, colon, rest = line.partition(": ")
        if colon and title in _TITLES:
            page += f"\n**{title}.** {escape(_capital(rest))}\n"
        else:
            page += escape(line) + "\n"
    return page


def _capital(text: str) -> str:
    """A word of the protocol, such as v3 or acks=0, stays as it is."""
    word = text.split(maxsplit=1)[0] if text else ""
    return text[:1].upper() + text[1:] if word.rstrip(",;:").isalpha() else text
