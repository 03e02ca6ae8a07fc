"""Merging rows by identity: compared with a plain model, over every form of row."""

import functools
import json
import tempfile
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledger import Ledger, client_of
from support.wire_rows import NAMES, markets, page, row, tokens, wire_rows

from loopring_lab import tables
from loopring_lab.archive import Archive, merge
from loopring_lab.archive.rows import ListingSnapshot, Page, to_frame, to_rows
from loopring_lab.archive.schema import SHOWN
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer import Relayer
from loopring_lab.source import Source
from loopring_lab.tables import wire
from loopring_lab.tables.rows import COLUMNS

KEYS = st.tuples(
    st.sampled_from([1, 2]),
    st.sampled_from([5, 6, None]),
    st.sampled_from(["BUY", "SELL"]),
)
ROW = st.tuples(KEYS, st.sampled_from("abc"), st.integers(0, 4))


def rows(some):
    """Make rows of identities, contents and pages; what else a row holds does not matter here."""
    every = [
        dict.fromkeys(COLUMNS)
        | {"account_id": key[0], "trade_id": key[1], "side": key[2], "fill_type": "dex", "verbatim": text,
           "retrieved_at": pd.Timestamp(page, unit="s", tz="UTC")}
        for key, text, page in some
    ]  # fmt: skip
    integers = (
        "account_id",
        "trade_id",
        "block_id",
        "index_in_block",
        "token_id",
        "storage_id",
    )
    names = [*COLUMNS, "verbatim", "retrieved_at"]
    schema = pa.schema(
        [(name, pa.int64() if name in integers else pa.string()) for name in names]
    )
    for name in ("size", "price", "notional", "fee"):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.int64()))
    for name in ("created_at", "retrieved_at"):
        schema = schema.set(
            schema.get_field_index(name), pa.field(name, pa.timestamp("us", "UTC"))
        )
    return pa.Table.from_pylist(every, schema)


def plain(held, some, imported):
    """Add rows as the archive promises to, in plain Python: versions are [text, current, live]."""
    for key in {key: None for key, *_ in some}:
        mine = [(text, page) for other, text, page in some if other == key]
        pages = [list(page) for _, page in groupby(mine, key=lambda one: one[1])]
        last_seen = {text for text, _ in pages[-1]}
        is_live = any(live for *_, live in held[key])
        for text, _ in mine:
            if text not in [version[0] for version in held[key]]:
                held[key].append([text, False, not imported])
        for version in held[key]:
            if not imported or not is_live:
                version[1] = version[0] in last_seen
            version[2] |= not imported and version[0] in last_seen


@settings(max_examples=10)
@given(st.lists(st.tuples(st.lists(ROW, max_size=8), st.booleans()), max_size=4))
def test_batches_settle_as_a_plain_model_does(batches):
    model: dict[Any, list[list[Any]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder, "a"))
        for made, imported in batches:
            batch = sorted(made, key=lambda one: one[2])  # pages are read in order
            with archive._file.writing(Source("model")) as connection:
                merge.add(connection, rows(batch), imported=imported)
            plain(model, batch, imported)
        lines = archive.query("FROM rows").to_dict("records") if batches else []
    held: dict[Any, dict[int, Any]] = defaultdict(dict)
    for line in lines:
        trade_id = None if pd.isna(line["trade_id"]) else int(line["trade_id"])
        held[line["account_id"], trade_id, line["side"]][line["version"]] = [
            line["verbatim"],
            line["current"],
        ]
    expected = {
        key: {n: [one[0], one[1]] for n, one in enumerate(versions, 1)}
        for key, versions in model.items()
    }
    assert held == {key: versions for key, versions in expected.items() if versions}


@functools.cache
def listed():
    records = [
        {"tokenId": i, "symbol": symbol, "decimals": int(decimals)}
        for symbol, i, decimals in zip(
            tokens().index, tokens()["token_id"], tokens()["decimals"], strict=True
        )
    ]
    named = [
        {"market": name, "baseTokenId": b, "quoteTokenId": q}
        for name, (b, q) in NAMES.items()
    ]
    return ListingSnapshot(json.dumps(records), json.dumps({"markets": named}), 0)


def typed_rows(body, *further, fill_type="dex"):
    key = (147661, fill_type)
    places = ["page 7"] * (1 + len(further))
    batch = wire.read([body, *further], places)
    pages = [Page(key, each, 1) for each in wire.split(batch)]
    found = to_rows(pages, listed().lookup())
    for error in found.errors.values():
        raise error
    return found.rows


