"""Checks of the brokers' disks: log directories that are offline, full or almost full."""

from __future__ import annotations

import os
from collections.abc import Sequence

from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import Findings
from txbroker.client.client_errors import ConnectionFailed, RequestFailed
from txbroker.client.log_directories import LogDirectory, log_directories
from txbroker.console.texts import size_text
from txbroker.errors import ErrorCode, error_name

# Almost full: less than this part and this size is free.
LOW_PART, LOW_BYTES = 0.05, 10 * 1000**3
FREE_SPACE = (
    "free space on it: delete records (`txbroker delete-records`), lower retention.ms or retention.bytes of large topics "
    "(`txbroker log-dirs` shows sizes), delete other files, or enlarge it"
)


def check(findings: Findings, cluster: Cluster) -> None:
    """Check the log directories of each broker that can be reached."""
    for node_id, connection in cluster.connections.items():
        what = f"disks of broker {node_id}"
        try:
            directories = log_directories(connection)
        except RequestFailed as refused:
            advice = "describing log directories may need an ACL (Describe on the cluster)"
            findings.warning(what, f"the broker does not show its log directories ({error_name(refused.code)})", advice)
        except ConnectionFailed as problem:
            findings.warning(what, f"they are not known: {problem}", "use a newer broker, or see its log")
        else:
            check_brokers_directories(findings, what, directories)


def check_local(findings: Findings, directory: str) -> None:
    """Check for what brokers do not report: a file system without free inodes."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return  # reported where its files are read
    if status.f_files and not status.f_favail:
        found = f"the file system of {directory} has no free inodes: the broker can create no file there"
        findings.failed(f"disk of {directory}", found, "delete files, or create the file system with more inodes")


def check_brokers_directories(findings: Findings, what: str, directories: Sequence[LogDirectory]) -> None:
    """Check what one broker reports."""
    fine = []
    for directory in directories:
        space = _space(directory)
        if directory.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            found = f"log directory {directory.path} is offline: its disk failed or was full; its partitions are unavailable on this broker"
            findings.failed(what, found, "see the broker's log for the error, repair the disk or free space on it, and restart the broker")
        elif directory.error_code:
            findings.failed(what, f"log directory {directory.path}: {error_name(directory.error_code)}", "see the broker's log")
        elif directory.full:
            found = f"the disk of log directory {directory.path} is full{space}: records, topics and offsets cannot be written"
            findings.failed(what, found, FREE_SPACE)
        elif _is_low(directory):
            findings.warning(what, f"the disk of log directory {directory.path} is almost full{space}", FREE_SPACE)
        else:
            fine.append(f"{directory.path}{space}")
    if fine:
        findings.ok(what, f"log directories online: {', '.join(fine)}")
    elif not directories:
        findings.failed(what, "it has no log directory that is online", "see the broker's log")


def _is_low(directory: LogDirectory) -> bool:
    if directory.total_bytes is None or directory.usable_bytes is None:
        return False
    return directory.usable_bytes < min(LOW_PART * directory.total_bytes, LOW_BYTES)


def _space(directory: LogDirectory) -> str:
    if directory.total_bytes is None or directory.usable_bytes is None:
        return ""
    return f" ({size_text(directory.usable_bytes)} of {size_text(directory.total_bytes)} free)"
