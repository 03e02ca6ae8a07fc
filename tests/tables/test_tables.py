"""Every row layout, irregular row and error: the frames compared with plain Python integers."""

import json
from decimal import ROUND_DOWN, Decimal
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from support.wire_rows import (
    DECIMALS,
    EXACT,
    NAMES,
    histories,
    markets,
    page,
    read,
    row,
    tokens,
    whole,
)

from loopring_lab import tables
from loopring_lab.errors import AmountError, LabError, UnexpectedAnswer

# The row that the exchange's documentation prints, which `row()` returns.
FULL_ROW = {
    "created_at": pd.Timestamp("2022-07-12 15:07:39.610", tz="UTC"),
    "trade_id": 8919527,
    "account_id": 147661,
    "market": "LRC-ETH",
    "base": "LRC",
    "quote": "ETH",
    "side": "SELL",
    "fill_type": None,
    "role": "taker",
    "size": Decimal("453.794"),
    "price": Decimal("0.00035669"),
    "notional": Decimal("453.794") * Decimal("0.00035669"),
    "fee": Decimal("0.00161868"),
    "fee_token": "ETH",
    "fee_bps": pytest.approx(100.0, abs=0.01),
    "order_hash": row()[12],
    "block_id": 24697,
    "index_in_block": 343,
    "token_id": 1,
    "storage_id": 2,
    "extra": None,
}
COLUMNS = list(FULL_ROW)
AMOUNTS = ["size", "price", "notional", "fee"]


def reasons(frame: pd.DataFrame) -> list[str]:
    return tables.anomalies(frame)["reason"].tolist()


# Properties


@settings(max_examples=20)
@given(histories())
def test_size_and_fee_are_the_wire_s_integers(rows):
    frame = read(page(rows)).set_index("trade_id")
    assert len(frame) == len(rows)
    listed = set()
    for members in rows:
        got = frame.loc[int(members[1])]
        base, quote = NAMES[members[5].removeprefix("AMM-")]
        received = base if members[2] == "BUY" else quote
        assert whole(got["size"], DECIMALS[base]) == int(members[3])
        assert whole(got["fee"], DECIMALS[received]) == int(members[6])
        assert got["price"] == Decimal(members[4])
        exact = EXACT.multiply(got["size"], got["price"])
        assert got["notional"] == exact.quantize(Decimal("1e-18"), ROUND_DOWN, EXACT)
        most = got["size"]
        if members[2] == "SELL":
            # The relayer cuts prices to 8 decimals, so a little more may have been received.
            most = EXACT.multiply(most, got["price"] + Decimal("1e-8"))
        if not most or got["fee"] > most:
            listed.add(int(members[1]))
    assert set(tables.anomalies(frame.reset_index())["trade_id"]) == listed


