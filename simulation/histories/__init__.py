"""The history of a run: what each client did and saw, and the checker that finds anomalies in it (after Jepsen's Kafka workload).

    operations = [Send("p1", 1, "t", 0, "p1-1", 10, 20, Outcome.OK, offset=0), Poll("c1", 1, "t", 0, ((0, "p1-1"),), 30, 40)]
    for anomaly in check(operations):
        print(anomaly)                       # lost-write t-0: ...

Clients record operations (`operations.py`), one for each call that has ended, in any order; `to_line` and `from_line` make JSON lines of
them. `began` and `ended` are integers of one monotonic clock that all clients share, in any unit. `number` is the client's own count of
its operations in the order of its calls; the numbers of one client ascend, with or without gaps. Every value is sent once: the text of a
value, unique in the run, identifies the record. A client is one instance of a producer or consumer; after a restart it has another name.

An outcome is OK only if the brokers confirmed it with acks=all, FAILED only if the record certainly is in no log, UNKNOWN otherwise (a
timeout, a connection that closed, acks=1, NOT_ENOUGH_REPLICAS_AFTER_APPEND).

| anomaly | what was seen |
|---|---|
| `lost-write` | a record that was confirmed, or that a consumer had received, is not in the log, although later records are |
| `unseen` | the same at the end of the log |
| `duplicate` | a value at two offsets, of a producer that is idempotent |
| `inconsistent-offsets` | two values at one offset |
| `unexpected` | a value that no client sent to this partition |
| `G1a` | a record that certainly failed, or an aborted one in a read_committed poll |
| `precommitted-read` | a record in a read_committed poll before its producer had asked for the commit |
| `torn-transaction` | some of a transaction's records are there and others are not |
| `nonmonotonic-poll`, `int-nonmonotonic-poll` | offsets went back between two polls of an assignment, or inside one poll |
| `poll-skip`, `int-poll-skip` | an assignment's polls, or one poll, left out records that are in the log |
| `nonmonotonic-send` | two records are in the log against the order in which they were sent |
| `lost-commit` | an older committed offset, or none, was fetched after a newer one was confirmed |
| `unexpected-commit` | an offset was fetched that no commit with this offset can explain |
| `lost-latest` | a compacted topic without the latest value of a key |

`lost-write`, `unseen`, `torn-transaction` and `lost-latest` need `Complete` operations, which say that certain consumers have read a
partition from its start to its end. Not checked: cycles between transactions. Not an anomaly: interleaved records of open transactions.
"""

from simulation.histories.anomaly import Anomaly
from simulation.histories.checker import check
from simulation.histories.lines import from_line, to_line
from simulation.histories.operations import (
    Assign,
    Commit,
    Complete,
    Delete,
    End,
    FetchedCommit,
    Operation,
    Outcome,
    Poll,
    Send,
    Topic,
)

__all__ = [
    "Anomaly", "Assign", "Commit", "Complete", "Delete", "End", "FetchedCommit", "Operation", "Outcome", "Poll", "Send", "Topic", "check",
    "from_line", "to_line",
]  # fmt: skip
