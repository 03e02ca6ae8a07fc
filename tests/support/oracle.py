"""Fees and fills by brute force: loops over rows with integers, Fractions and statistics.median."""

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
from support.wire_rows import whole

UNIT = 10**18
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
DAY = 86_400_000
ORDER_KEYS = ["order_hash", "account_id", "market", "side", "storage_id"]
FIRST_DAY = EPOCH.date().toordinal()

Fill = SimpleNamespace
Rows = list[dict[str, Any]]


# Reading and grouping


def to_rows(table: pa.Table) -> Rows:
    """Read an Arrow table as rows: amounts as integers of 1e-18, times as milliseconds, NaN as None."""
    columns = {
        name: [_to_python(value) for value in table[name].to_pylist()]
        for name in table.column_names
    }
    return [
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]


def _to_python(value):
    if isinstance(value, datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, timedelta):
        return value // MILLISECOND
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return whole(value, 18) if hasattr(value, "scaleb") else value


def fills_of(frame: pd.DataFrame, every: str | None = None) -> list[Fill]:
    """Read a pandas frame as fills, with the period each stands in."""
    rows = to_rows(pa.Table.from_pandas(frame, preserve_index=False))
    return [
        Fill(**row, **({"period": start(row["created_at"], every)} if every else {}))
        for row in rows
    ]


def start(moment: int | None, every: str) -> int | None:
    """Find when the period of a moment starts, by the calendar."""
    if moment is None:
        return None
    day = date.fromordinal(FIRST_DAY + moment // DAY)
    by_calendar = {
        "1d": day,
        "1w": day - timedelta(days=day.weekday()),
        "1mo": day.replace(day=1),
        "1q": day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1),
        "1y": day.replace(day=1, month=1),
    }
    if every in by_calendar:
        return (by_calendar[every].toordinal() - FIRST_DAY) * DAY
    return moment - moment % (int(every[:-1]) * {"h": 3_600_000, "s": 1000}[every[-1]])


def grouped(
    fills: list[Fill], keys: Sequence[str]
) -> list[tuple[dict[str, Any], list[Fill]]]:
    """Group by keys, in their order, None last."""
    groups: dict[tuple[Any, ...], list[Fill]] = {}
    for fill in fills:
        groups.setdefault(tuple(getattr(fill, key) for key in keys), []).append(fill)
    order = sorted(
        groups, key=lambda values: [(value is None, value) for value in values]
    )
    return [(dict(zip(keys, values, strict=True)), groups[values]) for values in order]


def summed(
    fills: list[Fill],
    keys: Sequence[str],
    columns: Callable[[list[Fill], list[Fill]], dict[str, Any]],
) -> Rows:
    """Make a row per group; `columns` gets its fills, and those with the same keys but the last."""
    around = {tuple(key.items()): some for key, some in grouped(fills, keys[:-1])}
    rows = []
    for key, some in grouped(fills, keys):
        rows.append(key | columns(some, around[tuple(list(key.items())[:-1])]))
        rows[-1].setdefault("both_sides", both_sides(some))
    return rows


# Sums and ratios


def both_sides(fills: list[Fill]) -> int:
    """Count the fills of which there is a BUY and a SELL."""
    sides: dict[int, set[str | None]] = {}
    for fill in fills:
        if fill.trade_id is not None:
            sides.setdefault(fill.trade_id, set()).add(fill.side)
    return sum(found >= {"BUY", "SELL"} for found in sides.values())


def known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def total(values: Iterable[int | None]) -> int | None:
    found = known(values)
    return sum(found) if found else None


def only(values: Iterable[str | None]) -> str | None:
    found = set(known(values))
    return found.pop() if len(found) == 1 else None


def ratio(part: int | None, of: int | None, times: int = 1) -> float | None:
    return None if part is None or not of else float(Fraction(part * times, of))


def middle(rates: Iterable[float | None]) -> float | None:
    """Return the median of rates, each rounded to a thousandth, halves up."""
    thousandths = [float(math.floor(rate * 1000 + 0.5)) for rate in known(rates)]
    return statistics.median(thousandths) / 1000 if thousandths else None


