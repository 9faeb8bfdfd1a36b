"""`python -m compat.security`: try clients on the secured listeners of a broker, and compare with what they said on Apache Kafka."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from compat.clients import CLIENTS
from compat.matrix import TOOLS
from compat.security.brokers import secured_broker
from compat.security.cases import CASES
from compat.security.records import KAFKA, OURS, Recorded, differences, is_race, load, save
from compat.security.trying import outcomes


def main() -> int:
    """The exit status: 1 when a client has said what it did not say on Kafka."""
    options = _options()
    records = load()
    wrong = False
    with tempfile.TemporaryDirectory(prefix="txbroker-compat-security-") as folder, secured_broker(Path(folder), options.broker) as broker:
        for name in options.clients:
            recorded = records.setdefault(name, Recorded())
            if options.write:
                for case in options.cases:
                    recorded.said.setdefault(options.broker, {}).pop(case, None)
            for _ in range(options.times):
                recorded.version, said = outcomes(CLIENTS[name], broker, options.cases)
                print(f"{CLIENTS[name].title} {recorded.version}", flush=True)
                for case, outcome in said.items():
                    if options.write and not is_race(name, case, outcome):
                        recorded.add(options.broker, case, outcome)
                if options.broker == OURS and KAFKA in recorded.said:
                    found = list(differences(name, said, records))
                    wrong = wrong or bool(found)
                    print("\n".join(f"  {line}" for line in found), flush=True)
            if options.write:
                save(records)
    return int(wrong)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat.security", description=__doc__)
    clients = [name for name, client in CLIENTS.items() if client.kind != TOOLS and client.folder != "spark"]
    parser.add_argument("--broker", choices=(OURS, KAFKA), default=OURS, help="the broker to start")
    parser.add_argument("--clients", metavar="NAME,...", type=_names, default=clients, help=f"of: {', '.join(clients)}")
    parser.add_argument("--cases", metavar="NAME,...", type=_names, default=list(CASES), help=f"of: {', '.join(CASES)}")
    parser.add_argument("--times", metavar="N", type=int, default=1,
                        help="how often each client tries: it may notice an error in several ways")
    parser.add_argument("--write", action="store_true", help="write what they say into security_records.json and SECURITY.md")
    options = parser.parse_args()
    if unknown := (set(options.clients) - set(clients)) | (set(options.cases) - CASES.keys()):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    sys.exit(main())
