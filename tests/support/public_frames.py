"""Every frame that a public function returns, made from the embedded relayer."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from support.questions import POOL, QUESTIONS, plainly
from support.recorded import save

import loopring_lab as lab
from loopring_lab.columns import frames

ACCOUNT = 71468


def public_frames(folder: Path) -> dict[str, Callable[[], pd.DataFrame]]:
    """Return what makes each frame, by the name of the function that returns it."""
    client = lab.connect()
    trades = client.trades(ACCOUNT, limit=200, progress=False)
    by_blocks = lab.connect(blocks="sample")
    recording = lab.connect(recording=_save(client, folder / "recording"))
    archive = lab.Archive(folder / "archive.duckdb")
    saved = folder / "prices.csv"
    saved.write_text("created_at,market,price\n2022-01-01T00:00:00Z,LRC-ETH,0.0005\n")
    pools = client.trades(POOL, limit=100, progress=False)
    return {
        **_of_clients(client, by_blocks, recording, trades, saved),
        **_of_archive(archive, client, by_blocks.store, folder),
        **_of_store(by_blocks.store, client),
        **_of_trades(pd.concat([trades, pools], ignore_index=True)),
    }


def _of_clients(client, by_blocks, recording, trades, saved):
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
        "Recording.tokens": recording.tokens,
        "Recording.markets": recording.markets,
        "Recording.trades": lambda: recording.trades(ACCOUNT),
        "tables.tokens": lambda: lab.tables.tokens(tokens),
        "tables.markets": lambda: lab.tables.markets(markets),
        "tables.prices": lambda: lab.tables.prices(saved, client.markets()),
        "tables.read_csv": lambda: _read_back(trades, saved.with_name("trades.csv")),
        "tables.trades": lambda: lab.tables.trades(
            [], client.tokens(), client.markets()
        ),
    }
    return found | {"anomalies": lambda: lab.anomalies(trades)}


def _save(client, folder):
    """Save the history of one account as a recording."""
    tokens, markets = client.listings()
    answers = {"tokens": tokens, "markets": markets}
    page, *_ = client.pages([(ACCOUNT, "dex")])
    return save(folder, answers | {f"trades/{ACCOUNT}-dex": page.body})


def _read_back(trades, file):
    trades.to_csv(file)
    return lab.tables.read_csv(file)


def _of_archive(archive, client, store, folder):
    return {
        "Archive.sync": lambda: archive.sync(
            client, account_id=ACCOUNT, progress=False
        ),
        "Archive.report": archive.report,
        "Archive.trades": archive.trades,
        "Archive.verify": archive.verify,
    }


def _of_store(store, client):
    blocks = store.blocks()
    tokens = client.tokens()
    pool = min(store.file.index().pools)
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
    }


def _of_trades(trades):
    """Ask each question about trades: by period where it takes one, and again by market where that is another frame."""
    found = {}
    for name in {one for names in frames() for one in names.split(", ")}:
        if name in QUESTIONS:
            ask = QUESTIONS.get(f"{name}, every", QUESTIONS[name])
            found[name] = _call(ask, trades)
        elif name.endswith("(by)"):
            function, given, made = QUESTIONS[name.removesuffix("(by)")].args
            given = given | {"by": "market"}
            found[name] = _call(plainly, function, given, made, trades)
    return found


def _call(function, *given):
    return lambda: function(*given)
