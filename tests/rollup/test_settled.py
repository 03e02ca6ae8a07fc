"""Trades from blocks: against what the relayer served, plain integers, and the same analyses on both."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest
from support.rollup_blocks import block_data, recorded_bytes, recorded_facts, slot
from support.settled_block import client_of, settled_of, trades_of
from support.wire_rows import whole

import loopring_lab as lab

pytestmark = pytest.mark.contract

RECORDINGS = Path(os.environ.get("LOOPRING_LAB_RECORDINGS", "no recordings"))
RELAYER = RECORDINGS / "mainnet_block_a"
NFT = 1 << 15
SAME = [
    "account_id",
    "market",
    "base",
    "quote",
    "side",
    "fill_type",
    "size",
    "fee",
    "fee_token",
    "token_id",
    "storage_id",
]


def recording(name):
    if not RECORDINGS.is_dir():
        pytest.skip("needs recordings: set LOOPRING_LAB_RECORDINGS to their folder")
    return json.loads((RECORDINGS / name).read_text())


@pytest.fixture(scope="module")
def tokens():
    listed = recording("mainnet_registered_tokens_v36.json")
    names = ("tokenId", "symbol", "decimals")
    return lab.tables.tokens(
        [{n: t[n] for n in names} for t in listed if t["decimals"] is not None]
    )


@pytest.fixture(scope="module")
def blocks():
    return lab.rollup.decode_data(recorded_bytes("data.hex"), first_block=20_000)


@pytest.fixture(scope="module")
def every(blocks, tokens):
    """All rows; one fill is of an NFT."""
    return blocks.trades(tokens)


@pytest.fixture(scope="module")
def trades(every):
    return every[every["extra"].isna()].reset_index(drop=True)


@pytest.fixture(scope="module")
def served():
    """The same fills as the relayer would have served them, in the blocks' order, with roles."""
    recording("mainnet_block_a/tokens.json")
    frame = lab.fills.with_roles(trades_of(client_of(RELAYER)))
    return frame.sort_values(
        ["index_in_block", "role"], ascending=[True, False], ignore_index=True
    )


def small_tokens():
    listed = {
        0: ("ETH", 18),
        1: ("LRC", 18),
        6: ("USDC", 6),
        40: ("TINY", 30),
        41: ("ZERO", 0),
        42: ("ODD#", 8),
    }
    return lab.tables.tokens(
        [{"tokenId": i, "symbol": s, "decimals": d} for i, (s, d) in listed.items()]
    )


def fill(**fields):
    regular = {
        "account_a": 20_001,
        "account_b": 20_002,
        "storage_a": 7,
        "storage_b": 8,
        "sell_a": 1,
        "sell_b": 0,
        "fill_a": 2000 | 18 << 19,
        "fill_b": 3 | 17 << 19,
    }
    return slot("spot_trade", **regular | fields)


def read(*fills, **how):
    return lab.rollup.decode_data(block_data(fills)).trades(small_tokens(), **how)


# Against the relayer


def test_every_regular_row_is_the_relayer_s(trades, served):
    assert len(trades) == len(served) == 364
    assert trades.columns.tolist() == served.columns.drop("role_source").tolist()
    assert trades["role"].tolist() == served["role"].tolist()
    for name in (*SAME, "index_in_block"):
        assert (
            trades[name].astype(object).tolist() == served[name].astype(object).tolist()
        ), name
    assert (trades["block_id"] == 20_000).all()


def test_notionals_are_what_was_settled(trades, served, tokens):
    facts = settled_of(RELAYER)
    decimals = tokens["decimals"].to_dict()
    for row, trade_id in zip(trades.itertuples(), served["trade_id"], strict=True):
        fact = facts[trade_id, row.side]
        assert whole(row.notional, decimals[row.quote]) == int(fact["quote_amount"])
        received = fact["size"] if row.side == "BUY" else fact["quote_amount"]
        assert row.fee_bps == pytest.approx(
            int(fact["fee"]) / int(received) * 10_000, rel=1e-15
        )
        assert int(fact["fee"]) == int(received) * fact["fee_bips"] // 10_000
        assert row.role == fact["role"]


# Against plain integers


