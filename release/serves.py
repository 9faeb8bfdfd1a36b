"""`python serves.py [--compiled | --pure] [--says TEXT]`: check the txbroker that is installed for this Python.

It starts a broker, writes a record and reads it, and stops the broker. It needs only this file and setup.py beside its folder.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_S = 120.0
BIN = Path(sys.executable).parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KAFKA_", "TXBROKER_"))}


def txbroker(*arguments: str, given: str = "") -> str:
    """Run a command of txbroker, and return its output; the program ends if it fails."""
    ended = subprocess.run([BIN / "txbroker", *arguments], input=given, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    if ended.returncode != 0:
        sys.exit(f"txbroker {' '.join(arguments)} failed with status {ended.returncode}: {ended.stderr or ended.stdout}")
    return ended.stdout


def check_modules(compiled: bool) -> None:
    """The program ends unless all modules of setup.py's list are compiled, or none is."""
    setup = Path(__file__).resolve().parent.parent / "setup.py"
    found = re.search(r"^COMPILED = (\(.*?\))$", setup.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(f"{setup} names no COMPILED modules")
    for path in ast.literal_eval(found[1]):
        name = path.replace("/", ".")
        module = importlib.util.find_spec(name)
        origin = "" if module is None else str(module.origin)
        if origin.endswith(".py") is compiled or not origin:
            sys.exit(f"{name} is {origin or 'missing'}; it should be {'compiled' if compiled else 'in Python'}")


def check_serving(place: Path) -> None:
    """The program ends unless a broker starts, serves a topic and stops."""
    ready = place / "ready"
    flags = ["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"log.dirs={place}/data", "--ready-file", str(ready)]
    with (place / "log").open("wb") as log:
        broker = subprocess.Popen([BIN / "txbroker", "run", *flags], cwd=place, env=ENVIRONMENT, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_S
        while not ready.exists():
            if broker.poll() is not None or time.monotonic() > until:
                sys.exit(f"the broker did not start:\n{(place / 'log').read_text()}")
            time.sleep(0.05)
        topic = ["--bootstrap-server", ready.read_text().splitlines()[0], "--topic", "release"]
        txbroker("topics", "--create", *topic)
        txbroker("produce", *topic, "--producer-property", "compression.type=lz4", given="a record\n")
        read = txbroker("consume", *topic, "--from-beginning", "--max-messages", "1")
        if not read.startswith("a record\n"):
            sys.exit(f"the record that was read is not the one that was written: {read!r}")
        broker.send_signal(signal.SIGTERM)
        if broker.wait(START_S) != 0:
            sys.exit(f"the broker stopped with status {broker.returncode}:\n{(place / 'log').read_text()}")
    finally:
        broker.kill()
        broker.wait()


def main() -> None:
    """Check what is installed; the exit status is 1, with a sentence, if something is wrong."""
    parser = argparse.ArgumentParser(description="check the txbroker that is installed for this Python")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--compiled", action="store_true", help="its inner loops must be compiled")
    kind.add_argument("--pure", action="store_true", help="nothing of it may be compiled")
    parser.add_argument("--says", metavar="TEXT", help="what `txbroker --version` must print")
    arguments = parser.parse_args()
    says = txbroker("--version").strip()
    if arguments.says is not None and says != arguments.says:
        sys.exit(f"txbroker --version prints {says!r}; it should be {arguments.says!r}")
    if arguments.compiled or arguments.pure:
        check_modules(arguments.compiled)
    with tempfile.TemporaryDirectory() as place:
        check_serving(Path(place))
    print(f"{says} serves on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