def received(fill: Fill) -> int | None:
    legs = {fill.quote: fill.notional, fill.base: fill.size}
    return None if fill.fee_token is None else legs.get(fill.fee_token)


def clear(fill: Fill) -> bool:
    return None not in (fill.size, fill.notional, fill.fee)


def amounts(fills: list[Fill]) -> dict[str, Any]:
    """Return the columns that all summaries share."""
    base, quote, token = (
        only(getattr(fill, leg) for fill in fills)
        for leg in ("base", "quote", "fee_token")
    )
    rated = [fill for fill in fills if clear(fill) and received(fill) is not None]
    fees = known(fill.fee for fill in fills)
    rate = ratio(total(fill.fee for fill in rated), total(map(received, rated)), 10_000)
    return {
        "base": base,
        "volume": total(fill.size for fill in fills) if base else None,
        "quote": quote,
        "notional": total(fill.notional for fill in fills) if quote else None,
        "fee_token": token,
        "received": total(map(received, fills)) if token else None,
        "fee": total(fees) if token else None,
        "bps": rate if token else None,
        "median_bps": middle(fill.fee_bps for fill in fills),
        "zero_fee_share": ratio(fees.count(0), len(fees)),
        "unknown": sum(not clear(fill) for fill in fills),
    }


# Fees


def summary(fills: list[Fill], by: Sequence[str]) -> Rows:
    return summed(
        fills,
        [*by, "fee_token"],
        lambda some, around: {
            "fills": len(some),
            **amounts(some),
            "both_sides": both_sides(around),
        },
    )


def with_tiers(fills: list[Fill], units: dict[str, int]) -> Rows:
    found = [(fill, fitting(fill, units.get(fill.fee_token, 1))) for fill in fills]
    return [
        vars(fill)
        | dict(zip(("tier_bps", "certainty"), _tier(fill, fits, found), strict=True))
        for fill, fits in found
    ]


def tiers(fills: list[Fill], by: Sequence[str], units: dict[str, int]) -> Rows:
    told = [Fill(**row) for row in with_tiers(fills, units)]
    whole = {tuple(key.values()): some for key, some in grouped(told, by)}
    return [
        key
        | {
            "fills": len(some),
            "share": len(some) / len(whole[tuple(key[name] for name in by)]),
        }
        | {how: least_or_most(how, some) for how in ("first", "last")}
        | {"both_sides": both_sides(whole[tuple(key[name] for name in by)])}
        for key, some in grouped(told, [*by, "tier_bps", "certainty"])
    ]


def least_or_most(which: str, fills: list[Fill]) -> int | None:
    moments = known(fill.created_at for fill in fills)
    return {"first": min, "last": max}[which](moments, default=None)


def fitting(fill: Fill, unit: int) -> list[int] | None:
    """List every tier that gives this fee on some amount within the price's cut; None if not known."""
    gross = received(fill)
    if fill.fee is None or gross is None or fill.size is None:
        return None
    most = gross if fill.fee_token == fill.base else gross + fill.size // 10**8 + 2
    return _between(gross, most, fill.fee, unit)


@functools.cache
def _between(least, most, fee, unit):
    def charged(gross, tier):
        return gross * tier // 10_000 // unit * unit

    return [
        tier
        for tier in range(10_001)
        if charged(least, tier) <= fee <= charged(most, tier)
    ]


def _tier(fill, fits, found):
    if fits is None:
        return None, "unknown"
    if len(fits) < 2:
        return (fits[0], "exact") if fits else (None, "none")
    names = ("account_id", "fill_type", "base", "quote", "role")
    mine = [getattr(fill, name) for name in names]
    like = [
        (one, some)
        for one, some in found
        if some and [getattr(one, name) for name in names] == mine
    ]
    exact = [(one.created_at, some[0]) for one, some in like if len(some) == 1]
    tiers = {tier for _, tier in exact}
    (only, *more) = tiers & set(fits) or [None]
    times = known(moment for moment, tier in exact if tier == only)
    is_sure = (
        None not in mine[:-1]
        and len(exact) >= 50
        and all(tiers & set(some) for _, some in like)
    )
    is_timed = (
        bool(times)
        and fill.created_at is not None
        and min(times) <= fill.created_at <= max(times)
    )
    return (
        (only, "likely") if is_sure and is_timed and not more else (None, "ambiguous")
    )


