"""The state of a widget: its view, and its background work, which has no effect once cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from traitlets import HasTraits, Int, Unicode

from loopring_lab.errors import LabError
from loopring_lab.widgets.memory import place_in_cell, recalled, remember

if TYPE_CHECKING:
    from loopring_lab.widgets.layout import Panel

Result = TypeVar("Result")
Call = Callable[[], None]
ReportProgress = Callable[[int, int], None]
"""Takes how much is done, and of how much; raises if the work is no longer wanted."""


class WidgetState(HasTraits):
    """A validated state that works from code, and that a notebook shows with a view.

    Long work is done in a thread: one job at a time, and the newest wins. A result is applied on the thread
    that started the job, once that is free; without a running event loop, on the job's own thread. JupyterLab
    may handle widget messages on another thread than cells, so whatever changes the state or draws it holds
    `lock`.
    """

    ABOUT = ""
    CHOICES: ClassVar[tuple[str, ...]] = ()
    VIEW = ""  # its module in this package, and its class

    doing = Unicode()  # the work under way; empty if there is none
    done = Int()
    whole = Int()  # how much there is to do, of which `done` is done; 0 if that is not known
    problem = Unicode()  # what went wrong last, and what to do about it

    _job: _Job | None = None

    def __init__(self, **traits: Any) -> None:
        self.lock = threading.RLock()
        super().__init__(**traits)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {self.ABOUT}. Run this cell in JupyterLab, or open the notebook with "
            "Voila, to use it."
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = self.view.box._repr_mimebundle_(**options)
        return bundle | {"text/plain": repr(self)}

    @cached_property
    def view(self) -> Panel:
        """The controls and results, created and their packages loaded when first used."""
        module, name = self.VIEW.split(".")
        view: Panel = getattr(import_module(f"loopring_lab.widgets.{module}"), name)(self)
        return view

    def recall(self, given: dict[str, Any]) -> None:
        """Take the choices that this cell's widget had last, except for those given, and remember them."""
        place = place_in_cell(type(self).__name__)
        for name, value in recalled(place).items():
            if name not in given:
                with contextlib.suppress(LabError):  # what does not fit this source is left out
                    setattr(self, name, value)
        self.observe(lambda _: remember(place, {name: getattr(self, name) for name in self.CHOICES}), self.CHOICES)

    def begin(self, doing: str, work: Callable[[ReportProgress], Result], then: Callable[[Result], None]) -> None:
        """Run `work` in a thread, and apply its result with `then`, unless it is superseded or cancelled."""
        job = _Job(self, work, then)
        with self.lock:  # whoever sees the job can wait for it
            self._drop(job)
            self.problem, self.done, self.whole, self.doing = "", 0, 0, doing
            job.thread.start()

    def export(self) -> str:
        """Return Python code that reproduces what is on screen."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the work under way; its result is never applied."""
        with self.lock:
            if self._job is not None:
                doing = self.doing
                progress = f" after {self.done:,} of {self.whole:,}" if self.whole else ""
                self._drop()
                self.problem = f"{doing}: cancelled{progress}. Start again whenever you like."

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the work under way and apply its result; raise a LabError after `timeout` seconds."""
        while (job := self._job) is not None:
            with self.lock:
                thread = job.thread
            thread.join(timeout)
            if thread.is_alive():
                raise LabError(f"{self.doing}: not finished after {timeout:g} s. Wait again, or cancel().")
            job.finish()

    def failed(self, error: LabError) -> None:
        """Handle an error of the work: its message becomes the `problem`."""
        self.problem = str(error)

    def _drop(self, successor: _Job | None = None) -> None:
        job, self._job = self._job, successor
        if job is not None:
            job.wanted = False
            self.doing = ""


class _Job:
    """Work in a thread, and its result until that is applied."""

    def __init__(self, state: WidgetState, work: Callable[[ReportProgress], Any], then: Callable[[Any], None]) -> None:
        self.state, self.wanted = state, True
        self._work, self._then = work, then
        self._schedule, self._last_percent = _scheduler(), -1
        self._apply: Call = lambda: None
        self.thread = threading.Thread(target=self._run, name="loopring_lab widget", daemon=True)

    def finish(self) -> None:
        """Apply the result to the state, once, and only while it is wanted."""
        with self.state.lock:
            if not self.wanted:
                return
            self.wanted = False
            try:
                self.state.doing = ""
                self._apply()
            finally:  # also where a view cannot draw it: whoever waits shall not wait for ever
                if self.state._job is self:
                    self.state._job = None

    def _run(self) -> None:
        try:
            result = self._work(self._report)
        except LabError as error:
            failure = error
            self._apply = lambda: self.state.failed(failure)
        except BaseException as error:
            bug = f"{type(error).__name__} in the widget's own code. Report it, with the kernel's log."
            self._apply = lambda: setattr(self.state, "problem", bug)
            self._schedule(self.finish)
            raise
        else:
            self._apply = lambda: self._then(result)
        self._schedule(self.finish)

    def _report(self, done: int, whole: int) -> None:
        if not self.wanted:
            raise LabError(f"{self.state.doing}: no longer wanted. Start it again.")
        percent = 100 * done // whole if whole else done
        if percent != self._last_percent:
            self._last_percent = percent
            self._schedule(lambda: self._show(done, whole))

    def _show(self, done: int, whole: int) -> None:
        with self.state.lock:
            if self.wanted:
                self.state.whole, self.state.done = whole, done


def _scheduler() -> Callable[[Call], None]:
    """Return a function that runs a call on the current thread's event loop, if it has one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return lambda call: call()

    def schedule(call: Call) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the kernel is shutting down
            loop.call_soon_threadsafe(call)

    return schedule
