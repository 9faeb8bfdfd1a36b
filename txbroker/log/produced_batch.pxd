# Types for Cython, which compiles produced_batch.py with them.
cimport cython

from txbroker.wire.codec_blocks cimport unlz4, unsnappy
from txbroker.wire.record_loops cimport check_records

cdef int _CODECS, _SNAPPY, _LZ4

@cython.locals(
    size_max=cython.longlong, unpacked_max=cython.longlong, before_max_ms=cython.longlong, after_max_ms=cython.longlong, keyed=cython.bint,
    topic_codec=cython.int, full=cython.bint, size=cython.Py_ssize_t, base_offset=cython.longlong, length=cython.longlong, magic=cython.int,
    crc=cython.ulonglong, attributes=cython.int, last_delta=cython.longlong, base_time=cython.longlong, max_time=cython.longlong,
    producer_id=cython.longlong, producer_epoch=cython.int, sequence=cython.longlong, count=cython.longlong, codec=cython.int,
    transactional=cython.bint, epoch=cython.int, expected=cython.longlong, earliest=cython.longlong, latest=cython.longlong,
    keyless=cython.longlong, unpacked=bytes,
)
cpdef tuple prepare(batch, tuple limits, dict states, long long now_ms, long long first_offset, long long leader_epoch)
