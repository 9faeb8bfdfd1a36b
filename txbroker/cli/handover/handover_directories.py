"""Flags of `import` and `export`: the log directories, and where their metadata is."""

from __future__ import annotations

import argparse
import os

from txbroker.cli.run import add_configuration
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.config.resolve import BrokerConfig
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.errors import StartError
from txbroker.log.disk import Disk

ZOOKEEPER_HELP = "the ZooKeeper of the Kafka cluster, as in its zookeeper.connect"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add --log-dirs, --config (which may set log.dirs too) and the flags about the plan."""
    directories_help = "comma-separated list of all log directories of the broker; default: log.dirs of --config"
    parser.add_argument("--log-dirs", metavar="DIR,...", help=directories_help)
    add_configuration(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    parser.add_argument("--yes", action="store_true", help="continue although concerns are printed")
    parser.add_argument("--json", action="store_true", help="print the plan as one JSON object")


def read_config(arguments: argparse.Namespace) -> BrokerConfig:
    """The configuration that the flags specify; CommandFailed."""
    from txbroker.startup import read_startup

    try:
        return read_startup(arguments.config, arguments.override, environment=arguments.env).config
    except StartError as error:
        raise CommandFailed(str(error)) from error


def log_dirs(arguments: argparse.Namespace, config: BrokerConfig) -> list[str]:
    """Absolute paths of the log directories; BadUsage when none are specified."""
    if arguments.log_dirs is not None:
        named = [path.strip() for path in arguments.log_dirs.split(",")]
    elif {"log.dirs", "log.dir"} & config.static.values.keys():
        named = list(config.list("log.dirs"))
    else:
        raise BadUsage("specify --log-dirs, or --config with a file that sets log.dirs")
    if "" in named:
        raise BadUsage("--log-dirs contains an empty path")
    directories = [os.path.abspath(path) for path in named]
    if len(set(directories)) < len(directories):
        raise BadUsage("--log-dirs contains a directory twice")
    return directories


def metadata_file(disk: Disk, directories: list[str]) -> str | None:
    """The path of txbroker's metadata file; None if there is none. CommandFailed when there are several."""
    found = [path for path in (os.path.join(directory, FILE_NAME) for directory in directories) if disk.size(path) is not None]
    if len(found) > 1:
        raise CommandFailed(f"found several metadata files ({', '.join(found)}): move all but the right one to another directory")
    return found[0] if found else None
