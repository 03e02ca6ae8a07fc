"""Fixtures of the archive tests: a small archive of two accounts, and the ledger it was synced from."""

import shutil

import pytest
from support.ledger import Ledger, client_of

from loopring_lab.archive import Archive
from loopring_lab.relayer import Relayer


@pytest.fixture(scope="session")
def small():
    return Ledger(accounts=2, trades=120, seed=3)


@pytest.fixture(scope="session")
def synced(small, tmp_path_factory):
    file = tmp_path_factory.mktemp("synced") / "archive.duckdb"
    with Relayer(small) as relayer:
        Archive(file).sync(client_of(relayer), accounts=small.accounts)
    return file


@pytest.fixture
def archive(synced, tmp_path):
    """An archive of all of `small`, the test's own."""
    return Archive(shutil.copy(synced, tmp_path / "my archive, ü.duckdb"))
