"""What pandas writes of amounts, by every writer that it has: all digits, or an error."""

import contextlib
import csv
import io
import itertools
import json
import sqlite3

import numpy as np
import pandas as pd
import pytest
from pandas.io.formats.style import Styler

import loopring_lab as lab
from loopring_lab.amounts import AMOUNT

# Neither the first nor the last is a float, and both begin like one.
EXACT = [
    "812.000000000000000003",
    "0.1",
    "98765432109876543.210987654321098765",
]
# These say how pandas keeps a frame in memory or change its labels; what they hold stays.
NO_WRITERS = {"to_period", "to_timestamp", "to_frame", "to_xarray"}
REFUSALS = (
    lab.LabError,
    ImportError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    pd.errors.ValueLabelTypeMismatch,
)
# With the options tried here, these leave the index out, or give it back as one.
WITHOUT_INDEX = (
    "to_dict",
    "to_feather",
    "to_json",
    "to_numpy",
    "to_parquet",
    "to_stata",
)
ORIENTS = ["split", "records", "index", "columns", "values", "table"]


def frame():
    amounts = pd.array(EXACT, dtype=AMOUNT)
    return pd.DataFrame({"fee": amounts, "market": ["A-B"] * 3})


def series():
    return frame()["fee"]


def categories():
    return frame().astype({"fee": "category"})


def by_category():
    return categories().set_index("fee")


def by_amount():
    return frame().set_index("fee")


def back(kind):
    def write(data, path):
        getattr(data, f"to_{kind}")(path)
        return getattr(pd, f"read_{kind}")(path)["fee"].tolist()

    return write


def sql(data, path, **options):
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        data.to_sql("fees", connection, **options)
        return connection.execute("SELECT fee FROM fees").fetchall()


def pickled(data, path):
    data.to_pickle(path)
    return pd.read_pickle(path)


# How each writer is called, whatever options it has.
WRITERS = {
    "to_csv": [
        lambda data, path, one=one: data.to_csv(sep=";", escapechar="\\", **one)
        for one in (
            {"quoting": quoting, "decimal": decimal, "float_format": float_format}
            for quoting, decimal, float_format in itertools.product(
                [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC],
                [".", ","],
                [None, "%.2f", "%.20f", "{:.3f}".format],
            )
        )
    ],
    "to_json": [
        lambda data, path, one=one, handler=handler: data.to_json(
            orient=one, default_handler=handler, double_precision=15
        )
        for one, handler in itertools.product(ORIENTS, [None, str, float])
    ],
    "to_markdown": [
        lambda data, path: data.to_markdown(),
        lambda data, path: data.to_markdown(floatfmt=".3f"),
        lambda data, path: data.to_markdown(disable_numparse=True),
    ],
    "to_sql": [
        sql,
        lambda data, path: sql(data, path, method="multi"),
        lambda data, path: sql(data, path, dtype={"fee": "REAL"}),
    ],
    "to_string": [
        lambda data, path: data.to_string(),
        lambda data, path: data.to_string(float_format="{:.2f}".format),
    ],
    "to_html": [
        lambda data, path: data.to_html(),
        lambda data, path: data.to_html(float_format="{:.2f}".format, decimal="."),
    ],
    "to_dict": [
        lambda data, path: data.to_dict(),
        *(
            lambda data, path, one=one: data.to_dict(one)
            for one in ("list", "split", "tight", "records", "index")
        ),
    ],
    "to_records": [
        lambda data, path: data.to_records().tolist(),
        lambda data, path: data.to_records(column_dtypes={"fee": "f8"}).tolist(),
    ],
    "to_numpy": [
        lambda data, path: data.to_numpy(),
        lambda data, path: data.to_numpy(object),
        lambda data, path: data.to_numpy(str),
    ],
    "to_excel": [
        lambda data, path: data.to_excel(path),
        lambda data, path: data.to_excel(path, float_format="%.2f"),
    ],
    "to_list": [lambda data, path: data.to_list()],
    "to_parquet": [back("parquet")],
    "to_feather": [back("feather")],
    "to_orc": [back("orc")],
    "to_pickle": [pickled],
    "to_stata": [lambda data, path: data.to_stata(path)],
    "to_hdf": [lambda data, path: data.to_hdf(path, key="fees")],
    "to_latex": [lambda data, path: data.to_latex()],
    "to_xml": [lambda data, path: data.to_xml()],
    "to_clipboard": [lambda data, path: data.to_clipboard()],
    "to_iceberg": [lambda data, path: data.to_iceberg("fees")],
}
# What takes values without writing them.
TAKERS = {
    "values": lambda data: list(data.values),
    "asarray": lambda data: np.asarray(data["fee"].astype("category")).tolist(),
    "items": lambda data: list(data.items()),
    "itertuples": lambda data: list(data.itertuples()),
    "iterrows": lambda data: [row.tolist() for _, row in data.iterrows()],
    "astype(object)": lambda data: data.astype(object).to_dict(),
    "astype(str)": lambda data: data.astype(str).to_dict(),
    "T": lambda data: data.T.to_dict(),
}


