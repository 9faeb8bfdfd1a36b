"""The flags that both directions share: which log directories, and where their metadata is."""

from __future__ import annotations

import argparse
import os

from txbroker.cli.failures import BadUsage, CommandFailed
from txbroker.cli.run import add_configuration
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.log.disk import Disk

ZOOKEEPER_HELP = "the ZooKeeper of the Kafka cluster, as its zookeeper.connect says"


def add_places(parser: argparse.ArgumentParser) -> None:
    """--log-dirs, and the configuration that may hold log.dirs too."""
    parser.add_argument("--log-dirs", metavar="DIR,DIR…", help="all log directories of the broker; without it log.dirs of --config")
    add_configuration(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    parser.add_argument("--yes", action="store_true", help="agree to everything that is printed as a concern")
    parser.add_argument("--json", action="store_true", help="print the plan as one JSON object")


def read_config(arguments: argparse.Namespace) -> BrokerConfig:
    """The configuration that the flags name; CommandFailed."""
    from txbroker.startup import read_startup

    try:
        return read_startup(arguments.config, arguments.override, environment=arguments.env).config
    except StartError as error:
        raise CommandFailed(str(error)) from error


def log_dirs(arguments: argparse.Namespace, config: BrokerConfig) -> list[str]:
    """Absolute paths of the log directories; BadUsage when none are named."""
    if arguments.log_dirs is not None:
        named = [path.strip() for path in arguments.log_dirs.split(",")]
    elif {"log.dirs", "log.dir"} & config.static.values.keys():
        named = list(config.list("log.dirs"))
    else:
        raise BadUsage("wants --log-dirs, or --config with a file that sets log.dirs")
    if "" in named:
        raise BadUsage("--log-dirs names an empty path")
    directories = [os.path.abspath(path) for path in named]
    if len(set(directories)) < len(directories):
        raise BadUsage("--log-dirs names a directory twice")
    return directories


def metadata_file(disk: Disk, directories: list[str]) -> str | None:
    """The metadata file that is there; CommandFailed when there are several."""
    found = [path for path in (os.path.join(directory, FILE_NAME) for directory in directories) if disk.size(path) is not None]
    if len(found) > 1:
        raise CommandFailed(f"there are several metadata files ({', '.join(found)}): move all but the right one away")
    return found[0] if found else None
