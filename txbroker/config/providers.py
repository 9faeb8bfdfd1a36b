"""Values from other files: `${ALIAS:PATH:KEY}` with Kafka's FileConfigProvider and DirectoryConfigProvider (KIP-421, KIP-632).

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    ssl.keystore.password=${file:/run/secrets/broker.properties:keystore}

The EnvVarConfigProvider is built in (`properties.py`). As in Kafka, a key that does not exist and a path that is not allowed leave the
text as it is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from txbroker.config.properties import MalformedProperties, Properties, Property, parse_properties

_PACKAGE = "org.apache.kafka.common.config.provider."
_FILE, _DIRECTORY, _ENVIRONMENT = f"{_PACKAGE}FileConfigProvider", f"{_PACKAGE}DirectoryConfigProvider", f"{_PACKAGE}EnvVarConfigProvider"
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_PREFIX = "config.providers"


class _Provider(NamedTuple):
    """One alias. `allowed`: the paths below which it reads; empty: all."""

    is_directory: bool
    allowed: tuple[str, ...]

    def allows(self, path: str) -> bool:
        wanted = posixpath.normpath(path)
        return not self.allowed or any(wanted == one or wanted.startswith(f"{one.rstrip('/')}/") for one in self.allowed)


def expand(properties: Properties, read: Callable[[str], bytes]) -> dict[str, Property]:
    """The properties with the values of files in place of variables; of MalformedProperties, `others` has those without a problem.

    `read(path)`: the content of a file; FileNotFoundError, OSError.
    """
    problems: list[str] = []
    providers = _providers(properties, problems)
    expanded = dict(properties)
    for name, written in properties.items():
        if "${" in written.text and not name.startswith(_PREFIX):
            try:
                expanded[name] = Property(_VARIABLE.sub(lambda match: _value(match, providers, read), written.text), written.origin)
            except (OSError, MalformedProperties) as error:
                problems.append(f"{written.origin}: {name}: {_reason(error)}; correct the path, or make the file readable")
                del expanded[name]
    if problems:
        raise MalformedProperties(problems, expanded)
    return expanded


def _providers(properties: Properties, problems: list[str]) -> Mapping[str, _Provider]:
    listed = properties.get(_PREFIX)
    found: dict[str, _Provider] = {}
    for alias in listed.text.split(",") if listed is not None else ():
        written = properties.get(f"{_PREFIX}.{alias}.class")
        if written is None or written.text.strip() == _ENVIRONMENT:
            continue
        name = written.text.strip()
        if name not in (_FILE, _DIRECTORY):
            problems.append(f"{written.origin}: {_PREFIX}.{alias}.class is {name}; it must be one of {_FILE}, {_DIRECTORY}, {_ENVIRONMENT}")
            continue
        allowed = properties.get(f"{_PREFIX}.{alias}.param.allowed.paths")
        paths = tuple(posixpath.normpath(path.strip()) for path in allowed.text.split(",") if path.strip()) if allowed is not None else ()
        found[alias] = _Provider(name == _DIRECTORY, paths)
    return found


def _value(match: re.Match[str], providers: Mapping[str, _Provider], read: Callable[[str], bytes]) -> str:
    alias, path, key = match.groups()
    provider, as_written = providers.get(alias), match.group(0)
    if provider is None or not path or not provider.allows(path):
        return as_written
    if not provider.is_directory:
        found = parse_properties(read(path), path, {}).get(key)
        return as_written if found is None else found.text
    if "/" in key:
        return as_written
    try:
        return read(f"{path}/{key}").decode("utf-8", "replace")
    except FileNotFoundError:
        return as_written


def _reason(error: OSError | MalformedProperties) -> str:
    return f"{error.filename} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
