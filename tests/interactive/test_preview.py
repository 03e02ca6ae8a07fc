"""Sheets of fields: their text on a terminal."""

from loopring_lab.interactive.preview import Line, Sheet


def test_no_value_of_a_sheet_commands_a_terminal_or_makes_a_line():
    sheet = Sheet("Account \x1b[2J", [Line("key seed", "a\x1b]0;x\x07\nb")], ["\x9b"])
    assert repr(sheet).split("\n") == ["Account ?[2J", "  key seed  a?]0;x??b", "?"]
