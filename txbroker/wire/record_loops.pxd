# Types for Cython, which compiles record_loops.py with them.
cimport cython

@cython.locals(byte=cython.ulonglong, raw=cython.ulonglong, shift=cython.int)
cpdef (unsigned long long, Py_ssize_t) read_unsigned(const unsigned char[::1] data, Py_ssize_t position, int bits)

@cython.locals(
    earliest=cython.longlong, latest=cython.longlong, content_bytes=cython.longlong, first_without_key=cython.longlong,
    headers_left=cython.longlong, index=cython.longlong, raw=cython.ulonglong, record_end=cython.Py_ssize_t, time_delta=cython.longlong,
    offset_delta=cython.longlong,
)
cpdef (long long, long long, long long, long long) check_records(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, bint consecutive
)

@cython.locals(
    index=cython.longlong, raw=cython.ulonglong, time_raw=cython.ulonglong, record_end=cython.Py_ssize_t,
    time_delta=cython.longlong, offset_delta=cython.longlong,
)
cpdef (long long, long long, long long) find_time(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long time_delta_min, long long offset_delta_min
)

@cython.locals(
    base=cython.longlong, length=cython.longlong, magic=cython.int, attributes=cython.int, last_delta=cython.longlong,
    base_time=cython.longlong, max_time=cython.longlong, count=cython.longlong, start=cython.Py_ssize_t, time_delta_min=cython.longlong,
    offset_delta_min=cython.longlong, index=cython.longlong, time_delta=cython.longlong, offset_delta=cython.longlong,
)
cpdef tuple find_time_in_batch(bytes data, long long timestamp, long long offset_min, long long unpacked_max)

@cython.locals(
    raw=cython.ulonglong, end=cython.Py_ssize_t, record_end=cython.Py_ssize_t, start=cython.Py_ssize_t,
    time_delta=cython.longlong, offset_delta=cython.longlong,
)
cpdef Py_ssize_t decode_records(bytes data, Py_ssize_t position, Py_ssize_t count, Py_ssize_t headers_left, list records) except -1

@cython.locals(
    found_at=cython.Py_ssize_t, found_size=cython.longlong, name_size=cython.Py_ssize_t, raw=cython.ulonglong, start=cython.Py_ssize_t,
    size=cython.Py_ssize_t, named=cython.bint,
)
cpdef (Py_ssize_t, long long) find_header(bytes data, Py_ssize_t position, Py_ssize_t record_end, bytes name)