@settings(max_examples=20)
@given(st.lists(st.integers(0, 10**33), min_size=1), st.integers(1, 10**11))
@example([999999999999999999999999999999997], 10**7)
def test_notional_is_cut_at_the_right_digit(sizes, price):
    """One-step division of 256-bit decimals in Arrow misses the last digit of the example."""
    shown = f"{Decimal(price).scaleb(-8):f}"
    made = [
        row(id=str(number), size=str(size), price=shown)
        for number, size in enumerate(sizes)
    ]
    found = [whole(notional, 18) for notional in read(page(made))["notional"]]
    assert found == [size * price // 10**8 for size in sizes]


# Layouts


def test_a_full_row_has_every_documented_member():
    frame = read(page([row()]))
    (found,) = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert found == FULL_ROW
    assert list(found) == COLUMNS
    assert all(str(frame[name].dtype) == "amount" for name in AMOUNTS)
    assert str(frame["created_at"].dtype) == "datetime64[ms, UTC]"
    assert str(frame["fee_bps"].dtype) == "float64"


def test_the_documented_row_is_the_one_read_here(recordings):
    sample = recordings / "samples" / "docs_user_trades_sample.json"
    assert json.loads(sample.read_text())["trades"] == [row()[:13]]


# What members beyond the seventh say; rows of ten members have the last three of the first twelve.
OPTIONAL = [
    "block_id",
    "index_in_block",
    "account_id",
    "token_id",
    "storage_id",
    "order_hash",
    "role",
]


@pytest.mark.parametrize("length", [7, 13, 14])
def test_shorter_rows_leave_what_they_lack_null(length):
    full = row()
    found = read(page([full[:length]]))
    lacking = OPTIONAL[length - 7 :]
    assert found[lacking].isna().all(axis=None)
    assert_frame_equal(
        found.drop(columns=lacking), read(page([full])).drop(columns=lacking)
    )


@pytest.mark.parametrize("length", [8, 9, 10, 11, 12])
def test_rows_of_unknown_lengths_are_refused_in_words(length):
    with pytest.raises(
        UnexpectedAnswer, match=f"expected 7, 13, 14 or more members, got {length}: "
    ):
        read(page([row()[:length]]))
    frame = read(page([row(), row(id="2")[:length]]))
    [reason] = reasons(frame)
    assert reason.startswith("the row is not a trade: expected 7, 13, 14 or more")


@pytest.mark.parametrize("token_id", ["0", "1", None])
@pytest.mark.parametrize("side", ["BUY", "SELL"])
def test_either_token_of_the_market_is_a_regular_token_id(side, token_id):
    """The exchange's documentation shows the token received, recorded samples the one sold."""
    frame = read(page([row(side=side, tokenId=token_id)]))
    assert tables.anomalies(frame).empty


def test_further_members_are_kept_verbatim_and_listed():
    frame = read(page([[*row(), "new", 7, None, {"a": [1]}]]))
    extra = json.loads(frame["extra"].iloc[0])
    assert {name: extra[name] for name in ("14", "15", "16", "17")} == {
        "14": "new",
        "15": "7",
        "16": None,
        "17": {"a": ["1"]},
    }
    assert reasons(frame) == ["more members than are known"]
    assert frame["role"].tolist() == ["taker"]


@pytest.mark.parametrize("side", ["BUY", "SELL"])
def test_the_fee_is_in_the_token_received(side):
    got = read(page([row(side=side)])).iloc[0]
    assert got["fee_token"] == ("LRC" if side == "BUY" else "ETH")
    gross = got["size"] if side == "BUY" else got["notional"]
    assert got["fee_bps"] == pytest.approx(
        float(got["fee"] / gross) * 10_000, rel=1e-12
    )


def test_a_row_of_another_account_is_an_error():
    """Rows that do not say their account are of the one that is given."""
    short = row(id="2")[:7]
    assert read(page([short]), account_id=5)["account_id"].tolist() == [5]
    with pytest.raises(UnexpectedAnswer, match="expected account 5, .* 1 rows of oth"):
        read(page([row(), short]), account_id=5)


@pytest.mark.parametrize(
    "market",
    [
        "AMM-LRC-ETH",
        "LP-LRC-ETH",
        "COMBINE-LRC-ETH",
        "lrc-eth",
        "amm-Lrc-Eth",
        "LRC-ETH",
    ],
)
def test_prefixed_and_odd_cased_markets_are_found(market):
    frame = read(page([row(market=market)]))
    assert frame["market"].tolist() == ["LRC-ETH"]
    assert frame["fill_type"].isna().tolist() == [not market.upper().startswith("AMM-")]
    assert not reasons(frame)


def test_a_symbol_with_hyphens_or_a_prefix_of_its_own_is_never_split():
    names = tables.tokens(
        [
            {"tokenId": i, "symbol": s, "decimals": 8}
            for i, s in enumerate(["LP-A-B", "A", "AMM-A", "b", "B"])
        ]
    )
    records = [("LP-A-B-A", 0, 1), ("A-B", 1, 4), ("AMM-A-B", 2, 4), ("A-b", 1, 3)]
    listed = tables.markets(
        [{"market": m, "baseTokenId": b, "quoteTokenId": q} for m, b, q in records],
        names,
    )
    asked = ["LP-A-B-A", "AMM-A-B", "LP-A-b", "A-B", "a-B"]
    pages = page(
        [
            row(id=str(i), createdAt=str(i + 1), market=m, tokenId="7")
            for i, m in enumerate(asked)
        ]
    )
    frame = tables.trades(pages, names, listed)
    assert frame["base"].astype(object).where(frame["base"].notna(), None).tolist() == [
        "LP-A-B",
        "AMM-A",
        "A",
        "A",
        None,
    ]
    assert frame["quote"].iloc[2:4].tolist() == ["b", "B"]
    assert "could be any of A-B, A-b" in reasons(frame)[-1]


def test_numbers_and_nulls_are_read_as_their_text():
    text = b'{"totalNum": 2, "trades": [[1657638459610, 8919527, "SELL", 453794000000000000000, 3.5669E-4, "LRC-ETH",'
    numbers = text + b" 1618680000000000, 24697, 343, 147661, 1, 2, null, null]]}"
    frame = read(numbers)
    expected = read(page([row(orderHash=None, type=None)]))
    assert_frame_equal(frame, expected)
    assert not reasons(frame)


@pytest.mark.parametrize(
    ("member", "written", "column"),
    [
        ("createdAt", "1.65764E+12", "created_at"),
        ("id", "8.91953E+06", "trade_id"),
        ("size", "4.53794e+20", "size"),
        ("blockId", "2.4697e4", "block_id"),
        # A float has 53 bits, so that it holds 2**53 in place of one more.
        ("size", repr(float(2**53 + 1)), "size"),
        ("feeAmount", "1618680000000000000001.0", "fee"),
    ],
)
def test_a_whole_number_that_went_through_a_float_was_rounded(member, written, column):
    frame = read(page([row(**{member: written})]))
    assert frame[column].isna().all()
    assert f"{member} '{written}' is not a whole number" in reasons(frame)[0]


@pytest.mark.parametrize("written", ["999999999999999.0", "0.0"])
def test_a_float_of_at_most_15_digits_is_exact(written):
    frame = read(page([row(feeAmount=written)]))
    assert frame["fee"][0].scaleb(18) == int(written.partition(".")[0])
    assert not reasons(frame)


def test_fill_types_can_be_given_for_each_page():
    frame = read(
        [page([row(id="1")]), page([row(id="2", market="AMM-LRC-ETH")])],
        fill_type=["dex", "amm"],
    )
    assert frame["fill_type"].tolist() == ["dex", "amm"]
    with pytest.raises(LabError, match="2 labels for 1 pages"):
        read([page([row()])], fill_type=["dex", "amm"])
    with pytest.raises(LabError, match="fill_type='pool' is not known"):
        read([page([row()])], fill_type="pool")


def test_no_trades_still_make_a_typed_frame():
    for nothing in ([], page([]), [page([]), page([])]):
        frame = read(nothing)
        assert frame.columns.tolist() == COLUMNS
        assert (
            frame.dtypes.astype(str).tolist()
            == read(page([row()])).dtypes.astype(str).tolist()
        )
        assert tables.anomalies(frame).empty


# Odd rows


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (
            {"market": "NEW-COIN", "tokenId": "5"},
            "market 'NEW-COIN' is not in the markets table",
        ),
        ({"tokenId": "3"}, "tokenId is neither token of the market"),
        ({"side": "HOLD"}, "side 'HOLD' is not BUY or SELL"),
        (
            {"storageId": str(2**70)},
            f"storageId '{2**70}' is not a whole number of 64 bits",
        ),
        ({"blockId": "maker"}, "blockId 'maker' is not a whole number of 64 bits"),
        ({"size": None}, "size is missing"),
        ({"id": None}, "id is missing"),
        ({"size": "-5"}, "size '-5' is negative"),
        ({"createdAt": "0"}, "createdAt is 0"),
    ],
)
def test_an_odd_row_is_kept_and_listed_with_its_reason(members, reason):
    frame = read(page([row(**members), row(id="1", createdAt="1500000000000")]))
    assert len(frame) == 2
    assert reasons(frame) == [reason]
    kept = json.loads(tables.anomalies(frame)["extra"].iloc[0])
    for name, value in members.items():
        if name in ("side", "type", "blockId", "storageId"):
            assert kept[name] == value


