"""Fixtures of the archive tests: a small archive of two accounts, and the ledger it was synced from."""

from pathlib import Path

import pytest
from support.ledger import Ledger, client_of

from loopring_lab.archive import Archive
from loopring_lab.relayer import Relayer


@pytest.fixture(scope="session")
def small() -> Ledger:
    return Ledger(accounts=2, trades=120, seed=3)


@pytest.fixture
def archive(small: Ledger, tmp_path: Path) -> Archive:
    """An archive of all of `small`, the test's own."""
    made = Archive(tmp_path / "my archive, ü")
    with Relayer(small) as relayer:
        made.sync(client_of(relayer), accounts=small.accounts)
    return made
