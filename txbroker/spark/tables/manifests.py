"""The manifests of a Parquet table: which files are its data, and the offsets that they have. Other files in the folder are no data.

`_manifests/` has files with dense numbers from 1 on, `00000000000000000001.json` and so on. Each is one commit: the files that it adds and
removes, and the last `LoadCommit`. Every hundredth has all files of the table as well, so that readers need at most a hundred.

A manifest is created only if there is none of its number: a temporary file, synced, is linked to the name, and link(2) fails if the name
exists. So of two writers with the same number one wins, on a local disk and on NFS, and a reader never sees a part of a manifest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from txbroker.console.failures import CommandFailed
from txbroker.spark.tables.load_commit import LoadCommit, parse
from txbroker.spark.tables.table_folder import MANIFESTS

SCHEMA_VERSION = 1
FULL_EVERY = 100
_NAME = re.compile(r"(\d{20})\.json")


class DataFile(NamedTuple):
    """A Parquet file. `path`: in the table's folder. `footer_sha256`: of the footer's bytes, which have the schema, the positions and the
    statistics of all columns: it changes with the data, and a truncated or replaced file is found without reading the data."""

    path: str
    bytes: int
    rows: int
    footer_sha256: str


class State(NamedTuple):
    """The table after manifest `number`. `schema`: of the rows, as Spark's JSON. `added`: what this manifest added."""

    number: int
    load: LoadCommit
    schema: str
    files: Mapping[str, DataFile]
    added: Sequence[DataFile]


class ManifestTaken(Exception):
    """Another writer created the manifest of this number."""


class Manifests:
    """The manifests in a table's folder. CommandFailed for what cannot be read or written."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._folder = table / MANIFESTS

    def create_folder(self) -> None:
        """Make the folder of a table a table without data."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"{self._folder} cannot be created: {error.strerror}; correct --table or its permissions") from None

    def newest(self) -> State | None:
        """The table now; None without a manifest."""
        numbers = self._numbers()
        return self._state(numbers[-1]) if numbers else None

    def adding(self, run: str) -> Sequence[DataFile] | None:
        """The files that the data commit of a run added; None if there is none."""
        for number in reversed(self._numbers()):
            content = self._content(number)
            load = _load_of(content, self._name(number))
            if load.run == run and load.checked is None:
                return _files(content["added"], self._name(number))
            if number % FULL_EVERY == 0 and load.run != run:
                return None  # the commit of an unchecked run is the newest load
        return None

    def written_s(self, number: int) -> float:
        """When a manifest was written, by the file system's clock."""
        return self._name(number).stat().st_mtime

    def removed_since(self, oldest_s: float) -> set[str]:
        """The files that manifests younger than this time, of the file system's clock, removed: readers may still use them."""
        found: set[str] = set()
        for number in reversed(self._numbers()):
            if self.written_s(number) < oldest_s:
                break
            found.update(str(path) for path in self._content(number)["removed"])
        return found

    def add(self, state: State, removed: Sequence[str] = ()) -> None:
        """Create the manifest `state.number`; ManifestTaken. It is on the disk when this returns."""
        content: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "number": state.number,
            "load": json.loads(state.load.to_json()),
            "schema": json.loads(state.schema),
            "added": [one._asdict() for one in state.added],
            "removed": list(removed),
        }
        if state.number % FULL_EVERY == 0:
            content["files"] = [one._asdict() for one in state.files.values()]
        final = self._name(state.number)
        new = final.with_name(f".{final.name}.{os.getpid()}.new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(content, file)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(new, final)
            except FileExistsError:
                raise ManifestTaken from None
            finally:
                new.unlink()
            sync_folder(self._folder)
        except OSError as error:
            raise CommandFailed(f"the manifest {final} cannot be created: {error.strerror}; the table's file system must have hard links, "
                                "space and permission to write; correct that and run this again") from error

    def _name(self, number: int) -> Path:
        return self._folder / f"{number:020d}.json"

    def _numbers(self) -> list[int]:
        """The numbers of all manifests, in order; CommandFailed if one is missing."""
        try:
            numbers = sorted(int(found[1]) for name in os.listdir(self._folder) if (found := _NAME.fullmatch(name)))
        except FileNotFoundError:
            return []
        for before, after in pairwise(numbers):
            if after != before + 1:
                raise CommandFailed(f"the manifest {self._name(before + 1)} is missing; restore it from a backup of the table")
        return numbers

    def _state(self, number: int) -> State:
        contents = []
        first = number
        while True:
            contents.append(self._content(first))
            if "files" in contents[-1] or first == 1:
                break
            first -= 1
        files: dict[str, DataFile] = {}
        for at, content in enumerate(reversed(contents)):
            name = self._name(first + at)
            if at == 0 and "files" in content:
                files = {one.path: one for one in _files(content["files"], name)}
                continue
            for path in content["removed"]:
                files.pop(str(path), None)
            files.update({one.path: one for one in _files(content["added"], name)})
        newest, name = contents[0], self._name(number)
        return State(number, _load_of(newest, name), json.dumps(newest["schema"]), files, _files(newest["added"], name))

    def _content(self, number: int) -> dict[str, Any]:
        name = self._name(number)
        try:
            content = json.loads(name.read_bytes())
            version = content["schema_version"]
            if version != SCHEMA_VERSION:
                newer = f"the table was written by a newer version of txbroker (manifest schema {version})"
                raise CommandFailed(f"{newer}; install that version")
            if content["number"] != number or not {"load", "schema", "added", "removed"} <= content.keys():
                raise ValueError("it is incomplete or has another number")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _unreadable(name, error) from None
        assert isinstance(content, dict)
        return content


def sync_folder(path: Path) -> None:
    """Write a folder's names to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(found: Any, name: Path) -> list[DataFile]:
    try:
        files = [DataFile(str(one["path"]), int(one["bytes"]), int(one["rows"]), str(one["footer_sha256"])) for one in found]
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(name, error) from None
    for one in files:
        path = PurePosixPath(one.path)
        if path.is_absolute() or ".." in path.parts:
            raise _unreadable(name, ValueError(f"the path {one.path} leaves the table's folder"))
    return files


def _load_of(content: Mapping[str, Any], name: Path) -> LoadCommit:
    found = parse(json.dumps(content["load"]))
    if found is None:
        raise _unreadable(name, ValueError("it has no offsets"))
    return found


def _unreadable(name: Path, error: Exception) -> CommandFailed:
    return CommandFailed(f"the manifest {name} cannot be read ({type(error).__name__}: {error}); restore it from a backup of the table")
