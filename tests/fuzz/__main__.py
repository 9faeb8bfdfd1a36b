"""`python -m tests.fuzz`: guided fuzzing with atheris, for a bounded time.

Each target runs in its own process, one after the other: frames through the handlers of a whole broker, frames in each state of a login
and requests for ACLs, TLS handshakes and certificates, records through all functions that read them, and every decoder. libFuzzer searches
for new paths in the code, and stops a target that hangs or that exceeds its memory. An input that fails is kept in a file, and the command
that repeats it is printed.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.cache import CHECKOUT

if TYPE_CHECKING:
    from tests.fuzz.inprocess import InProcessBroker

B = TypeVar("B", bound="InProcessBroker")

HANG_S = 20  # for one input; the slowest takes a fraction of a second
INPUT_BYTES_MAX = 16_384
# The memory limit of a target, including libFuzzer's tables and corpus. A target with a leak reaches it within a minute.
MEMORY_MIB = {"frames": 700, "logins": 700, "handshakes": 500, "records": 500, "decoders": 600}
SHARES = {"frames": 0.4, "logins": 0.15, "handshakes": 0.05, "records": 0.2, "decoders": 0.2}


def main() -> int:
    """Exit status 0 when no input failed."""
    assert __doc__
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=90, help="for all targets together (%(default)s)")
    parser.add_argument("--target", choices=SHARES, help="this one alone")
    parser.add_argument("--seed", type=int, default=0, help="libFuzzer's; 0: another each time")
    parser.add_argument("--input", type=Path, help="run a file that was kept through --target, and nothing else")
    parser.add_argument("--corpus", type=Path, help="keep what was found interesting in this directory, for the next time")
    arguments, rest = parser.parse_known_args()
    if arguments.input is not None:
        if arguments.target is None:
            parser.error("--input needs --target")
        _one_input(arguments.target)(arguments.input.read_bytes())
        return 0
    if rest[:1] == ["--inside"]:
        _inside(arguments.target, rest[1:])
    targets = [arguments.target] if arguments.target else list(SHARES)
    total = sum(SHARES[target] for target in targets)
    kept = Path(tempfile.mkdtemp(prefix="txbroker-fuzz-found-"))
    failed = [target for target in targets if not _run(target, max(1, round(arguments.seconds * SHARES[target] / total)), arguments, kept)]
    if not any(kept.iterdir()):
        kept.rmdir()
    return 1 if failed else 0


def _run(target: str, seconds: int, arguments: argparse.Namespace, kept: Path) -> bool:
    """Fuzz one target in a process; whether no input failed."""
    print(f"== {target}, {seconds} s", flush=True)
    corpus = Path(tempfile.mkdtemp(prefix=f"txbroker-fuzz-{target}-")) if arguments.corpus is None else arguments.corpus / target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(_seeds(target)):
        (corpus / f"seed-{number}").write_bytes(data)
    command = [
        sys.executable, "-m", "tests.fuzz", "--target", target, "--inside", str(corpus), f"-max_total_time={seconds}", f"-timeout={HANG_S}",
        f"-rss_limit_mb={MEMORY_MIB[target]}", f"-max_len={INPUT_BYTES_MAX}", f"-seed={arguments.seed}", "-print_final_stats=1",
        f"-artifact_prefix={kept}/{target}-", "-verbosity=1",
    ]
    started = time.monotonic()
    ended = subprocess.run(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if ended.returncode == 0:
        print(f"   {_statistic(ended.stdout, 'number_of_executed_units')} inputs, at most "
              f"{_statistic(ended.stdout, 'peak_rss_mb')} MiB in memory, nothing found ({time.monotonic() - started:.0f} s)", flush=True)
        return True
    print(ended.stdout[-6000:])
    for path in kept.glob(f"{target}-*"):
        print(f"FOUND: run it again with python -m tests.fuzz --target {target} --input {path}", flush=True)
    return False


def _statistic(output: str, name: str) -> str:
    return next((line.split()[-1] for line in output.splitlines() if line.startswith(f"stat::{name}:")), "?")


def _inside(target: str, arguments: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    atheris: Any = importlib.import_module("atheris")  # from the extra "fuzz", without type annotations
    with atheris.instrument_imports(include=["txbroker"]):
        if target == "decoders":
            _instrument_generated_code(atheris.instrument_func)
        run = _one_input(target)
    atheris.Setup([sys.argv[0], *arguments], run)
    atheris.Fuzz()


def _instrument_generated_code(instrument: Callable[[Any], Any]) -> None:
    """Decoders are generated on first use, which takes time, so a run uses only DECODERS of them."""
    from txbroker.wire import decoders, source

    vars(decoders)["compile_function"] = lambda *about: instrument(source.compile_function(*about))


def _one_input(target: str) -> Callable[[bytes], None]:
    """The function that libFuzzer calls with each input."""
    makers = {"frames": _frames, "logins": _logins, "handshakes": _handshakes, "records": _records, "decoders": _decoders}
    return makers[target]()


# --- frames ---

RAW, MADE, CORRUPTED = 0, 1, 2
BROKER_LIFE = 3000  # inputs for one broker; then a new one, because inputs create topics and groups


def _brokers(make: Callable[[], B]) -> Callable[[], B]:
    """Returns the broker for the next input."""
    broker, count = make(), 0

    def current() -> B:
        nonlocal broker, count
        count += 1
        if count % BROKER_LIFE == 0:
            broker.close()
            broker = make()
        return broker

    return current


def _frames() -> Callable[[bytes], None]:
    """Some frames on one connection: raw bytes, or requests that the bytes select, valid or corrupted."""
    from tests.fuzz import frames
    from tests.fuzz.inprocess import InProcessBroker

    current = _brokers(InProcessBroker)

    def run(data: bytes) -> None:
        broker = current()
        how = data[0] % 3 if data else RAW
        if how == RAW:
            broker.send([data[1 : 1 + 4096]])
            return
        pick = frames.pick_from(data[1:])
        sent = []
        for number in range(1 + pick(3)):
            frame = frames.request_frame(*broker.served.choose(pick), number, pick)
            sent.append(frames.mutated_frame(frame, pick) if how == CORRUPTED else frame)
        broker.send(sent)

    return run


# --- logins and handshakes ---


def _logins() -> Callable[[bytes], None]:
    """Frames in a state of a connection, with and without a login."""
    from tests.fuzz import frames, logins

    current = _brokers(logins.new_broker)

    def run(data: bytes) -> None:
        logins.run(current(), frames.pick_from(data))

    return run


def _handshakes() -> Callable[[bytes], None]:
    """A handshake with a corrupted flight of the client, or a corrupted certificate."""
    from tests.fuzz import frames, handshakes

    return lambda data: handshakes.run(frames.pick_from(data))


# --- records ---


def _records() -> Callable[[bytes], None]:
    """Records from raw bytes, with a valid checksum, or selected by the bytes; read by all functions and appended to logs."""
    from tests.fuzz import batches, frames

    logs = batches.Logs()
    count = 0

    def run(data: bytes) -> None:
        nonlocal count
        count += 1
        how, rest = (data[0] % 3, data[1:]) if data else (RAW, b"")
        made = batches.some_records(frames.pick_from(rest)) if how == CORRUPTED else batches.sealed(rest) if how == MADE else rest
        batches.read_in_every_way(made)
        logs.append(made)
        if count % 1000 == 0:
            logs.recover()

    return run


# --- decoders ---

DECODERS = 50


def _decoders() -> Callable[[bytes], None]:
    """The first byte selects a decoder (of messages, from a selection by the day of the year), which reads the other bytes."""
    from tests.fuzz.decoders import decode_message, decode_other

    messages, names = _chosen_decoders()

    def run(data: bytes) -> None:
        which, rest = data[0] if data else 0, data[1:]
        if which < len(messages):
            cls, version = messages[which]
            decode_message(cls, version, rest)
        else:
            decode_other(names[which % len(names)], rest)

    return run


def _chosen_decoders() -> tuple[list[Any], list[str]]:
    from tests.fuzz.decoders import MESSAGES, OTHERS

    return Random(time.localtime().tm_yday).sample(MESSAGES, DECODERS), list(OTHERS)


# --- seeds ---


def _seeds(target: str) -> Iterator[bytes]:
    random = Random(1)
    makers: dict[str, Callable[[Random], Iterator[bytes]]] = {
        "frames": _frame_seeds, "logins": _login_seeds, "handshakes": _handshake_seeds, "records": _record_seeds,
        "decoders": _decoder_seeds,
    }
    yield from makers[target](random)


def _frame_seeds(random: Random) -> Iterator[bytes]:
    from tests.fuzz import frames
    from tests.fuzz.inprocess import InProcessBroker

    broker = InProcessBroker()
    for cls, version in broker.served.pairs:
        yield bytes([RAW]) + frames.request_frame(cls, version, 1, random.randrange)
    broker.close()
    for how in (MADE, CORRUPTED):
        for _ in range(100):
            yield bytes([how]) + random.randbytes(random.randrange(20, 400))


def _login_seeds(random: Random) -> Iterator[bytes]:
    from tests.fuzz import logins

    yield from logins.seeds(random)


def _handshake_seeds(random: Random) -> Iterator[bytes]:
    for kind in range(3):
        for flight in range(3):
            yield bytes([kind, kind, flight]) + random.randbytes(20)


def _record_seeds(random: Random) -> Iterator[bytes]:
    from tests.fuzz.frames import batches

    for data in batches():
        yield from (bytes([how]) + data for how in (RAW, MADE))
    for _ in range(100):
        yield bytes([CORRUPTED]) + random.randbytes(60)


def _decoder_seeds(random: Random) -> Iterator[bytes]:
    from tests.fuzz.decoders import SEEDS, example

    messages, names = _chosen_decoders()
    for which, (cls, version) in enumerate(messages):
        for seed in range(3):
            yield bytes([which]) + example(cls, version, seed)
    first = -(-len(messages) // len(names)) * len(names)
    for name, data in SEEDS.items():
        yield bytes([first + names.index(name)]) + data


if __name__ == "__main__":
    sys.exit(main())
