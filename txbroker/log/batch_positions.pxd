# Types for Cython, which compiles batch_positions.py with them.
cimport cython

cdef class BatchPositions:
    cdef object _first_offsets
    cdef object _last_offsets
    cdef object _where

    @cython.locals(at=cython.Py_ssize_t, where=cython.longlong)
    cpdef get(self, long long offset)

    cpdef written(self, long long first_offset, long long last_offset, long long position, long long size)