def above(fills: list[Fill], bps: int) -> Rows:
    """List the fills whose fee is more than the most that could have been received allows."""
    shown = [
        "created_at",
        "trade_id",
        "account_id",
        "market",
        "side",
        "fill_type",
        "order_hash",
        "fee_token",
        "fee",
    ]
    rows = []
    for fill in fills:
        gross = received(fill)
        known = None not in (fill.fee, gross, fill.size)
        most = (
            0
            if not known
            else gross
            if fill.fee_token == fill.base
            else gross + fill.size // 10**8 + 2
        )
        if known and fill.fee <= most * bps // 10_000:
            continue
        told = (
            {"allowed": most * bps // 10_000, "excess": fill.fee - most * bps // 10_000}
            if known
            else {}
        )
        rows.append(
            {name: getattr(fill, name) for name in shown}
            | {"line": 0, "schedule_bps": float(bps), "allowed": None, "excess": None}
            | told
            | {"verdict": "above" if known else "unknown"}
        )
    return rows


def in_token(fills: list[Fill], token: str, tolerance: int | None = 7 * DAY) -> Rows:
    """Value each fill's fee at the last prices before its order, along the shortest path of markets."""
    prices = [
        one for one in fills if _usable(one) and None not in (one.base, one.quote)
    ]
    paths = _shortest(prices, fills, token)
    return [
        vars(fill)
        | {"value_token": token}
        | _valued(fill, fills, prices, paths, tolerance)
        for fill in fills
    ]


Path = list[tuple[str, str]]


def _shortest(prices, fills, token):
    """Return the markets that lead from each token to one: the fewest, then those of most trade, then by name."""
    pairs = {(one.base, one.quote) for one in prices}
    paths: dict[str, Path] = {token: []}
    while True:
        known = set(paths)
        ways = [pair for pair in pairs if len(known & set(pair)) == 1]
        for here in {name for pair in ways for name in pair} - known:
            pair = min(
                (pair for pair in ways if here in pair),
                key=lambda pair: (-_traded(here, pair, fills), pair),
            )
            there = pair[pair[0] == here]
            paths[here] = [pair, *paths[there]]
        if not ways:
            return paths


def _traded(token, pair, fills):
    """Return how much of a token was traded in a market that has it."""
    amounts = [
        one.size if token == one.base else one.notional
        for one in fills
        if (one.base, one.quote) == pair
    ]
    return sum(amount or 0 for amount in amounts)


def _valued(fill, fills, prices, paths, tolerance):
    nothing = {"fee_value": None, "value_path": None, "priced_at": None}
    if fill.fee is None or fill.fee_token not in paths or fill.created_at is None:
        return nothing
    order = [
        one
        for one in order_of(fill, fills)
        if one.created_at is not None and one.fee_token == fill.fee_token
    ]
    first = min(map(moment_of, order))
    value = Fraction(fill.fee, UNIT)
    names = [fill.fee_token]
    times = [fill.created_at]
    for pair in paths[fill.fee_token]:
        earlier = [
            one
            for one in prices
            if (one.base, one.quote) == pair and moment_of(one) < first
        ]
        if not earlier:
            return nothing
        last = max(map(moment_of, earlier))
        price = statistics.mean(
            Fraction(one.price, UNIT) for one in earlier if moment_of(one) == last
        )
        value = value * price if pair[0] == names[-1] else value / price
        names.append(pair[pair[0] == names[-1]])
        times.append(last[0])
    if (
        tolerance is not None
        and fill.created_at - min(times[1:], default=fill.created_at) > tolerance
    ):
        return nothing
    return {
        "fee_value": float(value),
        "value_path": ">".join(names),
        "priced_at": min(times[1:], default=times[0]),
    }


# Fills


def breakdown(fills: list[Fill], around: Sequence[str]) -> Rows:
    return summed(
        fills,
        [*around, "fill_type"],
        lambda some, whole: {
            "fills": len(some),
            "share": len(some) / len(whole),
            **amounts(some),
        },
    )


def vwap(fills: list[Fill], by: Sequence[str]) -> Rows:
    def columns(some, _):
        sure = [fill for fill in some if clear(fill)]
        volume = total(fill.size for fill in sure)
        notional = total(fill.notional for fill in sure)
        return {
            "fills": len(some),
            "volume": volume,
            "notional": notional,
            "vwap": notional * UNIT // volume if volume else None,
            "unknown": len(some) - len(sure),
        }

    return summed(fills, [*by, "base", "quote"], columns)


def orders(fills: list[Fill]) -> Rows:
    def columns(some, _):
        shared, (price,) = (
            amounts(some),
            vwap([Fill(**vars(f) | {"base": 0, "quote": 0}) for f in some], []),
        )
        by_role = {
            f"{role}_share": ratio(
                total(f.size for f in some if f.role == role) or 0, shared["volume"]
            )
            for role in ("maker", "taker")
        }
        return {
            "first": least_or_most("first", some),
            "last": least_or_most("last", some),
            "fills": len(some),
            "amm_fills": sum(fill.fill_type == "amm" for fill in some),
            "average_price": price["vwap"],
            **by_role,
            **shared,
        }

    told = [Fill(**vars(fill) | {"storage_id": storage_of(fill)}) for fill in fills]
    return summed(told, [*ORDER_KEYS, "fee_token"], columns)


def size_profile(fills: list[Fill], quantiles: int, by: Sequence[str]) -> Rows:
    placed = []
    for _, some in grouped(fills, [*by, "quote"]):
        sizes = sorted(known(fill.notional for fill in some))
        for fill in some:
            first = (
                None
                if fill.notional is None
                else sizes.index(fill.notional) * quantiles // len(sizes) + 1
            )
            placed.append(Fill(**vars(fill), quantile=first))

    def columns(some, part):
        sizes = known(fill.notional for fill in part)
        mine = total(fill.notional for fill in some)
        return {
            "smallest": min(sizes, default=None),
            "largest": max(sizes, default=None),
            "fills": len(some),
            "share": len(some) / len(part),
            "notional": mine,
            "notional_share": ratio(mine, total(sizes)),
            "median_bps": middle(fill.fee_bps for fill in some),
        }

    found = summed(placed, [*by, "quote", "quantile", "fill_type"], columns)
    last = [
        "fill_type",
        "fills",
        "share",
        "notional",
        "notional_share",
        "median_bps",
        "both_sides",
    ]
    return [
        {name: row[name] for name in [*(n for n in row if n not in last), *last]}
        for row in found
    ]


def price_gaps(fills: list[Fill], tolerance: int | None) -> Rows:
    """Compare each fill with every one of the other type, market and side alike, before its order."""
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "price"]
    rows = []
    for fill in (one for one in fills if one.fill_type):
        others = [
            other
            for other in fills
            if other.fill_type and other.fill_type != fill.fill_type
            if fill.side and (other.market, other.side) == (fill.market, fill.side)
        ]
        first, _ = span_of(fill, fills)
        other = last_before(others, first, tolerance) if _usable(fill) else None
        higher = _relative(fill, other)
        rows.append(
            {name: getattr(fill, name) for name in shown}
            | {
                "other_price": other and other.price,
                "other_at": other and other.created_at,
            }
            | {"gap_bps": higher, "worse_bps": _against(fill, higher)}
        )
    return rows


