# Types for Cython, which compiles index_file.py with them.

cdef class IndexFile:
    cdef public str path
    cdef public Py_ssize_t count
    cdef object _disk, _key, _fence_post, _block, _fence, _pending, _pending_keys, _stored
    cdef Py_ssize_t _entry_bytes, _key_bytes, _stored_count

    cpdef bytes entry(self, Py_ssize_t number)
    cpdef append(self, long long key, bytes entry)
    cpdef make_room(self)
    cpdef long long last_key(self)
    cpdef _mapped(self)
