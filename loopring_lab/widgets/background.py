"""Work in a thread: its progress, its result, and what went wrong."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakSet

from traitlets import HasTraits, Int, Unicode

from loopring_lab.engine import session
from loopring_lab.errors import LabError

Result = TypeVar("Result")
ReportProgress = Callable[[int, int], None]
"""Takes how much is done, and of how much; raises once the work is no longer wanted."""
# Seconds that the end of a process waits for each thread. Python ends threads wherever they are, and a process that
# ends while one is inside DuckDB is aborted, or never ends.
UNTIL_ENDED = 10
_threads: WeakSet[threading.Thread] = WeakSet()


class Background(HasTraits):
    """One job at a time, of which the newest wins, unless one that cannot be cancelled is under way.

    A result is applied on the thread that started the job, as soon as that is free; without a running event
    loop, on the job's own thread. JupyterLab may handle widget messages on other threads than cells, so
    whatever changes a widget's state or draws it holds `lock`.
    """

    # The work under way; empty if there is none. It ends after its result is applied.
    doing = Unicode()
    done = Int()
    # How much there is to do, of which `done` is done; 0 if that is not known.
    whole = Int()
    # The problem that came last, and what to do about it.
    problem = Unicode()

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self._job: _Job | None = None

    def begin(
        self,
        doing: str,
        work: Callable[[ReportProgress], Result],
        then: Callable[[Result], None],
        cancellable: bool = True,
    ) -> None:
        """Run `work` in a thread, and give its result to `then`, unless it is superseded or cancelled by then.

        An error becomes the `problem`. Work that changes something elsewhere is not `cancellable`: until it ends,
        nothing supersedes it.
        """
        job = _Job(_scheduler(), cancellable)
        job.thread = threading.Thread(
            target=self._run,
            args=(job, work, then),
            daemon=True,
        )
        with self.lock:
            self._check_cancellable()
            self._job = job
            self.problem = ""
            self.doing = doing
            self.whole = 0
            self.done = 0
            _threads.add(job.thread)
            job.thread.start()

    @property
    def is_cancellable(self) -> bool:
        """Whether the work under way may be forgotten, if there is any."""
        return self._job is None or self._job.cancellable

    @property
    def is_clear(self) -> bool:
        """Whether nothing is under way, and nothing went wrong since the last choice, so that work may begin.

        What failed or was cancelled is tried again at the next choice, which takes the problem away.
        """
        return not (self.doing or self.problem)

    def drop(self) -> None:
        """Forget the work under way; its result is never applied. A LabError if it is not cancellable."""
        with self.lock:
            self._check_cancellable()
            self._job = None
            self.doing = ""

    def cancel(self) -> None:
        """Forget the work under way, if there is any, and say so."""
        with self.lock:
            if self._job is None:
                return
            self._check_cancellable()
            progress = f" after {self.done:,} of {self.whole:,}" if self.whole else ""
            self.problem = f"{self.doing}: cancelled{progress}. To start again, change a choice or run the cell again."
            self.drop()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the work under way, and for what that begins; a LabError if it takes longer than `timeout`."""
        while True:
            # Under the lock no job is between its end and what it begins next.
            with self.lock:
                job = self._job
            if job is None:
                return
            job.thread.join(timeout)
            if job.thread.is_alive():
                hint = "Wait again, or cancel it." if job.cancellable else "Wait again."
                raise LabError(
                    f"{self.doing}: not finished after {timeout:g} s. {hint}"
                )
            # The loop that should apply the result is the one that waits here.
            self._finish(job)

    def _check_cancellable(self) -> None:
        if not self.is_cancellable:
            raise LabError(
                f"{self.doing}: it may have been sent, so it cannot be cancelled. Wait until it ends."
            )

    def _run(
        self,
        job: _Job,
        work: Callable[[ReportProgress], Any],
        then: Callable[[Any], None],
    ) -> None:
        """Do the work, in its thread."""
        last_percent = -1

        def is_wanted() -> bool:
            # The main thread has ended once the process does.
            return self._job is job and threading.main_thread().is_alive()

        def report(done: int, whole: int) -> None:
            nonlocal last_percent
            session.check_wanted()
            # Pages arrive faster than a browser redraws, so only whole percents are shown.
            percent = 100 * done // whole if whole else done
            if percent != last_percent:
                last_percent = percent
                job.schedule(lambda: self._show_progress(job, done, whole))

        def fail(words: str) -> None:
            job.outcome = lambda: self.set_trait("problem", words)

        try:
            with session.work_while(is_wanted):
                result = work(report)
            job.outcome = lambda: then(result)
        except LabError as error:
            fail(str(error))
        except BaseException as error:
            fail(
                f"{type(error).__name__} in the widget's own code. Report it, with the kernel's log."
            )
            raise
        finally:
            job.schedule(lambda: self._finish(job))

    def _show_progress(self, job: _Job, done: int, whole: int) -> None:
        with self.lock:
            if self._job is job:
                self.whole = whole
                self.done = done

    def _finish(self, job: _Job) -> None:
        """Apply the outcome of a job, once, and only while it is wanted."""
        with self.lock:
            if self._job is not job:
                return
            # It has ended, so its outcome may begin the next job.
            job.cancellable = True
            try:
                job.outcome()
            finally:
                # The outcome may have begun the next job.
                if self._job is job:
                    self.drop()


@dataclass
class _Job:
    """Work in a thread, how to get back from there, and what is to be done with its result."""

    schedule: Callable[[Callable[[], None]], None]
    cancellable: bool
    thread: threading.Thread = field(init=False)
    outcome: Callable[[], None] = lambda: None


def _scheduler() -> Callable[[Callable[[], None]], None]:
    """Return a function that runs a call on the current thread's event loop, if it has one, else at once."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return lambda call: call()

    def schedule(call: Callable[[], None]) -> None:
        # A closed loop means that the kernel shuts down.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(call)

    return schedule


@atexit.register
def _end_threads() -> None:
    for thread in list(_threads):
        thread.join(UNTIL_ENDED)