def test_a_market_whose_token_is_not_listed_is_odd():
    listed = tables.markets(
        [{"market": "LRC-NEW", "baseTokenId": 1, "quoteTokenId": 77}], tokens()
    )
    frame = tables.trades(
        page([row(market="LRC-NEW", side="BUY", tokenId="77")]), tokens(), listed
    )
    assert reasons(frame) == [
        "tokenId 77 of market 'LRC-NEW' is not in the tokens table"
    ]
    assert frame["size"].tolist() == [Decimal("453.794")]


def test_listings_of_two_exchanges_scale_nothing(recordings):
    """On the exchange's test net, USDC's id on Ethereum is that of DAI, which has 18 decimals in place of 6."""
    test_net = recordings / "samples" / "uat_exchange_tokens_8.json"
    listed = tables.tokens(test_net.read_bytes())
    real = recordings / "mainnet_block_a" / "markets.json"
    pairs = tables.markets(real.read_bytes(), listed)
    one = row(market="ETH-USDC", side="SELL", feeAmount="1000000")
    found = tables.trades(page([one]), listed, pairs)
    assert found[["base", "quote", "size", "fee"]].isna().all(axis=None)
    [reason] = tables.anomalies(found)["reason"]
    assert "market 'ETH-USDC' is not of the tokens that it is called by" in reason
    kept = json.loads(found["extra"][0])
    assert (kept["size"], kept["feeAmount"]) == (one[3], one[6])
    # A market of tokens that both exchanges have under one id is read.
    assert tables.anomalies(tables.trades(page([row()]), listed, pairs)).empty


