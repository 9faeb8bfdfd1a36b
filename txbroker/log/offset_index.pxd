# Types for Cython, which compiles offset_index.py with them.

from txbroker.log.index_file cimport IndexFile

cdef class OffsetIndex(IndexFile):
    cdef public long long base_offset

    cpdef add(self, long long offset, long long position)
