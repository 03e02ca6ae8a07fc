"""Prices from a CSV file: exact, in UTC, and refused by file, line and column."""

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.wire_rows import NAMES, SYMBOLS, markets

from loopring_lab import tables
from loopring_lab.amounts import AMOUNT
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.tables import csv_files

HEAD = "created_at,market,price\n"
LINE = "2022-03-31 18:00:00Z,LRC-ETH,0.00031\n"
EXACT = [
    Decimal(1),
    Decimal("0.00031"),
    Decimal("1e-18"),
    Decimal("9999999999999999999.999999999999999999"),
    None,
]


def read(folder: Path, text: str | bytes, **how: Any) -> pd.DataFrame:
    file = folder / "closes.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return tables.prices(file, **how)


@pytest.mark.parametrize("with_tokens", [True, False])
@pytest.mark.parametrize("numbers", [True, False])
def test_a_frame_written_with_to_csv_is_read_as_it_was(tmp_path, with_tokens, numbers):
    """With every digit of the price, times to the millisecond, and what is unknown unknown."""
    names = [*NAMES, "NOT-LISTED"]
    moments = [1_648_749_600_123 + 60_000 * number for number in range(50)]
    made = pd.DataFrame(
        {
            "created_at": pd.to_datetime(moments, unit="ms", utc=True).astype(
                "datetime64[ms, UTC]"
            ),
            "market": pd.Categorical(
                [names[number % len(names)] for number in range(50)]
            ),
        }
    )
    pairs = [NAMES.get(name) for name in made["market"]]
    for place, name in enumerate(("base", "quote")):
        made[name] = pd.Categorical([pair and SYMBOLS[pair[place]] for pair in pairs])
    made["price"] = pd.array(
        [EXACT[number % len(EXACT)] for number in range(50)], AMOUNT
    )
    written = made.assign(created_at=moments) if numbers else made
    file = tmp_path / "closes.csv"
    (written if with_tokens else written.drop(columns=["base", "quote"])).sample(
        frac=1, random_state=1
    ).to_csv(file)
    how = {"unit": "ms"} if numbers else {}
    found = tables.prices(file, None if with_tokens else markets(), **how)
    assert_frame_equal(found, made)
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert_frame_equal(tables.prices(file, markets(), **how), made)


@pytest.mark.parametrize(
    ("moment", "milliseconds"),
    [
        ("2022-03-31T18:00Z", 1_648_749_600_000),
        ("2022-03-31 20:00:00+02:00", 1_648_749_600_000),
        ("2022-03-31 18:00:00.120000+00:00", 1_648_749_600_120),
        ("1970-01-01", 0),
    ],
)
def test_times_are_read_in_utc(tmp_path, moment, milliseconds):
    found = read(tmp_path, f"{HEAD}{moment},LRC-ETH,1\n")["created_at"]
    # A time without a zone is in UTC.
    assert found.tolist() == [pd.Timestamp(milliseconds, unit="ms", tz="UTC")]
    assert str(found.dtype) == "datetime64[ms, UTC]"


def test_seconds_are_read_as_seconds_and_columns_in_any_order(tmp_path):
    text = b'\xef\xbb\xbfprice,volume,"market",created_at\r\n1.5,,"LRC-ETH",1648749600\r\n\r\n'
    found = read(tmp_path, text, unit="s")
    assert found["created_at"].tolist() == [pd.Timestamp("2022-03-31T18:00Z")]
    assert found[["market", "price"]].values.tolist() == [["LRC-ETH", Decimal("1.5")]]
    assert found[["base", "quote"]].isna().all(axis=None)
    assert read(tmp_path, HEAD).dtypes.astype(str)["price"] == str(AMOUNT)


