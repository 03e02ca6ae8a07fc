"""Notebooks 01, 02, 03 and 06 on blocks: the embedded chain and a real block. What they print is true."""

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest
from notebooks.test_notebook_claims import run
from support.optional import thorough
from support.rollup_blocks import recorded

import loopring_lab as lab
from loopring_lab import cli
from loopring_lab.relayer.server import embedded

pytestmark = pytest.mark.contract

MONTH = 11_365_814


@pytest.fixture(scope="module")
def month(tmp_path_factory):
    folder = tmp_path_factory.mktemp("month") / "blocks"
    lab.rollup.Store(folder).sync(to_block=MONTH, progress=False)
    return folder


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real") / "blocks"
    block = recorded()
    listing = block.parent / "mainnet_registered_tokens_v36.json"
    lab.rollup.Store(folder).import_files(
        block / "calldata_plain.hex", tokens=listing, progress=False
    )
    return folder


@pytest.fixture(scope="module", params=[thorough("month"), "real"])
def blocks(request):
    return request.getfixturevalue(request.param)


def facts(blocks):
    """Return spot trades as they are in the blocks."""
    return lab.rollup.Store(blocks).blocks().table("spot_trade").to_pylist()


def busiest(blocks):
    counts = Counter(fact[f"account_{side}"] for fact in facts(blocks) for side in "ab")
    return max(
        ((a, n) for a, n in counts.items() if a > 10_000),
        key=lambda one: (one[1], -one[0]),
    )


@pytest.mark.thorough
def test_a_first_look_counts_every_trade(blocks):
    account, count = busiest(blocks)
    found = run("01_first_look.ipynb", blocks=str(blocks), account_id=account)
    assert found.text.splitlines()[-1].endswith(f"of {count:,}")
    assert (found.names["read"] == found.names["counted"]).all()


@pytest.mark.thorough
def test_fees_are_those_of_the_blocks(blocks):
    account, count = busiest(blocks)
    found = run(
        "02_fee_analysis.ipynb",
        blocks=str(blocks),
        account_id=account,
        schedule=[{"bps": 9}],
    )
    assert found.text.startswith(f"account {account}: {count:,} fills, fees valued in ")
    sides = [
        (fact, side)
        for fact in facts(blocks)
        for side in "ab"
        if fact[f"account_{side}"] == account
    ]
    above = sum(fact[f"fee_bips_{side}"] > 9 for fact, side in sides)
    assert found.numbers("# of # fills were charged above the schedule.") == [
        above,
        count,
    ]  # exact legs hide none
    assert found.numbers("# cannot be judged.") == [0]
    priced, of = found.numbers("Fees of # of # fills: ")
    assert (of, of - priced) == (count, found.names["valued"]["unpriced"].sum())


def test_fees_of_nothing_have_a_value(real):
    """The pool pays no fee in any fill: what it paid is known, and is 0."""
    pool, count = Counter(
        fact["account_b"] for fact in facts(real) if fact["fee_b"] == 0
    ).most_common(1)[0]
    found = run("02_fee_analysis.ipynb", blocks=str(real), account_id=pool)
    priced, of, paid = found.numbers("Fees of # of # fills: # ")
    assert (of, paid) == (count, 0)
    assert priced > 0
    assert "no fee has a value" not in found.text


@pytest.fixture(scope="module")
def venues(blocks):
    return run("03_amm_versus_orderbook.ipynb", blocks=str(blocks), horizon="1h")


def test_each_fill_stands_once_with_its_taker(blocks, venues):
    count = len(facts(blocks))
    said = venues.numbers(
        "# rows are # fills; the taker's side is known and read for #."
    )
    assert said == [2 * count, count, count]
    takers = Counter(fact["account_a"] for fact in facts(blocks))
    assert venues.names["taken"]["account_id"].value_counts().to_dict() == takers
    accounts = len(takers)
    said = venues.numbers(
        "# fills of # accounts are compared, those of all takers, arbitrage included."
    )
    assert said == [count, accounts]


def test_orders_on_the_book_have_quotes_where_balances_are_known(blocks, venues):
    client = lab.connect(blocks=blocks)
    quotes = lab.research.pool_quotes(client.trades(), client.pool_balances())
    quoted = int(quotes["pool_quote"].notna().sum())
    assert venues.numbers("over the # of # orders on the book that have a quote.") == [
        quoted,
        len(quotes),
    ]
    said = venues.numbers("the opportunity cost is # bps")
    assert said == [
        round(venues.names["quotes"]["weighted_opportunity_bps"].iloc[0], 1)
    ]


@pytest.mark.thorough
def test_a_pools_fills_are_counted(blocks):
    pool = Counter(fact["account_b"] for fact in facts(blocks)).most_common(1)[0]
    found = run("07_liquidity.ipynb", blocks=str(blocks), pool_account=pool[0])
    assert found.numbers(f"# fills of account {pool[0]}.") == [pool[1]]


