"""Values from other files, as Apache Kafka 3.9.1 expands them."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbroker.errors import ConfigError
from txbroker.startup import read_startup

CLASSES = "org.apache.kafka.common.config.provider."
FILE = ["config.providers=file", f"config.providers.file.class={CLASSES}FileConfigProvider"]
DIRECTORY = ["config.providers=dir", f"config.providers.dir.class={CLASSES}DirectoryConfigProvider"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "secrets.properties").write_text("port=1234\nrack = a b \n")
    (tmp_path / "rack").write_text("c\n")
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "rack"),
    [
        ([*FILE, "broker.rack=${file:{d}/secrets.properties:rack}"], "a b"),
        ([*FILE, "broker.rack=-${file:{d}/secrets.properties:port}-${other:a:b}"], "-1234-${other:a:b}"),
        ([*FILE, "broker.rack=${file:{d}/secrets.properties:missing}"], "${file:{d}/secrets.properties:missing}"),
        ([*FILE, "config.providers.file.param.allowed.paths={d}", "broker.rack=${file:{d}/secrets.properties:port}"], "1234"),
        ([*FILE, "config.providers.file.param.allowed.paths={d}/below", "broker.rack=${file:{d}/below/../secrets.properties:port}"],
         "${file:{d}/below/../secrets.properties:port}"),
        ([*DIRECTORY, "broker.rack=${dir:{d}:rack}"], "c"),
        ([*DIRECTORY, "broker.rack=${dir:{d}:missing}"], "${dir:{d}:missing}"),
        ([*DIRECTORY, "broker.rack=${dir:{d}/below:../rack}"], "${dir:{d}/below:../rack}"),
        (["broker.rack=${file:{d}/secrets.properties:rack}"], "${file:{d}/secrets.properties:rack}"),
        (["config.providers=env", f"config.providers.env.class={CLASSES}EnvVarConfigProvider", "broker.rack=r"], "r"),
    ],
)  # fmt: skip
def test_values_from_files(secrets: Path, settings: list[str], rack: str) -> None:
    given = [setting.replace("{d}", str(secrets)) for setting in settings]
    startup = read_startup([], given)
    assert startup.config.text("broker.rack") == rack.replace("{d}", str(secrets))
    assert startup.config.static.warnings == ()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([*FILE, "broker.rack=${file:/nowhere/s:rack}"],
         "--override: broker.rack: /nowhere/s cannot be read: No such file or directory; correct the path, or make the file readable"),
        (["config.providers=x", "config.providers.x.class=com.acme.Vault"],
         "--override: config.providers.x.class is com.acme.Vault; it must be one of org.apache.kafka.common.config.provider.File"),
        ([*FILE, "num.partitions=${file:{d}/secrets.properties:rack}"], "num.partitions is 'a b'; it must be a whole number"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_read_stop_the_start(secrets: Path, settings: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_startup([], [setting.replace("{d}", str(secrets)) for setting in settings])
    assert sentence in str(caught.value)
