"""The embedded metadata store: one SQLite file that one process owns.

The file holds the keys at the newest revision and the revision itself, so it does not grow with the number of writes.
Reads and watches are served from memory. A commit is on disk before it is visible (WAL, ``synchronous=FULL``). The file
is locked while the store is open, so leases that a dead process left can be ended at open.
"""

import itertools
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.metadata.interface import Event, KeyValue, MetadataStore
from kafscale.metadata.local import LocalMetadataStore
from kafscale.metadata.state import FIRST_REVISION, Limits, State
from kafscale.threads import RunSync, run_in_thread

_APPLICATION_ID = 0x4B414653  # "KAFS"
_FORMAT = 1
_AT_ONCE = 128
"""Transactions that become durable together. A write to the disk takes as long as some ten of them."""
_SCHEMA = """
CREATE TABLE keys (
    key TEXT PRIMARY KEY, value BLOB NOT NULL,
    create_revision INTEGER NOT NULL, mod_revision INTEGER NOT NULL, lease INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


@asynccontextmanager
async def open_sqlite(
    path: Path, *, run_sync: RunSync = run_in_thread, limits: Limits | None = None
) -> AsyncIterator[MetadataStore]:
    """Open the store in the file ``path``; create the file and its directory if they do not exist.

    Raises ConfigError if another process has it open or another release wrote it, Refused if it cannot be used.
    """
    file = _File(path)
    loaded = await run_sync(file.open)
    try:
        state = State(loaded.revision, loaded.items, limits)
        yield LocalMetadataStore(state, _SqliteJournal(file, run_sync), first_lease=(loaded.opens << 32) + 1)
    finally:
        with trio.CancelScope(shield=True):
            await run_sync(file.close)


@dataclass(frozen=True, slots=True)
class _Loaded:
    revision: int
    opens: int
    items: list[KeyValue]


class _SqliteJournal:
    """A `Journal` on a `_File`. The store's lock serialises its calls."""

    at_once = _AT_ONCE

    def __init__(self, file: "_File", run_sync: RunSync) -> None:
        self._file = file
        self._run_sync = run_sync

    async def commit(self, changes: Sequence[Sequence[Event]]) -> None:
        await self._run_sync(lambda: self._file.commit(changes))

    async def revision(self) -> int:
        return await self._run_sync(self._file.reopen)


class _File:
    """The blocking half. Its methods run to completion, in one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._opens = 0

    def open(self) -> _Loaded:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = self._connect()
            loaded = _load(connection, self._path)
            self._opens = loaded.opens
            _sync_directory(self._path.parent)
        except (sqlite3.Error, OSError) as error:
            self.close()
            if _code(error) == sqlite3.SQLITE_BUSY:
                raise ConfigError(f"{self._path} is in use by another process") from error
            raise Refused(f"{self._path} cannot be used: {error}") from error
        except ConfigError:
            self.close()
            raise
        return loaded

    def reopen(self) -> int:
        """Return the revision on disk, read by a new connection: after an error the old one is unreliable."""
        self.close()
        try:
            connection = self._connect()
            if _counter(connection, "opens") != self._opens:
                self.close()
                raise Refused(f"{self._path} was opened by another process in between")
            return _counter(connection, "revision")
        except sqlite3.Error as error:
            self.close()
            raise Unavailable(f"{self._path}: {error}") from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def commit(self, changes: Sequence[Sequence[Event]]) -> None:
        """Make revisions durable with one write to the disk. Raises Unavailable, also if the disk is full."""
        if self._connection is None:
            raise Unavailable(f"{self._path} is not open")
        revision = changes[-1][0].revision
        try:
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("UPDATE counters SET value = ? WHERE name = 'revision'", [revision])
                for event in itertools.chain.from_iterable(changes):
                    _write(connection, event)
        except sqlite3.Error as error:
            # After an error at COMMIT, only recovery shows whether the commit record reached the file.
            if self.reopen() != revision:
                raise Unavailable(f"{self._path}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=0.2, isolation_level=None, check_same_thread=False)
        self._connection = connection
        # In this order: with an exclusive lock, WAL needs no shared memory file.
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").fetchone()
        return connection


def _load(connection: sqlite3.Connection, path: Path) -> _Loaded:
    """Create missing tables, count this opening, end the leases that were left, and read all keys."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            _create(connection)
        if _pragma(connection, "application_id") != _APPLICATION_ID:
            raise ConfigError(f"{path} is not a KafScale metadata file")
        if _pragma(connection, "user_version") != _FORMAT:
            raise ConfigError(f"{path} was written by another release (format {_pragma(connection, 'user_version')})")
        connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'opens'")
        if connection.execute("DELETE FROM keys WHERE lease != 0").rowcount:
            connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'revision'")
        rows = connection.execute("SELECT key, value, create_revision, mod_revision, lease FROM keys").fetchall()
        return _Loaded(
            _counter(connection, "revision"), _counter(connection, "opens"), [KeyValue(*row) for row in rows]
        )


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_FORMAT}")
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO counters VALUES ('revision', ?), ('opens', 0)", [FIRST_REVISION])


def _write(connection: sqlite3.Connection, event: Event) -> None:
    value = event.value
    if value is None:
        connection.execute("DELETE FROM keys WHERE key = ?", [event.key])
        return
    row = [value.key, value.value, value.create_revision, value.mod_revision, value.lease]
    connection.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", row)


def _counter(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute("SELECT value FROM counters WHERE name = ?", [name]).fetchone()[0])


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