def says_all_digits(found):
    text = str(list(found) if isinstance(found, pd.Series) else found)
    # A comma where the caller asked for one.
    return all(exact in text.replace(",", ".") for exact in EXACT)


def test_every_writer_of_pandas_is_tried_here():
    known = {
        name
        for owner in (pd.DataFrame, pd.Series)
        for name in dir(owner)
        if name.startswith("to_")
    }
    assert known - NO_WRITERS - set(WRITERS) == set()


@pytest.mark.parametrize(
    "make",
    [frame, series, lambda: frame()[["fee"]], categories, by_category, by_amount],
)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_gives_all_digits_or_raises(writer, make, tmp_path):
    data = make()
    if writer in WITHOUT_INDEX and data.index.name == "fee":
        pytest.skip(f"{writer} leaves the index out")
    if not hasattr(data, writer):
        pytest.skip(f"{type(data).__name__} has no such writer")
    tried = []
    for write in WRITERS[writer]:
        # pandas refuses types, and options that do not go together, in many ways; some need other packages.
        with contextlib.suppress(*REFUSALS):
            found = write(data, tmp_path / "fees.xlsx")
            tried.append(found)
    assert all(map(says_all_digits, tried)), tried


@pytest.mark.parametrize("make", [frame, categories, by_category, by_amount])
@pytest.mark.parametrize(
    "writer", [name for name in dir(Styler) if name.startswith("to_")]
)
def test_a_style_gives_all_digits_or_raises(writer, make, tmp_path):
    path = tmp_path / "fees.xlsx"
    with contextlib.suppress(lab.errors.AmountError):
        write = getattr(make().style, writer)
        found = write(path) if writer == "to_excel" else write()
        assert says_all_digits(
            pd.read_excel(path, dtype=str) if path.exists() else found
        )


@pytest.mark.parametrize("taker", TAKERS)
def test_values_have_all_digits(taker):
    assert says_all_digits(TAKERS[taker](frame()))


@pytest.mark.parametrize("orient", ORIENTS)
def test_json_has_amounts_as_text_and_nothing_for_a_missing_one(orient):
    fees = pd.Series(["0.1", None], dtype=AMOUNT).to_frame("fee")
    text = fees.to_json(orient=orient)
    assert '"0.1"' in text
    assert "null" in text
    if orient == "table":
        back = pd.read_json(io.StringIO(text), orient="table")
        pd.testing.assert_frame_equal(back, fees, check_names=False)
    if orient == "records":
        assert json.loads(text) == [{"fee": "0.1"}, {"fee": None}]


@pytest.mark.parametrize(
    ("write", "advice"),
    [
        (lambda data: data.to_csv(float_format="%.2f"), "Leave out float_format="),
        (lambda data: data.to_markdown(), "Give disable_numparse=True"),
        (lambda data: data.to_records(), r"\.astype\(\{'fee': str\}\)"),
        (lambda data: data.style.to_excel("fees.xlsx"), "amounts in fee"),
        (
            lambda data: data.astype({"fee": "category"}).to_json(),
            r"\.astype\(\{'fee': str\}\)",
        ),
        (
            lambda data: data.astype({"fee": "category"}).set_index("fee").to_json(),
            "amounts in fee",
        ),
        (
            lambda data: data.astype({"fee": "category"}).to_feather("fees"),
            "amounts in fee",
        ),
        (lambda data: data.set_index("fee").to_records(), "amounts in fee"),
        (
            lambda data: data.astype({"fee": "category"}).to_records(),
            r"lab\.amounts\.to_float\(frame\)",
        ),
    ],
)
def test_an_error_says_what_writes_all_digits(write, advice):
    with pytest.raises(lab.errors.AmountError, match=advice):
        write(frame())


def test_other_frames_are_written_as_ever():
    floats = lab.amounts.to_float(frame())
    assert floats.to_csv(float_format="%.1f").splitlines()[1] == "0,812.0,A-B"
    assert floats.to_records()["fee"].tolist() == floats["fee"].tolist()
    texts = frame().astype({"fee": str})
    assert texts.to_records()["fee"].tolist() == EXACT
    of_texts = texts.astype("category")
    assert json.loads(of_texts["fee"].to_json(orient="values")) == EXACT
