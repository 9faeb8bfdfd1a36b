"""Dumps `.txnindex` and `.snapshot` files: aborted transactions, and producer state."""

from __future__ import annotations

from txbroker.log.producer_snapshots import parse_snapshot
from txbroker.log.txn_index import TxnIndex
from txbroker.logtools.dump.dump_run import DumpRun


def dump_txn_index(run: DumpRun, path: str, base_offset: int) -> None:
    """A line for each aborted transaction."""
    for aborted in TxnIndex(run.disk, path).entries:
        run.write(
            f"version: 0 producerId: {aborted.producer_id} firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset} "
            f"lastStableOffset: {aborted.last_stable_offset}"
        )


def dump_snapshot(run: DumpRun, path: str, offset: int) -> None:
    """A line for each producer, with its last batch."""
    for state in parse_snapshot(run.disk.read(path) or b""):
        open_since = f"OptionalLong[{state.txn_first_offset}]" if state.txn_first_offset >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {state.producer_id} producerEpoch: {state.epoch} coordinatorEpoch: {state.coordinator_epoch} "
            f"currentTxnFirstOffset: {open_since} lastTimestamp: {state.last_timestamp} "
        )
        if state.batches:
            batch = state.batches[-1]
            line += (
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} lastOffset: {batch.last_offset} "
                f"offsetDelta: {batch.last_offset - batch.first_offset} timestamp: {batch.timestamp}"
            )
        run.write(line)