@pytest.mark.parametrize(
    ("text", "how", "where", "said"),
    [
        (
            "",
            {},
            ", line 1",
            "expected a line of names between commas, with created_at, market, price, got ''",
        ),
        (
            HEAD.replace("price", "price,price"),
            {},
            ", line 1",
            "each column once, got price twice",
        ),
        (
            HEAD + LINE + "\n\n" + LINE + "2022-03-31,LRC-ETH\n",
            {},
            ", line 6",
            "expected 3 columns, got 2",
        ),
        (
            HEAD + LINE + "\n" + "soon,LRC-ETH,1\n",
            {},
            ", line 4, created_at",
            "such as 2022-03-31 18:00:00+00:00, to the millisecond, or unit='ms' for numbers, got 'soon'",
        ),
        (
            HEAD + "2022-03-31 18:00:00.1234Z,LRC-ETH,1\n",
            {},
            ", line 2, created_at",
            "to the millisecond",
        ),
        (
            HEAD + LINE,
            {"unit": "ms"},
            ", line 2, created_at",
            "a whole number of ms since 1970, got '2022-03-31",
        ),
        (
            HEAD + "1,LRC-ETH,1\n1648749600000000,LRC-ETH,1\n",
            {"unit": "ms"},
            ", line 3, created_at",
            "got '1648749600000000'",
        ),
        (HEAD + ",LRC-ETH,1\n", {}, ", line 2, created_at", "got nothing"),
        (
            HEAD + LINE + "2022-03-31,,1\n",
            {},
            ", line 3, market",
            "expected a name, got nothing",
        ),
        (
            HEAD + LINE + "2022-03-31,LRC-ETH,cheap\n",
            {},
            ", line 3, price",
            "fits decimal128(38, 18), got 'cheap'",
        ),
        *[
            (
                HEAD + LINE + f"2022-03-31,LRC-ETH,{price}\n",
                {},
                ", line 3, price",
                f"expected a decimal number above 0 that fits decimal128(38, 18), got '{price}'",
            )
            for price in ("0", "0.000", "-0.1", "nan", "inf", "-Infinity", "1e-19")
        ],
        *[
            (
                f"{HEAD}1648749600,LRC-ETH,1\n{rounded},LRC-ETH,1\n",
                {"unit": unit},
                ", line 3, created_at",
                f"a whole number of {unit} since 1970, got '{rounded}'",
            )
            for unit, rounded in (("ms", "1.67979E+12"), ("s", "1.67979e9"))
        ],
        (
            HEAD + LINE + LINE + LINE.replace("31\n", "32\n"),
            {},
            ", line 4, price",
            "0.000320000000000000, but another price of LRC-ETH",
        ),
        *[
            (
                (HEAD + LINE).replace(",", separator),
                {},
                ", line 1",
                f"between commas, with created_at, market, price, got 'created_at{shown}market",
            )
            for separator, shown in (("\t", r"\t"), (";", ";"))
        ],
        (HEAD.encode() + b"2022-03-31,\xff,1\n", {}, "", "expected CSV in UTF-8"),
        (HEAD.encode("utf-16"), {}, "", "expected CSV in UTF-8, got text in UTF-16"),
        (
            HEAD.replace("\n", ',"a\nb",c\n') + LINE.replace("\n", ",1,2\n"),
            {},
            ", line 2",
            "expected 4 columns, got 5",
        ),
    ],
)
def test_a_file_that_is_not_such_a_file_is_refused_by_line_and_column(
    tmp_path, text, how, where, said
):
    with pytest.raises(UnexpectedAnswer) as caught:
        read(tmp_path, text, **how)
    assert caught.value.field == f"closes.csv{where}"
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("tokens", "listed", "where", "said"),
    [
        (["ETH,LRC"], True, "2, base", "expected LRC, the base token of LRC-ETH, got"),
        (["LRC,ETH", "LRC,USDT"], True, "3, quote", "expected ETH, the quote token"),
        (["LRC,ETH", ",", "ETH,LRC"], False, "4, base", "the base token of LRC-ETH, g"),
    ],
)
def test_a_market_has_the_tokens_of_its_listing_and_the_same_in_each_row(
    tmp_path, tokens, listed, where, said
):
    """A swapped pair would be the price of another market."""
    lines = [f"{LINE[:-1]},{pair}\n" for pair in tokens]
    how = {"markets": markets()} if listed else {}
    with pytest.raises(UnexpectedAnswer) as caught:
        read(tmp_path, HEAD[:-1] + ",base,quote\n" + "".join(lines), **how)
    assert caught.value.field == f"closes.csv, line {where}"
    assert said in str(caught.value)


def test_a_listing_gives_the_tokens_that_a_file_leaves_empty(tmp_path):
    text = HEAD[:-1] + ",base\n" + LINE[:-1] + ",\n"
    found = read(tmp_path, text, markets=markets())
    assert found[["base", "quote"]].values.tolist() == [["LRC", "ETH"]]


def test_other_arguments_are_refused(tmp_path, monkeypatch):
    with pytest.raises(LabError, match="unit='minutes' is not known. Use 's' or 'ms'"):
        read(tmp_path, HEAD, unit="minutes")
    with pytest.raises(
        LabError,
        match="markets: expected the frame that tables.markets makes, got list",
    ):
        read(tmp_path, HEAD, markets=[])
    with pytest.raises(UnexpectedAnswer, match="nothing.csv: expected a readable file"):
        tables.prices(tmp_path / "nothing.csv")
    monkeypatch.setattr(csv_files, "LARGEST", 1 << 20)
    with pytest.raises(UnexpectedAnswer, match="expected a file of at most 1 MiB"):
        read(tmp_path, HEAD + 40_000 * LINE)


def test_seconds_are_not_taken_for_milliseconds(tmp_path):
    with pytest.raises(UnexpectedAnswer) as caught:
        read(tmp_path, HEAD + "1648749600,LRC-ETH,1\n", unit="ms")
    assert (
        "line 2, created_at: expected times of 2015 or later, or unit='s', got 1970-01-20"
        in str(caught.value)
    )


def test_spaces_after_commas_are_left_out(tmp_path):
    spaced = HEAD.replace(",", ", ") + LINE.replace(",", ", ")
    assert_frame_equal(read(tmp_path, spaced), read(tmp_path, HEAD + LINE))


@pytest.mark.parametrize(
    ("minutes", "step", "said"),
    [(1441, 1, True), (1440, 1, False), (49 * 60, 60, True), (9 * 1440, 1440, False)],
)
def test_a_feed_that_stands_still_for_a_day_is_said(tmp_path, minutes, step, said):
    begin = pd.Timestamp("2022-03-30T00:00Z")
    lines = [
        f"{begin + pd.Timedelta(minutes=minute)},{market},{price}\n"
        for minute in range(0, minutes, step)
        for market, price in (("LRC-ETH", "0.00031"), ("ETH-USDC", 3000 + minute))
    ]
    found = read(tmp_path, HEAD + "".join(lines))
    notes = found.attrs.get("notes", [])
    assert len(notes) == said
    if said:
        assert notes[0].startswith("The price of LRC-ETH stands still for a day")
        assert ": 0.00031 from 2022-03-30 00:00 to 2022-0" in notes[0]
