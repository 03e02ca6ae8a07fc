"""Long work beside the notebook: in a thread, with progress, cancelled or overtaken without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from traitlets import HasTraits, Int, Unicode

from loopring_lab.errors import LabError

__all__ = ["Report", "Working"]

Result = TypeVar("Result")
Report = Callable[[int, int], None]
"""Told how much is done, and of how much; raises where the work is no longer wanted."""


class Working(HasTraits):
    """A state with long work: one piece at a time, and the newest counts.

    A result is taken on the thread that asked for it, when that is free; without a running event loop, on the
    thread that worked. JupyterLab lets messages of widgets run on another thread than cells, so whatever
    changes the state or draws it holds `lock`.

    Parameters
    ----------
    **traits
        What they begin with.

    Attributes
    ----------
    doing : str
        What is under way, in words; empty for nothing.
    done, whole : int
        How much of it is done, and of how much; 0 of 0 where that is not known.
    problem : str
        What went wrong last, and what to do; empty for nothing.
    lock : threading.RLock
        Held while the state changes and while those who observe it act on that.
    """

    doing = Unicode()
    done = Int()
    whole = Int()
    problem = Unicode()

    _job: _Job | None = None

    def __init__(self, **traits: Any) -> None:
        self.lock = threading.RLock()
        super().__init__(**traits)

    def begin(self, doing: str, work: Callable[[Report], Result], then: Callable[[Result], None]) -> None:
        """Begin a piece of work; what is under way is given up.

        Parameters
        ----------
        doing : str
            In words.
        work : callable
            Runs in a thread and is given a `Report`, which it should call now and then.
        then : callable
            Takes the result into the state; not called where other work has begun, or this was cancelled.
        """
        job = _Job(self, work, then)
        with self.lock:  # whoever sees the job can wait for it
            self._drop(job)
            self.problem, self.done, self.whole, self.doing = "", 0, 0, doing
            job.thread.start()

    def export(self) -> str:
        """Write the code cell that gives what is on screen.

        Returns
        -------
        str
            Python.
        """
        raise NotImplementedError

    def cancel(self) -> None:
        """Give up what is under way, and say so; its result is never taken."""
        with self.lock:
            if self._job is not None:
                doing, counted = self.doing, f" after {self.done:,} of {self.whole:,}" if self.whole else ""
                self._drop()
                self.problem = f"{doing}: cancelled{counted}. Begin again when you like."

    def wait(self, timeout: float | None = None) -> None:
        """Wait for what is under way, and take its result.

        Parameters
        ----------
        timeout : float, optional
            Seconds; any number of them by default.

        Raises
        ------
        LabError
            It takes longer.
        """
        while (job := self._job) is not None:
            with self.lock:
                thread = job.thread
            thread.join(timeout)
            if thread.is_alive():
                raise LabError(f"{self.doing}: under way still, after {timeout:g} s. Wait on, or cancel().")
            job.end()

    def failed(self, error: LabError) -> None:
        """Take the end of work that failed.

        Parameters
        ----------
        error : LabError
            Why; its words become the `problem`.
        """
        self.problem = str(error)

    def _drop(self, successor: _Job | None = None) -> None:
        job, self._job = self._job, successor
        if job is not None:
            job.wanted = False
            self.doing = ""


class _Job:
    """A piece of work, and its result until it is taken."""

    def __init__(self, state: Working, work: Callable[[Report], Any], then: Callable[[Any], None]) -> None:
        self.state, self.wanted = state, True
        self._work, self._then = work, then
        self._post, self._shown = _poster(), -1
        self._ending: Callable[[], None] = lambda: None
        self.thread = threading.Thread(target=self._run, name="loopring_lab widget", daemon=True)

    def end(self) -> None:
        """Take the result into the state, once, and only while it is wanted."""
        with self.state.lock:
            if not self.wanted:
                return
            self.wanted, self.state.doing = False, ""
            self._ending()
            if self.state._job is self:
                self.state._job = None

    def _run(self) -> None:
        try:
            result = self._work(self._report)
        except LabError as error:
            problem = error
            self._ending = lambda: self.state.failed(problem)
        except BaseException as error:
            what = f"{type(error).__name__} in the widget's own code. Report it, with the kernel's log."
            self._ending = lambda: setattr(self.state, "problem", what)
            self._post(self.end)
            raise
        else:
            self._ending = lambda: self._then(result)
        self._post(self.end)

    def _report(self, done: int, whole: int) -> None:
        if not self.wanted:
            raise LabError(f"{self.state.doing}: no longer wanted. Begin it again.")
        percent = 100 * done // whole if whole else done
        if percent != self._shown:
            self._shown = percent
            self._post(lambda: self._show(done, whole))

    def _show(self, done: int, whole: int) -> None:
        with self.state.lock:
            if self.wanted:
                self.state.whole, self.state.done = whole, done


def _poster() -> Callable[[Callable[[], None]], None]:
    """Return what runs a call on the notebook's thread, as soon as that is free."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return lambda call: call()

    def post(call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the kernel is going, nobody looks
            loop.call_soon_threadsafe(call)

    return post
