"""The wheel has the package, py.typed, the Twisted plugin and the command, and nothing else, and works elsewhere; the sdist has it all."""

from __future__ import annotations

import configparser
import email
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from pathlib import Path

import pytest

from release.environments import VERSIONS
from tests.support.cache import CHECKOUT
from tests.support.running import Running

pytestmark = pytest.mark.process

# The environment variables without those of this virtual environment, and without settings of Python.
CLEAN_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") and name != "VIRTUAL_ENV"}


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] = CLEAN_ENVIRONMENT) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def tracked() -> list[str]:
    """The files of the checkout, with those that are not committed yet."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=CHECKOUT, capture_output=True, text=True,
                            check=False)  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("no git checkout: it is not known what belongs to it")
    return [name for name in listed.stdout.splitlines() if (CHECKOUT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy, because setuptools writes files into the source."""
    place = tmp_path_factory.mktemp("built")
    source = place / "source"
    source.mkdir()
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, source / name)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", place, ".", cwd=source)
    run(sys.executable, "-c", f"import setuptools.build_meta as backend; backend.build_sdist({str(place)!r})", cwd=source)
    return place


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def packed(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_has_every_module(wheel: Path) -> None:
    modules = {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "txbroker").rglob("*.py")}
    names = packed(wheel)
    assert modules <= names
    assert {"txbroker/py.typed", "twisted/plugins/txbroker_plugin.py"} <= names
    assert "twisted/plugins/__init__.py" not in names
    assert {Path(name).parts[0] for name in names if not Path(name).parts[0].endswith(".dist-info")} == {"txbroker", "twisted"}


