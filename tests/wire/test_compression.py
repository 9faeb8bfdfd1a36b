from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compressed_forms import HALF, READ_BY_OTHERS, Form, forms
from tests.wire.record_samples import allocations_below, mutations, value_or_error
from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire.compression import CODECS, Codec, compress, decompress, refuse_unless_java_reads

REAL = [codec for codec in CODECS if codec is not Codec.NONE]
TEXT = b"the same words again and again, " * 3000 + bytes(range(256)) * 100
every_codec = pytest.mark.parametrize("codec", REAL, ids=lambda codec: codec.name)


@given(codec=st.sampled_from(REAL), data=st.binary(max_size=3000))
def test_data_is_decompressed_as_compressed(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data), magic=0)), len(data), magic=0) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 12, 17)), (Codec.ZSTD, (-131072, 1, 3, 22))],
    ids=["gzip", "lz4", "zstd"],
)
def test_every_compression_level_of_kafka_works(codec: Codec, levels: tuple[int, ...]) -> None:
    packed = [compress(codec, TEXT, level) for level in levels]
    assert all(decompress(codec, each, len(TEXT)) == TEXT for each in packed)
    assert len(packed[-1]) <= len(packed[0])


@every_codec
def test_decompressed_data_is_limited(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    for size_max in (len(TEXT) - 1, 1, 0):
        with pytest.raises(BrokerError) as caught:
            decompress(codec, packed, size_max)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_uncompressed_data_is_limited() -> None:
    assert decompress(Codec.NONE, b"abc", 3) == compress(Codec.NONE, b"abc") == b"abc"
    with pytest.raises(BrokerError) as caught:
        decompress(Codec.NONE, b"abc", 2)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@every_codec
def test_a_decompression_bomb_is_refused_before_it_takes_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(60_000_000))
    with allocations_below(5_000_000 + 4 * len(bomb)), pytest.raises(BrokerError) as caught:
        decompress(codec, bomb, 1_000_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@every_codec
def test_incomplete_data_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT[:300] + os.urandom(50))
    # The end of a snappy block does not show whether more blocks follow, and part of a block's length is ignored.
    framed = range(16, 20) if codec is Codec.SNAPPY else ()
    for end in range(len(packed)):
        if end in framed:
            continue
        with pytest.raises(CorruptRecords):
            decompress(codec, packed[:end], 1000)


@pytest.mark.parametrize("form", list(forms()), ids=lambda form: form.name)
def test_unusual_forms_are_read_as_by_the_java_client(form: Form) -> None:
    for produced in (True, False):
        outcome = value_or_error(decompress, form.codec, form.data, 1_000_000, produced=produced)
        if form.read or (form.name in READ_BY_OTHERS and not produced):
            assert outcome == form.plain
        else:
            assert isinstance(outcome, CorruptRecords) or outcome != form.plain


@pytest.mark.parametrize("form", [form for form in forms() if form.read and "256 MiB" not in form.name], ids=lambda form: form.name)
def test_the_limit_counts_all_members_and_frames(form: Form) -> None:
    assert decompress(form.codec, form.data, len(form.plain)) == form.plain
    for size_max in (len(form.plain) - 1, HALF, 0):
        with allocations_below(200_000 + 2 * len(form.data)), pytest.raises(BrokerError) as caught:
            decompress(form.codec, form.data, size_max)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("form", list(forms()), ids=lambda form: form.name)
def test_frames_alone_show_what_only_other_clients_read(form: Form) -> None:
    outcome = value_or_error(refuse_unless_java_reads, form.codec, form.data)
    if form.name in READ_BY_OTHERS:
        assert isinstance(outcome, CorruptRecords)
    elif form.read:
        assert outcome is None


@pytest.mark.parametrize(
    ("codec", "part"), [(Codec.GZIP, compress(Codec.GZIP, b"")), (Codec.ZSTD, compress(Codec.ZSTD, b""))], ids=["gzip", "zstd"]
)
def test_many_empty_members_are_read_once(codec: Codec, part: bytes) -> None:
    """A reader that copies the rest after each member would copy more than a gigabyte."""
    packed = part * 5_000
    with allocations_below(3_000_000):
        assert decompress(codec, packed, 0) == b""


@every_codec
def test_a_changed_byte_gives_a_value_or_a_broker_error(codec: Codec) -> None:
    packed = compress(codec, TEXT[:200] + bytes(range(50)))
    for changed in mutations(packed):
        value_or_error(decompress, codec, changed, 1000)
        value_or_error(decompress, codec, changed, 1000, magic=0)