def test_frames_put_together_list_fills_that_differ_and_each_copy_too_many():
    one = read(page([row()]))
    other = read(page([row(feeAmount="0")]))
    overlapping = pd.concat([one, read(page([row(), row(id="1")])), one])
    assert reasons(overlapping) == ["read twice: identical to another row"] * 2
    assert reasons(overlapping.drop_duplicates(["trade_id"])) == []
    assert reasons(overlapping.drop_duplicates()) == []
    assert (
        reasons(pd.concat([one, other])) == ["repeated identity with other content"] * 2
    )
    unknown = read(page([row(id=None, feeAmount=fee) for fee in "01"]))
    assert reasons(pd.concat([unknown, unknown])) == ["id is missing"] * 4


def test_anomalies_of_anomalies_have_one_column_of_reasons():
    found = tables.anomalies(read(page([row(price="0.0", feeAmount="1")])))
    assert_frame_equal(tables.anomalies(found), found)


@pytest.mark.parametrize("answer", [1, None, True, 2.5])
def test_what_is_no_page_in_a_list_is_named(answer):
    with pytest.raises(UnexpectedAnswer, match=r"pages\[0\]: expected an object with"):
        read([answer])


@pytest.mark.parametrize("extra", ['{"foo": 1}', "[1]", '{"anomaly": null}'])
def test_an_extra_without_a_reason_is_named(extra):
    frame = read(page([row()])).assign(extra=extra)
    with pytest.raises(LabError, match=r"row 0 has no reason \(anomaly\) in 'extra'"):
        tables.anomalies(frame)


def test_fills_without_a_time_or_an_id_stand_in_one_order():
    # The difference of an id below zero and an unknown one is more than 64 bits hold.
    rows = [row(createdAt="0", id=one) for one in (None, "-7", "5")]
    for order in (rows, rows[::-1]):
        assert read(page(order))["trade_id"].fillna(0).tolist() == [-7, 5, 0]


def test_fills_alike_but_for_unlisted_markets_stand_in_one_order():
    pages = [page([row(market=market)]) for market in ("BBB-ETH", "AAA-ETH")]
    for ordered in (pages, pages[::-1]):
        assert read(ordered)["market"].tolist() == ["AAA-ETH", "BBB-ETH"]
        assert_frame_equal(read(ordered), read(pages))