def costs(
    fills: list[Fill],
    reference: str,
    tolerance: int | None,
    known: list[Fill] | None = None,
) -> Rows:
    """Compare each fill with the prices in its market before its order began, after it ended, or up to it."""
    shown = [
        "created_at",
        "trade_id",
        "market",
        "side",
        "fill_type",
        "quote",
        "notional",
        "price",
    ]
    prices = fills if known is None else known
    rows = []
    for fill in fills:
        others = [
            other for other in prices if fill.market and other.market == fill.market
        ]
        first, last = span_of(fill, [*fills, *(known or [])])
        if reference == "next":
            other = first_after(others, last, tolerance)
        elif reference == "outside":
            other = last_before(others, just_after(moment_of(fill)), tolerance)
        else:
            other = last_before(others, _known_before(first, prices), tolerance)
        worse = _against(fill, _relative(fill, other))
        both = None if None in (worse, fill.fee_bps) else worse + fill.fee_bps
        rows.append(
            {name: getattr(fill, name) for name in shown}
            | {"reference_price": other and other.price, "price_bps": worse}
            | {"fee_bps": fill.fee_bps, "all_in_bps": both}
        )
    return rows


def markouts(
    fills: list[Fill],
    known: list[Fill],
    horizons: dict[str, int],
    tolerance: int | None,
    *,
    outside: bool = False,
) -> Rows:
    """Compare each taker's fill with the last price known before it, and the last one up to each horizon.

    From outside, that is of the horizon if it is no older there than the tolerance, and half of it from the one before.
    """
    shown = [
        "created_at",
        "trade_id",
        "market",
        "side",
        "fill_type",
        "quote",
        "notional",
        "price",
    ]
    rows = []
    for fill in (one for one in fills if one.role == "taker"):
        others = [one for one in known if fill.market and one.market == fill.market]
        first, last = span_of(fill, [*fills, *known])
        first = just_after(moment_of(fill)) if outside else _known_before(first, known)
        last = moment_of(fill) if outside else last
        before = last_before(others, first, tolerance)
        for name, length in horizons.items():
            later = [
                one for one in others if last and _usable(one) and moment_of(one) > last
            ]
            end = fill.created_at is not None and (fill.created_at + length + 1, 0)
            after = last_before(later, end or None, None)
            if (
                outside
                and after
                and (
                    not before
                    or 2 * (after.created_at - before.created_at) < length
                    or (
                        tolerance is not None
                        and fill.created_at + length - after.created_at > tolerance
                    )
                )
            ):
                after = None
            rows.append(
                {column: getattr(fill, column) for column in shown}
                | {"horizon": name, "price_before": before and before.price}
                | {
                    "price_after": after and after.price,
                    "after_at": after and after.created_at,
                }
                | {"effective_bps": _cost_bps(fill, fill, before, before)}
                | {"realized_bps": _cost_bps(fill, fill, after, before)}
                | {"impact_bps": _cost_bps(fill, after, before, before)}
            )
    return rows


