"""The dump of log files: the same lines as Apache Kafka 3.9.1 for its files, and reports of corrupted files."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.offline.support import mutate, ours
from tests.support.examples import examples
from txbroker.log.os_disk import OsDisk
from txbroker.logtools.dump.dump import Decoder, DumpOptions, dump

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-3.9.1"


def run(paths: list[Path], options: DumpOptions, base: Path = GOLDEN / "data") -> tuple[int, list[str], list[str]]:
    """Exit status, standard output and standard error, with paths relative to `base`, where Kafka's tool was started."""
    written: list[str] = []
    complained: list[str] = []
    status = dump(OsDisk(), [str(path) for path in paths], options, written.append, complained.append)
    return status, _relative(written, base), _relative(complained, base)


def _relative(lines: list[str], base: Path) -> list[str]:
    return "\n".join(lines).replace(f"{base}/", "").splitlines()


def found(pattern: str, *suffixes: str) -> list[Path]:
    return sorted(path for suffix in suffixes for path in GOLDEN.glob(f"data/{pattern}/*{suffix}"))


def paragraphs(lines: list[str]) -> list[list[str]]:
    """The findings at the end by file, in any order: Kafka's is that of a hash table."""
    starts = [i for i, line in enumerate(lines) if not line.startswith("  ")]
    return sorted(lines[a:b] for a, b in itertools.pairwise([*starts, len(lines)]))


@pytest.mark.parametrize(
    ("golden", "paths", "options"),
    [
        ("logs", found("s-*", ".log"), DumpOptions(deep_iteration=True, print_data_log=True)),
        ("indexes", found("s-*", ".index", ".timeindex"), DumpOptions()),
        ("txn-and-producer-snapshots", found("s-*", ".txnindex", ".snapshot"), DumpOptions()),
        ("consumer_offsets", found("__consumer_offsets-*", ".log"), DumpOptions(decoder=Decoder.OFFSETS)),
        ("transaction_state", found("__transaction_state-*", ".log"), DumpOptions(decoder=Decoder.TRANSACTIONS)),
    ],
)
def test_the_dump_of_kafkas_files_is_kafkas_dump(golden: str, paths: list[Path], options: DumpOptions) -> None:
    expected = (GOLDEN / "dump" / f"{golden}.txt").read_text().split("\n")[:-1]
    status, written, complained = run(paths, options)
    assert status == 0
    assert len(paths) > 1 or golden == "transaction_state"
    assert written == expected[: len(written)]
    assert paragraphs(complained) == paragraphs(expected[len(written) :])


SEGMENT = GOLDEN / "data" / "s-txn-0" / "00000000000000000000.log"
BATCH_LINES = [line for line in (GOLDEN / "dump" / "logs.txt").read_text().splitlines() if line.startswith("baseOffset: ")]


def test_without_flags_batches_are_printed_and_records_are_not() -> None:
    _, written, _ = run([SEGMENT], DumpOptions())
    assert written[:2] == ["Dumping s-txn-0/00000000000000000000.log", "Log starting offset: 0"]
    assert len(written) > 2
    assert set(written[2:]) <= set(BATCH_LINES)


def test_deep_iteration_alone_prints_no_data() -> None:
    _, written, _ = run([SEGMENT], DumpOptions(deep_iteration=True))
    records = [line for line in written if line.startswith("| ")]
    assert records
    assert all(line.endswith("]") or "endTxnMarker" in line for line in records)


def test_record_metadata_can_be_left_out() -> None:
    _, written, _ = run(found("s-v1-logappend-0", ".log"), DumpOptions(print_data_log=True, skip_record_metadata=True))
    assert written[3].startswith("| key: k0 payload: field0=948 ")


def test_max_bytes_ends_the_dump_at_a_batch_and_is_no_corruption() -> None:
    status, written, complained = run([SEGMENT], DumpOptions(max_bytes=500))
    assert (status, complained) == (0, [])
    last = written[-1].split()
    assert int(last[last.index("position:") + 1]) + int(last[last.index("size:") + 1]) <= 500
    assert len(written) < len(run([SEGMENT], DumpOptions())[1])


def test_indexes_can_be_verified_without_printing_them() -> None:
    status, written, complained = run(found("s-mixed-0", "index"), DumpOptions(verify_index_only=True))
    assert (status, complained) == (0, [])
    assert all(line.startswith("Dumping ") for line in written)


def test_index_sanity_check() -> None:
    paths = [*found("s-mixed-0", ".index"), *found("s-mixed-0", ".timeindex")]
    status, written, complained = run(paths, DumpOptions(index_sanity_check=True))
    assert (status, complained) == (0, [])
    assert written[1] == "s-mixed-0/00000000000000000000.index passed sanity check."
    assert written[3] == "s-mixed-0/00000000000000000000.timeindex passed sanity check."


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of a partition's directory, to be damaged."""
    return Path(shutil.copytree(GOLDEN / "data" / "s-txn-0", tmp_path / "s-txn-0"))


def test_an_incomplete_tail_is_reported_with_position_and_size(copy: Path) -> None:
    path = copy / SEGMENT.name
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-7])
    status, written, complained = run([path], DumpOptions(), copy.parent)
    torn = written[-1].split()
    assert torn[0] == "Found"
    assert " ".join(torn[2:]) == f"invalid bytes at the end of {path.name}"
    assert status == 1
    assert complained == [f"s-txn-0/{path.name} is corrupt from position {size - 7 - int(torn[1])} on: the last batch is incomplete"]


