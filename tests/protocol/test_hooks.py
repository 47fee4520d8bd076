"""Listeners hear their events, and harm nobody."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from pumphouse.hooks import Hooks


@dataclass(frozen=True)
class Started:
    name: str


@dataclass(frozen=True)
class Stopped:
    name: str


def test_a_listener_hears_its_kind_of_event_until_it_stops() -> None:
    hooks, heard = Hooks(), []
    stop = hooks.on(Started, heard.append)
    assert hooks.wanted(Started)
    assert not hooks.wanted(Stopped)
    hooks.emit(Started("a"))
    hooks.emit(Stopped("a"))
    stop()
    stop()
    hooks.emit(Started("b"))
    assert heard == [Started("a")]
    assert not hooks.wanted(Started)


def test_a_listener_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    hooks, heard = Hooks(), []

    def fail(_: Started) -> None:
        raise RuntimeError("listener")

    hooks.on(Started, fail)
    hooks.on(Started, heard.append)
    with caplog.at_level(logging.ERROR, "pumphouse.hooks"):
        hooks.emit(Started("a"))
    assert heard == [Started("a")]
    assert "a listener of Started failed" in caplog.text


def test_a_listener_may_stop_itself_while_it_is_told() -> None:
    hooks, heard = Hooks(), []

    def once(event: Started) -> None:
        heard.append(event)
        stop()

    stop = hooks.on(Started, once)
    hooks.on(Started, heard.append)
    hooks.emit(Started("a"))
    hooks.emit(Started("b"))
    assert heard == [Started("a"), Started("a"), Started("b")]


def test_the_same_listener_twice_is_told_twice_and_stopped_once() -> None:
    hooks, heard = Hooks(), []
    stop = hooks.on(Started, heard.append)
    hooks.on(Started, heard.append)
    hooks.emit(Started("a"))
    stop()
    stop()
    hooks.emit(Started("b"))
    assert heard == [Started("a"), Started("a"), Started("b")]