def test_orders_are_put_together_without_hashes(blocks, venues):
    parts = Counter(
        (fact["account_a"], fact["sell_a"], fact["storage_a"]) for fact in facts(blocks)
    )
    (several, orders) = venues.numbers("# of # orders were filled in several parts.")
    listed = {int(one) for one in lab.rollup.Store(blocks).tokens()["token_id"]}
    odd = [
        fact for fact in facts(blocks) if not {fact["sell_a"], fact["buy_a"]} <= listed
    ]
    assert len(parts) - len(odd) <= orders <= len(parts)
    assert several == sum(count > 1 for count in parts.values())


def test_no_venue_is_named_cheaper_on_own_trades_alone_without_saying_so(venues):
    sentence, *_ = [
        line
        for line in venues.text.splitlines()
        if line.startswith("Undecided") or "is cheaper: " in line
        if "opportunity cost" not in line
    ]
    assert sentence.startswith("Undecided: ") or "own trades" in venues.text
    if venues.names["matched"]:
        assert "own trades" in venues.text


@pytest.mark.thorough
def test_prices_of_the_own_block_decide_nothing_and_that_is_said(month):
    """Within a minute all prices are of the fill's own block, later in it."""
    found = run("03_amm_versus_orderbook.ipynb", blocks=str(month), days=5)
    assert "Undecided" in found.text


@pytest.mark.thorough
@pytest.mark.parametrize(
    "explorer", [lab.widgets.FeeExplorer, lab.widgets.FillExplorer]
)
def test_explorers_read_blocks(blocks, explorer):
    client, (account, count) = lab.connect(blocks=blocks), busiest(blocks)
    shown = explorer(client.trades(account))
    assert len(client.trades(account)) == count
    assert "error" not in repr(shown).lower()
    explorer(client)


# Notebook 06


@pytest.fixture(scope="module")
def trades_of_blocks(blocks):
    return run("06_real_trades.ipynb", blocks=str(blocks))


def test_what_is_proven_is_what_the_store_says(blocks, trades_of_blocks):
    summary = lab.rollup.Store(blocks).check(progress=False).summary
    counts = [summary[name].sum() for name in ("checked", "wrong", "not_checkable")]
    assert (
        trades_of_blocks.numbers("# comparisons, # of them wrong; # not possible.")
        == counts
    )
    assert counts[1] == 0


def test_fills_makers_and_owners_are_counted(blocks, trades_of_blocks):
    fills = facts(blocks)
    owners = owners_in(blocks)
    updates = (
        lab.rollup.Store(blocks).blocks().table("amm_update")["account"].to_pylist()
    )
    is_pool = {*updates, *range(1, 10_001)}
    at_pool = sum(
        fact["account_a"] in is_pool or fact["account_b"] in is_pool for fact in fills
    )
    free = sum(fact["fee_b"] == 0 for fact in fills)
    said = trades_of_blocks.numbers(
        "# fills, # of them at a pool; the maker paid no fee in #."
    )
    assert said == [len(fills), at_pool, free]
    traders = {fact[f"account_{side}"] for fact in fills for side in "ab"} - is_pool
    said = trades_of_blocks.numbers(
        "These blocks name the owners of # of the # accounts that trade."
    )
    assert said == [len(traders & owners), len(traders)]


def owners_in(blocks):
    """Return accounts whose owner some transaction names, read from the slots by the protocol's names."""
    chain = lab.rollup.Store(blocks).blocks()
    found = set()
    names = {
        kind: [("account", "owner")]
        for kind in (
            "deposit",
            "account_update",
            "amm_update",
            "signature_verification",
        )
    }
    names |= {
        "withdrawal": [("account", "owner")],
        "transfer": [("sender", "from_"), ("receiver", "to")],
        "nft_mint": [("receiver", "to")],
    }
    for kind, pairs in names.items():
        for row in chain.table(kind).to_pylist():
            if kind != "withdrawal" or row["kind"] != 3:
                found |= {
                    row[account]
                    for account, owner in pairs
                    if row[owner] and any(row[owner])
                }
    return found


def test_the_pool_kept_what_its_updates_state(trades_of_blocks):
    pool, fills, median, stated = trades_of_blocks.numbers(
        "Pool # kept, at the median of # fills: # bps. Its updates state: [#]."
    )
    assert fills == len(trades_of_blocks.names["kept"]) > 20
    assert stated <= median < 1.01 * stated
    assert pool == trades_of_blocks.names["pool"]


def test_fills_that_fit_one_taker_are_counted(blocks, trades_of_blocks):
    rows = trades_of_blocks.names["taken"].dropna(subset="market")
    ids = lab.rollup.Store(blocks).tokens()["token_id"].to_dict()
    bases = {row.trade_id: ids[row.base] for row in rows.itertuples()}
    takers: dict[tuple[int, int, int], list[int]] = {}
    for fact in lab.rollup.Store(blocks).blocks().fills().to_dict("records"):
        if (base := bases.get(fact["trade_id"])) is not None:
            size = fact["fill_a"] if fact["sell_a"] == base else fact["fill_b"]
            takers.setdefault((fact["sell_a"], fact["buy_a"], size), []).append(
                fact["account_a"]
            )
    alone = [accounts for accounts in takers.values() if len(set(accounts)) == 1]
    said = trades_of_blocks.numbers(
        "market, side, size: # fills fit one taker only, of # takers."
    )
    assert said == [sum(map(len, alone)), len({accounts[0] for accounts in alone})]


