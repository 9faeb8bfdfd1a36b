"""Takes names from the interpreter before anything else is imported: what only Linux has, and for REMOVED=windows what only POSIX has.

Python imports it in every process that has this directory in PYTHONPATH. The stand-ins for `_winapi` and `msvcrt` do with Linux's functions
what those do on Windows. Twisted, subprocess and tempfile have ways of their own on Windows, which Linux cannot show: they are imported
first, and keep what they have.
"""

import os
import select
import signal
import socket
import sys
import types

LINUX = {
    os: ("sendfile", "posix_fadvise", "posix_fallocate", "preadv", "pwritev", "fdatasync", "memfd_create", "sched_getaffinity",
         "sched_setaffinity", "pidfd_open", "copy_file_range", "splice", "eventfd", "pipe2", "getrandom", "sched_getscheduler"),
    select: ("epoll",),
    socket: ("MSG_MORE", "TCP_CONGESTION", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_INFO", "TCP_QUICKACK", "AF_NETLINK"),
    signal: ("pidfd_send_signal",),
}  # fmt: skip
PREFIXES = {os: ("RWF_", "POSIX_FADV_", "MFD_", "SPLICE_", "EFD_", "SCHED_"), select: ("EPOLL",)}
POSIX = {
    os: ("pread", "pwrite", "statvfs", "fstatvfs", "fork", "forkpty", "nice", "fchmod", "fchown", "getuid", "geteuid", "getgid", "getegid",
         "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NOCTTY"),
    select: ("poll",),
    socket: ("AF_UNIX", "socketpair"),
    signal: ("SIGHUP", "SIGQUIT"),
}  # fmt: skip
POSIX_MODULES = ("fcntl", "resource", "termios", "pwd", "grp")


def remove(names):
    for module, removed in names.items():
        for name in removed:
            if hasattr(module, name):
                delattr(module, name)


def refuse_proc(event, arguments):
    path = arguments[0] if event in ("open", "os.listdir", "os.scandir") else None
    if isinstance(path, str | bytes) and os.fsdecode(path).startswith("/proc"):
        raise FileNotFoundError(2, "there is no /proc", path)


def stand_ins():
    import fcntl
    import shutil

    winapi, msvcrt = types.ModuleType("_winapi"), types.ModuleType("msvcrt")
    flags = {1: os.O_CREAT | os.O_EXCL, 3: 0, 4: os.O_CREAT}
    os_open, statvfs, replace = os.open, os.statvfs, os.replace

    def create_file(path, access, share, security, disposition, attributes, template):
        assert share == 7, "other handles may rename and remove it"
        return os_open(path, flags[disposition] | (os.O_RDWR if access & 0x40000000 else os.O_RDONLY), 0o644)

    def locking(fd, mode, count):
        if mode == msvcrt.LK_UNLCK:
            fcntl.flock(fd, fcntl.LOCK_UN)
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    def replace_file(old, new, **options):
        """Windows renames no directory with open files. Here it renames none at all."""
        if os.path.isdir(old):
            raise PermissionError(13, "Access is denied", old)
        replace(old, new, **options)

    winapi.CreateFile = create_file
    msvcrt.open_osfhandle = lambda handle, flags: handle
    msvcrt.LK_NBLCK, msvcrt.LK_UNLCK = 2, 0
    msvcrt.locking = locking
    sys.modules["_winapi"], sys.modules["msvcrt"] = winapi, msvcrt
    os.replace = replace_file
    usage = shutil.disk_usage

    def kept_usage(path):
        os.statvfs = statvfs
        try:
            return usage(path)
        finally:
            del os.statvfs

    shutil.disk_usage = kept_usage


def removed_linux():
    remove(LINUX)
    for module, prefixes in PREFIXES.items():
        for name in [name for name in dir(module) if name.startswith(prefixes)]:
            delattr(module, name)
    import fcntl

    for name in [name for name in dir(fcntl) if name.startswith(("F_OFD", "F_GETLK", "F_SETLK", "F_ADD_SEALS"))]:
        delattr(fcntl, name)
    sys.addaudithook(refuse_proc)


def removed_posix():
    import ctypes  # noqa: F401
    import multiprocessing.connection  # noqa: F401
    import selectors  # noqa: F401
    import sqlite3  # noqa: F401
    import ssl  # noqa: F401
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401

    import twisted.internet.pollreactor
    import twisted.internet.process
    import twisted.internet.selectreactor  # noqa: F401

    stand_ins()
    remove(POSIX)
    for name in POSIX_MODULES:
        sys.modules[name] = None


if os.environ.get("REMOVED"):
    removed_linux()
if os.environ.get("REMOVED") == "windows":
    removed_posix()