def test_a_wrong_checksum_is_not_valid_and_the_next_batch_follows(copy: Path) -> None:
    path = copy / SEGMENT.name
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    _, whole, _ = run([SEGMENT], DumpOptions())
    status, written, _ = run([path], DumpOptions(), copy.parent)
    assert status == 0
    assert written[2] == whole[2].replace("isvalid: true", "isvalid: false")
    assert written[3:] == whole[3:]


def test_invalid_records_are_reported_and_the_next_batch_follows(copy: Path) -> None:
    path = copy / SEGMENT.name
    data = bytearray(path.read_bytes())
    data[61] = 0x7F  # the first record has a length of -64
    path.write_bytes(data)
    status, written, complained = run([path], DumpOptions(deep_iteration=True), copy.parent)
    assert status == 1
    assert complained[0].startswith(f"s-txn-0/{path.name}: the batch at position 0 cannot be read: ")
    assert sum(line.startswith("baseOffset: ") for line in written) == len(run([SEGMENT], DumpOptions())[1]) - 2


def test_an_index_with_wrong_positions(copy: Path) -> None:
    path = copy / "00000000000000000000.index"
    path.write_bytes((7).to_bytes(4, "big") + (0).to_bytes(4, "big") + (9).to_bytes(4, "big") + (10**6).to_bytes(4, "big"))
    first_batch = run([SEGMENT], DumpOptions())[1][2].split()
    status, written, complained = run([path], DumpOptions(), copy.parent)
    assert status == 0
    assert written[1:] == ["offset: 7 position: 0", "offset: 9 position: 1000000"]
    assert complained == [
        f"Mismatches in :s-txn-0/{path.name}",
        "  Index offset: 9, log offset: -1",
        f"  Index offset: 7, log offset: {first_batch[3]}",
    ]


def test_a_time_index_that_does_not_match_the_log(copy: Path) -> None:
    path = copy / "00000000000000000000.timeindex"
    path.write_bytes((5).to_bytes(8, "big") + (10**6).to_bytes(4, "big"))
    _, written, complained = run([path], DumpOptions(), copy.parent)
    assert written[1:] == ["timestamp: 5 offset: 1000000"]
    assert complained == ["The following indexed offsets are not found in the log.", "Indexed offset: 1000000, found log offset: -1"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("00000000000000000110.snapshot", b"\x00\x01garbage", "is corrupt: a producer snapshot has a wrong CRC"),
        ("00000000000000000008.txnindex", bytes(33), "is corrupt: a transaction index of 33 bytes does not end with a whole entry"),
        ("00000000000000000000.index", bytes(9), "is corrupt: its size of 9 bytes is not a multiple of 8"),
        ("00000000000000000000.timeindex", bytes(13), "is corrupt: its size of 13 bytes is not a multiple of 12"),
    ],
)
def test_corrupt_small_files(copy: Path, name: str, content: bytes, complaint: str) -> None:
    (copy / name).write_bytes(content)
    status, _, complained = run([copy / name], DumpOptions(index_sanity_check=True), copy.parent)
    assert (status, complained) == (1, [f"s-txn-0/{name} {complaint}"])


def test_files_that_do_not_belong_to_a_log() -> None:
    paths = [Path("/nowhere/00000000000000000000.log"), Path("x.txt"), Path("leader-epoch-checkpoint")]
    status, written, complained = run(paths, DumpOptions())
    assert status == 1
    assert written == ["Dumping /nowhere/00000000000000000000.log", "Dumping x.txt", "Dumping leader-epoch-checkpoint"]
    assert complained == [
        "/nowhere/00000000000000000000.log does not exist",
        "Ignoring unknown file x.txt",
        "Ignoring unknown file leader-epoch-checkpoint",
    ]
    assert run([Path("short.log")], DumpOptions())[2] == ["short.log is not named by an offset of 20 digits"]


@pytest.mark.parametrize("step", range(7))
def test_mutated_files_never_raise(copy: Path, step: int) -> None:
    """With any byte changed, lines or errors are printed."""
    options = DumpOptions(print_data_log=True)
    for path in sorted(copy.iterdir()):
        original = path.read_bytes()
        for position in range(step, min(len(original), 400), 29):
            data = bytearray(original)
            data[position] ^= 0xFF >> step
            path.write_bytes(data)
            run([path, *([path.with_suffix(".timeindex")] if path.suffix == ".log" else [])], options, copy.parent)
        path.write_bytes(original)


def test_look_ups_ignore_the_zeros_of_a_preallocated_index(tmp_path: Path) -> None:
    data = ours(tmp_path)
    paths = [data / "orders-3" / f"{0:020}{suffix}" for suffix in (".index", ".timeindex")]
    before = run(paths, DumpOptions(), tmp_path)
    assert (before[0], before[2]) == (0, [])
    assert len(before[1]) > 10
    for path in paths:
        path.write_bytes(path.read_bytes() + bytes(12 * 8 * 10_000))
    assert run(paths, DumpOptions(), tmp_path) == before


@settings(max_examples=examples(30))
@given(chance=st.randoms(use_true_random=False), count=st.integers(1, 8), deep=st.booleans())
def test_no_damage_raises(tmp_path_factory: pytest.TempPathFactory, chance: random.Random, count: int, deep: bool) -> None:
    data = Path(shutil.copytree(GOLDEN / "data", tmp_path_factory.mktemp("mutated") / "data"))
    paths = sorted(path for path in data.glob("*/*") if path.suffix)
    mutate(data, chance, count)
    for decoder in (Decoder.TEXT, Decoder.OFFSETS, Decoder.METADATA) if deep else (Decoder.TEXT,):
        status, _, _ = run(paths, DumpOptions(deep_iteration=deep, decoder=decoder), data)
        assert status in (0, 1)
    assert run(paths, DumpOptions(index_sanity_check=True), data)[0] in (0, 1)
