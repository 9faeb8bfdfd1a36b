"""CPU time and memory of a broker include its children's."""

from __future__ import annotations

import subprocess
import sys

from bench.process_tree import CpuMeter, cpu_seconds, rss_mb, tree

BURNT_S = 0.3
TICK_S = 0.01
CHILD = f"""
import sys, time
while time.process_time() < {BURNT_S}:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""
# A thread starts the child: /proc has a list of children for each thread.
PARENT = f"""
import subprocess, sys, threading
def work():
    subprocess.run([sys.executable, "-c", {CHILD!r}])
    print("ended", flush=True)
    threading.Event().wait()
threading.Thread(target=work).start()
"""


def test_children_that_run_and_children_that_have_ended() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None and parent.stdout is not None
    try:
        meter = CpuMeter(parent.pid)
        assert parent.stdout.readline() == "burnt\n"
        assert len(tree(parent.pid)) == 2
        assert meter.seconds() >= BURNT_S - 2 * TICK_S
        alone, both = rss_mb(tree(parent.pid)[1]), rss_mb(parent.pid)
        assert 0 < alone < both
        parent.stdin.close()
        assert parent.stdout.readline() == "ended\n"
        assert tree(parent.pid) == [parent.pid]
        assert cpu_seconds(parent.pid) >= BURNT_S - 2 * TICK_S
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