PREFIXES = {
    Codec.GZIP: [b"", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"],
    Codec.SNAPPY: [b"", b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01", b"\x10"],
    Codec.LZ4: [b"", b"\x04\x22\x4d\x18\x60\x40\x82", b"\x04\x22\x4d\x18"],
    Codec.ZSTD: [b"", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x00\x58"],
}


@every_codec
@given(data=st.data())
def test_any_bytes_give_a_value_or_a_broker_error(codec: Codec, data: st.DataObject) -> None:
    junk = data.draw(st.sampled_from(PREFIXES[codec])) + data.draw(st.binary(max_size=60))
    for magic in (0, 2):
        outcome = value_or_error(decompress, codec, junk, 10_000, magic=magic)
        assert isinstance(outcome, BrokerError) or len(outcome) <= 10_000


# --- snappy ---


def test_snappy_is_written_in_the_framing_of_snappy_java() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    first = struct.unpack_from(">i", packed, 16)[0]
    assert snappy.uncompress(packed[20 : 20 + first]) == TEXT[:32768]


def test_raw_and_concatenated_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(TEXT), len(TEXT)) == TEXT
    joined = compress(Codec.SNAPPY, TEXT) + compress(Codec.SNAPPY, b"end")
    assert decompress(Codec.SNAPPY, joined, len(TEXT) + 3) == TEXT + b"end"
    with pytest.raises(BrokerError) as caught:
        decompress(Codec.SNAPPY, joined, len(TEXT) + 2)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "block",
    [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80", b"\x80", b"\xff\xff\xff\x7fabc"],
)
def test_a_snappy_block_with_a_wrong_size_takes_no_memory(block: bytes) -> None:
    for framed in (block, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + struct.pack(">i", len(block)) + block):
        with allocations_below(100_000), pytest.raises(CorruptRecords):
            decompress(Codec.SNAPPY, framed, 2**31)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 2**31 - 1])
def test_a_snappy_frame_with_an_invalid_block_size_is_refused(size: int) -> None:
    with pytest.raises(CorruptRecords):
        decompress(Codec.SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + struct.pack(">i", size) + b"abc", 1000)


# --- lz4 ---


def test_lz4_frames_have_the_form_that_kafka_reads() -> None:
    # Version 1, independent blocks, no checksums and no content size; blocks of 64 KiB.
    assert compress(Codec.LZ4, TEXT)[:7] == bytes.fromhex("04224d18604082")


def test_lz4_for_magic_0_has_the_wrong_header_checksum_of_old_clients() -> None:
    right, wrong = compress(Codec.LZ4, TEXT), compress(Codec.LZ4, TEXT, magic=0)
    assert (right[:6], right[7:]) == (wrong[:6], wrong[7:])
    assert wrong[6] == 0x1A
    assert decompress(Codec.LZ4, right, len(TEXT), magic=0) == decompress(Codec.LZ4, wrong, len(TEXT), magic=0) == TEXT
    with pytest.raises(CorruptRecords):
        decompress(Codec.LZ4, wrong, len(TEXT), magic=2)


@pytest.mark.parametrize("magic", [0, 2])
@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_lz4_frames_of_other_writers_are_read(magic: int, store_size: bool, linked: bool) -> None:
    frame = lz4.frame.compress(
        TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=linked, content_checksum=True, block_checksum=True, store_size=store_size
    )
    assert decompress(Codec.LZ4, frame, len(TEXT), magic=magic) == TEXT


def test_the_content_size_of_an_lz4_frame_takes_no_memory() -> None:
    frame = bytearray(lz4.frame.compress(b"x" * 100, store_size=True))
    frame[6:14] = struct.pack("<q", 2**40)
    with allocations_below(100_000):
        assert decompress(Codec.LZ4, bytes(frame), 2**31, magic=0) == b"x" * 100


# --- zstd ---


def test_zstd_frames_of_streaming_writers_are_read() -> None:
    for window_log in (17, 27):  # level 22 needs a window of 128 MiB
        options = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log, write_checksum=True)
        stream = zstandard.ZstdCompressor(compression_params=options).compressobj()
        frame = stream.compress(TEXT) + stream.flush()
        assert zstandard.frame_content_size(frame) == -1
        assert decompress(Codec.ZSTD, frame, len(TEXT)) == TEXT
        for end in range(len(frame)):
            with pytest.raises(CorruptRecords):
                decompress(Codec.ZSTD, frame[:end], len(TEXT))


def test_a_zstd_frame_that_claims_a_large_content_takes_no_memory() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
    assert zstandard.get_frame_parameters(bytes(frame)).content_size == 100_000
    lying = bytes(frame[:4]) + b"\xe0" + struct.pack("<q", 2**30) + bytes(frame[4 + zstandard.frame_header_size(bytes(frame)) - 4 :])
    with allocations_below(100_000), pytest.raises(CorruptRecords):
        decompress(Codec.ZSTD, lying, 2**31)


def test_many_empty_zstd_blocks_cost_little() -> None:
    empty_raw = b"\x00\x00\x00"
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + empty_raw * 20_000 + b"\x01\x00\x00"
    assert decompress(Codec.ZSTD, frame, 10) == b""


def test_gzip_of_another_writer_is_read() -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [packer.compress(TEXT[:1000]), packer.flush(zlib.Z_FULL_FLUSH), packer.compress(TEXT[1000:]), packer.flush()]
    assert decompress(Codec.GZIP, b"".join(parts), len(TEXT)) == TEXT


def test_codec_libraries_are_not_loaded_before_they_are_needed() -> None:
    program = (
        "import sys, txbroker.wire.conversion, txbroker.wire.control;"
        "print(*{'lz4', 'snappy', 'cramjam', 'zstandard', 'crc32c', 'twisted'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