def test_the_sdist_is_the_whole_repository(built: Path) -> None:
    """With tests and documentation, which a distribution's packager runs and builds from it."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        found = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {name for name in found if not name.startswith("txbroker.egg-info/")} - {"PKG-INFO"} == set(tracked())


def metadata(wheel: Path) -> Message:
    (name,) = (name for name in packed(wheel) if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(zipfile.ZipFile(wheel).read(name))


def test_the_metadata_has_what_an_index_shows(wheel: Path) -> None:
    found = metadata(wheel)
    assert (found["License-Expression"], found["License"], found["Author"]) == ("Apache-2.0", None, "The txbroker authors")
    classifiers = found.get_all("Classifier", [])
    assert {f"Programming Language :: Python :: {version}" for version in VERSIONS} <= set(classifiers)
    assert {"Framework :: Pytest", "Framework :: Twisted", "Typing :: Typed"} <= set(classifiers)
    assert not [line for line in classifiers if line.startswith("License")], "an index refuses both"


@pytest.mark.parametrize("address", ["", "https://example.org/txbroker"])
def test_links_and_addresses_come_from_one_place(built: Path, address: str, tmp_path: Path) -> None:
    """A relative link of the README leads nowhere on an index: it has the address of the file there, or is only a text."""
    source = tmp_path / "source"
    shutil.copytree(built / "source", source, ignore=shutil.ignore_patterns("build", "*.so"))
    if address:
        settings = source / "setup.cfg"
        settings.write_text(settings.read_text().replace("project_urls =\n", f"project_urls =\n    Source = {address}\n"))
    command = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ".")
    run(*command, cwd=source, environment={**CLEAN_ENVIRONMENT, "TXBROKER_COMPILE": "0"})
    (wheel,) = tmp_path.glob("*.whl")
    found = metadata(wheel)
    assert found.get_all("Project-URL", []) == ([f"Source, {address}"] if address else [])
    targets = re.findall(r"\]\(([^)\s]+)\)", str(found.get_payload()))
    relative = [target for target in targets if not target.startswith(("https://", "#"))]
    assert relative == []
    base = f"{address}/blob/v{found['Version']}/"
    files = {target.removeprefix(base).partition("#")[0] for target in targets if target.startswith(base)}
    assert bool(files) is bool(address)
    assert all((CHECKOUT / name).exists() for name in files)


def test_the_wheel_claims_no_package_of_twisted(wheel: Path) -> None:
    """`importlib.metadata.packages_distributions` would say that Twisted comes from txbroker."""
    (name,) = (name for name in packed(wheel) if name.endswith("top_level.txt"))
    assert zipfile.ZipFile(wheel).read(name).split() == [b"txbroker"]


def test_the_wheel_has_the_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in packed(wheel) if Path(name).name == "LICENSE")
    assert archive.read(name) == (CHECKOUT / "LICENSE").read_bytes()


def test_the_wheel_has_the_command_and_the_plugin_of_pytest(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (entry_points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    sections = configparser.ConfigParser()
    sections.read_string(archive.read(entry_points).decode())
    assert dict(sections["console_scripts"]) == {"txbroker": "txbroker.cli.main:main"}
    assert dict(sections["pytest11"]) == {"txbroker": "txbroker.testing.pytest_plugin"}


def test_the_sdist_makes_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)  # a trusted archive; `filter` needs Python 3.11.4
    (source,) = tmp_path.iterdir()
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path / "out", ".", cwd=source)
    (again,) = (tmp_path / "out").glob("*.whl")
    assert packed(again) == packed(wheel)


def test_without_compiling_the_wheel_is_for_every_platform(built: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ".")
    shutil.copytree(built / "source", tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.so"))
    run(*command, cwd=tmp_path / "source", environment={**CLEAN_ENVIRONMENT, "TXBROKER_COMPILE": "0"})
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in packed(wheel) if name.endswith(".so")]


def test_wheel_and_sdist_name_the_commit(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(built / "source", source, ignore=shutil.ignore_patterns("build", "*.so"))
    environment = {**CLEAN_ENVIRONMENT, "TXBROKER_COMPILE": "0"}
    identity = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
    run("git", "init", "-q", cwd=source)
    run(*identity, "commit", "-q", "--allow-empty", "-m", "one", cwd=source)
    commit = run("git", "rev-parse", "HEAD", cwd=source)
    run(sys.executable, "-c", f"import setuptools.build_meta as backend; backend.build_sdist({str(tmp_path)!r})", cwd=source)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheel_of = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w")
    for name, place, given, expected in (
        ("checkout", source, {}, commit),
        ("sdist", unpacked, {}, commit),
        ("image", source, {"TXBROKER_COMMIT": "a" * 40}, "a" * 40 + "\n"),
    ):
        run(*wheel_of, tmp_path / name, ".", cwd=place, environment={**environment, **given})
        (wheel,) = (tmp_path / name).glob("*.whl")
        assert zipfile.ZipFile(wheel).read("txbroker/_commit.txt").decode() == expected


@pytest.mark.parametrize("wish", ["", "1", "yes"])
def test_a_compiler_that_fails(built: Path, wish: str, tmp_path: Path) -> None:
    """Unless compiling is required the installation succeeds, and a wheel that is not compiled is not named as if it were."""
    shutil.copytree(built / "source", tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.so"))
    command = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ".")
    environment = {**CLEAN_ENVIRONMENT, "CC": "/bin/false", **({"TXBROKER_COMPILE": wish} if wish else {})}
    if wish:
        ended = subprocess.run(command, cwd=tmp_path / "source", capture_output=True, text=True, check=False, env=environment)
        assert ended.returncode != 0 and not list(tmp_path.glob("*.whl"))
        said = "requires compiled modules, but no C compiler" if wish == "1" else "TXBROKER_COMPILE=yes: set 1 to compile or fail, 0"
        assert said in ended.stdout + ended.stderr
        return
    run(*command, cwd=tmp_path / "source", environment=environment)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "txbroker/wire/record_loops.py" in packed(wheel)
    assert not [name for name in packed(wheel) if name.endswith(".so")]


class Installation:
    """A virtual environment that has only pip at first."""

    def __init__(self, place: Path) -> None:
        self.place = place
        venv.create(place, with_pip=True, symlinks=True)

    @property
    def plugins(self) -> Path:
        (found,) = self.place.glob("lib/python*/site-packages/twisted/plugins")
        return found

    def command(self, name: str) -> str:
        return str(self.place / "bin" / name)

    def pip(self, *arguments: str | Path) -> str:
        return run(self.command("python"), "-m", "pip", "--disable-pip-version-check", *arguments, cwd=self.place)

    def ours(self) -> list[Path]:
        """What is there of txbroker: its entries of site-packages and bin, and what is in its package."""
        return sorted(path for path in self.place.rglob("*txbroker*") if ".dist-info" not in str(path.parent)) + sorted(
            self.place.glob("lib/python*/site-packages/txbroker/**/*")
        )


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The wheel and its dependencies from the package index, installed in an empty environment."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    made = Installation(place)
    made.pip("install", "-q", wheel)
    yield made
    shutil.rmtree(place)


def unprivileged() -> tuple[str, ...]:
    """For root, a prefix for commands so that file modes apply to them."""
    return ("setpriv", "--bounding-set", "-dac_override") if os.geteuid() == 0 else ()


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="requires setpriv to drop root's capabilities")
@pytest.mark.parametrize("host", [("txbroker", "run"), ("twistd", "-n", "txbroker")], ids=["run", "twistd"])
def test_it_serves_from_an_empty_environment(installation: Installation, host: tuple[str, ...], tmp_path: Path) -> None:
    """Started by a user who cannot write to the installation: Twisted cannot keep its plugin cache there."""
    assert installation.pip("check") == "No broken requirements found.\n"
    (installation.plugins / "dropin.cache").unlink(missing_ok=True)
    installation.plugins.chmod(0o555)
    command = (*unprivileged(), installation.command(host[0]), *host[1:])
    service = Running(command, tmp_path, environment=CLEAN_ENVIRONMENT)
    try:
        service.wait_ready()
        server = ("--bootstrap-server", service.address, "--topic", "hello")
        ours = installation.command("txbroker")
        run(ours, "topics", "--create", *server, cwd=tmp_path)
        run("sh", "-c", 'echo world | "$@"', "sh", ours, "produce", *server, "--producer-property", "compression.type=zstd", cwd=tmp_path)
        assert run(ours, "consume", *server, "--from-beginning", "--max-messages", "1", cwd=tmp_path).startswith("world\n")
        assert service.end(signal.SIGTERM) == 0
        assert not (installation.plugins / "dropin.cache").exists()
    finally:
        service.process.kill()
        service.process.wait()
        installation.plugins.chmod(0o755)


def test_the_plugin_of_pytest_in_an_empty_environment(installation: Installation, tmp_path: Path) -> None:
    """`txbroker.testing` needs no pytest, and pytest finds the fixtures without any configuration."""
    python = installation.command("python")
    assert run(python, "-c", "from txbroker.testing import Kafka; import sys; print('pytest' in sys.modules)", cwd=tmp_path) == "False\n"
    installation.pip("install", "-q", "pytest")
    (tmp_path / "test_it.py").write_text("""