BEFORE = "created_at is before 2015: sent in seconds?"
AFTER = "created_at is after 2099: sent in microseconds?"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"price": "0.0", "feeAmount": "1"}, "price is 0, so the notional is unknown"),
        ({"price": "-1"}, "price is negative"),
        ({"size": "0", "feeAmount": "0"}, "size is 0"),
        ({"createdAt": "1420070399999"}, BEFORE),
        ({"createdAt": "1420070400000"}, None),
        ({"createdAt": "4102444799999"}, None),
        ({"createdAt": "4102444800000"}, AFTER),
        (
            {"feeAmount": "161864781860001000"},
            None,
        ),  # the price may have been cut by almost 1e-8
        ({"feeAmount": "161869319800000001"}, "fee is more than the amount received"),
        (
            {"side": "BUY", "tokenId": "0", "feeAmount": "453794000000000000001"},
            "fee is more than the amount received",
        ),
        ({"feeAmount": "-1"}, "feeAmount '-1' is negative"),
    ],
)
def test_values_that_cannot_be_are_listed_in_any_part_of_a_frame(members, reason):
    frame = read(page([row(id="1"), row(**members)]))
    expected = [] if reason is None else [reason]
    assert reasons(frame) == reasons(frame[::-1]) == expected
    assert reasons(frame[frame["trade_id"] != 1]) == expected
    assert reasons(pd.concat([frame, read(page([row(id="2")]))])) == expected
    assert reasons(frame.assign(extra=None)) == [
        text.replace("feeAmount '-1'", "fee") for text in expected
    ]


def test_a_price_of_zero_or_below_leaves_the_notional_unknown():
    """The relayer truncates prices to 8 decimals, so one below 1e-8 arrives as 0.0."""
    frame = read(
        page([row(price=price, feeAmount="1") for price in ("0.0", "0", "-1")])
    )
    assert [float(price) for price in frame["price"]] == [-1, 0]
    assert frame["notional"].isna().all()
    assert frame["fee_bps"].isna().all()
    buys = read(
        page(
            [row(price="0.0", side="BUY", tokenId="0", feeAmount="453794000000000000")]
        )
    )
    assert buys["fee_bps"].tolist() == [10]


NO_TRADES: list[tuple[Any, str]] = [
    ({}, "expected a list of members, got dict {}"),
    (None, "expected a list of members, got nothing (null)"),
    ([], "expected 7, 13, 14 or more members, got 0: list []"),
    (["1", 2.50], 'expected 7, 13, 14 or more members, got 2: list ["1",2.5]'),
    (
        [str(number) for number in range(19)],
        "expected a token trade of 7, 13, 14 or more members, got an NFT trade of 19",
    ),
]


def test_a_row_that_is_no_trade_is_kept_beside_those_that_are():
    pages = [page([odd for odd, _ in NO_TRADES]), page([row(id="1"), row(id="2")])]
    frame = read(pages)
    listed = tables.anomalies(frame)
    assert (len(frame), len(listed)) == (2 + len(NO_TRADES), len(NO_TRADES))
    for odd, reason in NO_TRADES:
        [found] = [text for text in listed["reason"] if reason in text]
        assert found.startswith("the row is not a trade: ")
        [extra] = listed.loc[listed["reason"] == found, "extra"]
        assert json.loads(json.loads(extra)["row"]) == odd
    members = [name for name in COLUMNS if name not in ("fill_type", "extra")]
    assert listed[members].isna().all(axis=None)
    assert (
        tables.anomalies(pd.concat([frame, read(page([row(id="3")]))]))[
            "reason"
        ].tolist()
        == listed["reason"].tolist()
    )


# Refusals


