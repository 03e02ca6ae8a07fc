"""Every frame that a public function returns, made from the embedded relayer."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

import loopring_lab as lab
from loopring_lab.relayer import Relayer

POOL_BLOCKS = 11_149_814 + 150 * 48  # a day of the synthetic chain
POOL_ACCOUNT = 71468


def public_frames(folder: Path) -> dict[str, Callable[[], pd.DataFrame]]:
    """Return what makes each frame, by the name of the function that returns it."""
    client = lab.connect()
    trades = client.trades(POOL_ACCOUNT, limit=200, progress=False)
    archive = lab.Archive(folder / "archive.duckdb")
    with Relayer() as relayer:
        store = lab.rollup.Store(folder / "blocks.duckdb")
        store.sync(relayer.rpc_url, rate=None, to_block=POOL_BLOCKS, progress=False)
    saved = folder / "prices.csv"
    saved.write_text("created_at,market,price\n2022-01-01T00:00:00Z,LRC-ETH,0.0005\n")
    return {
        **_of_clients(client, lab.connect(blocks=store), trades, saved),
        **_of_archive(archive, client, store, folder),
        **_of_store(store, client),
        **_of_trades(trades),
    }


def _of_clients(client, by_blocks, trades, saved):
    tokens, markets = client.listings()
    found = {
        "Client.tokens": client.tokens,
        "Client.markets": client.markets,
        "Client.trades": lambda: trades,
        "Client.update_fee": lambda: client.update_fee(10083),
        "Client.outside_prices": lambda: client.outside_prices(trades, every="1d"),
        "BlocksClient.tokens": by_blocks.tokens,
        "BlocksClient.markets": by_blocks.markets,
        "BlocksClient.trades": lambda: by_blocks.trades(
            next(iter(by_blocks.accounts)), progress=False
        ),
        "BlocksClient.pool_balances": by_blocks.pool_balances,
        "fills.with_flow": lambda: lab.fills.with_flow(
            trades, client.outside_prices(trades)
        ),
        "fills.pool_quotes": lambda: _pool_quotes(by_blocks),
        "fills.pool_quotes(by)": lambda: _pool_quotes(by_blocks, by="market"),
        "tables.tokens": lambda: lab.tables.tokens(tokens),
        "tables.markets": lambda: lab.tables.markets(markets),
        "tables.prices": lambda: lab.tables.prices(saved, client.markets()),
        "tables.read_csv": lambda: _read_back(trades, saved.with_name("trades.csv")),
        "tables.trades": lambda: lab.tables.trades(
            [], client.tokens(), client.markets()
        ),
    }
    return found | {"anomalies": lambda: lab.anomalies(trades)}


def _read_back(trades, file):
    trades.to_csv(file)
    return lab.tables.read_csv(file)


def _pool_quotes(by_blocks, **named):
    trades = by_blocks.trades(progress=False)
    found: pd.DataFrame = lab.fills.pool_quotes(
        trades, by_blocks.pool_balances(), **named
    )
    return found


def _of_archive(archive, client, store, folder):
    return {
        "Archive.sync": lambda: archive.sync(
            client, account_id=POOL_ACCOUNT, progress=False
        ),
        "Archive.report": archive.report,
        "Archive.trades": archive.trades,
        "Archive.verify": archive.verify,
        "Archive.import_blocks": lambda: lab.Archive(
            folder / "of blocks.duckdb"
        ).import_blocks(store, progress=False),
    }


def _of_store(store, client):
    blocks = store.blocks()
    tokens = client.tokens()
    pool = min(store.pools())
    with_tokens = (
        "account_updates amm_updates deposits fills nft_mints transfers withdrawals"
    )
    return {
        **{
            f"Blocks.{name}": _call(getattr(blocks, name), tokens)
            for name in with_tokens.split()
        },
        "Blocks.balances": lambda: blocks.balances(pool, tokens),
        "Blocks.pool_fills": lambda: blocks.pool_fills(pool, tokens),
        "Blocks.accounts": blocks.accounts,
        "Blocks.headers": blocks.headers,
        "rollup.Blocks.trades": lambda: blocks.trades(tokens),
        "Store.report": store.report,
        "Store.tokens": store.tokens,
        "Check.summary": lambda: store.check(progress=False).summary,
        "Check.problems": lambda: store.check(progress=False).problems,
        "fills.liquidity": lambda: lab.fills.liquidity(
            blocks.trades(tokens, pools=store.pools()),
            lab.connect(blocks=store).pool_balances(),
        ),
        "fills.pool_returns": lambda: lab.fills.pool_returns(
            blocks.trades(tokens, pools=store.pools()), pool
        ),
    }


def _of_trades(trades):
    fees = lab.fees
    fills = lab.fills
    per_fill = (fills.price_gap, fills.all_in_cost, fills.markouts, fills.shortfall)
    found = {
        "fees.summary": lambda: fees.summary(trades),
        "fees.over_time": lambda: fees.over_time(trades),
        "fees.tiers": lambda: fees.tiers(trades, every="1w"),
        "fees.with_tiers": lambda: fees.with_tiers(trades),
        "fees.in_token": lambda: fees.in_token(trades, "ETH"),
        "fees.in_token(by)": lambda: fees.in_token(trades, "ETH", by="market"),
        "fees.schedule_check": lambda: fees.schedule_check(trades, 1),
        "fees.schedule_lines": lambda: fees.schedule_lines(trades, 1),
        "fills.breakdown": lambda: fills.breakdown(trades, every="1d"),
        "fills.vwap": lambda: fills.vwap(trades, every="1d"),
        "fills.size_profile": lambda: fills.size_profile(trades),
        "fills.orders": lambda: fills.orders(trades),
        "fills.one_side": lambda: fills.one_side(trades),
        "fills.with_roles": lambda: fills.with_roles(trades),
        "fills.compare_venues": lambda: fills.compare_venues(trades),
        "fills.cost_curves": lambda: fills.cost_curves(trades),
        "fills.crossing": lambda: fills.crossing(fills.cost_curves(trades)),
        "fills.changes": lambda: fills.changes(trades),
        "fills.break_test": lambda: fills.break_test(fills.changes(trades)),
    }
    for function in per_fill:
        name = f"fills.{function.__name__}"
        found[name] = _call(function, trades)
        found[f"{name}(by)"] = _call(function, trades, by="market")
    return found


def _call(function, *given, **named):
    return lambda: function(*given, **named)