from kafka import KafkaConsumer, KafkaProducer

def test_it(txbroker, txbroker_topic, txbroker_group):
    with KafkaProducer(**txbroker.client_config("kafka-python")) as producer:
        producer.send(txbroker_topic, b"value").get(60)
    with KafkaConsumer(txbroker_topic, **txbroker.client_config("kafka-python", txbroker_group)) as consumer:
        assert next(consumer).value == b"value"
""")
    # pytest compiles the modules of its plugins for itself; pip would not remove these files when txbroker is uninstalled.
    environment = {**CLEAN_ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"}
    assert "1 passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path, environment=environment)
    installation.pip("uninstall", "-q", "-y", "pytest")


def test_nothing_remains_after_reinstalling_and_uninstalling(installation: Installation, wheel: Path) -> None:
    installation.pip("install", "-q", wheel)
    installation.pip("install", "-q", "--force-reinstall", "--no-deps", wheel)
    assert "txbroker" in run(installation.command("twistd"), "--help", cwd=installation.place)
    assert installation.ours()
    installation.pip("uninstall", "-q", "-y", "txbroker")
    assert installation.ours() == []
    assert "txbroker" not in run(installation.command("twistd"), "--help", cwd=installation.place), "not in Twisted's plugin cache either"
    installation.pip("install", "-q", wheel)