@pytest.mark.parametrize(
    ("text", "field", "expected", "got"),
    [
        (
            b'{"totalNum": 1, "trades": [["1"',
            "pages[0]",
            "JSON",
            "31 characters that break off or go wrong",
        ),
        (b"\n<!doctype html><p>Hello", "pages[0]", "JSON", "a web page"),
        (b" ", "pages[0]", "JSON", "no text"),
        (
            b'{"totalNum": 1, "trades": {"0": []}}',
            "pages[0].trades",
            "a list of rows",
            'dict {"0":[]}',
        ),
        (
            b'{"totalNum": 1}',
            "pages[0]",
            'an object with "totalNum" and "trades"',
            'dict {"totalNum":1}',
        ),
        (b"[]", "pages[0]", 'an object with "totalNum" and "trades"', "list []"),
        (
            b'{"totalNum": 1, "trades": null}',
            "pages[0].trades",
            "a list of rows",
            "nothing (null)",
        ),
        (
            b'{"totalNum": 1, "trades": [["1", "2"]]}',
            "pages[0].trades[0]",
            "7, 13, 14 or more members",
            "2: list",
        ),
        (
            b'{"totalNum": 1, "trades": ["\xff"]}',
            "pages[0]",
            "JSON",
            "bytes that are not UTF-8",
        ),
    ],
)
def test_a_broken_page_is_refused_with_its_place(text, field, expected, got):
    with pytest.raises(UnexpectedAnswer) as caught:
        read(text)
    assert (caught.value.field, caught.value.expected) == (field, expected)
    assert got in str(caught.value.got)
    assert str(caught.value).endswith(".")


# What could exhaust memory or the stack, or has no one meaning; bodies are too long for names of tests.
NOT_ACCEPTED = {
    "brackets nested over 64 deep": b'{"a":"'
    + b"]" * 300_000
    + b'","b":'
    + b"[" * 300_000,
    "more than 500,000 values": b"[" + b"1," * 500_000 + b"1]",
    "more than 32 MiB": b'["' + b" " * (32 << 20) + b'"]',
    "half of a surrogate pair at 4": rb'["\\\ud800"]',
    "bytes that are not UTF-8 at 2": '["\ud800"]',
    "text in UTF-16": "[1]".encode("utf-16"),
    "NaN or Infinity at 15": b'["\\"Infinity", -Infinity]',
    "an object that has a member twice": b'{"totalNum": 1, "totalNum": 2}',
}


@pytest.mark.parametrize("got", NOT_ACCEPTED)
def test_a_page_beyond_the_limits_is_refused_and_not_shown(got):
    with pytest.raises(UnexpectedAnswer, match="expected JSON") as caught:
        read(NOT_ACCEPTED[got])
    assert got in caught.value.got
    assert len(str(caught.value)) < 300


def test_brackets_in_texts_are_no_nesting():
    looks_deep = '\\"[' * 500
    found = read(page([row(orderHash=looks_deep)]))
    assert json.loads(found["extra"][0])["orderHash"] == looks_deep


LARGE = "1e1000000"
NEVER = "1e999999999"


@pytest.mark.parametrize(
    ("members", "column", "reason"),
    [
        (
            {"size": "1" + "0" * 40},
            "size",
            "with the 18 decimals of LRC does not fit decimal128(38, 18)",
        ),
        ({"size": "1" * 78}, "size", "is not a whole number of at most 76 digits"),
        ({"price": "0." + "3" * 400}, "price", "is not a decimal number"),
        ({"size": True}, "size", "size 'true' is not a whole number"),
        ({"size": LARGE}, "size", f"size '{LARGE}' is not a whole number"),
        (
            {"market": "THIRTY-ETH", "tokenId": "40", "size": "1"},
            "size",
            "size '1' with the 30 decimals of THIRTY",
        ),
        ({"price": "1E-19"}, "price", "price '1E-19' does not fit decimal128(38, 18)"),
        ({"price": NEVER}, "price", f"price '{NEVER}' is not a decimal number"),
        (
            {"price": "1E18", "size": "1" + "0" * 30},
            "notional",
            "size times price does not fit decimal128(38, 18)",
        ),
        (
            {"createdAt": "yesterday"},
            "created_at",
            "createdAt 'yesterday' is not a whole number of 64 bits",
        ),
        (
            {"createdAt": str(2**63 - 1)},
            "created_at",
            "is not between the years 1970 and 9999",
        ),
        ({"id": "7" * 5_000}, "trade_id", "is not a whole number of 64 bits"),
        ({"id": "0xff"}, "trade_id", "id '0xff' is not a whole number of 64 bits"),
    ],
)
def test_a_member_that_its_column_cannot_hold_is_null_and_the_other_rows_are_read(
    members, column, reason
):
    """Huge exponents take forever or crash pyarrow, which also makes wrong decimals of 78 and more digits."""
    fine = [
        row(id=str(number), createdAt=str(1657638459610 - number))
        for number in range(4)
    ]
    odd = row(**{"id": "9", "createdAt": "1"} | members)
    frame = read([page(fine), page([*fine[:2], odd, *fine[2:]])])
    assert len(frame) == 5
    listed = tables.anomalies(frame)
    assert frame.drop(index=listed.index)[column].notna().all()
    assert listed[column].isna().tolist() == [True]
    assert reason in listed["reason"].iloc[0]
    assert len(listed["reason"].iloc[0]) < 200
    kept = json.loads(listed["extra"].iloc[0])
    for name, value in members.items() if column != "notional" else ():
        assert (
            kept.get(name, value) == value
            if isinstance(value, str)
            else kept[name] == json.dumps(value)
        )


