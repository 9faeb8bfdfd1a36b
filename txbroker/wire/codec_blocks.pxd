# Types for Cython, which compiles codec_blocks.py with them.
cimport cython

@cython.locals(end=cython.Py_ssize_t, left=cython.longlong, position=cython.longlong, start=cython.longlong, size=cython.longlong,
               parts=list, part=bytes)
cpdef bytes unsnappy(data, long long size_max)

@cython.locals(size=cython.longlong, shift=cython.int, at=cython.int, available=cython.longlong, byte=cython.longlong)
cdef bytes _unsnappy_block(block, long long left, long long size_max)

@cython.locals(
    end=cython.Py_ssize_t, magic=cython.ulonglong, flags=cython.int, sizes=cython.int, position=cython.longlong, block_max=cython.longlong,
    left=cython.longlong, parts=list, word=cython.ulonglong, size=cython.longlong, begin=cython.longlong, part=bytes,
)
cpdef bytes unlz4(data, long long size_max)
