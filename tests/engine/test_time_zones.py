"""Periods by the clock of a time zone: sums against those by hand in pandas, across both changes of clocks."""

import functools
import zoneinfo

import duckdb
import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import num2date
from support.engines import ENGINES, collected, on, without_warnings
from support.optional import often, thorough
from support.oracle import to_rows
from support.trade_histories import many

import loopring_lab as lab
from loopring_lab.errors import LabError

pytestmark = pytest.mark.contract

BERLIN = "Europe/Berlin"
# Days of the two changes, at 01:00 UTC, and those around them.
SPRING = pd.Timestamp("2024-03-30", tz="UTC")
AUTUMN = pd.Timestamp("2024-10-26", tz="UTC")
QUARTER_HOUR = pd.Timedelta("15min")
# Kinds that answer in different ways; what of the answer names the zone is that of the type.
WITH_ZONES = ("pandas", "pyarrow", "polars", "archive")


@functools.cache
def across() -> pd.DataFrame:
    """Trades of all kinds at each quarter of an hour of three days around both changes."""
    moments = [
        day + number * QUARTER_HOUR for day in (SPRING, AUTUMN) for number in range(288)
    ]
    frame = many(140).head(len(moments)).reset_index(drop=True)
    assert len(frame) > 500
    times = pd.Series(moments[: len(frame)]).astype("datetime64[ms, UTC]")
    return frame.assign(created_at=times)


def local(zone: str) -> pd.Series:
    """What the clock of a zone shows at each trade."""
    return across()["created_at"].dt.tz_convert(zone).dt.tz_localize(None)


def fills_by_hand(periods: pd.Series) -> dict[str, int]:
    counts = periods.astype(str).value_counts()
    return {name: int(count) for name, count in counts.items()}


def fees_by_hand(periods: pd.Series) -> dict[tuple[str, str], int]:
    """Sum the known fees of each period and token in integers of 1e-18."""
    rows = to_rows(collected(across()[["fee", "fee_token"]]))
    sums: dict[tuple[str, str], int] = {}
    for period, row in zip(periods.astype(str), rows, strict=True):
        if None not in row.values():
            key = (period, row["fee_token"])
            sums[key] = sums.get(key, 0) + row["fee"]
    return sums


def shown(answer: pd.DataFrame, form: str) -> pd.Series:
    return answer["period"].dt.strftime(form)


@pytest.mark.parametrize(("every", "unit"), [("1d", "D"), ("1mo", "M"), ("1q", "Q")])
@pytest.mark.parametrize("zone", [BERLIN, thorough("Asia/Tokyo")])
@pytest.mark.parametrize("engine", often(["pandas"], ENGINES))
def test_sums_are_those_by_hand(engine, zone, every, unit):
    def ask(trades):
        return lab.fees.over_time(trades, every, tz=zone)

    rows = to_rows(collected(without_warnings(ask, on(engine, across()))))
    starts = pd.to_datetime([row["period"] for row in rows], unit="ms", utc=True)
    periods = starts.tz_convert(zone).tz_localize(None).to_period(unit).astype(str)
    found = {
        (period, row["fee_token"]): row["fee"]
        for period, row in zip(periods, rows, strict=True)
        if None not in (row["fee"], row["fee_token"])
    }
    assert found == fees_by_hand(local(zone).dt.to_period(unit))
    if every == "1d":
        assert found != fees_by_hand(local("UTC").dt.to_period(unit))


@pytest.mark.parametrize("engine", WITH_ZONES)
def test_the_answer_names_its_zone(engine):
    trades = on(engine, across())
    for tz in ("UTC", BERLIN):
        answer = lab.fills.breakdown(trades, "1d", tz=tz)
        if engine == "polars":
            found = answer.schema["period"].time_zone
        elif engine == "pyarrow":
            found = answer.schema.field("period").type.tz
        else:
            found = str(answer["period"].dt.tz)
        assert found == tz


def test_weeks_begin_on_a_monday_of_the_zone_and_have_seven_days():
    answer = lab.fills.breakdown(across(), "1w", tz=BERLIN)
    assert set(shown(answer, "%a %H:%M")) == {"Mon 00:00"}
    weeks = local(BERLIN).dt.to_period("W-SUN").dt.start_time.dt.strftime("%Y-%m-%d")
    found = answer.groupby(shown(answer, "%Y-%m-%d"))["fills"].sum()
    assert found.to_dict() == fills_by_hand(weeks)


def test_days_of_a_change_have_23_and_25_hours():
    answer = lab.fills.breakdown(across(), "1d", tz=BERLIN)
    fills = answer.groupby(shown(answer, "%m-%d %z"))["fills"].sum()
    assert fills["03-31 +0100"] == 23 * 4
    assert fills["10-27 +0200"] == 25 * 4
    assert fills["04-01 +0200"] == 24 * 4


def test_an_hour_that_clocks_show_twice_is_two_periods():
    answer = lab.fills.breakdown(across(), "1h", tz=BERLIN)
    fills = answer.groupby(shown(answer, "%m-%d %H:%M %Z"))["fills"].sum()
    assert fills["10-27 02:00 CEST"] == 4
    assert fills["10-27 02:00 CET"] == 4
    assert "03-31 02:00 CET" not in fills