def test_all_columns_are_recomputed_from_integers(every, tokens):
    facts = [fact for fact in recorded_facts() if fact["type"] == "spot_trade"]
    decimals = dict(zip(tokens["token_id"], tokens["decimals"], strict=True))
    symbols = dict(zip(tokens["token_id"], tokens.index, strict=True))
    assert len(every) == 2 * len(facts)
    checked = 0
    for place, row in enumerate(every.itertuples()):
        fact, (own, other) = facts[place // 2], ("ab", "ba")[place % 2]
        assert row.account_id == fact[f"account_{own}"]
        assert (row.token_id, row.storage_id) == (
            fact[f"sell_{own}"],
            fact[f"storage_{own}"],
        )
        assert (
            row.trade_id
            == 20_000 * 100_000 + fact["index"]
            == 20_000 * 100_000 + row.index_in_block
        )
        assert row.role == ("taker", "maker")[place % 2]
        if max(fact["sell_a"], fact["sell_b"]) >= NFT:
            continue
        sold, bought = (fact[f"sell_{side}"] for side in (own, other))
        assert {row.base, row.quote} == {symbols[sold], symbols[bought]}
        assert row.side == ("BUY" if row.quote == symbols[sold] else "SELL")
        legs = {
            symbols[fact[f"sell_{side}"]]: int(fact[f"fill_{side}"]) for side in "ab"
        }
        places = {symbols[token]: int(decimals[token]) for token in (sold, bought)}
        assert whole(row.size, places[row.base]) == legs[row.base]
        assert whole(row.notional, places[row.quote]) == legs[row.quote]
        scaled = legs[row.quote] * 10 ** (18 + places[row.base] - places[row.quote])
        assert whole(row.price, 18) == scaled // legs[row.base]
        assert row.fee_token == symbols[fact[f"fee_token_{own}"]] == symbols[bought]
        assert whole(row.fee, places[row.fee_token]) == int(fact[f"fee_{own}"])
        checked += 1
    assert checked == 364


def test_prices_are_exact_at_any_decimals_and_sizes():
    cases = [
        {
            "sell_a": sell,
            "sell_b": buy,
            "fill_a": 524_287 | e << 19,
            "fill_b": m | f << 19,
        }
        for sell, buy in ((1, 0), (6, 1), (40, 41), (41, 40), (42, 6), (40, 6))
        for e, f, m in (
            (0, 0, 1),
            (13, 0, 7),
            (0, 13, 7),
            (3, 17, 524_286),
            (18, 3, 99_991),
        )
    ]
    frame = read(*(fill(**case) for case in cases))
    decimals = dict(
        zip(small_tokens()["token_id"], small_tokens()["decimals"], strict=True)
    )
    names = dict(zip(small_tokens().index, small_tokens()["token_id"], strict=True))
    for row, case in zip(frame.iloc[::2].itertuples(), cases, strict=True):
        legs = {case["sell_a"]: case["fill_a"], case["sell_b"]: case["fill_b"]}
        amounts = {
            token: (raw & 0x7FFFF) * 10 ** (raw >> 19) for token, raw in legs.items()
        }
        base = names[row.base]
        quote = names[row.quote]
        top = amounts[quote] * 10 ** (18 + 48)
        bottom = amounts[base] * 10 ** (48 + int(decimals[quote]) - int(decimals[base]))
        exact = top // bottom
        if exact >= 10**37:
            assert pd.isna(row.price)
            assert "the price does not fit" in row.extra
        else:
            assert whole(row.price, 18) == exact


# Markets


def listed_pairs():
    listed = [
        *recording("mainnet_block_a/markets.json")["markets"],
        *recording("mainnet_amm_pools_v36.json"),
    ]
    return [(one["baseTokenId"], one["quoteTokenId"]) for one in listed]


def all_tokens():
    """Every registered token, 18 decimals where they are not known."""
    records = recording("mainnet_registered_tokens_v36.json")
    known = [
        {n: one[n] for n in ("tokenId", "symbol")} | {"decimals": one["decimals"] or 18}
        for one in records
    ]
    return lab.tables.tokens(known)


def test_the_order_of_quote_tokens_gives_every_listed_market_and_pool():
    pairs = listed_pairs()
    fills = [fill(sell_a=base, sell_b=quote) for base, quote in pairs]
    frame = lab.rollup.decode_data(block_data(fills)).trades(all_tokens()).iloc[::2]
    symbols = dict(zip(all_tokens()["token_id"], all_tokens().index, strict=True))
    expected = [(symbols[base], symbols[quote]) for base, quote in pairs]
    assert len(pairs) == 224
    assert [*zip(frame["base"], frame["quote"], strict=True)] == expected
    assert [*frame["market"]] == [f"{base}-{quote}" for base, quote in expected]
    assert [*frame["side"]] == ["SELL"] * len(pairs)


def test_a_listing_comes_before_the_order_and_a_market_before_its_pool():
    listed = [
        {"market": "AMM-ETH-LRC", "baseTokenId": 0, "quoteTokenId": 1},
        {"market": "ETH-LRC", "baseTokenId": 0, "quoteTokenId": 1},
    ]
    markets = lab.tables.markets(listed, small_tokens())
    frame = read(fill(), fill(sell_a=0, sell_b=6), markets=markets)
    assert [*frame["market"]] == ["ETH-LRC", "ETH-LRC", "ETH-USDC", "ETH-USDC"]
    assert [*frame["side"]] == ["BUY", "SELL", "SELL", "BUY"]
    assert frame["market"].cat.categories.tolist() == [
        "AMM-ETH-LRC",
        "ETH-LRC",
        "ETH-USDC",
    ]
    assert lab.anomalies(frame).empty


# Rows


def test_block_order_is_kept_and_ids_follow_the_position_where_the_number_is_unknown():
    data = [
        block_data([fill(), fill(sell_a=0, sell_b=1)], timestamp=moment)
        for moment in (2000, 1000)
    ]
    frame = lab.rollup.decode_data(data).trades(small_tokens())
    assert [*frame["trade_id"]] == [0, 0, 1, 1, 100_000, 100_000, 100_001, 100_001]
    assert [*frame["role"]] == ["taker", "maker"] * 4
    assert frame["block_id"].isna().all()
    assert [*frame["created_at"].astype("int64")] == [2_000_000] * 4 + [1_000_000] * 4
    numbered = lab.rollup.decode_data(data, first_block=7).trades(small_tokens())
    assert [*numbered["trade_id"].iloc[::4]] == [700_000, 800_000]


def test_a_fill_with_a_pool_on_either_side_is_the_pool_s():
    assert [*read(fill())["fill_type"]] == ["dex", "dex"]
    assert [*read(fill(account_a=9_000))["fill_type"]] == ["amm", "amm"]
    assert [*read(fill(account_b=9_000))["fill_type"]] == ["amm", "amm"]


def test_accounts_up_to_10_000_are_pools_that_the_exchange_lists(blocks):
    """AMM updates name few of the pools that trade in a block, so that fill types rest on the ids."""
    listed = {one["ammAccountId"] for one in recording("mainnet_amm_pools_v36.json")}
    fills = blocks.fills()
    trading = {*fills["account_a"], *fills["account_b"]}
    low = {account for account in trading if account <= 10_000}
    assert len(low) == 12
    assert low <= listed
    assert max(listed) == 127
    assert min(trading - low) == 11_375
    assert low & {*blocks.amm_updates()["account_id"]} == {1, 108}


def test_an_nft_s_fill_keeps_what_can_be_typed():
    frame = read(
        fill(
            sell_a=0,
            sell_b=NFT + 3,
            buy_a=NFT + 9,
            buy_b=0,
            fill_a=5 | 17 << 19,
            fill_b=2,
            data_a=10,
            data_b=20,
        )
    )
    taker, maker = frame.to_dict("records")
    assert (taker["side"], maker["side"]) == ("BUY", "SELL")
    assert (taker["quote"], maker["quote"]) == ("ETH", "ETH")
    assert frame[["market", "base", "size", "price"]].isna().all(axis=None)
    assert whole(taker["notional"], 18) == 5 * 10**17
    assert (taker["fee_token"], whole(taker["fee"], 18)) == ("ETH", 5 * 10**14)
    assert (maker["fee_token"], whole(maker["fee"], 18)) == ("ETH", 10**15)
    assert json.loads(taker["extra"]) == {
        "anomaly": f"token {NFT + 3} is an NFT",
        "size": "2",
    }
    assert lab.anomalies(frame)["reason"].tolist() == [f"token {NFT + 3} is an NFT"] * 2


def test_odd_fills_are_listed_and_lose_no_digit():
    odd = [
        fill(sell_b=999),
        fill(sell_a=998, sell_b=999),
        fill(sell_b=1),
        fill(data_b=64),
        fill(sell_a=41, sell_b=0, fill_a=1 | 20 << 19),
        fill(sell_a=40, sell_b=0, fill_a=1),
        fill(fill_a=0),
        fill(sell_a=NFT, sell_b=NFT),
    ]
    frame = read(*odd, fill())
    extra = [json.loads(text) for text in frame["extra"].dropna()]
    reasons = [one["anomaly"] for one in extra]
    assert reasons[:2] == ["token 999 is not in the tokens table"] * 2
    assert extra[0]["size"] == str(3 * 10**17)
    assert (
        reasons[2:4]
        == [
            "token 998 is not in the tokens table; token 999 is not in the tokens table"
        ]
        * 2
    )
    assert extra[2] | {"anomaly": ""} == {
        "anomaly": "",
        "size": str(3 * 10**17),
        "notional": str(2000 * 10**18),
        "fee": "0",
    }
    assert reasons[4:6] == ["both sides sell token 1"] * 2
    assert reasons[6].startswith("bit 6 of the order data")
    assert [reasons[7].split(" with")[0], extra[7]["size"]] == [
        f"size {10**20}",
        str(10**20),
    ]
    assert reasons[9].startswith("size 1 with the 30 decimals of TINY does not fit")
    assert (
        frame["side"].isna().tolist()
        == [False] * 4 + [True] * 2 + [False] * 8 + [True] * 2 + [False] * 2
    )
    listed = lab.anomalies(frame)
    assert {*range(6), 7, *range(8, 16)} == {*listed.index}
    assert listed.loc[12, "reason"] == "size is 0"


def test_an_empty_block_gives_an_empty_frame():
    frame = read()
    full = read(fill())
    assert len(frame) == 0
    assert frame.columns.tolist() == full.columns.tolist()
    assert [str(one) for one in frame.dtypes] == [str(one) for one in full.dtypes]


def test_other_frames_are_refused(blocks):
    with pytest.raises(lab.LabError, match="tokens: expected the frame"):
        blocks.trades(pd.DataFrame())


# The same analyses on both


def test_orders_are_told_apart_without_a_hash_as_with_it(trades, served):
    expected = lab.fills.orders(served)
    found = lab.fills.orders(trades)
    assert len(found) == len(expected) == served["order_hash"].nunique() == 353
    assert found["order_hash"].isna().all()
    assert found["storage_id"].notna().all()
    assert expected["storage_id"].isna().all()
    names = [
        "account_id",
        "market",
        "side",
        "fee_token",
        "fills",
        "amm_fills",
        "volume",
        "fee",
    ]
    rows = [
        sorted(frame[names].astype(str).agg("|".join, axis=1))
        for frame in (found, expected)
    ]
    assert rows[0] == rows[1]


def test_a_reference_is_never_of_the_fill_its_order_or_what_comes_later(trades):
    """Every fill has one time here, so that places in the block alone tell what came before."""
    found = lab.fills.markouts(trades, horizons=["1h"])
    known = trades[
        ["market", "account_id", "token_id", "storage_id", "trade_id", "price"]
    ].itertuples(index=False)
    rows = [tuple(row) for row in known]
    own = defaultdict(set)
    for _, *order, trade_id, _ in rows:
        own[tuple(order)].add(trade_id)
    takers = [
        row for row, role in zip(rows, trades["role"], strict=True) if role == "taker"
    ]
    expected = []
    for market, *order, _, _ in takers:
        before = [
            one for one in rows if one[0] == market and one[4] < min(own[tuple(order)])
        ]
        expected.append(before[-1][5] if before else None)
    assert [
        None if pd.isna(price) else price for price in found["price_before"]
    ] == expected
    assert sum(price is not None for price in expected) > 100
    # An hour later the block is over: its last fill in the market counts, if it is newer than the order's last.
    last = {row[0]: row for row in rows}
    after = [
        last[row[0]][5] if last[row[0]][4] > max(own[tuple(row[1:4])]) else None
        for row in takers
    ]
    assert [
        None if pd.isna(price) else price for price in found["price_after"]
    ] == after


def test_prices_cut_to_eight_decimals_are_the_relayer_s(trades, served):
    for exact, cut in zip(trades["price"], served["price"], strict=True):
        assert int(exact.scaleb(18)) // 10**10 * 10**10 == int(cut.scaleb(18))


@pytest.mark.parametrize("number", [7 + (1 << 59), (1 << 63) - 1])
def test_a_block_whose_ids_would_be_those_of_another_is_refused(number):
    """A store that somebody else made may number its blocks as it likes."""
    fills = [slot("spot_trade", account_a=1, account_b=2, sell_a=0, sell_b=1)]
    [raw] = lab.rollup.decode_data(block_data(fills)).raw
    blocks = lab.rollup.Blocks([raw._replace(block_id=number)])
    with pytest.raises(lab.errors.BlockError, match=f"block {number}: trade ids of 64"):
        blocks.trades(small_tokens())
