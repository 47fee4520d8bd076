"""Which files are watched, and what of their changes starts a service anew."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pumphouse.cli.run import reload
from pumphouse.cli.run.reload import Sources, mistakes, watch
from pumphouse.clock import VirtualClock


def write(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_files_that_are_new_gone_or_different_are_changes(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.py"), write(tmp_path / "package" / "b.py")
    sources = Sources([tmp_path])
    assert sources.changed() == []
    write(a, "x = 22\n")
    assert names(sources.changed()) == ["a.py"]
    assert sources.changed() == []
    b.unlink()
    write(tmp_path / "package" / "c.py")
    assert names(sources.changed()) == ["b.py", "c.py"]
    status = a.stat()
    os.utime(a, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert names(sources.changed()) == ["a.py"]


@pytest.mark.parametrize(
    "name",
    ["notes.txt", ".git/hook.py", "node_modules/x.py", "__pycache__/x.py", ".venv/lib/x.py"],
)
def test_what_is_no_source_of_the_service_is_left_out(tmp_path: Path, name: str) -> None:
    sources = Sources([tmp_path])
    write(tmp_path / name)
    assert sources.changed() == []


def test_a_virtual_environment_of_any_name_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "env" / "pyvenv.cfg")
    sources = Sources([tmp_path])
    write(tmp_path / "env" / "lib" / "x.py")
    assert sources.changed() == []


def test_a_link_that_leads_back_is_not_followed_for_ever(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    write(tmp_path / "a.py")
    assert len(Sources([tmp_path])._known) == 1


def test_a_folder_that_is_found_later_is_no_change(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here / "a.py")
    b = write(there / "b.py")
    sources = Sources([here])
    sources.add(there)
    assert sources.changed() == []
    write(b, "x = 22\n")
    assert names(sources.changed()) == ["b.py"]


def test_there_is_a_bound_and_a_word_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reload, "MAX_FILES", 3)
    for number in range(5):
        write(tmp_path / f"{number}.py")
    sources = Sources([tmp_path])
    sources.changed()
    assert len(sources._known) == 3
    assert caplog.text.count("more than 3 source files") == 1


def test_mistakes_name_file_line_and_reason(tmp_path: Path) -> None:
    good = write(tmp_path / "good.py")
    bad = write(tmp_path / "bad.py", "x = 1\nif x\n")
    null = write(tmp_path / "null.py", "x\0")
    found = mistakes([good, bad, null, tmp_path / "gone.py"])
    assert found[0] == f"{bad}:2: expected ':'"
    assert found[1].startswith(f"{null}")
    assert len(found) == 2


@asynccontextmanager
async def watching(folder: Path, clock: VirtualClock) -> AsyncIterator[list[float]]:
    """The times at which a service was started anew."""
    times: list[float] = []
    task = asyncio.create_task(
        watch(Sources([folder]), lambda: times.append(clock.monotonic()), clock=clock)
    )
    yield times
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def look(clock: VirtualClock) -> None:
    """Let the next look at the files come to its end, which is in a thread."""
    await clock.advance(reload.LOOK_SECONDS)
    while clock.next_timer is None:  # noqa: ASYNC110 - a thread has no event
        await asyncio.sleep(0.001)


async def test_files_have_to_come_to_rest(tmp_path: Path, clock: VirtualClock) -> None:
    path = write(tmp_path / "a.py")
    async with watching(tmp_path, clock) as times:
        for number in range(5):
            await look(clock)
            write(path, f"x = {'1' * (number + 2)}\n")
        await look(clock)
        assert times == []
        await look(clock)
        assert len(times) == 1
        await look(clock)
        assert len(times) == 1


async def test_a_mistake_waits_for_the_next_change_and_is_told_once(
    tmp_path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = write(tmp_path / "a.py"), write(tmp_path / "b.py")
    async with watching(tmp_path, clock) as times:
        await look(clock)
        write(path, "if x\n")
        for _ in range(5):
            await look(clock)
        assert times == []
        assert caplog.text.count("what runs goes on until the next change") == 1
        write(other, "y = 22\n")  # elsewhere: the mistake is still there
        for _ in range(3):
            await look(clock)
        assert times == []
        write(path, "x = 333\n")
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                await look(clock)
        assert len(times) == 1
        assert "a.py, b.py changed: draining, and starting anew" in caplog.text
