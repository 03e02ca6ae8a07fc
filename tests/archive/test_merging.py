"""Merging rows by identity: compared with a plain model, over every form of row."""

import json
import tempfile
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from support.file_trials import made_rows
from support.saved_pages import save_listings
from support.wire_rows import markets, page, row, tokens, wire_rows

from loopring_lab import tables
from loopring_lab.archive import Archive, merge
from loopring_lab.origin import Source

KEYS = st.tuples(
    st.sampled_from([1, 2]),
    st.sampled_from([5, 6, None]),
    st.sampled_from(["BUY", "SELL"]),
)
ROW = st.tuples(KEYS, st.sampled_from("abc"), st.integers(0, 4))


def rows(some):
    """Make rows of identities, contents and pages; what else a row holds does not matter here."""
    made = made_rows(0, len(some))
    moments = pa.array([page for *_, page in some], pa.timestamp("s", "UTC"))
    given = {
        "account_id": pa.array([key[0] for key, *_ in some], pa.int64()),
        "trade_id": pa.array([key[1] for key, *_ in some], pa.int64()),
        "side": pa.array([key[2] for key, *_ in some], pa.string()),
        "verbatim": pa.array([text for _, text, _ in some], pa.string()),
        "retrieved_at": moments.cast(pa.timestamp("us", "UTC")),
    }
    for name, values in given.items():
        made = made.set_column(made.schema.get_field_index(name), name, values)
    return made


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


@settings(max_examples=6)
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


@pytest.fixture
def imported(tmp_path):
    """Import pages of one account and fill type, each as it is sent; return the rows that are held."""

    def held(*bodies, kind="dex"):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        save_listings(folder)
        (folder / f"147661-{kind}.jsonl").write_bytes(b"\n".join(bodies))
        archive = Archive(folder / "a")
        archive.import_pages(folder)
        return archive

    return held


def texts(archive):
    """Return what is kept of each row, in the order of pages."""
    return archive.query("FROM rows")["verbatim"].tolist()


def compact(body):
    return json.dumps(json.loads(body), separators=(",", ":")).encode()


@pytest.mark.thorough
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(wire_rows(), max_size=12), st.sampled_from(["amm", "dex"]), st.booleans()
)
def test_rows_come_back_as_the_client_reads_them(imported, some, kind, spaced):
    for one in some:
        if len(one) > 9:
            one[7 if len(one) == 10 else 9] = "147661"
    body = page(some) if spaced else compact(page(some))
    archive = imported(body, kind=kind)
    kept = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in some]
    assert set(texts(archive)) == set(kept)
    expected = tables.trades(
        [body], tokens(), markets(), fill_type=kind, account_id=147661
    )
    assert_frame_equal(archive.trades(147661), expected)


@pytest.mark.parametrize(
    "some",
    [
        [row(), row(orderHash='0x1"],["2')],
        [row(), row(orderHash="0x1],[2")],
        [row(), "x", row(id="5"), row(id="6", orderHash="0x1],[2],[3")],
    ],
)
def test_text_that_looks_like_a_border_between_rows_is_kept_whole(imported, some):
    archive = imported(compact(page(some)))
    kept = [json.loads(text) for text in texts(archive)]
    assert sorted(kept, key=repr) == sorted(some, key=repr)


def test_members_are_kept_as_they_were_sent_without_white_space(imported):
    body = b'{"trades": [["1", 8.50e1, -0, null, true, "a],[b", {"x": [1]}]]}'
    assert texts(imported(body)) == ['["1",8.50e1,-0,null,true,"a],[b",{"x":[1]}]']


@pytest.mark.parametrize("size", ["1.5", "9" * 60])
def test_a_size_that_cannot_be_held_costs_its_row_only(imported, size):
    trades = imported(page([row(), row(id="8", size=size)])).trades()
    assert trades["size"].isna().sum() == 1
    assert size in trades["extra"].dropna().iloc[0]
