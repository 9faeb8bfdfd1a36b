"""Commands of `txbroker` one after the other under spark-submit, with one session: `spark-submit cluster_jobs.py STEPS RESULTS`.

STEPS is a file with a JSON list: the arguments of a command, or `["rename", FROM, TO]`. RESULTS gets a list with the exit status, standard
output and standard error of each command.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path


def main() -> None:
    """Run all of them."""
    steps, results = map(Path, sys.argv[1:])
    from tests.spark.unstopped import Unstopped
    from txbroker.cli.main import main as txbroker
    from txbroker.spark import session

    # The master and the jars are those of spark-submit, which has started the JVM.
    opened = session.open_session("", Path(), delta=True, log=sys.stderr.buffer)
    session.open_session = lambda *arguments, **options: Unstopped(opened)  # type: ignore[assignment]
    found = []
    for step in json.loads(steps.read_text()):
        if step[0] == "rename":
            os.rename(*step[1:])
            continue
        output, complaint = io.StringIO(), io.StringIO()
        with redirect_stdout(output), redirect_stderr(complaint):
            try:
                status = txbroker(step)
            except SystemExit as ended:
                status = ended.code
        found.append([status, output.getvalue(), complaint.getvalue()])
    results.write_text(json.dumps(found))
    opened.stop()


if __name__ == "__main__":
    main()
