"""All that blocks say of one account's money, as the CSV file that programs for accounting and taxes import.

The columns are those of Koinly's universal template, which other programs read as well. They disagree about its columns
of fees: some take them off the balance, some ignore them. So a fee is a row of its own, and no other amount has it in
it: in every program, what was received minus what was sent is what the balance changed by.
"""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.dtype import AmountDtype
from loopring_lab.amounts.scaling import WHOLE
from loopring_lab.amounts.series import as_series
from loopring_lab.bounded import FORMULA
from loopring_lab.engine.running import run
from loopring_lab.errors import LabError
from loopring_lab.rollup import block_frames, settled
from loopring_lab.rollup.balances import CHANGED, CHANGES
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.slots import FIRST_NFT

# Those of fees and of worth stay empty.
HEADER = (
    "Date,Sent Amount,Sent Currency,Received Amount,Received Currency,Fee Amount,Fee Currency,"
    "Net Worth Amount,Net Worth Currency,Label,Description,TxHash"
)
# One row for what a transaction takes and gives, and one for its fee.
ENTRIES = f"""
WITH changes AS ({CHANGED})
SELECT block, index_in_block, kind, is_fee,
    coalesce(max(token) FILTER (change < 0), -1) AS sent_token_id,
    -sum(change) FILTER (change < 0) AS sent,
    coalesce(max(token) FILTER (change > 0), -1) AS received_token_id,
    sum(change) FILTER (change > 0) AS received
FROM changes
SEMI JOIN wanted USING (account)
WHERE change <> 0
GROUP BY block, index_in_block, kind, side, is_fee
ORDER BY block, index_in_block, side, is_fee
"""


def entries(blocks: Blocks, account_id: int, tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of an account's file, in block order."""
    inputs: dict[str, pa.Table] = {kind: blocks.table(kind) for kind in CHANGES}
    inputs["wanted"] = pa.table({"account": pa.array([account_id], pa.int64())})
    found = run(ENTRIES, "ledger", **inputs)
    frame = block_frames.places(blocks, found)
    for name in ("sent", "received"):
        frame[f"{name}_token_id"] = as_series(found[f"{name}_token_id"])
        frame[name] = as_series(found[name].cast(WHOLE))
    frame = block_frames.with_units(frame, tokens)
    ledger = pd.DataFrame(index=frame.index, columns=HEADER.split(","))
    ledger["Date"] = frame["created_at"].dt.strftime("%Y-%m-%d %H:%M:%S UTC")
    for name in ("sent", "received"):
        token_id = frame[f"{name}_token_id"]
        # An NFT is counted, and named by its number in the account.
        is_nft = token_id >= FIRST_NFT
        counted = frame[name].where(is_nft).astype(AmountDtype())
        amount = frame[f"{name}_units"].fillna(counted)
        is_lost = amount.isna() & frame[name].notna()
        if is_lost.any():
            raise LabError(
                f"account {account_id} has amounts of token {token_id[is_lost].iloc[0]}, which no listing has. "
                "Import one: store.import_files([], tokens=...)."
            )
        # The symbol of a token is what its issuer chose.
        symbols = frame[f"{name}_token"].astype(object)
        symbol = symbols.str.replace(FORMULA, "'", regex=True)
        ledger[f"{name.title()} Amount"] = amount
        ledger[f"{name.title()} Currency"] = symbol.mask(
            is_nft, "NFT" + token_id.astype(str)
        )
    kind = found["kind"].to_pandas().str.replace("_", " ")
    is_fee = found["is_fee"].to_pandas()
    ledger["Label"] = is_fee.map({True: "cost"})
    ledger["Description"] = kind.mask(is_fee, "fee of " + kind)
    # Programs take rows of one time and one amount for the same row, unless this differs.
    ledger["TxHash"] = settled.trade_ids(
        blocks, found["block"].to_numpy(), found["index_in_block"].to_numpy()
    )
    return ledger
