"""What an answer says, worked out digit by digit: the judge of every value that a door lets through.

Numbers stay text; none is ever made an integer here before its size is known.
"""

import functools
import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import pandas as pd

from loopring_lab import tables

MEMBERS = (
    "createdAt", "id", "side", "size", "price", "market", "feeAmount", "blockId", "indexInBlock", "accountId",
    "tokenId", "storageId", "orderHash", "type",
)  # fmt: skip
TEN = (*MEMBERS[:7], "accountId", "tokenId", "storageId")
DEEPEST = 600
LONGEST = 2_000
"""Digits of the longest number that could be right in any column."""
_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?", re.ASCII)


judging: list[Callable[[], None]] = []
"""Called when a judgement begins, so that what it takes does not count."""


class Wrong(Exception):
    """A door let a value through that is not what was sent."""


class Number(str):
    """The text of a JSON number."""

    __slots__ = ()


class Whole(NamedTuple):
    """A number as digits without zeros at either end, and the power of ten behind them."""

    negative: bool
    digits: str
    exponent: int


def judgement(check: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(check)
    def judge(*what: Any) -> None:
        for begin in judging:
            begin()
        check(*what)

    return judge


def parse(body: bytes) -> Any:
    """Parse an answer as JSON says; `Wrong` where it is none, so that nothing may be read from it."""
    if depth(body) > DEEPEST:
        raise Wrong("read from an answer nested too deep")
    try:
        return json.loads(body, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError):
        raise Wrong("read from an answer that is not JSON") from None


def depth(body: bytes) -> int:
    depth = deepest = 0
    for letter in re.sub(rb'"[^"\\]*(?:\\.[^"\\]*)*"', b"", body):
        depth += (letter in b"[{") - (letter in b"]}")
        deepest = max(deepest, depth)
    return deepest


def number(value: Any) -> Whole | None:
    """Read text or a JSON number; None if it is no plain finite number."""
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if not match or not (match[2] or match[3]) or len(match[4] or "") > LONGEST:
        return None
    whole, part = match[2], match[3] or ""
    digits = (whole + part).lstrip("0")
    exponent = int(match[4] or 0) - len(part) + len(digits) - len(digits.rstrip("0"))
    digits = digits.rstrip("0")
    return Whole(match[1] == "-", digits, exponent) if digits else Whole(False, "", 0)


def fraction(value: Whole) -> Fraction:
    if len(value.digits) > LONGEST or abs(value.exponent) > LONGEST:
        raise Wrong(f"let a number through that no column holds: 10 to the {value.exponent}")
    sign = -1 if value.negative else 1
    return sign * int(value.digits or "0") * Fraction(10) ** value.exponent


def exact(got: Any) -> Fraction:
    return Fraction(got)


def is_null(got: Any) -> bool:
    return got is None or (not isinstance(got, (list, dict)) and bool(pd.isna(got)))


def expect(condition: object, what: str) -> None:
    if not condition:
        raise Wrong(what)


def same_number(name: str, got: Any, sent: Any, scale: int = 0) -> None:
    """Check a number in units of 10 to the scale against what was sent; null for null only."""
    if sent is None:
        return expect(is_null(got), f"{name}: {got!r} for nothing")
    value = number(sent)
    expect(value is not None and not is_null(got), f"{name}: {str(got)[:60]} for {str(sent)[:60]!r}")
    expect(not isinstance(got, bool), f"{name}: a truth value for a number")
    return expect(exact(got) * 10**scale == fraction(value), f"{name}: {str(got)[:60]} for {str(sent)[:60]!r}")


def same_text(name: str, got: Any, sent: Any) -> None:
    if sent is None:
        return expect(is_null(got) or got == "", f"{name}: {str(got)[:60]!r} for nothing")
    expect(isinstance(sent, str), f"{name}: {str(got)[:60]!r} for no text")
    return expect(isinstance(got, str) and got[:] == sent, f"{name}: {str(got)[:60]!r} for {sent[:60]!r}")


def same_flag(name: str, got: Any, sent: Any) -> None:
    if sent is None:
        return expect(is_null(got), f"{name}: {got!r} for nothing")
    return expect(isinstance(sent, bool) and bool(got) is sent, f"{name}: {got!r} for {str(sent)[:60]!r}")


def _plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame with times as milliseconds."""
    columns = {}
    for name in frame.columns:
        column = frame[name]
        if name == "created_at":
            missing = column.isna()
            moments = column.dt.tz_localize(None).astype("datetime64[ms]").astype("int64")
            columns[name] = [None if gone else moment for gone, moment in zip(missing, moments, strict=True)]
        else:
            columns[name] = column.tolist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def records(answer: Any, key: str) -> list[dict[str, Any]]:
    found = answer.get(key, answer) if isinstance(answer, dict) else answer
    expect(isinstance(found, list) and all(isinstance(one, dict) for one in found), f"read {key} from no list")
    return found


def _inner(record: dict[str, Any], group: str, name: str) -> Any:
    inner = record.get(group)
    expect(inner is None or isinstance(inner, dict), f"{group}: read from no object")
    return (inner or {}).get(name)


@judgement
def check_tokens(frame: pd.DataFrame, body: bytes) -> None:
    sent = records(parse(body), "tokens")
    expect(len(frame) == len(sent), f"{len(frame)} tokens for {len(sent)}")
    for label, got, record in zip(frame.index, _plain(frame), sent, strict=True):
        expect(str(label).startswith(str(record.get("symbol"))), f"symbol: {label!r}")
        expect(not is_null(got["token_id"]) and not is_null(got["decimals"]), "a token without id or decimals")
        for name in ("tokenId", "decimals", "precision", "precisionForOrder"):
            same_number(name, got[_snake(name)], record.get(name))
        for name in ("type", "name", "address"):
            same_text(name, got[name], record.get(name))
        same_flag("enabled", got["enabled"], record.get("enabled"))
        decimals = int(got["decimals"])
        same_number("fastWithdrawLimit", got["fast_withdraw_limit"], record.get("fastWithdrawLimit"), decimals)
        for group in ("orderAmounts", "luckyTokenAmounts"):
            for bound in ("minimum", "maximum", "dust"):
                name = f"{group}.{bound}"
                same_number(name, got[_snake(name)], _inner(record, group, bound), decimals)
        for bound in ("distribution", "deposit"):
            name = f"gasAmounts.{bound}"
            same_number(name, got[_snake(name)], _inner(record, "gasAmounts", bound))


@judgement
def check_markets(frame: pd.DataFrame, body: bytes, tokens: bytes | None = None) -> None:
    sent = records(parse(body), "markets")
    symbols = _symbols(tokens) if tokens else None
    expect(len(frame) == len(sent), f"{len(frame)} markets for {len(sent)}")
    for label, got, record in zip(frame.index, _plain(frame), sent, strict=True):
        expect(str(label).startswith(str(record.get("market"))), f"market: {label!r}")
        for name in ("baseTokenId", "quoteTokenId", "precisionForPrice", "orderbookAggLevels", "status"):
            same_number(name, got[_snake(name)], record.get(name))
        same_flag("enabled", got["enabled"], record.get("enabled"))
        created = number(record.get("createdAt"))
        same_number(
            "createdAt",
            got["created_at"],
            None if created == Whole(False, "", 0) else record.get("createdAt"),
        )
        for side in ("base", "quote"):
            if symbols is not None:
                expected = symbols.get(number(record.get(f"{side}TokenId")))
                expect(
                    got[side] == expected or (is_null(got[side]) and expected is None),
                    f"{side}: {got[side]!r}",
                )


def _symbols(tokens: bytes) -> dict[Whole | None, str]:
    sent = records(parse(tokens), "tokens")
    names = [record.get("symbol") for record in sent]
    return {
        number(record.get("tokenId")): name if names.count(name) == 1 else f"{name}#{record.get('tokenId')}"
        for name, record in zip(names, sent, strict=True)
    }


@judgement
def check_trades(
    frame: pd.DataFrame,
    pages: dict[str | None, list[bytes]],
    tokens: bytes,
    markets: bytes,
    account: int | None,
) -> None:
    """Check a frame of trades against the pages of each fill type, and the listings that scale it."""
    listing = _Listing(tokens, markets)
    named = set(lab_anomalies(frame).index)
    got = [row | {"named": index in named} for index, row in zip(frame.index, _plain(frame), strict=True)]
    expected = [
        (fill_type, row)
        for fill_type, bodies in pages.items()
        for row in {json.dumps(one): one for body in bodies for one in _rows(parse(body))}.values()
    ]
    expect(len(got) == len(expected), f"{len(got)} rows for {len(expected)}")
    expect(not expected or any(_is_trade(row) for _, row in expected), "read from rows without a trade")
    for fill_type, row in expected:
        faults = []
        for candidate in got:
            try:
                listing.check_row(candidate, row, fill_type, account)
            except Wrong as fault:
                faults.append(str(fault))
            else:
                got.remove(candidate)
                break
        else:
            raise Wrong(f"no row is right for {json.dumps(row)[:80]}: {'; '.join(sorted(set(faults)))[:400]}")


def lab_anomalies(frame: pd.DataFrame) -> pd.DataFrame:
    found = tables.anomalies(frame)
    expect((found["reason"] != "").all(), "an anomaly without a reason")
    return found


def _rows(answer: Any) -> list[Any]:
    trades = answer.get("trades") if isinstance(answer, dict) else None
    expect(isinstance(trades, list), "read from no rows")
    return list(trades or [])


def _is_trade(row: Any) -> bool:
    return isinstance(row, list) and 7 <= len(row) != 19


class _Listing:
    """Tokens and markets as the relayer lists them."""

    def __init__(self, tokens: bytes, markets: bytes) -> None:
        self.symbols = _symbols(tokens)
        self.decimals = {
            number(record.get("tokenId")): number(record.get("decimals")) for record in records(parse(tokens), "tokens")
        }
        self.pairs = {
            record.get("market"): tuple(number(record.get(f"{side}TokenId")) for side in ("base", "quote"))
            for record in records(parse(markets), "markets")
        }

    def check_row(self, got: dict[str, Any], row: Any, fill_type: str | None, account: int | None) -> None:
        if not _is_trade(row):
            kept = {name for name, value in got.items() if not is_null(value)}
            allowed = {"fill_type", "account_id", "extra", "named"}
            expect(got["named"] and kept <= allowed, f"{kept} out of no trade")
            return
        names = TEN if len(row) == 10 else MEMBERS
        sent = dict.fromkeys(MEMBERS) | {n: _member(v) for n, v in zip(names, row, strict=False)}
        named = got["named"]
        expect(named or len(row) <= len(MEMBERS), "a member too much, not named")
        for name in MEMBERS[:7]:
            expect(sent[name] is not None or named, f"{name} is missing, not named")
        self._check_times_and_ids(got, sent, named, account)
        side = _word("side", got["side"], sent["side"], ("BUY", "SELL"), named)
        _word("type", got["role"], sent["type"], ("maker", "taker"), named)
        expect(fill_type is None or got["fill_type"] == fill_type, f"fill_type: {got['fill_type']!r}")
        _same_or_named("orderHash", got["order_hash"], sent["orderHash"], named)
        base, quote = self._check_market(got, sent["market"], named)
        fee_token = {"BUY": base, "SELL": quote}.get(str(side))
        expect(_equal(got["fee_token"], self.symbols.get(fee_token)), f"fee_token: {got['fee_token']!r}")
        self._amount("size", got["size"], sent["size"], base, named)
        self._amount("feeAmount", got["fee"], sent["feeAmount"], fee_token, named)
        _number_or_named("price", got["price"], sent["price"], named)
        self._check_products(got, fee_token, base)

    def _check_times_and_ids(self, got: dict[str, Any], sent: dict[str, Any], named: bool, account: int | None) -> None:
        created = None if number(sent["createdAt"]) == Whole(False, "", 0) else sent["createdAt"]
        expect(created is not None or named, "createdAt is 0 or missing, not named")
        _number_or_named("createdAt", got["created_at"], created, named)
        columns = {"id": "trade_id", "blockId": "block_id", "indexInBlock": "index_in_block"}
        for name, column in (columns | {"tokenId": "token_id", "storageId": "storage_id"}).items():
            _number_or_named(name, got[column], sent[name], named)
        self._check_account(got["account_id"], sent["accountId"], named, account)

    def _check_account(self, got: Any, sent: str | None, named: bool, asked: int | None) -> None:
        if sent is None:
            expect(is_null(got) or got == asked, f"accountId: {got!r} out of nothing")
        elif asked is None:
            _number_or_named("accountId", got, sent, named)
        elif not named:
            expect(got == asked, f"accountId: {got!r} among the rows of {asked}, not named")
            same_number("accountId", got, sent)
        elif got != asked:
            _number_or_named("accountId", got, sent, named)

    def _check_market(self, got: dict[str, Any], sent: str | None, named: bool) -> tuple[Any, Any]:
        if sent is None:
            expect(is_null(got["market"]), f"market: {got['market']!r} out of nothing")
            return None, None
        names = [sent, *(sent[len(p) :] for p in ("AMM-", "LP-", "COMBINE-") if sent.upper().startswith(p))]
        known = [one for one in names if one in self.pairs]
        expect(str(got["market"]) in (*names, *known, _compact(sent)), f"market: {str(got['market'])[:60]!r}")
        base, quote = self.pairs[known[0]] if known else (None, None)
        pair = tuple(token if token in self.symbols else None for token in (base, quote))
        expect(None not in pair or named, "an unknown market or token, not named")
        for side, token in zip(("base", "quote"), pair, strict=True):
            expect(_equal(got[side], self.symbols.get(token)), f"{side}: {got[side]!r}")
        return pair

    def _amount(self, name: str, got: Any, sent: Any, token: Any, named: bool) -> None:
        if token is None:
            return expect(is_null(got) and (named or sent is None), f"{name}: {got!r} of no token")
        decimals = self.decimals[token]
        expect(decimals is not None and 0 <= fraction(decimals) <= 30, f"{name}: scaled by no decimals")
        if sent is not None and got is not None and number(sent) and number(sent).negative:
            expect(named, f"{name} is negative, not named")
        return _number_or_named(name, got, sent, named, scale=int(fraction(decimals)))

    def _check_products(self, got: dict[str, Any], fee_token: Any, base: Any) -> None:
        size, price, notional = got["size"], got["price"], got["notional"]
        if is_null(size) or is_null(price):
            return expect(is_null(notional), f"notional: {notional!r} out of nothing")
        product = exact(size) * exact(price)
        if is_null(notional):
            unknown = product >= 10**19 or exact(price) <= 0
            return expect(got["named"] and unknown, f"no notional for {product}, not named")
        expect(exact(price) > 0, f"notional: {notional!r} at a price of {price}")
        expect(exact(notional) == Fraction(int(product * 10**18), 10**18), f"notional: {notional}")
        gross = size if fee_token == base else notional
        if is_null(got["fee"]) or fee_token is None or not gross:
            return expect(is_null(got["fee_bps"]), f"fee_bps: {got['fee_bps']!r} out of nothing")
        expected = float(exact(got["fee"]) / exact(gross) * 10_000)
        return expect(abs(got["fee_bps"] - expected) <= 1e-9 * abs(expected), f"fee_bps: {got['fee_bps']!r}")


def _equal(got: Any, expected: Any) -> bool:
    return is_null(got) if expected is None else bool(got == expected)


def _member(value: Any) -> str | None:
    """Write a member of a row as text: other JSON than text and numbers as it was sent."""
    return value if value is None or isinstance(value, str) else _sent(value)


def _sent(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_sent, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_sent(name)}:{_sent(one)}' for name, one in value.items())}}}"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def _number_or_named(name: str, got: Any, sent: Any, named: bool, scale: int = 0) -> None:
    if sent is not None and is_null(got):
        return expect(named, f"{name}: nothing for {sent[:60]!r}, not named")
    return same_number(name, got, sent, scale)


def _compact(text: str) -> str:
    return text.replace(", ", ",").replace(": ", ":")


def _same_or_named(name: str, got: Any, sent: str | None, named: bool) -> None:
    if sent is None:
        return expect(is_null(got), f"{name}: {got!r} out of nothing")
    compact = _compact(sent)
    return expect((is_null(got) and named) or got in (sent, compact), f"{name}: {str(got)[:60]!r} for {sent[:60]!r}")


def _word(name: str, got: Any, sent: str | None, known: tuple[str, ...], named: bool) -> str | None:
    """Check a word of a known few; return what it means, None if it is none of them."""
    found = next((word for word in known if sent is not None and sent.upper() == word.upper()), None)
    if found is None or (name == "type" and sent != found):
        expect(is_null(got) and (named or sent is None), f"{name}: {got!r} for {str(sent)[:60]!r}")
        return None
    expect(got == found, f"{name}: {got!r} for {sent!r}")
    return found


def _snake(name: str) -> str:
    return re.sub("([A-Z])", lambda letter: "_" + letter[1].lower(), name.replace(".", "_"))


@judgement
def check_account(got: Any, body: bytes) -> None:
    sent = parse(body)
    expect(isinstance(sent, dict), "an account from no object")
    expect(
        type(got.account_id) is int and got.account_id == 10083,
        f"the account {str(got.account_id)[:40]} instead",
    )
    expect(type(got.nonce) is int, f"nonce: {str(got.nonce)[:60]!r}")
    same_number("accountId", got.account_id, sent.get("accountId"))
    same_number("nonce", got.nonce, sent.get("nonce"))
    same_number("keyNonce", got.key_nonce, sent.get("keyNonce"))
    expect(got.key_nonce is None or type(got.key_nonce) is int, f"keyNonce: {got.key_nonce!r}")
    expect(got.nonce >= 0, "a negative nonce")
    same_text("owner", got.owner, sent.get("owner"))
    expect(got.owner, "an account of nobody")
    same_flag("frozen", got.frozen, sent.get("frozen"))
    expect(isinstance(got.frozen, bool), "frozen is not known")
    for name, text in (("keySeed", got.key_seed), ("tags", got.tags)):
        same_text(name, text, sent.get(name))
    key = sent.get("publicKey")
    for name, text in (("x", got.x), ("y", got.y)):
        coordinate = key.get(name) if isinstance(key, dict) else None
        readable = isinstance(coordinate, str) and re.fullmatch("(0[xX])?[0-9a-fA-F]{1,64}", coordinate, re.ASCII)
        expect(
            text == "" or (readable and int(text, 16) == int(coordinate, 16)),
            f"{name}: {text!r} for {str(coordinate)[:80]!r}",
        )


@judgement
def check_exchange(got: Any, body: bytes) -> None:
    sent = parse(body)
    expect(isinstance(sent, dict), "an exchange from no object")
    same_text("exchangeAddress", got.address, sent.get("exchangeAddress"))
    same_number("chainId", got.chain_id, sent.get("chainId"))
    expect(got.address and type(got.chain_id) is int and got.chain_id > 0, "an exchange without address or chain")


@judgement
def check_fees(frame: pd.DataFrame, body: bytes, decimals: dict[str, int]) -> None:
    answer = parse(body)
    sent = records(answer.get("fees"), "fees") if isinstance(answer, dict) else records(answer, "fees")
    expect(len(frame) == len(sent), f"{len(frame)} fees for {len(sent)}")
    for label, got, record in zip(frame.index, _plain(frame), sent, strict=True):
        same_text("token", label, record.get("token"))
        same_number("fee", got["fee"], record.get("fee"), decimals[label])
        expect(not is_null(got["fee"]), "a fee of nothing")
        discount = number(record.get("discount"))
        expect(
            discount is not None and isinstance(record.get("discount"), Number),
            f"discount: {got['discount']!r}",
        )
        expect(got["discount"] == float(fraction(discount)), f"discount: {got['discount']!r}")


@judgement
def check_api_key(got: str, body: bytes) -> None:
    sent = parse(body)
    expect(isinstance(sent, dict), "a key from no object")
    same_text("apiKey", got, sent.get("apiKey"))
    expect(got[:], "a key of nothing")


@judgement
def check_submission(got: Any, sent: Any) -> None:
    expect(isinstance(sent, dict), "a submission from no object")
    same_text("status", got.status, sent.get("status"))
    expect(got.status in ("received", "processing", "processed", "failed"), f"status: {got.status!r}")
    same_text("hash", got.hash, sent.get("hash"))
    expect(got.hash is not None, "no hash")
    expect(got.is_idempotent is (sent.get("isIdempotent") is True), f"isIdempotent: {got.is_idempotent!r}")
    same_number("storageId", got.storage_id, sent.get("storageId"))
    same_text("reason", got.reason, sent.get("reason"))


@judgement
def check_updates(got: Any, body: bytes, asked: str) -> None:
    answer = parse(body)
    listed = answer.get("transactions") if isinstance(answer, dict) else None
    expect(isinstance(listed, list), "updates from no list")
    matching = [one for one in listed if isinstance(one, dict) and one.get("hash") == asked]
    expect(bool(matching) == (got is not None), f"{got!r} for {len(matching)} updates")
    if matching:
        check_submission(got, matching[0])
