"""Profiles of the broker under a load: `make profile LOAD=produce-small`, or `python -m bench.profile LOAD`.

py-spy samples the broker's Python and C stacks from outside. For each load it writes to `profiles/`: LOAD.svg, a flame graph; LOAD.txt,
tables of functions, with user and kernel time; LOAD.folded, the stacks.
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

from bench import secured
from bench.__main__ import BENCHES
from bench.brokers import TXBROKER, MeasuredTxbroker, make
from bench.measures import Bench, Measure, Sample, Settings
from bench.process_tree import cpu_times
from bench.stacks import spent, table
from tests.support.cache import Missing
from tests.support.server import ServerFailed
from tests.support.waiting import until

ROWS = 30
START = "start"
SETTINGS = Settings(seconds=5.0, warmup_s=0.5, first_warmup_s=2.0)


class NoProfile(Exception):
    """The profiler cannot run here; the message says what to do."""


def _py_spy() -> str:
    program = shutil.which("py-spy", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    if program is None:
        raise NoProfile("py-spy is not installed: run `make profile`, or pip install py-spy")
    return program


def _record(options: argparse.Namespace, form: str, path: Path, *what: str) -> None:
    """Run py-spy on `what` (`--pid N`, or a command)."""
    command = [_py_spy(), "record", "--native", "--rate", str(options.rate), "--format", form, "--output", str(path), *what]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode or not path.exists() or not path.stat().st_size:
        raise NoProfile(
            f"py-spy could not sample the broker: {ended.stderr.strip()[-500:]}\n"
            "It needs permission to trace other processes: run as root, or set kernel.yama.ptrace_scope to 0."
        )


@contextmanager
def _under_load(measure: Measure) -> Iterator[list[Sample]]:
    """Repeat the load while the block runs; the list collects its samples."""
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
    """Profile one load on a separate broker; the text of LOAD.txt."""
    folded, svg = (options.output / f"{bench.name}{suffix}" for suffix in (".folded", ".svg"))
    server = make(TXBROKER, directory / bench.name)
    if bench in secured.BENCHES:
        secured.add_listener(server)
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
        f"not sampled:  {_figures(plain)}",
        *(f"sampled:      {_figures(sample)}" for sample in samples[:1]),
        f"CPU: {user_s / busy_s:.0%} user, {kernel_s / busy_s:.0%} kernel, of {busy_s:.1f} s (including the load's preparation)",
    ]
    return "\n".join([*lines, "", _functions(folded)])


class _WatchedStart(MeasuredTxbroker):
    """A broker that py-spy starts."""

    profiler: tuple[str, ...] = ()

    def _command(self) -> list[str]:
        return [*self.profiler, "--", *super()._command()]


def _profile_start(bench: Bench, options: argparse.Namespace, directory: Path) -> str:
    """A start has no load: py-spy starts the broker and also samples its stop. It samples no C code, which would slow the start down."""
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
        until(lambda server=server: not server.running, "py-spy has written its file")  # type: ignore[misc]
        if not path.exists():
            raise NoProfile(f"py-spy could not sample the broker:\n{server.log_tail()}")
    return f"from exec to the first response, and to the end of a clean stop\n\n{_functions(folded)}"


def _figures(sample: Sample) -> str:
    return ", ".join(f"{key} {value:,.2f}" for key, value in sample.items())


def _functions(folded: Path) -> str:
    samples, functions = spent(folded.read_text(errors="replace").splitlines())
    return f"{samples} samples\n{table(functions, ROWS)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    names = [bench.name for bench in BENCHES]
    parser = argparse.ArgumentParser(prog="make profile LOAD=... ARGS=...", description="Profile the broker under a load.")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {', '.join(names)}; without names, all of them")
    parser.add_argument("--seconds", type=int, default=10, help="duration of the profile (%(default)s)")
    parser.add_argument("--rate", type=int, default=250, help="samples per second (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("profiles"), help="directory for the results (%(default)s)")
    options = parser.parse_args(arguments)
    unknown = set(options.loads) - set(names)
    if unknown:
        parser.error(f"no such load: {', '.join(sorted(unknown))}; the loads are {', '.join(names)}")
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
