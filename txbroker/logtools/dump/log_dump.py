"""Dumps `.log` files: a line for each batch or message, and for each record if requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from txbroker.errors import BrokerError, CorruptRecords
from txbroker.logtools.damaged_walk import CONTENT_BYTES_MAX
from txbroker.logtools.dump.decoders import decoder
from txbroker.logtools.dump.dump_run import DumpRun
from txbroker.logtools.dump.kraft_metadata import show_control
from txbroker.wire import entries, legacy
from txbroker.wire.batch import BatchHeader
from txbroker.wire.compression import Codec
from txbroker.wire.control import read_marker
from txbroker.wire.entries import EntryHeader, Scan, Stop
from txbroker.wire.legacy import MessageHeader
from txbroker.wire.records import Record

# The limit of one decompressed batch, more than a hundred times the default of message.max.bytes.
DECOMPRESSED_BYTES_MAX = CONTENT_BYTES_MAX
SEQUENCE_MAX = 2**31 - 1

_CONTROL_TYPES = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")


def dump_log(run: DumpRun, path: str, base_offset: int) -> None:
    """All batches of a segment."""
    run.write(f"Log starting offset: {base_offset}")
    dump_batches(run, path)


def dump_batches(run: DumpRun, path: str) -> None:
    """All batches of a file. Data after the last complete batch is reported with its position."""
    options = run.options
    mapped = memoryview(run.disk.map(path))
    view = mapped[: options.max_bytes]
    scan = Scan(view)
    records = _Records(run, path)
    for position, header in scan:
        _write_batch(run, view, position, header)
        if options.deep:
            try:
                records.dump(view, position, header)
            except BrokerError as error:
                run.corrupt(f"{path}: the batch at position {position} cannot be read: {error}")
    trailing = len(view) - scan.position
    if trailing and len(view) == len(mapped):
        name = path.rpartition("/")[2]
        run.write(f"Found {trailing} invalid bytes at the end of {name}")
        problem = scan.problem if scan.stop is Stop.CORRUPT else "the last batch is incomplete"
        run.corrupt(f"{path} is corrupt from position {scan.position} on: {problem}")


def is_valid(view: memoryview, position: int, header: EntryHeader) -> bool:
    """Whether the CRC of an entry is correct."""
    try:
        entries.check_crc(view, position, header)
    except CorruptRecords:
        return False
    return True


def _sequence(base: int, delta: int) -> int:
    """Sequence numbers continue with 0 after 2^31 - 1; -1 is none."""
    return (base + delta) & SEQUENCE_MAX if base >= 0 else -1


def _optional_long(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _timestamp_type(header: EntryHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.log_append_time else "CreateTime"


def _write_batch(run: DumpRun, view: memoryview, position: int, header: EntryHeader) -> None:
    if isinstance(header, BatchHeader):
        start = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count} "
            f"baseSequence: {header.base_sequence} lastSequence: {_sequence(header.base_sequence, header.last_offset_delta)} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
            f"isTransactional: {_boolean(header.transactional)} isControl: {_boolean(header.control)} "
            f"deleteHorizonMs: {_optional_long(header.delete_horizon)}"
        )
    else:
        start = f"offset: {header.last_offset}"
    run.write(
        f"{start} position: {position} {_timestamp_type(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {header.codec.name.lower()} crc: {header.crc} isvalid: {_boolean(is_valid(view, position, header))}"
    )


class _Records:
    """Dumps the records of one file, and notes gaps between their offsets."""

    def __init__(self, run: DumpRun, path: str) -> None:
        self._run = run
        self._path = path
        self._last_offset = -1
        self._decode = decoder(run.options)

    def dump(self, view: memoryview, position: int, header: EntryHeader) -> None:
        """Dump the records of one batch or wrapper. BrokerError when it cannot be read."""
        options = self._run.options
        if isinstance(header, BatchHeader):
            described: Iterator[tuple[Record, Callable[[], str]]] = _batch_records(view, position, header)
        else:
            described = _message_records(view, position, header)
        timestamp_type = _timestamp_type(header)
        for record, details in described:
            self._note_gap(record.offset)
            line = ""
            if not options.skip_record_metadata:
                line = (
                    f"| offset: {record.offset} {timestamp_type}: {record.timestamp} "
                    f"keySize: {_size(record.key)} valueSize: {_size(record.value)}{details()}"
                )
            if options.prints_data and not header.control:
                line = self._with_data(line, record)
            self._run.write(line)

    def _with_data(self, line: str, record: Record) -> str:
        key, payload = self._decode(record)
        if key is not None:
            line += f" key: {key}" if line else f"| key: {key}"
        if payload is not None:
            line += f" payload: {payload}"
        return line

    def _note_gap(self, offset: int) -> None:
        if self._last_offset not in (-1, offset - 1):
            gaps = self._run.findings.gaps.setdefault(self._run.absolute(self._path), [])
            gaps.append((self._last_offset, offset))
        self._last_offset = offset


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _batch_records(view: memoryview, position: int, header: BatchHeader) -> Iterator[tuple[Record, Callable[[], str]]]:
    """The records of a batch, each with the part of its line that old messages do not have."""
    for record in entries.read_records(view, position, header, DECOMPRESSED_BYTES_MAX):

        def details(record: Record = record) -> str:
            sequence = _sequence(header.base_sequence, record.offset - header.base_offset)
            names = ",".join(name for name, _ in record.headers)
            return f" sequence: {sequence} headerKeys: [{names}]" + (_control(record) if header.control else "")

        yield record, details


def _control(record: Record) -> str:
    marker = read_marker(record)
    if marker is not None:
        return f" endTxnMarker: {'COMMIT' if marker.committed else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"
    kind = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    shown = show_control(kind, record.value)
    if shown is not None:
        return f" {shown}"
    name = _CONTROL_TYPES[kind] if 0 <= kind < len(_CONTROL_TYPES) else "UNKNOWN"
    return f" controlType: {name}({kind})"


def _message_records(view: memoryview, position: int, header: MessageHeader) -> Iterator[tuple[Record, Callable[[], str]]]:
    """The messages in a wrapper, or a message without one, each with its CRC. The closing brace is in Kafka's lines, too."""
    if header.codec is Codec.NONE:
        inner = [(header.crc, is_valid(view, position, header))]
    else:
        inner_set = memoryview(legacy.unwrap(view, position, header, DECOMPRESSED_BYTES_MAX))
        inner = [(entry.crc, is_valid(inner_set, at, entry)) for at, entry in legacy.iterate(inner_set)]
    records = legacy.read_records(view, position, header, DECOMPRESSED_BYTES_MAX)
    for record, (crc, valid) in zip(records, inner, strict=True):

        def details(crc: int = crc, valid: bool = valid) -> str:
            return f" isValid: {_boolean(valid)} crc: {crc}}}"

        yield record, details
