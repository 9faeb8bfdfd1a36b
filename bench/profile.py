"""Where the time of a load goes: `make profile LOAD=produce-small`, or `python -m bench.profile LOAD`.

The broker is sampled from outside by py-spy, which sees Python and C alike. For each load there come to be in `profiles/`:
LOAD.svg, a flame graph; LOAD.txt, the functions as tables, with what the system says of user and kernel time; LOAD.folded, the stacks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.__main__ import BENCHES
from bench.brokers import TXBROKER, MeasuredTxbroker, cpu_times, make
from bench.measures import Bench, Measure, Sample, Settings
from bench.stacks import spent, table
from tests.support.cache import Missing
from tests.support.server import ServerFailed
from tests.support.waiting import until

ROWS = 30
START = "start"
SETTINGS = Settings(seconds=5.0, warmup_s=0.5, first_warmup_s=2.0)


class NoProfile(Exception):
    """The profiler cannot work here; the sentence says what to do."""


def _py_spy() -> str:
    program = shutil.which("py-spy", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    if program is None:
        raise NoProfile("py-spy is not installed: run `make profile`, or pip install py-spy")
    return program


def _record(options: argparse.Namespace, form: str, path: Path, *what: str) -> None:
    """Have py-spy watch `what` (`--pid N`, or a command)."""
    command = [_py_spy(), "record", "--native", "--rate", str(options.rate), "--format", form, "--output", str(path), *what]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode or not path.exists() or not path.stat().st_size:
        raise NoProfile(
            f"py-spy could not look into the broker: {ended.stderr.strip()[-500:]}\n"
            "It needs the right to trace other processes: be root, or set the system's kernel.yama.ptrace_scope to 0."
        )


@contextmanager
def _under_load(measure: Measure) -> Iterator[list[Sample]]:
    """The load goes on and on meanwhile; what it measured is in the list."""
    samples: list[Sample] = []
    stop = threading.Event()
    problems: list[Exception] = []

    def work() -> None:
        try:
            while not stop.is_set():
                samples.append(measure())
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
    if problems:
        raise problems[0]


def _profile(bench: Bench, options: argparse.Namespace, directory: Path) -> str:
    """One load on a broker of its own; the text for LOAD.txt."""
    folded, svg = (options.output / f"{bench.name}{suffix}" for suffix in (".folded", ".svg"))
    server = make(TXBROKER, directory / bench.name)
    server.start()
    try:
        with bench.ready(server, SETTINGS) as measure:
            before = cpu_times(server.pid)
            plain = measure()
            user_s, kernel_s = (after - earlier for after, earlier in zip(cpu_times(server.pid), before, strict=True))
            watched = "--duration", str(options.seconds), "--pid", str(server.pid)
            with _under_load(measure) as samples:
                _record(options, "raw", folded, *watched)
            with _under_load(measure):
                _record(options, "flamegraph", svg, *watched)
    finally:
        server.kill()
    busy_s = user_s + kernel_s or 1.0
    lines = [
        f"not watched:  {_figures(plain)}",
        *(f"watched:      {_figures(sample)}" for sample in samples[:1]),
        f"CPU: {user_s / busy_s:.0%} user, {kernel_s / busy_s:.0%} kernel, of {busy_s:.1f} s (with what the load prepares)",
    ]
    return "\n".join([*lines, "", _functions(folded)])


class _WatchedStart(MeasuredTxbroker):
    """A broker that py-spy starts."""

    profiler: tuple[str, ...] = ()

    def _command(self) -> list[str]:
        return [*self.profiler, "--", *super()._command()]


def _profile_start(bench: Bench, options: argparse.Namespace, directory: Path) -> str:
    """The start has no load: py-spy starts the broker, and sees it stop as well. It sees no C here: that would slow the start down."""
    folded, svg = (options.output / f"{bench.name}{suffix}" for suffix in (".folded", ".svg"))
    for form, path in (("raw", folded), ("flamegraph", svg)):
        server = _WatchedStart(directory / f"start-{form}")
        server.profiler = (
            *(_py_spy(), "record", "--nonblocking", "--rate", str(options.rate)),
            *("--format", form, "--output", str(path)),
        )
        server.start()
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGTERM)
        until(lambda server=server: not server.running, "py-spy has written")  # type: ignore[misc]
        if not path.exists():
            raise NoProfile(f"py-spy could not look into the broker:\n{server.log_tail()}")
    return f"from exec to the first answer, and to the end after a clean stop\n\n{_functions(folded)}"


def _figures(sample: Sample) -> str:
    return ", ".join(f"{key} {value:,.2f}" for key, value in sample.items())


def _functions(folded: Path) -> str:
    samples, functions = spent(folded.read_text(errors="replace").splitlines())
    return f"{samples} samples\n{table(functions, ROWS)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    names = [bench.name for bench in BENCHES]
    parser = argparse.ArgumentParser(prog="make profile LOAD=... ARGS=...", description="Where the time of a load goes, in the broker.")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {', '.join(names)}; all of them unless named")
    parser.add_argument("--seconds", type=int, default=10, help="to watch for (%(default)s)")
    parser.add_argument("--rate", type=int, default=250, help="samples a second (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("profiles"), help="where the results go (%(default)s)")
    options = parser.parse_args(arguments)
    unknown = set(options.loads) - set(names)
    if unknown:
        parser.error(f"no such load: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="txbroker-profile-"))
    try:
        for bench in BENCHES:
            if not options.loads or bench.name in options.loads:
                print(f"== {bench.name}: {bench.what}", flush=True)
                text = (_profile_start if bench.name == START else _profile)(bench, options, directory)
                (options.output / f"{bench.name}.txt").write_text(f"{bench.name}: {bench.what}\n{text}\n")
                print(f"{text}\n\nflame graph: {options.output / bench.name}.svg", flush=True)
    except (Missing, NoProfile, ServerFailed) as problem:
        print(problem, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
