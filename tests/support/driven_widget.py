"""Drives a widget on a page as a user would: controls by label, and what is visible."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import loopring_lab as lab
from loopring_lab.widgets.explorers import as_png

ROWS = """(found) => found.map(table => [...table.querySelectorAll('tr')].map(
    row => [...row.cells].map(cell => cell.textContent.trim())))"""
WRITTEN = f"html => ({ROWS})([new DOMParser().parseFromString(html, 'text/html')])[0]"
SHOWN = f"box => ({ROWS})([...box.querySelectorAll('.ll-scroll')].filter(one => one.checkVisibility()))"
PICTURE = """async box => {
    const picture = box.querySelector('img');
    if (!picture?.checkVisibility()) return 'none';
    const bytes = await fetch(picture.src).then(answer => answer.arrayBuffer(), () => new ArrayBuffer());
    const digest = await crypto.subtle.digest('SHA-256', bytes);
    return [...new Uint8Array(digest)].map(byte => byte.toString(16).padStart(2, '0')).join('');
}"""

FOCUSED = """box => {
    const one = document.activeElement;
    if (!box.contains(one)) return null;
    return one.classList.contains('ll-scroll') ? 'a table' : (one.labels?.[0] ?? one).innerText.trim();
}"""
TOO_WIDE = """box => {
    const area = box.closest('.jp-OutputArea-output'), edge = area.getBoundingClientRect().right;
    return [area, box, ...box.querySelectorAll('*')]
        .filter(one => one.checkVisibility() && !one.parentElement.closest('.ll-scroll'))
        .filter(one => one.getBoundingClientRect().right > edge + 1
            || one.clientWidth && one.scrollWidth > one.clientWidth + 1 && !one.matches('.ll-scroll'))
        .map(one => `${one.tagName}.${one.className}: ${one.scrollWidth} in ${one.clientWidth}`);
}"""
TOO_FAINT = """box => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = colour => numbers(colour).slice(0, 3).map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = one => {
        for (; one; one = one.parentElement) {
            const colour = getComputedStyle(one).backgroundColor;
            if ((numbers(colour)[3] ?? 1) > 0.5) return light(colour);
        }
        return 1;
    };
    const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    return [...box.querySelectorAll('*')]
        .filter(one => one.checkVisibility() && !one.disabled && one.tagName !== 'OPTION')
        .filter(one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
        .filter(one => contrast(light(getComputedStyle(one).color), behind(one)) < 4.5)
        .map(one => `${one.tagName}.${one.className}: ${one.innerText.slice(0, 40)}`);
}"""
UNTIL = """async (box, wanted) => {
    const end = performance.now() + 15000;
    for (;;) {
        const seen = JSON.stringify((await (SCRIPT)(box)) ?? null);
        if (seen === wanted || performance.now() > end) return seen;
        await new Promise(requestAnimationFrame);
    }
}"""


class DrivenWidget:
    """A widget on a page.

    Every `shows` waits until it is so, and fails with what is there instead.
    """

    def __init__(self, page: Any, box: Any, typed: list[str]) -> None:
        self.page, self.box, self.typed = page, box, typed

    def control(self, label: str) -> Any:
        return self.box.get_by_label(label, exact=True)

    def choose(self, label: str, option: str) -> None:
        self.control(label).select_option(label=option)

    def enter(self, label: str, words: str) -> None:
        """Type over what a field holds, and leave it."""
        self.control(label).fill(words)
        self.control(label).blur()

    def submit_secret(self, label: str, secret: str) -> None:
        """Type a secret and submit it; it vanishes from the page at once."""
        self.typed.append(secret)
        self.control(label).press_sequentially(secret)
        field = self.control(label).element_handle()  # it may leave the page with its step
        field.press("Enter")
        assert field.evaluate("field => field.value") == ""

    def press(self, name: str) -> None:
        self.box.get_by_role("button", name=name, exact=True).click()

    def shows_table(self, table: Any, place: int = 0) -> None:
        """Wait for a table of the library, cell by cell."""
        html = table if isinstance(table, str) else table._repr_html_()
        wanted = self.page.evaluate(WRITTEN, html)
        assert wanted, "the library gave no table"
        self._wait_for(f"box => ({SHOWN})(box)[{place}]", wanted)

    def shows_picture(self, figure: Any) -> None:
        """Wait for a figure of the library, byte by byte."""
        self._wait_for(PICTURE, hashlib.sha256(as_png(figure)).hexdigest())

    def shows_no_picture(self) -> None:
        self._wait_for(PICTURE, "none")

    def shows(self, words: str | re.Pattern[str]) -> None:
        """Wait for words anywhere in the widget."""
        pattern = re.compile(re.escape(words)) if isinstance(words, str) else words
        self.box.get_by_text(pattern).filter(visible=True).first.wait_for()

    def shows_problem(self, words: str) -> None:
        """Wait for an error in place, in words."""
        script = "box => box.querySelector('[role=alert]')?.innerText ?? ''"
        self._wait_for(script, words)

    def shows_no_problem(self) -> None:
        self.shows_problem("")

    def focused(self) -> str | None:
        """Return the label of what has the keyboard, or None where that is outside the widget."""
        found: str | None = self.box.evaluate(FOCUSED)
        return found

    def too_wide(self) -> list[str]:
        """Return what does not fit into the width it has; tables scroll by themselves."""
        found: list[str] = self.box.evaluate(TOO_WIDE)
        return found

    def too_faint(self) -> list[str]:
        """Return the words whose contrast with what is behind them is below 4.5 to 1."""
        found: list[str] = self.box.evaluate(TOO_FAINT)
        return found

    def rows(self, place: int = 0) -> list[list[str]]:
        found: list[list[str]] = self.box.evaluate(f"box => ({SHOWN})(box)[{place}]")
        return found

    def exported(self, **names: Any) -> tuple[list[Any], Any]:
        """Run the code that the widget shows, here: what it displays, and its last line's value."""
        self.press("Code")
        pre = self.box.get_by_label("Code", exact=True).locator("visible=true").last
        *lines, last = pre.inner_text().split("\n")
        self.press("Code")
        displayed: list[Any] = []
        known = {"lab": lab, "display": displayed.append} | names
        exec("\n".join(lines), known)
        return displayed, eval(last, known)

    def _wait_for(self, script: str, wanted: Any) -> None:
        text = json.dumps(wanted, ensure_ascii=False, separators=(",", ":"))
        seen = self.box.evaluate(UNTIL.replace("SCRIPT", script), text)
        assert json.loads(seen) == wanted, self.box.inner_text()
