"""Schemas by number, of values in the framing of Confluent's schema registry: a zero byte, the number in four bytes, the Avro data.

They are in a folder, `ID.avsc`, or at a registry: `GET /schemas/ids/ID` of its REST interface. Only the driver asks.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from txbroker.console.failures import BadUsage, CommandFailed

TIMEOUT_S = 30.0
SCHEMA_BYTES_MAX = 1024 * 1024


class UnknownSchema(Exception):
    """The registry has no schema of this number that can be used; the text says why."""


class SchemaRegistry(Protocol):
    """Where schemas are."""

    def schema(self, number: int) -> str:
        """The Avro schema; UnknownSchema, CommandFailed if the registry does not answer."""


def registry(location: str) -> SchemaRegistry:
    """The registry of --registry: a folder or a URL; BadUsage, CommandFailed."""
    if location.startswith(("http://", "https://")):
        try:
            if urlsplit(location).hostname:
                return _HttpRegistry(location)
        except ValueError:
            pass
        raise BadUsage("--registry is a URL without a valid host; correct it")  # it may have a password
    if "://" in location:
        raise BadUsage(f"--registry is {location}; it must be a folder, or a URL with http or https")
    if not Path(location).is_dir():
        raise CommandFailed(f"the folder {location} does not exist; correct --registry")
    return _FolderRegistry(Path(location))


class _FolderRegistry:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def schema(self, number: int) -> str:
        path = self._folder / f"{number}.avsc"
        try:
            if path.stat().st_size > SCHEMA_BYTES_MAX:
                raise UnknownSchema(f"{path} is larger than {SCHEMA_BYTES_MAX} bytes")
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UnknownSchema(f"there is no schema {number} ({path})") from None
        except (OSError, ValueError) as error:
            raise CommandFailed(f"the schema {path} cannot be read: {error}; correct that and run this again") from None


class _HttpRegistry:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")  # without the password, for errors

    def schema(self, number: int) -> str:
        url = f"{self._url}/schemas/ids/{number}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=self._headers), timeout=TIMEOUT_S) as answer:
                content = answer.read(SCHEMA_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    raise UnknownSchema(f"there is no schema {number} at {self._url}") from None
                advice = "correct --registry, or its user and password"
                raise CommandFailed(f"{url} answers with {error.code} {error.reason}; {advice}") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise CommandFailed(f"the registry {self._url} cannot be reached: {reason}; correct --registry, or start it") from None
        try:
            if len(content) > SCHEMA_BYTES_MAX:
                raise UnknownSchema(f"schema {number} is larger than {SCHEMA_BYTES_MAX} bytes")
            found = json.loads(content)
            kind = found.get("schemaType", "AVRO")
            if kind != "AVRO" or found.get("references"):
                raise UnknownSchema(f"schema {number} is {kind}, and only Avro is decoded" if kind != "AVRO" else
                                    f"schema {number} refers to other schemas, which is not supported")  # fmt: skip
            return str(found["schema"])
        except (ValueError, KeyError, AttributeError) as error:
            raise CommandFailed(f"{url} does not answer as a schema registry ({type(error).__name__}); correct --registry") from None
