"""The metadata tree in one SQLite file: of a single broker, or of the processes of one machine that a server shares it with.

The file is in the log directory, under a name that Kafka does not take for a partition's directory. One process has it open, and opening it
deletes the ephemeral nodes of all earlier sessions. A write is acknowledged when it has reached the disk
(write-ahead log, synchronous=FULL); operations that wait at the same time share one commit. The worker argument does all work on the
file; results and watch events are delivered where its Deferreds fire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from txbroker.cluster.tree.interface import ConnectionLost, NoSpaceInStore, Tree, TreeError, WatchEvent, parent_of
from txbroker.cluster.tree.local_session import Operation, Session, Watch
from txbroker.cluster.tree.znodes import ROOT, Node, Overlay
from txbroker.errors import StartError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import amount

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
log = logging.getLogger("txbroker.cluster")

FILE_NAME = "txbroker-metadata.sqlite"

# Format 1. A change of the tables increments the number and adds a function that migrates older files.
FORMAT = 1
APPLICATION_ID = 0x7478626B  # "txbk": distinguishes these files from other SQLite files
_TABLES = (
    """CREATE TABLE node (path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB, version INTEGER NOT NULL, czxid INTEGER NOT NULL,
         mzxid INTEGER NOT NULL, ephemeral_owner INTEGER NOT NULL, children_created INTEGER NOT NULL, children_count INTEGER NOT NULL)
       WITHOUT ROWID""",
    "CREATE INDEX node_parent ON node (parent)",
    "CREATE INDEX node_owner ON node (ephemeral_owner) WHERE ephemeral_owner != 0",
    "CREATE TABLE last (zxid INTEGER NOT NULL, session INTEGER NOT NULL)",
    "INSERT INTO last VALUES (0, 0)",
)
_COLUMNS = "data, version, czxid, mzxid, ephemeral_owner, children_created, children_count"


class Worker(Protocol):
    """Runs jobs in another thread or later, never before the call returns."""

    def __call__(self, job: Callable[[], T], /) -> Deferred[T]:
        """The job's result."""


# A session's id is the count of the file's openings, times this, and the count of the sessions since.
SESSIONS_OF_AN_OPENING = 1 << 32


def remedy_without_metadata(command: str) -> str:
    """What to do when the logs are there and their metadata is not."""
    return f"restore this file from a backup, or take over what the logs show with `txbroker {command}` (also logs of txbroker)"


def open_sqlite_tree(path: str, *, worker: Worker, on_full: Callable[[], None] = lambda: None, create: bool = True) -> Tree:
    """The only session with the tree in this file, which is closed with it. Otherwise as `SqliteTrees`."""
    return SqliteTrees(path, worker=worker, on_full=on_full, create=create, closes_with_session=True).session()


def _open(path: str, create: bool) -> tuple[SqliteNodes, int]:
    """The nodes of the file, and the count of its openings; StartError."""
    import sqlite3

    try:
        nodes = SqliteNodes(connect(path, create=create))
        openings = nodes.begin_sessions()
    except sqlite3.Error as error:
        if _is_full(error):
            raise StartError(f"The disk is full: {_cannot_write(path)}; free space there.") from error
        raise StartError(
            f"The metadata file {path} cannot be used ({error}): if no other process has it open, "
            f"{remedy_without_metadata('import --force')}."
        ) from error
    return nodes, openings


def _is_full(error: sqlite3.Error) -> bool:
    import sqlite3

    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _cannot_write(path: str) -> str:
    return f"cannot write {path}: No space left on device"


def connect(path: str, *, create: bool = True) -> sqlite3.Connection:
    """Open the file exclusively; with `create` its tables are created if it has none. sqlite3.Error, StartError."""
    import sqlite3

    if create:
        # SQLite would create it with the mode 0644. Here the umask decides, as for the other files of a log directory.
        # One that is there is not opened: to close it would release the locks that this process has on it.
        with suppress(OSError), open(path, "xb"):
            pass
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        check_format(connection, path, create=create)
        problem: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)
    except BaseException:
        connection.close()
        raise
    return connection


