"""The options, output and findings of a dump, which its parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from txbroker.log.disk import Disk

DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
DEFAULT_MAX_BYTES = 2**31 - 1


class Decoder(Enum):
    """How keys and values are decoded. TEXT: each by its `Form`."""

    TEXT = "as UTF-8"
    OFFSETS = "--offsets-decoder: as records of __consumer_offsets"
    TRANSACTIONS = "--transaction-log-decoder: as records of __transaction_state"
    METADATA = "--cluster-metadata-decoder: as records of __cluster_metadata"
    SHARE_STATE = "--share-group-state-decoder: as records of __share_group_state"


class Form(Enum):
    """The type of a key or value. The enum value is the size of a number in bytes."""

    TEXT = 0
    INT32 = 4
    INT64 = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The flags of the command, named as Kafka's. Sizes in bytes.

    `working_directory`: relative paths are completed with it where Kafka prints absolute ones.
    """

    print_data_log: bool = False
    deep_iteration: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    decoder: Decoder = Decoder.TEXT
    key_form: Form = Form.TEXT
    value_form: Form = Form.TEXT
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    max_bytes: int = DEFAULT_MAX_BYTES
    skip_record_metadata: bool = False
    working_directory: str = ""

    @property
    def prints_data(self) -> bool:
        """Whether keys and values are printed."""
        return self.print_data_log or self.decoder is not Decoder.TEXT

    @property
    def deep(self) -> bool:
        """Whether records are printed, and not batches alone."""
        return self.deep_iteration or self.prints_data


Write = Callable[[str], None]
Pairs = dict[str, list[tuple[int, int]]]


@dataclass(slots=True)
class Findings:
    """Mismatches, which are printed after all files: pairs of numbers by absolute path."""

    index_mismatches: Pairs = field(default_factory=dict)
    timestamp_mismatches: Pairs = field(default_factory=dict)
    timestamps_out_of_order: Pairs = field(default_factory=dict)
    offsets_not_found: Pairs = field(default_factory=dict)
    gaps: Pairs = field(default_factory=dict)

    def report(self, complain: Write) -> None:
        """Print all. As with Kafka, pairs of offsets are in reverse order, and pairs of timestamps in order."""
        for path, pairs in self.index_mismatches.items():
            complain(f"Mismatches in :{path}")
            for index_offset, log_offset in reversed(pairs):
                complain(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path, pairs in self.timestamp_mismatches.items():
            complain(f"Found timestamp mismatch in :{path}")
            for index_timestamp, log_timestamp in pairs:
                complain(f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}")
        for path, pairs in self.timestamps_out_of_order.items():
            complain(f"Found out of order timestamp in :{path}")
            for timestamp, previous in pairs:
                complain(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
        for pairs in self.offsets_not_found.values():
            complain("The following indexed offsets are not found in the log.")
            for indexed, found in pairs:
                complain(f"Indexed offset: {indexed}, found log offset: {found}")
        for path, pairs in self.gaps.items():
            complain(f"Non-consecutive offsets in {path}")
            for first, second in reversed(pairs):
                complain(f"  {first} is followed by {second}")


class DumpRun:
    """One run over some files. `write` takes lines of the dump, `complain` errors. `sound`: all files could be read."""

    def __init__(self, disk: Disk, options: DumpOptions, write: Write, complain: Write) -> None:
        self.disk = disk
        self.options = options
        self.write = write
        self.findings = Findings()
        self.sound = True
        self.complain = complain

    def corrupt(self, text: str) -> None:
        """Report a file that cannot be read completely."""
        self.sound = False
        self.complain(text)

    def absolute(self, path: str) -> str:
        """The absolute path, as Kafka prints it."""
        return path if path.startswith("/") or not self.options.working_directory else f"{self.options.working_directory}/{path}"
