# Types for Cython, which compiles time_index.py with them.

from txbroker.log.index_file cimport IndexFile

cdef class TimeIndex(IndexFile):
    cdef public long long base_offset

    cpdef add(self, long long timestamp, long long offset)