@pytest.mark.thorough
@settings(max_examples=40)
@given(
    st.lists(wire_rows(), max_size=12), st.sampled_from(["amm", "dex"]), st.booleans()
)
def test_rows_come_back_as_the_client_reads_them(some, kind, spaced):
    for one in some:
        if len(one) > 9:
            one[7 if len(one) == 10 else 9] = "147661"
    body = (
        page(some)
        if spaced
        else json.dumps(
            {"totalNum": len(some), "trades": some}, separators=(",", ":")
        ).encode()
    )
    table = typed_rows(body, fill_type=kind)
    texts = table["verbatim"].to_pylist()
    assert sorted(texts) == sorted(
        json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in some
    )
    expected = tables.trades(
        [body], tokens(), markets(), fill_type=kind, account_id=147661
    )
    unique = table.take(
        pa.array(
            sorted({text: at for at, text in enumerate(texts)}.values()), pa.int64()
        )
    )
    assert_same(to_frame(as_shown(unique), listed()), expected)


def as_shown(table):
    """Return amounts as the archive hands them over."""
    with duckdb.connect() as connection:
        return connection.from_arrow(table).project(SHOWN).to_arrow_table()


def assert_same(ours, theirs):
    pd.testing.assert_frame_equal(ours.assign(account_id=theirs["account_id"]), theirs)


def row_texts(body):
    [page] = wire.read_each([body], ["page 7"])
    assert isinstance(page, wire.Batch)
    return wire.texts_of(page.columns).to_pylist()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"trades": [["1", 8.50e1, -0, null, true, "a],[b", {"x": [1]}]]}', '["1",8.50e1,-0,null,true,"a],[b",{"x":[1]}]'),
        ('{"trades":[["1","\\u00e9\\"]],[["]],"totalNum":1}', '["1","é\\"]],[["]'),
        ('{"totalNum":1,"trades":[["1","2"]]}', '["1","2"]'),
        ('{"trades":[["1","2"]],"more":[["3"]]}', '["1","2"]'),
    ],
)  # fmt: skip
def test_members_are_kept_as_they_were_sent(text, kept):
    assert row_texts(text.encode()) == [kept]


def test_text_that_looks_like_a_border_between_rows_is_kept_whole():
    odd = row(orderHash='0x1"],["2')
    odd_rows = [[*row()[:12], "0x1"], ["2", "taker"]]
    compact = (
        json.dumps({"trades": [row(), odd]}, separators=(",", ":"))
        .replace("\\", "")
        .encode()
    )
    table = typed_rows(compact)
    assert [json.loads(text) for text in table["verbatim"].to_pylist()] == [
        row(),
        odd_rows[0],
        ["2", "taker"],
    ]
    assert table["trade_id"].is_null().to_pylist() == [False, False, True]
    bracket = json.dumps(
        {"trades": [row(orderHash="0x1],[2")]}, separators=(",", ":")
    ).encode()
    table = typed_rows(bracket)
    assert table["order_hash"].to_pylist() == ["0x1],[2"]
    assert json.loads(table["verbatim"][0].as_py())[12] == "0x1],[2"
    few, many = page([row(), "x", row()]), page([row(orderHash="0x1],[2],[3")])
    bodies = [body.replace(b" ", b"") for body in (few, many)]
    table = typed_rows(*bodies)
    expected = [row(), "x", row(), row(orderHash="0x1],[2],[3")]
    assert [json.loads(text) for text in table["verbatim"].to_pylist()] == expected


@pytest.mark.parametrize("size", ["1.5", "9" * 60])
def test_a_size_that_cannot_be_held_costs_its_row_only(size):
    table = typed_rows(page([row(), row(size=size)]))
    assert table["size"].is_null().to_pylist() == [False, True]
    assert size in table["extra"][1].as_py()
    assert json.loads(table["verbatim"][1].as_py())[3] == size


def test_a_row_of_another_account_is_refused():
    with pytest.raises(
        UnexpectedAnswer,
        match="account 147661, which was asked for, got 1 rows of other .* account 5",
    ):
        typed_rows(page([row(), row(accountId="5")]))


def test_a_row_keeps_the_listing_of_its_time(tmp_path, small):
    archive = Archive(tmp_path / "a")
    first, second = small.accounts
    with Relayer(small) as relayer:
        archive.sync(client_of(relayer), account_id=first)
        before = archive.trades(first)
    later = Ledger(2, 120, seed=3)
    records = [
        record | {"decimals": 9} if record["symbol"] == "LRC" else record
        for record in small.tokens()
    ]
    later.tokens = lambda: records  # type: ignore[method-assign]
    with Relayer(later) as relayer:
        archive.sync(client_of(relayer), account_id=second)
        expected = client_of(relayer).trades(second)
    pd.testing.assert_frame_equal(archive.trades(first), before)
    pd.testing.assert_frame_equal(archive.trades(second), expected)
    assert len(archive.query("FROM listings")) == 2


def test_rows_are_kept_as_sent_without_white_space():
    body = b'{"totalNum": 1, "trades": [["1657638459610", 8919527, "SELL"]]}'
    assert row_texts(body) == ['["1657638459610",8919527,"SELL"]']
