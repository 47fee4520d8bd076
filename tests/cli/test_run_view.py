"""What a run shows on a terminal, recorded at several widths in `views/`.

`python tests/cli/test_run_view.py` writes the recordings anew; look at them before they go in.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, Group

from pumphouse.cli.run.view import decimal, distinct, duration, elided, number, plain, summary, view
from pumphouse.health import QueueState, Snapshot, WorkerState

VIEWS = Path(__file__).parent / "views"
WIDTHS = (40, 60, 80, 100, 160)

BUSY = QueueState(
    held=40,
    running=20,
    waiting=12_040,
    received=1_234_620,
    handled=1_234_567,
    retried=12,
    dead_lettered=3,
    requests=412_345,
    waiting_requests=12,
    requests_per_message=0.334,
    rate=812.04,
)
UNWELL = QueueState(
    status="unhealthy",
    reason="QueueDoesNotExist: The specified queue does not exist.\n\x1b[31mIt says more than fits "
    "into a line of a hundred and sixty characters, whoever wrote all of that into an error",
)
GONE = QueueState(status="ended", reason="the queue was deleted", handled=9, requests=40)
IDLE = QueueState(waiting=0, requests=3, waiting_requests=3, rate=0.0)

SHOP = Snapshot(
    app="shop",
    state="running",
    uptime_seconds=3_723,
    queues={
        "orders.fifo": BUSY,
        "billing-created-in-the-european-union.fifo": UNWELL,
        "gone": GONE,
    },
)
STATES = {
    "starting": Snapshot(app="shop", uptime_seconds=1.2),
    "one-queue": Snapshot(app="shop", state="running", uptime_seconds=5, queues={"mail": IDLE}),
    "unwell": SHOP,
    "workers": Snapshot(
        app="shop",
        state="starting",
        uptime_seconds=200_000,
        queues={"orders.fifo": BUSY, "mail": IDLE},
        workers=[
            WorkerState(number=1, pid=11, state="running"),
            WorkerState(number=2, restarts=3),
            WorkerState(number=3, pid=13, state="draining"),
        ],
    ),
    "draining": Snapshot(app="shop", state="draining", uptime_seconds=90, queues={"mail": BUSY}),
    "blocked": Snapshot(
        app="shop", state="running", uptime_seconds=90, blocked_seconds=31, queues={"mail": BUSY}
    ),
}


def recorded(snapshot: Snapshot, width: int, height: int = 0, **options: bool) -> str:
    """What a terminal of that size shows, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(Group(*view(snapshot, width, height, waiting_every=5, **options)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", STATES)
def test_the_view_is_as_it_was_recorded(name: str, width: int) -> None:
    assert recorded(STATES[name], width) == (VIEWS / f"{name}-{width}.txt").read_text()


@pytest.mark.parametrize("name", STATES)
def test_no_line_is_longer_than_the_terminal_at_any_width(name: str) -> None:
    for width in (*range(20, 110), *range(110, 201, 9)):  # every one up to where all is shown
        for height in (0, 5, 24):
            lines = view(STATES[name], width, height, waiting_every=5)
            assert max(line.cell_len for line in lines) <= width
            assert not height or len(lines) <= height
            shown = recorded(STATES[name], width, height)
            assert len(shown.splitlines()) == len(lines), "a line was wrapped"


def test_numbers_are_shown_from_60_columns_on() -> None:
    for width in (60, 100):
        shown = recorded(SHOP, width)
        assert "40/20" in shown
        assert "0.33" in shown
        assert "812.0" in shown


def test_many_queues_leave_the_unhealthy_and_the_busy_ones_standing() -> None:
    queues = {f"queue-{at:03}": QueueState(rate=float(at)) for at in range(200)}
    queues["queue-117"] = UNWELL
    snapshot = Snapshot(app="many", state="running", queues=queues)
    shown = recorded(snapshot, 100, 12).splitlines()
    assert len(shown) == 12
    assert [line.split()[1] for line in shown[2:10]] == [
        "queue-117",
        *(f"queue-{at}" for at in range(193, 200)),
    ]
    assert shown[10].strip() == "… and 192 more, all healthy"
    assert shown[11].split()[:3] == ["all", "200", "queues"]


def test_hidden_queues_that_are_unhealthy_are_told() -> None:
    queues = {f"queue-{at}": UNWELL for at in range(20)}
    shown = recorded(Snapshot(state="running", queues=queues), 60, 8)
    assert "… and 16 more, 16 of them not healthy" in shown


def test_without_waiting_there_is_no_column_for_it() -> None:
    snapshot = Snapshot(state="running", queues={"mail": QueueState()})
    for width in (60, 100):
        titles = view(snapshot, width, waiting_every=0)[1].plain.split()
        assert "waiting" not in titles
        assert "wait" not in titles


def test_a_terminal_without_unicode_gets_none() -> None:
    for name, snapshot in STATES.items():
        assert recorded(snapshot, 60, ascii_only=True).isascii(), name


def test_control_characters_and_line_ends_of_a_reason_are_taken_out() -> None:
    assert plain("a\n\x1b[31mred\x07\tb") == "a [31mred b"
    assert "\x1b" not in recorded(SHOP, 160)


def test_colours_are_left_out_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    def written() -> str:
        console = Console(file=io.StringIO(), width=100, force_terminal=True)
        console.print(Group(*view(SHOP, 100)))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m" in written()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in written()
    assert "\x1b[1;31m" not in written()


@pytest.mark.parametrize(
    ("value", "width", "shown"),
    [
        (None, 5, "-"),
        (0, 5, "0"),
        (9_999, 5, "9,999"),
        (12_345, 5, "12345"),
        (123_456, 5, "123k"),
        (1_234_567, 5, "1.2M"),
        (12_345_678, 5, "12.3M"),
        (999_999, 5, "1.0M"),
        (1_234_567, 9, "1,234,567"),
        (12_345_678_901, 9, "12.3G"),
        (10**18, 4, "lots"),
    ],
)
def test_numbers(value: int | None, width: int, shown: str) -> None:
    assert number(value, width) == shown
    assert len(shown) <= width


@pytest.mark.parametrize(
    ("value", "places", "width", "shown"),
    [
        (None, 1, 5, "-"),
        (0.334, 2, 4, "0.33"),
        (12.5, 2, 4, "12.5"),
        (1_234.56, 1, 5, "1,235"),
        (123_456.7, 1, 5, "123k"),
    ],
)
def test_decimals(value: float | None, places: int, width: int, shown: str) -> None:
    assert decimal(value, places, width) == shown


def test_durations() -> None:
    assert [duration(each) for each in (0, 59.9, 3_723, 200_000)] == [
        "0:00:00",
        "0:00:59",
        "1:02:03",
        "2d 7:33:20",
    ]


def test_names_keep_both_ends() -> None:
    assert elided("orders-of-the-day.fifo", 12) == "orders-o…ifo"
    assert elided("short", 12) == "short"
    for width in range(1, 20):
        assert cell_len(elided("orders-of-the-day.fifo", width)) <= width


@pytest.mark.parametrize(
    ("names", "width", "shown"),
    [
        (["orders-of-the-day.fifo", "mail"], 12, ["orders-o…ifo", "mail"]),
        (["queue-of-the-03-thing", "queue-of-the-12-thing"], 12, ["…he-03-thing", "…he-12-thing"]),
        (["queue-1-of-the-thing", "queue-2-of-the-thing"], 8, ["queue-1…", "queue-2…"]),
        (["queue-1-of-the-thing", "queue-2-of-the-thing"], 9, ["queue-1-…", "queue-2-…"]),
        (["queue-of-1-of-the-thing", "queue-of-2-of-the-thing"], 8, ["…1-of-t…", "…2-of-t…"]),
        (["a" * 20 + "1" + "b" * 20, "a" * 20 + "2" + "b" * 20], 1, ["…", "…"]),
    ],
)
def test_names_are_cut_where_they_stay_apart(
    names: list[str], width: int, shown: list[str]
) -> None:
    found = distinct(names, width)
    assert [found[name] for name in names] == shown
    assert max(map(len, distinct(names, width, ascii_only=True).values())) <= width


def test_the_summary_says_what_came_of_it() -> None:
    assert summary(SHOP) == (
        "shop: 1,234,576 handled, 12 retried, 3 dead-lettered in 1:02:03; "
        "412,385 requests, 0.33 a message"
    )
    assert summary(Snapshot(app="idle")) == (
        "idle: 0 handled, 0 retried, 0 dead-lettered in 0:00:00"
    )
    one = QueueState(handled=1, requests=1)
    assert summary(Snapshot(queues={"q": one})).endswith("; 1 request, 1.00 a message")
    lost = QueueState(released=2, leases_lost=3, settle_failed=1)
    assert "2 given back unrun, 3 may come again" in summary(Snapshot(queues={"q": lost}))


def _record() -> None:
    VIEWS.mkdir(exist_ok=True)
    for name, snapshot in STATES.items():
        for width in WIDTHS:
            (VIEWS / f"{name}-{width}.txt").write_text(recorded(snapshot, width))


if __name__ == "__main__":
    _record()