def test_parsed_answers_are_held_to_the_same_limits():
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    for value, got in (
        ("\ud800", "half of"),
        (float("nan"), "NaN or"),
        (deep, "nested"),
        ({1, 2}, "not JSON"),
    ):
        with pytest.raises(UnexpectedAnswer, match=got):
            read({"totalNum": 1, "trades": [row(orderHash=value)]})
        with pytest.raises(UnexpectedAnswer, match=got):
            tables.tokens([{"tokenId": 1, "symbol": "A", "decimals": 1, "new": value}])
    with pytest.raises(UnexpectedAnswer, match="Exceeds the limit"):
        read({"totalNum": 1, "trades": [row(id=10**5_000)]})
    assert len(reasons(read({"totalNum": 1, "trades": [row(id=10**4_000)]}))) == 1


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("tokens", []),
        ("markets", pd.DataFrame()),
        ("tokens", {"a": 1}),
        # Numbers of rows are no symbols.
        ("tokens", tokens().reset_index()),
        ("markets", markets().reset_index()),
    ],
)
def test_raw_answers_in_place_of_frames_are_named(name, wrong):
    given = {"tokens": tokens(), "markets": markets()} | {name: wrong}
    with pytest.raises(
        LabError, match=f"{name}: expected the frame that tables.{name} makes, got"
    ):
        tables.trades(page([row()]), **given)


# Tokens and markets


def assert_every_field(answer: list[dict[str, Any]], frame: pd.DataFrame) -> None:
    for record in answer:
        got = frame[frame["token_id"] == record["tokenId"]].iloc[0]
        for group, column in (
            ("orderAmounts", "order_amounts"),
            ("luckyTokenAmounts", "lucky_token_amounts"),
        ):
            for bound, text in record[group].items():
                assert whole(got[f"{column}_{bound}"], record["decimals"]) == int(text)
        assert whole(got["fast_withdraw_limit"], record["decimals"]) == int(
            record["fastWithdrawLimit"]
        )
        assert [got["gas_amounts_distribution"], got["gas_amounts_deposit"]] == [
            int(record["gasAmounts"][name]) for name in ("distribution", "deposit")
        ]
        same = ["type", "name", "address", "decimals", "precision", "enabled"]
        assert [got[name] for name in same] == [record[name] for name in same]
        assert got["precision_for_order"] == record["precisionForOrder"]


def test_every_token_field_is_there_and_exact(recordings):
    answer = json.loads(
        (recordings / "samples" / "uat_exchange_tokens_8.json").read_text()
    )
    frame = tables.tokens(answer)
    assert_every_field(answer, frame)
    # More digits than an amount of trades has: limits are wider columns.
    assert frame.loc["LP-USDC-ETH", "order_amounts_maximum"] == Decimal(10) ** 31
    assert str(frame["order_amounts_dust"].dtype) == "decimal256(76, 18)[pyarrow]"


def test_repeated_symbols_are_told_apart_by_id(recordings):
    answer = json.loads((recordings / "mainnet_block_a" / "tokens.json").read_text())
    frame = tables.tokens(answer)
    assert frame.index.is_unique
    assert sorted(label for label in frame.index if "#" in label) == sorted(
        f"{t['symbol']}#{t['tokenId']}" for t in answer if t["symbol"] == "LP-ETH-USDT"
    )
    assert frame["extra"].isna().all()


