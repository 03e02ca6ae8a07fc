"""What a table saves as CSV, in the kernel and in the browser."""

from decimal import Decimal

import pandas as pd


def assert_all_digits(found: pd.DataFrame, expected: pd.DataFrame):
    """Compare the text of saved trades with the trades, row by row."""
    for name in ("size", "price", "notional", "fee"):
        assert [Decimal(value) for value in found[name]] == expected[name].tolist()
    assert found["order_hash"].tolist() == expected["order_hash"].tolist()
    assert [float(value) for value in found["fee_bps"]] == expected["fee_bps"].tolist()
    assert (
        pd.to_datetime(found["created_at"]).to_numpy()
        == expected["created_at"].to_numpy()
    ).all()
