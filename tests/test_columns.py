"""The meaning of every column of every public frame: all described, none described that is not there."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from support.public_frames import public_frames

import loopring_lab as lab
from loopring_lab import columns
from loopring_lab.tables.rows import as_trades

ROOT = Path(__file__).parents[1]
NAMED_ELSEWHERE = {
    "Store.import_files": "Store.report",
    "Store.sync": "Store.report",
    "Archive.delete": "Archive.report",
    "Archive.import_pages": "Archive.report",
    "Archive.import_blocks": "Archive.report",
}
NO_FRAME = {
    "Archive.query",  # whatever is asked for
    "sources.BlocksClient.outside_prices",
}  # blocks have neither
SERIES = re.compile(r"amounts\.|show\(|to_float")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    return {
        name: make()
        for name, make in public_frames(tmp_path_factory.mktemp("frames")).items()
    }


def described() -> dict[str, dict[str, columns.Column]]:
    return {
        name: found
        for names, found in columns.frames().items()
        for name in names.split(", ")
    }


def names_of(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.index.names if name] + frame.columns.tolist()


def test_every_column_of_every_frame_is_described_and_nothing_else(made):
    found = described()
    assert len(made) > 50
    for name, frame in made.items():
        known = set(found[name])
        optional = {"period"} if name == "fees.summary" else set()
        assert known - set(names_of(frame)) - optional == set(), name
        assert set(names_of(frame)) - known == set(), name


def functions() -> Iterator[str]:
    """Yield the public functions that return a frame, by the names that columns.toml has."""
    for line in (ROOT / "tests" / "public_api.txt").read_text().splitlines():
        name = line.partition("(")[0].removeprefix("lab.")
        returned = line.rpartition(" -> ")[2]
        of_trades = (
            name.startswith(("fees.", "fills.", "research.")) and returned == "'Any'"
        )
        if (of_trades or "pd.DataFrame" in returned) and not SERIES.match(
            line.removeprefix("lab.")
        ):
            yield name


def test_every_public_function_that_returns_a_frame_is_described():
    """A new function fails here until columns.toml has its frame."""
    found = described()
    names = [name for name in functions() if name not in NO_FRAME]
    assert len(names) > 40
    short = [
        name
        if name in found
        else name.removeprefix("rollup.")
        .removeprefix("tables.")
        .removeprefix("sources.")
        for name in names
    ]
    assert [name for name in short if name not in found] == []


def test_every_described_frame_is_made_here(made):
    assert {
        name for name in described() if NAMED_ELSEWHERE.get(name, name) not in made
    } == set()


def test_every_description_is_used():
    text = tomllib.loads((ROOT / "loopring_lab" / "columns.toml").read_text())
    meanings = {
        one.meaning for found in columns.frames().values() for one in found.values()
    }
    entries = [
        text["columns"],
        text["trades"],
        *(frame.get("own", {}) for frame in text["frames"].values()),
    ]
    unused = [
        name
        for place in entries
        for name, entry in place.items()
        if not any(
            re.fullmatch(re.escape(entry["meaning"]).replace(r"\{\}", ".+"), one)
            for one in meanings
        )
    ]
    assert unused == []


TYPES = {
    "decimal": lambda dtype: str(dtype).startswith(("amount", "decimal")),
    "integer": pd.api.types.is_integer_dtype,
    "float": pd.api.types.is_float_dtype,
    "time": lambda dtype: isinstance(dtype, pd.DatetimeTZDtype),
    "duration": pd.api.types.is_timedelta64_dtype,
    "yes or no": pd.api.types.is_bool_dtype,
    "text": lambda dtype: (
        isinstance(dtype, (pd.CategoricalDtype, pd.StringDtype)) or dtype.kind == "O"
    ),
}


def test_types_are_those_of_the_frames(made):
    found = described()
    wrong = [
        (name, column, str(dtype))
        for name, frame in made.items()
        for column, dtype in frame.dtypes.items()
        if not (frame.empty and dtype.kind == "O")
        and not TYPES[
            columns.TYPES.get(found[name][column].kind, found[name][column].kind)
        ](dtype)
    ]
    assert wrong == []


def test_decimals_of_arrow_are_limits_and_smallest_units(made):
    kinds = {
        str(dtype)
        for frame in made.values()
        for dtype in frame.dtypes
        if str(dtype).startswith("decimal")
    }
    assert kinds <= {
        f"decimal{kind}[pyarrow]"
        for kind in ("256(76, 18)", "256(76, 0)", "128(38, 0)")
    }


def test_the_reference_lists_each_column_of_each_frame_once():
    listed = columns.reference()
    assert listed.columns.tolist() == [
        "frame",
        "column",
        "type",
        "unit",
        "source",
        "exact",
        "meaning",
    ]
    assert not listed.duplicated(["frame", "column"]).any()
    assert len(listed) == sum(map(len, columns.frames().values()))
    assert listed["meaning"].str.endswith(".").all()
    assert listed["meaning"].str.len().max() <= 100
    filled = listed.drop(columns="unit")
    assert not (filled == "").any().any()


def test_amounts_name_their_unit():
    listed = columns.reference()
    amounts = listed[listed["type"].eq("decimal") & listed["column"].ne("weight")]
    assert (
        amounts.loc[amounts["unit"] == "", ["frame", "column"]].to_numpy().tolist()
        == []
    )


def test_one_name_means_what_it_means_in_its_own_frame():
    orders = columns.describe(["order_hash", "first", "last", "fills"])
    ranges = columns.describe(["first", "last", "blocks", "missing", "first_l1_block"])
    assert orders["first"].meaning == "Time of the first fill."
    assert ranges["first"].meaning == "Number of the first block of the range."
    assert columns.describe(["first", "shape", "colour"]) == {}


# Columns of trades: declared once


def test_frames_of_trades_have_the_declared_columns_in_order(made):
    for name in ("Client.trades", "Archive.trades", "rollup.Blocks.trades"):
        assert made[name].columns.tolist() == list(columns.TRADES), name


def test_every_declared_column_is_made_by_a_source(made):
    made_by = [made["Client.trades"], made["BlocksClient.trades"]]
    filled = {name for frame in made_by for name in frame if frame[name].notna().any()}
    # Of the relayer's rows only irregular ones have a note.
    assert set(columns.TRADES) - filled <= {"extra"}


def test_a_column_that_is_not_declared_is_not_dropped():
    with pytest.raises(ValueError, match=r"does not declare \['colour'\]"):
        as_trades({"created_at": [], "colour": []})


def test_types_of_trades_in_arrow_are_those_declared(made):
    declared = {name: column.arrow for name, column in columns.TRADES.items()}
    for name in ("Client.trades", "Archive.trades", "rollup.Blocks.trades"):
        table = lab.engine.portable(made[name])
        found = dict(zip(table.schema.names, table.schema.types, strict=True))
        assert found == declared, name


def test_the_token_of_an_amount_follows_from_its_unit():
    named = {name: columns.token_column(name) for name in ("size", "fee", "fee_value")}
    assert named == {"size": "base", "fee": "fee_token", "fee_value": "value_token"}
    assert columns.token_column("vwap") == "quote"
    assert columns.token_column("amount") == ""
