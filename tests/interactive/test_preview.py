"""Sheets, tables and sentences: their text on a terminal, and in a notebook."""

import re
from html import unescape

import pandas as pd

import loopring_lab as lab
from loopring_lab.interactive.preview import Line, Sheet
from loopring_lab.interactive.prose import Sentences


def test_no_value_of_a_sheet_commands_a_terminal_or_makes_a_line():
    sheet = Sheet("Account \x1b[2J", [Line("key seed", "a\x1b]0;x\x07\nb")], ["\x9b"])
    assert repr(sheet).split("\n") == ["Account ?[2J", "  key seed  a?]0;x??b", "?"]


def test_what_stands_between_two_dollars_is_no_mathematics_in_a_notebook():
    """JupyterLab looks for two dollars in a text that no element parts, as `test_tables_in_lab` shows."""
    frame = pd.DataFrame({"market": ["$A-$B"]}, index=["$C"])
    said = "1 $A; lost: 2 $B"
    shown = [
        lab.show(frame)._repr_html_(),
        Sheet("$A", [Line("$B", said)], [said])._repr_html_(),
        Sentences(said)._repr_markdown_(),
    ]
    for html in shown:
        texts = [unescape(text) for text in re.split(r"<[^>]*>", html)]
        assert max(text.count("$") for text in texts) == 1
    assert unescape(re.sub(r"<[^>]*>", "", shown[2])) == said