def test_markets_of_few_takers_are_left_out(blocks, trades_of_blocks):
    takers: dict[frozenset[int], set[int]] = {}
    for fact in facts(blocks):
        if max(fact["sell_a"], fact["buy_a"]) < 32_768:
            takers.setdefault(frozenset({fact["sell_a"], fact["buy_a"]}), set()).add(
                fact["account_a"]
            )
    few = sum(len(accounts) < 5 for accounts in takers.values())
    said = trades_of_blocks.numbers(
        "# of # markets are left out: they have fewer than # takers."
    )
    assert said == [few, len(takers), 5]


def test_key_updates_unpack_and_their_signatures_are_counted(blocks, trades_of_blocks):
    count = lab.rollup.Store(blocks).blocks().table("account_update").num_rows
    said = trades_of_blocks.numbers(
        "# key updates: # keys unpack and pack back; # freeze their account."
    )
    assert said == [count, count, 0]
    signed = lab.rollup.Store(blocks).check(progress=False).summary.loc["signatures"]
    said = trades_of_blocks.numbers(
        "Signatures of owners, in the whole store: # right, # wrong."
    )
    assert said == [signed["checked"] - signed["wrong"], signed["wrong"]]


@pytest.mark.thorough
def test_exported_transactions_are_read():
    block = recorded()
    listing = str(block.parent / "mainnet_registered_tokens_v36.json")
    found = run(
        "06_real_trades.ipynb", files=str(block / "calldata_packed.hex"), tokens=listing
    )
    assert found.numbers(
        "# fills, # of them at a pool; the maker paid no fee in #."
    ) == [183, 156, 182]


@pytest.mark.thorough
def test_parts_of_a_store_are_read(month):
    part = run(
        "06_real_trades.ipynb", blocks=str(month), numbers=[20_099, 20_101], fewest=1
    )
    assert part.names["chain"].headers()["block_id"].tolist() == [
        20_099,
        20_100,
        20_101,
    ]
    account, fills = part.numbers("Account #, in the whole store: # fills.")
    counts = Counter(fact[f"account_{side}"] for fact in facts(month) for side in "ab")
    assert fills == counts[account]
    chosen = part.names["trades"]
    assert fills > (chosen["account_id"] == account).sum()


@pytest.mark.thorough
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)
def test_a_template_runs_on_blocks_under_papermill(
    month, tmp_path, monkeypatch, capsys
):
    import papermill

    monkeypatch.chdir(tmp_path)
    assert (
        cli.main(["new", "fee-analysis", "study/mine.ipynb", "--blocks", str(month)])
        == 0
    )
    account, count = busiest(month)
    assert f"account_id = {account}, chosen for {month}" in capsys.readouterr().out
    papermill.execute_notebook(
        "study/mine.ipynb",
        "done.ipynb",
        {"every": "1w"},
        cwd="study",
        progress_bar=False,
    )
    assert (
        f"account {account}: {count:,} fills" in (tmp_path / "done.ipynb").read_text()
    )


def test_new_takes_a_folder_of_blocks(real, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(real.parent)
    assert (
        cli.main(
            [
                "new",
                "amm-versus-orderbook",
                str(tmp_path / "a.ipynb"),
                "--blocks",
                "blocks",
            ]
        )
        == 0
    )
    source = "".join(
        json.loads((tmp_path / "a.ipynb").read_text())["cells"][1]["source"]
    )
    assert "horizon = '1h'" in source
    assert "accounts = None" in source
    line = next(line for line in source.splitlines() if line.startswith("blocks = "))
    assert (tmp_path / line.split("'")[1]).resolve() == real
    assert (
        cli.main(
            ["new", "first-look", str(tmp_path / "b.ipynb"), "--blocks", "nowhere"]
        )
        == 2
    )
    assert (
        cli.main(
            ["new", "real-trades", str(tmp_path / "c.ipynb"), "--blocks", "new-folder"]
        )
        == 0
    )
    assert (
        cli.main(["new", "key-update", str(tmp_path / "d.ipynb"), "--blocks", "blocks"])
        == 2
    )
    assert "has no parameter 'blocks'" in capsys.readouterr().err


@pytest.mark.thorough
def test_no_notebook_holds_the_address_of_an_endpoint(tmp_path, monkeypatch):
    with contextlib.redirect_stdout(None):
        relayer = embedded()
    key = "k3y0fth3endp01nt"
    monkeypatch.setenv("LOOPRING_RPC_URL", f"{relayer.rpc_url}?key={key}")
    found = run("06_real_trades.ipynb", to_block=11_160_000)
    assert found.names["report"]["blocks"].sum() > 0
    assert key not in found.text
    stored = Path(found.names["store"].file.database.shown)
    assert not any(
        key.encode() in path.read_bytes()
        for path in stored.rglob("*")
        if path.is_file()
    )
