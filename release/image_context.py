"""The context of the container image: one archive that an engine builds the image from, without a checkout."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from release.steps import Refused

DOCKERFILE = "packaging/docker/Dockerfile"
COMMIT = "txbroker/_commit.txt"  # as in the sdist: the image's txbroker names its commit


def write(root: Path, archive: Path, commit: str, seconds: int) -> None:
    """Write the files that Dockerfile.dockerignore lets through, with the Dockerfile and the commit; the same bytes for the same commit."""
    contents = {name: (root / name).read_bytes() for name in sorted({*allowed(root), DOCKERFILE, f"{DOCKERFILE}.dockerignore"})}
    contents[COMMIT] = f"{commit}\n".encode()
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w") as files,
    ):
        for name, content in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), seconds
            path = root / name
            entry.mode = 0o755 if path.exists() and path.stat().st_mode & 0o100 else 0o644
            files.addfile(entry, io.BytesIO(content))
    check(archive, (root / DOCKERFILE).read_text(encoding="utf-8"))


def allowed(root: Path) -> Iterator[str]:
    """The files that an engine would receive; the patterns are `*`, then `!PATH` for what is sent, then what is not."""
    lines = (root / f"{DOCKERFILE}.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line[1:] for line in lines if line.startswith("!")]
    left_out = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    for name in sent:
        path = root / name
        files = [path] if path.is_file() else [found for found in path.rglob("*") if found.is_file()]
        for file in files:
            parts = file.relative_to(root).parts
            if not any(fnmatch(part, pattern) for part in parts for pattern in left_out):
                yield file.relative_to(root).as_posix()


def copied(dockerfile: str) -> Iterator[str]:
    """What the instructions COPY take from the context."""
    for line in re.sub(r"\\\n", " ", dockerfile).splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not any(word.startswith("--from=") for word in words):
            yield from (word for word in words[1:-1] if not word.startswith("--"))


def check(archive: Path, dockerfile: str) -> None:
    """Refused unless the archive has everything that the Dockerfile copies."""
    with tarfile.open(archive) as files:
        names = files.getnames()
    for source in copied(dockerfile):
        wanted = source.removeprefix("./")
        if not any(name == wanted or name.startswith(f"{wanted}/") for name in names):
            raise Refused(f"{archive.name} has no {source}, which {DOCKERFILE} copies: add it to Dockerfile.dockerignore")
