"""An RPC address in the wrong place, and one that its endpoint repeats as the header that it got."""

from __future__ import annotations

import base64

import pytest

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.redaction import Redactor, SecretText

ADDRESS = "https://rpc.example.com/v3/0123456789abcdef"


def test_an_address_given_as_the_file_is_refused_and_not_repeated(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for open_it in (lab.rollup.Store, lambda address: lab.connect(blocks=address)):
        with pytest.raises(LabError) as refusal:
            open_it(ADDRESS)
        assert "is no path of a block store. Give a file" in str(refusal.value)
        assert "0123456789abcdef" not in str(refusal.value)
    assert not any(tmp_path.iterdir())


def test_no_letter_of_a_user_or_password_is_left_of_a_repeated_header() -> None:
    for user, password in (("someone's-name", "p4ssword-of-it"), ("exactly9s", "exactly-ten")):
        header = base64.b64encode(f"{user}:{password}".encode()).decode()
        redactor = Redactor(SecretText(user), SecretText(password), SecretText(header))
        assert redactor(f"Basic {header}".encode()) == b"Basic <hidden>"
