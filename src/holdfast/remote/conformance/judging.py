"""Starts a worker, tries it, and judges."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from holdfast.errors import InvalidInput
from holdfast.remote.conformance.listening import listening
from holdfast.remote.conformance.stage import Stage
from holdfast.remote.conformance.trials import TRIALS, Trial, Wrong

__all__ = ["Judgement", "conform"]

#: How long a worker may take to ask for its first job, and to end when it is killed.
_START_SECONDS, _KILL_SECONDS = 20.0, 5.0
#: How long it may take after one trial to be ready for the next.
_READY_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came of one trial."""

    trial: str
    rule: str
    mark: Literal["passed", "failed", "not tried"]
    wrong: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "wrong": list(self.wrong)}


class _Worker:
    """The worker's process, in a session of its own, so that what it starts ends with it."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def exit_code(self) -> int | None:
        """How it ended, if it has."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start it anew."""
        await self.kill()
        if not self._command:
            return
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=self._environment, start_new_session=True, stdin=asyncio.subprocess.DEVNULL
            )
        except OSError as fault:
            raise InvalidInput(f"the worker cannot be started: {fault}") from None

    async def kill(self) -> None:
        """End it at once, with all that it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _KILL_SECONDS)
        self._process = None

    async def strike(self) -> None:
        """End its process alone at once, and nothing that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def terminate(self, seconds: float) -> int | None:
        """Ask it to end."""
        if self._process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            return await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            return None


async def conform(
    command: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    only: Sequence[str] = (),
    tell: Callable[[Judgement], None] = lambda _: None,
    ready: Callable[[str, str], None] = lambda _url, _key: None,
) -> list[Judgement]:
    """Try a worker: the command's, or one that somebody starts by hand when `ready` has said where to call."""
    known = [trial.name for trial in TRIALS]
    if unknown := [name for name in only if name not in known]:
        raise InvalidInput(f"there is no trial {unknown[0]!r}; there are {', '.join(known)}")
    key = key or f"hf_conform_{secrets.token_hex(16)}"
    stage, judgements = Stage(key), list[Judgement]()
    async with listening(host, port, stage.answer) as url:
        ready(url, key)
        worker = _Worker(command, {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_KEY": key})
        async with _started(worker):
            for trial in TRIALS:
                if only and trial.name not in only:
                    continue
                judgements.append(await _judged(stage, worker, trial, by_hand=not command))
                tell(judgements[-1])
                if judgements[-1].mark == "failed" or trial.end_it or stage.draining is not None:
                    await worker.start()
    return judgements


@contextlib.asynccontextmanager
async def _started(worker: _Worker) -> AsyncIterator[None]:
    try:
        await worker.start()
        yield
    finally:
        await worker.kill()


async def _judged(stage: Stage, worker: _Worker, trial: Trial, *, by_hand: bool) -> Judgement:
    stage.clear()
    judgement = Judgement(trial=trial.name, rule=trial.rule, mark="passed")
    if trial.end_it is not None and by_hand:
        return Judgement(trial=trial.name, rule=trial.rule, mark="not tried", wrong=("nobody knows its process",))
    try:
        ready = await _ready(stage, worker)
        if ready and trial.try_it is not None:
            await trial.try_it(stage)
        if ready and trial.end_it is not None:
            await trial.end_it(stage, worker)
    except Wrong as wrong:
        if not stage.wrong:  # what did not come after a trial broke off is no fault of its own
            stage.note(str(wrong))
    if stage.wrong:
        judgement = Judgement(trial=trial.name, rule=trial.rule, mark="failed", wrong=tuple(stage.wrong))
    return judgement


async def _ready(stage: Stage, worker: _Worker) -> bool:
    """Wait until the worker asks for jobs. Returns whether it can be tried."""
    before = len(stage.calls)

    def asks() -> bool:
        return stage.listeners > 0 or any(call.verb == "pull" for call in stage.calls[before:])

    seconds = _READY_SECONDS if before else _START_SECONDS
    await stage.until(lambda: asks() or worker.exit_code is not None or stage.wrong, seconds)
    if stage.wrong:
        stage.note("could not be tried further")
        return False
    if worker.exit_code is not None:
        raise Wrong(f"ended by itself, with the code {worker.exit_code}")
    if not asks():
        raise Wrong(f"asked for no job (POST /worker/pull) within {seconds:g} s")
    missing = {"conform.echo", "conform.items", "conform.slow", "conform.fail"} - stage.types
    if missing:
        raise Wrong(f"has no handler for {', '.join(sorted(missing))}: its pulls did not name them")
    return True