def test_hours_begin_by_the_clock_of_the_zone():
    kolkata = lab.fills.breakdown(across(), "1h", tz="Asia/Kolkata")
    assert set(shown(kolkata, "%M")) == {"00"}
    quarters = lab.fills.breakdown(across(), "6h", tz=BERLIN)
    assert set(shown(quarters, "%H:%M")) == {"00:00", "06:00", "12:00", "18:00"}
    # Six hours of the clock, of which one was shown twice.
    fills = quarters.groupby(shown(quarters, "%m-%d %H"))["fills"].sum()
    assert fills["10-27 00"] == 7 * 4
    assert fills["03-31 00"] == 5 * 4


# Clocks of the Azores go back from 01:00 to 00:00, and those of Brazil left out midnight.
@pytest.mark.parametrize(
    ("zone", "day", "begin", "hours"),
    [
        ("Atlantic/Azores", "2024-10-27", "2024-10-27 00:00:00+00:00", 25),
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00:00+00:00", 23),
    ],
)
def test_a_midnight_that_clocks_show_twice_or_never_begins_one_day(
    zone, day, begin, hours
):
    first = pd.Timestamp(day, tz="UTC") - pd.Timedelta(days=1)
    times = pd.Series(pd.date_range(first, periods=72 * 4, freq="15min"))
    trades = across().head(len(times)).assign(created_at=times)
    answer = lab.fills.breakdown(trades, "1d", tz=zone)
    fills = answer.groupby("period")["fills"].sum()
    assert fills[pd.Timestamp(begin).tz_convert(zone)] == hours * 4
    assert len(fills) == 4 if zone.startswith("America") else 3


def test_the_argument_decides_not_the_zone_of_the_times():
    moved = across().assign(
        created_at=across()["created_at"].dt.tz_convert("Asia/Tokyo")
    )
    for tz in ("UTC", BERLIN):
        expected = lab.fees.over_time(across(), "1d", tz=tz)
        pd.testing.assert_frame_equal(
            lab.fees.over_time(moved, "1d", tz=tz), expected, check_dtype=True
        )
        assert str(expected["period"].dt.tz) == tz


def test_tiers_and_average_prices_take_a_zone():
    tiers = lab.fees.tiers(across(), "1d", tz=BERLIN)
    prices = lab.fills.vwap(across(), every="1d", tz=BERLIN)
    by_hand = fills_by_hand(local(BERLIN).dt.strftime("%Y-%m-%d"))
    for answer in (tiers, prices):
        days = shown(answer, "%Y-%m-%d")
        assert answer.groupby(days)["fills"].sum().to_dict() == by_hand


@pytest.mark.parametrize("tz", ["Europe/Berln", "CEST+2", "", None, 5, "../etc"])
@pytest.mark.parametrize(
    "call",
    [
        lambda tz: lab.fees.over_time(across(), tz=tz),
        lambda tz: lab.fees.tiers(across(), tz=tz),
        lambda tz: lab.fills.vwap(across(), tz=tz),
        lambda tz: lab.figures.volume(across(), tz=tz),
        lambda tz: lab.figures.fill_shares(across(), tz=tz),
        lambda tz: lab.research.changes(across(), tz=tz),
    ],
)
def test_what_is_no_zone_is_refused(call, tz):
    with pytest.raises(LabError, match="is not the name of a time zone") as refused:
        call(tz)
    if tz == "Europe/Berln":
        assert str(refused.value).endswith("Did you mean 'Europe/Berlin'?")


def test_every_zone_of_the_database_is_known():
    # This is a name of this machine's own on some systems, not of the database.
    zones = zoneinfo.available_timezones() - {"localtime"}
    known = duckdb.sql("SELECT name FROM pg_timezone_names()").fetchall()
    assert zones <= {name for (name,) in known}


def test_tables_for_reading_name_the_zone():
    answer = lab.fills.breakdown(across(), "1d", tz=BERLIN)
    frame = lab.show(answer[["period", "fill_type", "fills"]]).frame
    assert frame["period (Europe/Berlin)"].iloc[0] == "2024-03-30"


@pytest.mark.parametrize(
    "draw",
    [
        thorough(lambda tz: lab.figures.volume(across(), quote="ETH", tz=tz)),
        lambda tz: lab.figures.fill_shares(across(), every="1d", tz=tz),
        thorough(lambda tz: lab.figures.fee_rates(across(), every="1d", tz=tz)),
        thorough(lambda tz: lab.figures.fee_tiers(across(), every="1d", tz=tz)),
    ],
)
def test_figures_name_the_zone_and_begin_their_periods_by_it(draw):
    # Seven months of days are drawn as weeks from the first day.
    for tz, first in (("UTC", "2024-03-30 00:00"), (BERLIN, "2024-03-30 00:00")):
        figure = draw(tz)
        axes = figure.axes[0]
        assert axes.get_xlabel() == f"time ({tz})"
        table = figure.table
        assert str(table["period"].dt.tz) == tz
        assert table["period"].min().strftime("%Y-%m-%d %H:%M") == first
        hours = table["period"].dt.strftime("%H:%M")
        assert set(hours) == {"00:00"}


def test_ticks_of_a_figure_stand_at_midnights_of_the_zone():
    spring = across().head(288)
    axes = lab.figures.fill_shares(spring, every="1d", tz="Asia/Tokyo").axes[0]
    places = axes.xaxis.get_major_locator()()
    days = [num2date(place, tz=zoneinfo.ZoneInfo("Asia/Tokyo")) for place in places]
    assert np.any([(day.hour, day.minute) == (0, 0) for day in days])
    assert all(day.hour % 6 == 0 for day in days)