def check_format(connection: sqlite3.Connection, path: str, *, create: bool = True) -> None:
    """Create the tables of a new file; StartError when an existing file has another format, or no tables and not `create`."""
    application_id: int = connection.execute("PRAGMA application_id").fetchone()[0]
    file_format: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application_id, file_format) == (APPLICATION_ID, FORMAT):
        return
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and application_id != APPLICATION_ID:
        raise StartError(f"{path} is an SQLite file of another program, not txbroker's metadata: move it away.")
    if tables:
        raise StartError(f"The metadata file {path} has format {file_format}, not {FORMAT}: start the txbroker that wrote it.")
    if not create:
        remedy = remedy_without_metadata("import --force")
        raise StartError(f"The metadata file {path} is empty, and the log directories have logs: {remedy}.")
    with _transaction(connection):
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO node VALUES ('/', '', ?, ?, ?, ?, ?, ?, ?)", ROOT)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class SqliteNodes:
    """Nodes as rows of one table. Each call may come from another thread, but never two at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.zxid: int = connection.execute("SELECT zxid FROM last").fetchone()[0]

    def get(self, path: str) -> Node | None:
        """See `Nodes`."""
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM node WHERE path = ?", (path,)).fetchone()
        return None if row is None else Node(*row)

    def names_under(self, path: str) -> list[str]:
        """See `Nodes`."""
        start = len(path) if path == "/" else len(path) + 1
        return [child[start:] for (child,) in self._connection.execute("SELECT path FROM node WHERE parent = ?", (path,))]

    def ephemerals_of(self, session_id: int) -> list[str]:
        """See `Nodes`."""
        rows = self._connection.execute("SELECT path FROM node WHERE ephemeral_owner = ? AND ephemeral_owner != 0", (session_id,))
        return [path for (path,) in rows]

    def write(self, changes: Mapping[str, Node | None], zxid: int) -> None:
        """See `Nodes`."""
        with _transaction(self._connection):
            self._write_rows(changes, zxid)
        self.zxid = zxid

    def begin_sessions(self) -> int:
        """Delete the ephemeral nodes of earlier sessions; returns how often this was done."""
        openings: int = self._connection.execute("SELECT session FROM last").fetchone()[0]
        owners = self._connection.execute("SELECT DISTINCT ephemeral_owner FROM node WHERE ephemeral_owner != 0").fetchall()
        overlay = Overlay(self)
        for (owner,) in owners:
            overlay.end_session(owner)
        with _transaction(self._connection):
            self._write_rows(overlay.changes, overlay.zxid)
            self._connection.execute("UPDATE last SET session = ?", (openings + 1,))
        self.zxid = overlay.zxid
        return openings + 1

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _write_rows(self, changes: Mapping[str, Node | None], zxid: int) -> None:
        gone = [(path,) for path, node in changes.items() if node is None]
        kept = [(path, "" if path == "/" else parent_of(path), *node) for path, node in changes.items() if node is not None]
        self._connection.executemany("DELETE FROM node WHERE path = ?", gone)
        self._connection.executemany("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", kept)
        self._connection.execute("UPDATE last SET zxid = ?", (zxid,))


@lazy_dataclass(slots=True)
class _Pending:
    """A submitted operation and its result."""

    session: Session
    operation: Operation[Any]
    watch: Watch | None
    result: Deferred[Any]
    value: Any = None
    error: BaseException | None = None
    events: tuple[WatchEvent, ...] = ()


class SqliteTrees:
    """The tree in one file, and its sessions. Operations submitted while the worker is busy are its next job, in their order."""

    def __init__(
        self,
        path: str,
        *,
        worker: Worker,
        on_full: Callable[[], None] = lambda: None,
        create: bool = True,
        closes_with_session: bool = False,
    ) -> None:
        """Open the file; with `create`, it is created if it does not exist or has no tables.

        `on_full` is called when a write fails because the disk is full. StartError when the file is damaged, belongs to another program, is
        in use, or cannot be read and written.
        """
        self._nodes, openings = _open(path, create)
        self._last_session_id = openings * SESSIONS_OF_AN_OPENING
        self._sessions: list[Session] = []
        self._closes_with_session = closes_with_session
        self._worker = worker
        self._path = path
        self._on_full = on_full
        self._failed_jobs = 0  # in a row
        self._waiting: list[_Pending] = []
        self._busy = False
        self._closed: Deferred[None] | None = None  # once `close` was called

    def session(self) -> Session:
        """A new session."""
        self._last_session_id += 1
        session = Session(self._last_session_id, self)
        self._sessions.append(session)
        return session

    def submit(self, session: Session, operation: Operation[T], watch: Watch | None = None) -> Deferred[T]:
        """See `Store`; ConnectionLost after `close`."""
        if self._closed is not None:
            return fail(ConnectionLost("/"))
        pending = _Pending(session, operation, watch, Deferred())
        self._waiting.append(pending)
        if not self._busy:
            self._next_job()
        return pending.result

    def end(self, session: Session) -> Deferred[None]:
        """See `Store`."""
        return Deferred.fromCoroutine(self._end(session))

    async def _end(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
        try:
            await self.submit(session, lambda nodes: nodes.end_session(session.session_id))
        except NoSpaceInStore:
            if not self._closes_with_session:
                raise
            # Its ephemeral nodes are deleted when the file is opened again.
        finally:
            if self._closes_with_session:
                await self.close()

    def close(self) -> Deferred[None]:
        """Close the file, after the operations that were submitted. The sessions are of no use any more."""
        if self._closed is None:
            self._closed = Deferred()
            if not self._busy:
                self._close()
        return self._closed

    def _close(self) -> None:
        assert self._closed is not None
        self._worker(self._nodes.close).chainDeferred(self._closed)

    def _next_job(self) -> None:
        self._busy = True
        batch, self._waiting = self._waiting, []
        job = self._worker(lambda: self._perform(batch))
        job.addErrback(self._fail_all, batch)
        job.addCallback(lambda _: self._deliver(batch))

    def _perform(self, batch: list[_Pending]) -> None:
        """In the worker: all operations of the batch, and one commit of what they changed."""
        import sqlite3

        overlay = Overlay(self._nodes)
        try:
            for pending in batch:
                _attempt(pending, overlay)
            if overlay.changes:
                self._nodes.write(overlay.changes, overlay.zxid)
                self._failed_jobs = 0
        except sqlite3.Error as error:
            problem = _cannot_write(self._path) if _is_full(error) else str(error)
            self._failed_jobs += 1
            if self._failed_jobs & (self._failed_jobs - 1) == 0:  # the first, second, fourth, eighth time: callers retry
                times = self._failed_jobs
                log.error("metadata file error, %s failed (failures in a row: %d): %s", amount(len(batch), "operation"), times, problem)
            raise (NoSpaceInStore("/", problem) if _is_full(error) else ConnectionLost("/")) from error

    def _fail_all(self, failure: Failure, batch: list[_Pending]) -> None:
        """The commit (or a read) failed: all operations of the batch fail."""
        if failure.check(NoSpaceInStore):
            self._on_full()
        for pending in batch:
            pending.error, pending.events = failure.value, ()

    def _deliver(self, batch: list[_Pending]) -> None:
        for pending in batch:
            if pending.error is not None:
                pending.result.errback(pending.error)
                continue
            if pending.watch is not None:
                pending.session.add_watch(pending.watch)
            pending.result.callback(pending.value)
            for event in pending.events:
                for session in tuple(self._sessions):
                    for call in session.triggered(event):
                        call()
        self._busy = False
        if self._waiting:
            self._next_job()
        elif self._closed is not None:
            self._close()


def _attempt(pending: _Pending, overlay: Overlay) -> None:
    before = len(overlay.events)
    try:
        pending.value = pending.operation(overlay)
    except (TreeError, ValueError) as error:
        pending.error = error
    else:
        pending.events = tuple(overlay.events[before:])
