"""Drives a widget on a page as a user would: controls by label, and what is visible."""

from __future__ import annotations

import json
import re
from typing import Any

from support.cells import values

from loopring_lab.widgets.figure_view import FigureView

ROWS = """(found) => found.map(table => [...table.querySelectorAll('thead tr, tbody tr')].map(
    row => [...row.cells].map(cell => cell.textContent.trim())))"""
WRITTEN = f"html => ({ROWS})([new DOMParser().parseFromString(html, 'text/html')])[0]"
SHOWN = f"box => ({ROWS})([...box.querySelectorAll('.ll-scroll, .ll-box')].filter(one => one.checkVisibility()))"
PICTURE = """box => {
    const picture = box.querySelector('.ll-drawing');
    if (!picture?.checkVisibility()) return 'none';
    const drawn = [...picture.querySelectorAll('path')].map(one => one.getAttribute('d'));
    return drawn.join(' ').replaceAll(/\\s+/g, ' ').trim();
}"""

TOO_WIDE = """box => {
    const SCROLLS = '.ll-scroll, .ll-box, pre';
    const area = box.closest('.jp-OutputArea-output'), edge = area.getBoundingClientRect().right;
    return [area, box, ...box.querySelectorAll('*')]
        .filter(one => one.checkVisibility() && !one.closest('.ll-live') && !one.parentElement.closest(SCROLLS))
        .filter(one => one.getBoundingClientRect().right > edge + 1
            || one.clientWidth && one.scrollWidth > one.clientWidth + 1 && !one.matches(SCROLLS))
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
BROKEN_LINES = """box => {
    const code = box.querySelector('.ll-code pre'), { lineHeight, paddingTop } = getComputedStyle(code);
    const drawn = Math.round((code.scrollHeight - 2 * parseFloat(paddingTop)) / parseFloat(lineHeight));
    return drawn - code.textContent.trimEnd().split('\\n').length;
}"""
HEIGHTS = """box => [...new Set([...box.querySelectorAll('.ll-grid > .widget-inline-hbox')]
    .filter(one => one.checkVisibility()).map(one => one.offsetHeight))]"""
UNTIL = """async (box, wanted) => {
    const end = performance.now() + 60000;
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

    def __init__(self, page, box, typed: list[str]):
        self.page = page
        self.box = box
        self.typed = typed

    def control(self, label: str):
        return self.box.get_by_label(label, exact=True)

    def choose(self, label: str, option: str):
        self.control(label).select_option(label=option)

    def enter(self, label: str, words: str):
        """Type over what a field holds, and leave it."""
        self.control(label).fill(words)
        self.control(label).blur()

    def holds(self, label: str, value: str):
        """Wait until a control holds a value."""
        from playwright.sync_api import expect

        expect(self.control(label)).to_have_value(value)

    def submit_secret(self, label: str, secret: str):
        """Type a secret and submit it; it vanishes from the page at once."""
        self.typed.append(secret)
        self.control(label).press_sequentially(secret)
        field = self.control(
            label
        ).element_handle()  # it may leave the page with its step
        field.press("Enter")
        assert field.evaluate("field => field.value") == ""

    def press(self, name: str):
        self.box.get_by_role("button", name=name, exact=True).click()

    def shows_table(self, table, place: int = 0):
        """Wait for a table of the library, cell by cell."""
        wanted = self.page.evaluate(WRITTEN, table._repr_html_())
        assert wanted, "the library gave no table"
        self._wait_for(f"box => ({SHOWN})(box)[{place}]", wanted)

    def shows_picture(self, figure):
        """Wait for a figure of the library, every line and letter of it."""
        drawn = re.findall(r'<path[^>]*?\bd="([^"]*)"', FigureView(figure).page["svg"])
        self.shows_drawing(" ".join(" ".join(drawn).split()))

    def picture(self) -> str:
        """Return what is drawn."""
        return str(self.box.evaluate(PICTURE))

    def shows_drawing(self, drawn: str):
        """Wait for what was drawn before."""
        self._wait_for(PICTURE, drawn)

    def shows_no_picture(self):
        self._wait_for(PICTURE, "none")

    def shows(self, words: str | re.Pattern[str]):
        """Wait for words anywhere in the widget."""
        pattern = re.compile(re.escape(words)) if isinstance(words, str) else words
        self.box.get_by_text(pattern).filter(visible=True).first.wait_for()

    def shows_problem(self, words: str):
        """Wait for an error in place, in words."""
        script = "box => box.querySelector('[role=alert]')?.innerText ?? ''"
        self._wait_for(script, words)

    def shows_no_problem(self):
        self.shows_problem("")

    def too_wide(self) -> list[str]:
        """Return what does not fit into the width it has; tables scroll by themselves."""
        found: list[str] = self.box.evaluate(TOO_WIDE)
        return found

    def too_faint(self) -> list[str]:
        """Return the words whose contrast with what is behind them is below 4.5 to 1."""
        found: list[str] = self.box.evaluate(TOO_FAINT)
        return found

    def broken_lines_of_code(self) -> int:
        """Return how many more lines the code takes than it has; show it for that long."""
        code = self.box.get_by_role("region", name="Code", exact=True)
        if is_hidden := not code.is_visible():
            self.fold_code()
            code.wait_for()
        broken = int(self.box.evaluate(BROKEN_LINES))
        if is_hidden:
            self.fold_code()
            code.wait_for(state="hidden")
        return broken

    def heights_of_controls(self) -> list[int]:
        """Return the heights of labelled controls: several, where one is wrapped."""
        found: list[int] = self.box.evaluate(HEIGHTS)
        return found

    def rows(self, place: int = 0) -> list[list[str]]:
        found: list[list[str]] = self.box.evaluate(f"box => ({SHOWN})(box)[{place}]")
        return found

    def fold_code(self):
        """Open the code, or close it."""
        self.box.locator("summary").click()

    def code(self) -> str:
        """Open the code, and return it."""
        self.fold_code()
        return str(self.box.get_by_role("region", name="Code", exact=True).inner_text())

    def exported(self, **names) -> list[Any]:
        """Run the code that the widget shows, here: what each of its expressions gives."""
        code = self.code()
        self.fold_code()
        return values(code, **names)

    def _wait_for(self, script, wanted):
        text = json.dumps(wanted, ensure_ascii=False, separators=(",", ":"))
        seen = self.box.evaluate(UNTIL.replace("SCRIPT", script), text)
        assert json.loads(seen) == wanted
