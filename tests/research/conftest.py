"""A world whose cheaper venue changes in July, read once for all tests that ask about changes."""

import pandas as pd
import pyarrow as pa
import pytest
from support.worlds import users_of

from loopring_lab.relayer import World


@pytest.fixture(scope="session")
def switched() -> tuple[pd.DataFrame, pa.Table]:
    return users_of(World(seed=41, size=0.2, switched=("2022-07-01", "book")))