def test_recorded_market_answer_is_read(recordings):
    frame = tables.markets(
        (recordings / "samples" / "docs_mix_markets_sample.json").read_text()
    )
    assert frame.index.tolist() == ["LRC-ETH", "ETH-USDT", "DAI-USDT", "USDC-ETH"]
    assert frame["created_at"].isna().tolist() == [False, False, True, False]
    assert frame.loc["LRC-ETH", "created_at"] == pd.Timestamp(
        1617967800000, unit="ms", tz="UTC"
    )
    assert frame[["base", "quote"]].loc["DAI-USDT"].tolist() == ["DAI", "USDT"]
    assert frame["orderbook_agg_levels"].tolist() == [5, 3, 2, 3]


@pytest.mark.parametrize(
    ("status", "amm", "book"),
    [(0, False, False), (1, True, False), (2, False, True), (3, True, True)],
)
def test_market_status_is_a_mask(status, amm, book):
    got = tables.markets(
        [{"market": "A-B", "baseTokenId": 1, "quoteTokenId": 2, "status": status}]
    ).iloc[0]
    assert (got["amm_open"], got["orderbook_open"]) == (amm, book)


@pytest.mark.parametrize(
    ("record", "field", "expected"),
    [
        ({"symbol": "A", "decimals": 1}, "tokens[0].token_id", "a number"),
        ({"tokenId": 1, "decimals": 1}, "tokens[0].symbol", "a name"),
        (
            {"tokenId": 1, "symbol": "A", "decimals": "many"},
            "tokens[0].decimals",
            "a whole number of 64 bits",
        ),
        (
            {"tokenId": 1, "symbol": "A", "decimals": 1, "enabled": "yes"},
            "tokens[0].enabled",
            "true or false",
        ),
        (
            {"tokenId": 1, "symbol": "A", "decimals": 1, "orderAmounts": []},
            "tokens[0].orderAmounts",
            "an object",
        ),
        (
            {
                "tokenId": 1,
                "symbol": "A",
                "decimals": 1,
                "orderAmounts": {"dust": "-1"},
            },
            "tokens[0].orderAmounts.dust",
            "an amount of 0 or more, of at most 76 digits",
        ),
        ("A", "tokens[0]", "a record"),
    ],
)
def test_a_broken_token_record_is_refused_with_its_place(record, field, expected):
    with pytest.raises(UnexpectedAnswer) as caught:
        tables.tokens([record])
    assert (caught.value.field, caught.value.expected) == (field, expected)


def test_a_limit_that_does_not_fit_names_token_and_field():
    record = {
        "tokenId": 1,
        "symbol": "BIG",
        "decimals": 0,
        "orderAmounts": {"maximum": "1" + "0" * 60},
    }
    with pytest.raises(
        AmountError,
        match=r"BIG.orderAmounts.maximum.*does not fit decimal256\(76, 18\)",
    ):
        tables.tokens([record])


def test_unknown_fields_are_kept():
    frame = tables.tokens(
        [
            {
                "tokenId": 1,
                "symbol": "A",
                "decimals": 1,
                "new": {"x": 1},
                "gasAmounts": {"deposit": "5", "burn": "7"},
            }
        ]
    )
    assert json.loads(frame["extra"].iloc[0]) == {
        "new": {"x": 1},
        "gasAmounts": {"burn": "7"},
    }
    assert frame["gas_amounts_deposit"].tolist() == [5]


def test_token_ids_are_unique():
    with pytest.raises(UnexpectedAnswer, match="each id once, got 5 twice"):
        tables.tokens([{"tokenId": 5, "symbol": s, "decimals": 1} for s in "AB"])


# Samples of trades


def test_an_nft_trade_is_refused(recordings):
    with pytest.raises(
        UnexpectedAnswer, match="got an NFT trade of 19 members.*leave that page out"
    ):
        read((recordings / "samples" / "docs_nft_trades_sample.json").read_bytes())
