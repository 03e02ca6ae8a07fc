"""What a session would show of an error, and whether a secret is in it, however it is written."""

import base64
import contextlib
import io
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from urllib.parse import quote, quote_plus

import pytest
from IPython.core.ultratb import VerboseTB

SHORTEST = 12
"""Letters of a secret that are searched for, because tracebacks cut long values in the middle."""


def forms(secret: str | bytes | int) -> set[str]:
    """Return how a secret may be written, each form by its beginning and its end; numbers of 32 bytes."""
    if isinstance(secret, int):
        numbers = forms(str(secret)) | forms(f"{secret:064x}")
        return numbers | forms(secret.to_bytes(32, "little"))
    raw = (
        secret if isinstance(secret, bytes) else secret.encode("utf-8", "surrogatepass")
    )
    text = raw.decode("latin-1")
    written = {
        text,
        quote(text),
        quote(text, safe=""),
        quote_plus(text),
        raw.hex(),
        raw.hex().upper(),
        repr(raw)[2:-1],
        repr(text)[1:-1],
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    }
    if text.startswith("0x"):
        written |= {text[2:], text[2:].upper(), *forms(bytes.fromhex(text[2:]))}
    parts = {part for one in written for part in (one[:SHORTEST], one[-SHORTEST:])}
    return {part for part in parts if len(part) == SHORTEST and len(set(part)) > 4}


def leaks(text: str, secrets: dict[str, set[str]]) -> list[str]:
    """Name the secrets that a text holds in any form."""
    return sorted(
        name
        for name, written in secrets.items()
        if any(part in text for part in written)
    )


def shown(
    error: BaseException, package: str = "loopring_lab", *, quick: bool = False
) -> Iterable[str]:
    """Show an error as sessions do: its words, every local variable; and, slowly, by IPython and rich."""
    yield f"{error} {error!r} {vars(error)}"
    trace = error.__traceback__
    while trace and not trace.tb_frame.f_globals.get("__name__", "").startswith(
        package
    ):
        trace = trace.tb_next
    if trace is None:
        return
    ways = (with_locals,) if quick else (with_locals, verbose, rich_text)
    for way in ways:
        with contextlib.suppress(
            AttributeError, AssertionError
        ):  # of a half-made pandas object, a frame without a line
            yield way(error, trace)


def trace_of(call: Callable[[], object], kind: type[BaseException]) -> str:
    """Return IPython's most talkative traceback of a failing call, from the package's first frame on."""
    with pytest.raises(kind) as caught:
        call()
    trace = caught.tb
    while trace and not trace.tb_frame.f_globals["__name__"].startswith("loopring_lab"):
        trace = trace.tb_next
    assert trace, "the error was not raised in the package"
    return verbose(caught.value, trace)


def with_locals(error: BaseException, trace: TracebackType) -> str:
    """Write an error, those that it came from, and every variable of their frames."""
    parts = []
    waiting: list[tuple[BaseException, TracebackType | None]] = [(error, trace)]
    seen = set()
    while waiting:
        one, frames = waiting.pop()
        seen.add(id(one))
        parts += traceback.format_exception(type(one), one, frames, chain=False)
        for frame, _ in traceback.walk_tb(frames):
            for name, value in frame.f_locals.items():
                # An object whose constructor refused has no representation.
                with contextlib.suppress(AttributeError, LookupError):
                    parts.append(f"{name} = {value!r}\n")
        others = [one.__cause__, one.__context__]
        waiting += [
            (other, other.__traceback__)
            for other in others
            if other is not None and id(other) not in seen
        ]
    return "".join(parts)


def verbose(error: BaseException, trace: TracebackType) -> str:
    return str(VerboseTB().text(type(error), error, trace))


def rich_text(error: BaseException, trace: TracebackType) -> str:
    try:
        from rich.console import Console
        from rich.traceback import Traceback
    except ImportError:
        return ""
    text = io.StringIO()
    made = Traceback.from_exception(
        type(error),
        error,
        trace,
        show_locals=True,
        locals_max_length=1000,
        locals_max_string=5000,
    )
    Console(file=text, width=5000, force_terminal=False).print(made)
    return text.getvalue()
