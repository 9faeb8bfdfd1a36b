"""What is made of a profiler's stacks."""

from __future__ import annotations

from bench.stacks import Spent, spent, table

FOLDED = """\
main (a/b.py:10);work (a/b.py:20);send (libc.so.6) 6
main (a/b.py:11);work (a/b.py:22);work (a/b.py:21) 2
main (a/b.py:11);0x7f00 (libc.so.6) 2
run (threading.py:5);lock_PyThread_acquire_lock (libpython3.11.so.1.0);0x7f01 (libc.so.6) 90
wait (threading.py:5);PyThread_acquire_lock_timed (python3.11);0x7f01 (libc.so.6) 70

"""


def test_functions_and_their_time() -> None:
    samples, functions = spent(FOLDED.splitlines())
    assert samples == 10, "a thread that waits does not count"
    assert functions == [
        Spent("send (libc.so.6)", 0.6, 0.6),
        Spent("work (a/b.py)", 0.2, 0.8),
        Spent("0x7f00 (libc.so.6)", 0.2, 0.2),
        Spent("main (a/b.py)", 0.0, 1.0),
    ]
    by_own, by_total = table(functions, 2).split("\n\n")
    assert [line.split()[-2] for line in by_own.splitlines()[1:]] == ["send", "work"]
    assert [line.split()[-2] for line in by_total.splitlines()[1:]] == ["main", "work"]


def test_no_stacks() -> None:
    assert spent([]) == (0, [])