# Moments: a millisecond, and the place in the block where that is known

Moment = tuple[int, int]


def moment_of(fill: Fill) -> Moment | None:
    if fill.created_at is None:
        return None
    block, index = (
        getattr(fill, name, None) for name in ("block_id", "index_in_block")
    )
    # 0 is what a relayer says of a fill in no block yet.
    is_placed = block != 0 and index is not None
    return fill.created_at, index + 1 if is_placed else 0


def just_after(moment: Moment | None) -> Moment | None:
    return moment and (moment[0], moment[1] + 1)


def span_of(fill: Fill, fills: list[Fill]) -> tuple[Moment | None, Moment | None]:
    """Return the first and the last moment of a fill's order in its market; unknown if one of them is."""
    moments = [moment_of(one) for one in order_in_market(fill, fills)]
    return (
        (None, None) if not moments or None in moments else (min(moments), max(moments))
    )


def order_in_market(fill: Fill, fills: list[Fill]) -> list[Fill]:
    name = order_or_side(fill)
    same = [
        one for one in fills if order_or_side(one) == name and one.market == fill.market
    ]
    return same if name and fill.market else []


def order_or_side(fill: Fill):
    """Return what tells a fill's order apart; of one without, its id and side."""
    side = tuple(getattr(fill, name, None) for name in ("trade_id", "side"))
    return order_name(fill) or (None if None in side else side)


def _known_before(first, prices):
    """Return what prices before an order are older than; without places none of its millisecond is."""
    has_places = all(
        hasattr(one, "block_id") and hasattr(one, "index_in_block") for one in prices
    )
    return first if has_places or first is None else (first[0], 0)


def last_before(
    prices: list[Fill], moment: Moment | None, tolerance: int | None
) -> Fill | None:
    """Return the last usable price before a moment: of one moment that of the highest id."""
    near = [
        one for one in prices if moment and _usable(one) and moment_of(one) < moment
    ]
    near = [
        one
        for one in near
        if tolerance is None or moment[0] - one.created_at <= tolerance
    ]
    return _mean_of(near, max(map(_place_of, near), default=None))


