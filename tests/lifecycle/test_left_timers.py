"""Timers that handlers leave armed are disarmed, but neither those of others that run nor those of the app."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest

from holdfast.lifecycle.left_timers import LeftTimers

#: Nothing here uses so much processor time. The real timer is that of pytest.
FAR = 10_000.0
TIMERS = (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    signals = [(number, signal.getsignal(number)) for number in (signal.SIGVTALRM, signal.SIGPROF)]
    yield
    for timer in TIMERS:
        signal.setitimer(timer, 0)
    for number, handler in signals:
        signal.signal(number, handler)


@pytest.fixture
def handled() -> None:
    """The signals have handlers: nobody knows whether their timers are needed."""
    for number in (signal.SIGVTALRM, signal.SIGPROF):
        signal.signal(number, lambda *_: None)


@pytest.fixture
def timers() -> LeftTimers:
    timers = LeftTimers()
    timers.worker_begins()
    return timers


def armed(timer: int = signal.ITIMER_PROF) -> bool:
    return signal.getitimer(timer)[0] > 0


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("timer", TIMERS)
@pytest.mark.parametrize("interval", [0, 5.0])
def test_what_an_ended_handler_left_is_disarmed_and_told_once(
    timers: LeftTimers, caplog: pytest.LogCaptureFixture, timer: int, interval: float
) -> None:
    for _ in range(2):
        timers.begins("a", "report")
        signal.setitimer(timer, FAR, interval)
        timers.ended("a")
        timers.look()
        assert not armed(timer)
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "a handler of report had left armed" in caplog.text


@pytest.mark.usefixtures("handled")
def test_a_timer_stays_while_one_runs_that_may_have_armed_it(timers: LeftTimers) -> None:
    timers.begins("a", "report")
    timers.begins("b", "mail")
    signal.setitimer(signal.ITIMER_PROF, FAR)
    timers.ended("a")
    timers.look()
    assert armed()
    timers.begins("c", "began later")
    timers.ended("b")
    timers.look()
    assert not armed()


@pytest.mark.usefixtures("handled")
def test_a_timer_that_is_armed_anew_is_another(timers: LeftTimers) -> None:
    timers.begins("a", "report")
    signal.setitimer(signal.ITIMER_PROF, FAR)
    timers.begins("b", "mail")
    timers.ended("b")
    timers.look()
    timers.begins("c", "began later")
    signal.setitimer(signal.ITIMER_PROF, FAR / 2)
    timers.ended("a")
    timers.look()
    assert armed()
    timers.ended("c")
    timers.look()
    assert not armed()


def test_a_timer_that_nobody_hears_is_disarmed_though_others_run(timers: LeftTimers) -> None:
    timers.begins("a", "report")
    timers.begins("b", "mail")
    signal.setitimer(signal.ITIMER_PROF, FAR)
    timers.look()
    assert armed()
    timers.ended("a")
    timers.look()
    assert not armed()


def test_timers_of_the_app_stay(timers: LeftTimers) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, FAR)
    timers.worker_begins()
    signal.setitimer(signal.ITIMER_PROF, FAR)  # by a task of the lifespan
    assert timers.is_idle
    timers.look_while_idle()
    for _ in range(2):
        timers.begins("a", "report")
        timers.ended("a")
        timers.look()
    assert all(map(armed, TIMERS))


@pytest.mark.usefixtures("handled")
def test_another_worker_of_the_process_takes_no_handlers_timer_for_the_apps(timers: LeftTimers) -> None:
    timers.begins("a", "report")
    signal.setitimer(signal.ITIMER_PROF, FAR)
    timers.worker_begins()
    timers.ended("a")
    timers.look()
    assert not armed()
