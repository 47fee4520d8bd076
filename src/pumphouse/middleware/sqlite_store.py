"""An idempotency store in a file of SQLite, for all the processes of one machine.

One thread has the connection. What is asked while it writes is answered together, in one
transaction, so that many messages share one flush to the disk; nothing is answered before it is
there. The thread ends, and closes the file, when nothing was asked for a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pumphouse.errors import ConfigError, StoreError, UsageError
from pumphouse.middleware.stores import DONE, NEW, Begun

SCHEMA_VERSION = 1
IDLE_SECONDS = 5.0
MOST_TOGETHER = 128
PURGE_SECONDS = 60.0
PURGE_AT_ONCE = 1_000
_OURS = 0x70756D70  # SQLite's application_id of our files: "pump"

_SCHEMA = """
CREATE TABLE keys (
    key TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    until REAL NOT NULL,
    done INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_by_end ON keys (until);
"""

_log = logging.getLogger("pumphouse.middleware")
_Work = Callable[[sqlite3.Connection], Any]


class _Question(NamedTuple):
    work: _Work
    now: float
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]


class SqliteStore:
    """Keys in a file, shared by any number of processes on one machine (not over a network file
    system). The file is made when it is not there; keys whose time is over are removed.

    - `busy_seconds`: how long another process's write is waited for.

    A key that is done has been flushed to the disk. Methods raise `StoreError` when the file can't
    be written. `aclose` closes the file at once, which otherwise happens by itself a few seconds
    after the last question; the store can be used again after it.
    """

    outside = True

    def __init__(self, path: str | os.PathLike[str], *, busy_seconds: float = 5.0) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise UsageError(f"SqliteStore takes the path of a file, not {path!r}")
        if os.fspath(path) == ":memory:":
            raise UsageError("SqliteStore keeps a file; for memory there is MemoryStore")
        if not 0 <= busy_seconds <= 60:
            raise UsageError(f"busy_seconds is 0 to 60, not {busy_seconds!r}")
        self.path = os.path.abspath(os.fspath(path))
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._purge_at = 0.0

    def check(self) -> None:
        """Open the file, and make it where it is missing.

        Raises `ConfigError` for a file that is something else, that a newer version has written, or
        that can't be opened.
        """
        try:
            self._open().close()
        except sqlite3.Error as error:
            raise ConfigError(
                f"the idempotency store {self.path} can't be opened: {error}"
            ) from None

    async def begin(self, key: str, owner: str, *, until: float, now: float) -> Begun:
        """See `IdempotencyStore`."""

        def work(connection: sqlite3.Connection) -> Begun:
            found = connection.execute(
                "SELECT owner, until, done FROM keys WHERE key = ?", (key,)
            ).fetchone()
            if found is not None and found[1] > now:
                if found[2]:
                    return DONE
                if found[0] != owner:
                    return Begun("busy", found[1])
            connection.execute(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, 0)", (key, owner, until)
            )
            return NEW

        answer: Begun = await self._ask(work, now)
        return answer

    async def extend(self, key: str, owner: str, *, until: float, now: float) -> bool:
        """See `IdempotencyStore`."""

        def work(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(
                "UPDATE keys SET until = ? WHERE key = ? AND owner = ? AND done = 0",
                (until, key, owner),
            )
            return changed.rowcount == 1

        kept: bool = await self._ask(work, now)
        return kept

    async def complete(self, key: str, owner: str, *, until: float, now: float) -> None:
        """See `IdempotencyStore`."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, 1)", (key, owner, until)
            )

        await self._ask(work, now)

    async def abandon(self, key: str, owner: str) -> None:
        """See `IdempotencyStore`."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM keys WHERE key = ? AND owner = ? AND done = 0", (key, owner)
            )

        await self._ask(work, 0.0)

    async def clear(self) -> None:
        """Forget every key, done or locked, for all who share the file; between tests.

        Where something is being handled, it can then run a second time.
        """

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM keys")

        await self._ask(work, 0.0)

    async def aclose(self) -> None:
        """Answer what was asked, and close the file."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._questions.put(None)
        if thread is not None and self._process == os.getpid():
            while thread.is_alive():  # noqa: ASYNC110 - a thread tells nobody that it has ended
                await asyncio.sleep(0.005)

    async def __aenter__(self) -> SqliteStore:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    # --- the thread -----------------------------------------------------------------------------

    async def _ask(self, work: _Work, now: float) -> Any:
        loop = asyncio.get_running_loop()
        question = _Question(work, now, loop, loop.create_future())
        with self._lock:
            if self._process != os.getpid():  # a fork has the queue and not the thread
                self._process = os.getpid()
                self._thread = None
            if self._thread is None:
                self._questions = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=self._run, args=(self._questions,), name="pumphouse-keys", daemon=True
                )
                self._thread.start()
            self._questions.put(question)
        return await question.answer

    def _run(self, questions: queue.SimpleQueue[_Question | None]) -> None:
        connection: sqlite3.Connection | None = None
        opened: tuple[int, int] | None = None
        ended = False
        try:
            while not ended:
                together, ended = self._next(questions)
                if not together:
                    continue
                results: list[Any] = []
                error: Exception | None = None
                try:
                    if connection is not None and self._file() != opened:
                        _log.warning("%s was taken away, and is made anew", self)
                        connection.close()
                        connection = None
                    if connection is None:
                        connection = self._open()
                        opened = self._file()
                    results = self._answer(connection, together)
                except Exception as failure:
                    error = failure
                    if connection is not None:
                        connection.close()
                        connection = None
                _tell(together, results, error)
        finally:
            if connection is not None:
                connection.close()

    def _next(self, questions: queue.SimpleQueue[_Question | None]) -> tuple[list[_Question], bool]:
        """The next questions, and whether they are the last ones that this thread answers."""
        together: list[_Question] = []
        while len(together) < MOST_TOGETHER:
            try:
                each = questions.get_nowait() if together else questions.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if together:
                    return together, False
                with self._lock:
                    if questions.empty():  # nobody can have asked meanwhile: they take the lock
                        if self._thread is threading.current_thread():
                            self._thread = None
                        return [], True
                continue
            if each is None:
                return together, True
            together.append(each)
        return together, False

    def _answer(self, connection: sqlite3.Connection, together: list[_Question]) -> list[Any]:
        """All answers, from one transaction."""
        with _transaction(connection, "IMMEDIATE"):
            results = [_answer(connection, question) for question in together]
            now = max(question.now for question in together)
            if now >= self._purge_at and _purge(connection, now) < PURGE_AT_ONCE:
                self._purge_at = now + PURGE_SECONDS
        return results

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_seconds,
            isolation_level=None,
        )
        try:
            _patiently(self._busy_seconds, lambda: self._prepare(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    def _file(self) -> tuple[int, int] | None:
        """Which file the path is now: one that was deleted is still there for who has it open, and
        other processes would lock their keys in another one."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _prepare(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection, "DEFERRED"):
            known = self._known(connection)  # before a file of somebody else is written to
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if known:
            return
        with _transaction(connection, "IMMEDIATE"):
            if not self._known(connection):  # another process may have been quicker
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_OURS}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _known(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is ours already; `ConfigError` for one that is something else. In a
        transaction, as another process may be making it."""
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == _OURS and version == SCHEMA_VERSION:
            return True
        if application == _OURS:
            raise ConfigError(
                f"the idempotency store {self.path} has version {version}, and this pumphouse "
                f"knows version {SCHEMA_VERSION}; update it, or give another path"
            )
        if tables or application or version:
            raise ConfigError(
                f"{self.path} is a database of something else; give the idempotency store a file "
                "of its own"
            )
        return False

    def __repr__(self) -> str:
        return f"SqliteStore({self.path!r})"


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _answer(connection: sqlite3.Connection, question: _Question) -> Any:
    """The answer; an exception as a value where only this question is to blame."""
    try:
        return question.work(connection)
    except sqlite3.Error:
        raise
    except Exception as error:
        return error


def _purge(connection: sqlite3.Connection, now: float) -> int:
    """Remove some keys whose time is over; how many."""
    removed = connection.execute(
        "DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE until <= ? LIMIT ?)",
        (now, PURGE_AT_ONCE),
    )
    return removed.rowcount


def _patiently(seconds: float, work: Callable[[], object]) -> None:
    """Do what SQLite itself does not wait for while another process has the file."""
    end = time.monotonic() + seconds
    while True:
        try:
            work()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= end:
                raise
            time.sleep(0.02)


def _tell(together: list[_Question], results: list[Any], error: Exception | None) -> None:
    """Hand the answers to the loops that wait for them."""
    for place, question in enumerate(together):
        try:
            if error is not None:
                result = error if isinstance(error, ConfigError) else StoreError(str(error))
            else:
                result = results[place]
            question.loop.call_soon_threadsafe(_set, question.answer, result)
        except RuntimeError:
            continue  # its loop is closed, and nobody waits any more


def _set(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