def first_after(
    prices: list[Fill], moment: Moment | None, tolerance: int | None
) -> Fill | None:
    """Return the first usable price after a moment: of one moment that of the lowest id."""
    near = [
        one for one in prices if moment and _usable(one) and moment_of(one) > moment
    ]
    near = [
        one
        for one in near
        if tolerance is None or one.created_at - moment[0] <= tolerance
    ]
    return _mean_of(near, min(map(_place_of, near), default=None))


def _place_of(fill):
    number = getattr(fill, "trade_id", None)
    return moment_of(fill), number is None, number or 0


def _mean_of(fills, place):
    """Return a fill of a moment and id, with the mean of the prices of all of them."""
    alike = [one for one in fills if _place_of(one) == place]
    price = alike and sum(one.price for one in alike) // len(alike)
    return Fill(**vars(alike[0]) | {"price": price}) if alike else None


def _cost_bps(fill, paid, origin, base):
    if not (paid and origin and base) or (paid.price or 0) <= 0:
        return None
    return _against(fill, ratio(paid.price - origin.price, base.price, 10_000))


def shortfalls(fills: list[Fill], known: list[Fill], tolerance: int | None) -> Rows:
    """Put fills together into orders and compare their average price with the last one known before."""
    rows = []
    told = [
        Fill(**vars(fill) | {"storage_id": storage_of(fill)}, original=fill)
        for fill in fills
    ]
    for keys, group in grouped(told, ORDER_KEYS):
        some = [one.original for one in group]
        names = [order_or_side(one) for one in some]
        for name in dict.fromkeys(names):
            parts = [
                one for one, its_own in zip(some, names, strict=True) if its_own == name
            ]
            others = [
                one for one in known if one.market and one.market == keys["market"]
            ]
            first, _ = span_of(parts[0], [*fills, *known])
            before = last_before(others, _known_before(first, known), tolerance)
            rows.append(keys | _shortfall(parts, before))
    return rows


def _shortfall(parts, before):
    sums = amounts(parts)
    complete = all(map(clear, parts))
    moments = known(part.created_at for part in parts)
    notional, volume = (
        sums[name] if complete else None for name in ("notional", "volume")
    )
    worse = None
    if before and notional is not None and volume:
        worse = _against(
            parts[0],
            ratio(
                notional * UNIT - before.price * volume, before.price * volume, 10_000
            ),
        )
    fee = sums["bps"] if complete else None
    return {
        "seconds_to_fill": (max(moments) - min(moments)) / 1000 if moments else None,
        "fills": len(parts),
        "notional": notional,
        "average_price": notional * UNIT // volume
        if volume and notional is not None
        else None,
        "arrival_price": before and before.price,
        "arrival_at": before and before.created_at,
        "shortfall_bps": worse,
        "fee_bps": fee,
        "all_in_bps": None if None in (worse, fee) else worse + fee,
    }


def order_name(fill: Fill):
    """Return what tells a fill's order apart: the hash, or account, token sold and storage id; None if unknown."""
    sold = tuple(
        getattr(fill, name, None) for name in ("account_id", "token_id", "storage_id")
    )
    return getattr(fill, "order_hash", None) or (None if None in sold else sold)


def storage_of(fill: Fill) -> int | None:
    """Return the storage id of an order that it tells apart."""
    return None if fill.order_hash or not order_name(fill) else fill.storage_id


def order_of(fill: Fill, fills: list[Fill]) -> list[Fill]:
    """Return the fills of the same order, which is of one market; the fill itself where its order is unknown."""
    name = order_name(fill)
    if not name:
        return [fill]
    return [
        one for one in fills if order_name(one) == name and one.market == fill.market
    ]


def _usable(fill):
    return fill.created_at is not None and fill.price is not None and fill.price > 0


def _relative(fill, other):
    return (
        ratio(fill.price - other.price, other.price, 10_000)
        if other and (fill.price or 0) > 0
        else None
    )


def _against(fill, higher):
    return (
        None
        if higher is None or fill.side is None
        else {"BUY": higher, "SELL": -higher}[fill.side] + 0.0
    )
