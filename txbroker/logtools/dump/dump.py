"""`dump-log`: prints the content of log files with the same lines as Kafka's tool (DumpLogSegments of 3.9), so that scripts read both.

It reads all files of a partition's directory: `.log` (all magics), `.index`, `.timeindex`, `.txnindex`, `.snapshot`. Corrupted files are
reported with the position, and the dump continues with the next file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txbroker.errors import CorruptRecords, StorageError
from txbroker.log import file_names
from txbroker.log.disk import Disk
from txbroker.logtools.dump.dump_run import Decoder, DumpOptions, DumpRun, Form, Write
from txbroker.logtools.dump.index_dump import dump_offset_index, dump_time_index
from txbroker.logtools.dump.log_dump import dump_batches, dump_log
from txbroker.logtools.dump.state_dump import dump_snapshot, dump_txn_index
from txbroker.logtools.partition_files import METADATA_SNAPSHOT

__all__ = ["Decoder", "DumpOptions", "Form", "dump"]

METADATA_SUFFIX = ".checkpoint"
BOOTSTRAP = "bootstrap.checkpoint"

# Dumps a file with this suffix; the last argument is the offset in its name.
_DUMPERS: dict[str, Callable[[DumpRun, str, int], None]] = {
    file_names.LOG: dump_log,
    file_names.OFFSET_INDEX: dump_offset_index,
    file_names.TIME_INDEX: dump_time_index,
    file_names.TXN_INDEX: dump_txn_index,
    file_names.SNAPSHOT: dump_snapshot,
}


def dump(disk: Disk, paths: Sequence[str], options: DumpOptions, write: Write, complain: Write) -> int:
    """Dump files one after the other; the exit status: 1 if one could not be read to its end, else 0.

    `write` and `complain` take lines without line ends, for standard output and standard error.
    """
    run = DumpRun(disk, options, write, complain)
    for path in paths:
        write(f"Dumping {path}")
        _dump_file(run, path)
    run.findings.report(complain)
    return 0 if run.sound else 1


def _dump_metadata_snapshot(run: DumpRun, path: str, name: str) -> None:
    """A snapshot of KRaft's metadata (KIP-630), named by end offset and epoch, or the bootstrap snapshot of a new cluster."""
    found = METADATA_SNAPSHOT.fullmatch(name)
    if found is not None:
        run.write(f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}")
    elif name == BOOTSTRAP:
        run.write("KRaft bootstrap snapshot")
    else:
        run.corrupt(f"{path} is not named by an end offset and an epoch")
        return
    dump_batches(run, path)


def _dump_file(run: DumpRun, path: str) -> None:
    name = path.rpartition("/")[2]
    if name.endswith(METADATA_SUFFIX):
        _guard(run, path, lambda: _dump_metadata_snapshot(run, path, name))
        return
    dumper = _DUMPERS.get(name[name.rfind(".") :]) if "." in name else None
    if dumper is None:
        run.complain(f"Ignoring unknown file {path}")
        return
    parsed = file_names.parse_name(name)
    if parsed is None:
        run.corrupt(f"{path} is not named by an offset of 20 digits")
        return
    _guard(run, path, lambda: dumper(run, path, parsed[0]))


def _guard(run: DumpRun, path: str, dump_it: Callable[[], None]) -> None:
    try:
        if run.disk.size(path) is None:
            run.corrupt(f"{path} does not exist")
        else:
            dump_it()
    except CorruptRecords as error:
        run.corrupt(f"{path} is corrupt: {error}")
    except StorageError as error:
        run.corrupt(str(error))
