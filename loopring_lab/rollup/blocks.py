"""Blocks as frames: every transaction of a batch of blocks, by type, and what it names."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.series import as_series
from loopring_lab.errors import LabError, ProtocolError, did_you_mean
from loopring_lab.protocol import unpack_public_key
from loopring_lab.rollup import balances, block_frames, settled, slots
from loopring_lab.rollup.calldata import RawBlock
from loopring_lab.tables.listings import TEXT

# The columns in which each type of transaction names an account, and its owner's address if it names that at all.
_OWNERS: dict[str, list[tuple[str, str | None]]] = {
    "deposit": [("account", "owner")],
    "withdrawal": [("account", "owner")],
    "transfer": [("sender", "from_"), ("receiver", "to")],
    "spot_trade": [("account_a", None), ("account_b", None)],
    "account_update": [("account", "owner")],
    "amm_update": [("account", "owner")],
    "signature_verification": [("account", "owner")],
    "nft_mint": [("minter", None), ("receiver", "to")],
    "nft_data": [("account", None)],
}
_FORCED_AND_INVALID = 3  # the kind of a withdrawal whose owner is not that of the account: WithdrawTransaction.sol
_RECORDED = (
    "l1_block",
    "place",
    "block_type",
    "block_size",
    "block_version",
)


class Blocks:
    r"""Blocks of the exchange, decoded: from `decode`, `decode_data` or a `Store`.

    Each frame has one row for each transaction of its type, in the order of the blocks, and begins with
    ``block`` (position among these blocks, from 0), ``block_id`` (number on the exchange; null where it is
    not known), ``index_in_block`` and ``created_at`` (UTC; a block has one time, set by the operator).
    Integers are Arrow integers; amounts are exact Arrow decimals in smallest units; addresses, hashes and
    packed keys are text in hex with ``0x``. With ``tokens=`` (from `tables.tokens`), symbols and amounts in
    units of the token are added: ``token`` to ``token_id``, ``amount_units`` (`amounts.AMOUNT`) to
    ``amount``; both are null where the token is not listed, as NFTs are not.

    Parameters
    ----------
    raw : sequence of RawBlock
        Blocks as bytes, with what is known about each.
    known_pools : collection of int
        Accounts that are known to be pools, apart from those that these blocks name.
    attrs : mapping, optional
        ``attrs`` of every frame, such as the source of the data.
    count_from : int
        What trade ids count blocks without a number from.

    Examples
    --------
    >>> deposit = bytes([1]) + 20 * b"\xab" + (10083).to_bytes(4) + bytes(2) + (10**18).to_bytes(12)
    >>> deposit = deposit.ljust(68, b"\0")
    >>> blocks = lab.rollup.decode_data(bytes(98) + deposit[:29] + deposit[29:])
    >>> len(blocks), blocks.deposits()["account_id"].tolist()
    (1, [10083])
    """

    def __init__(
        self,
        raw: Sequence[RawBlock],
        known_pools: Collection[int] = (),
        attrs: Mapping[str, Any] | None = None,
        count_from: int = 0,
    ) -> None:
        self.raw = tuple(raw)
        self.count_from = count_from
        self.known_pools = frozenset(known_pools)
        self.attrs = dict(attrs or {})
        self._slots = slots.Slots(self.raw)  # sorted by type, once
        # Columns are made when a type is first asked for.
        self._tables: dict[str, pa.Table] = {}

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"Blocks({len(self):,} blocks, {int(self._slots.sizes.sum()):,} slots)"

    @cached_property
    def headers_table(self) -> pa.Table:
        """The headers as an Arrow table, with what is known about each submission."""
        columns: dict[str, Any] = {
            "block_id": pa.array([raw.block_id for raw in self.raw], pa.int64())
        }
        columns |= slots.read("header", self._slots.headers)
        columns["size"] = pa.array(self._slots.sizes)
        # publicDataHash of the block's event is made of the same bytes.
        digests = [hashlib.sha256(raw.data).digest() for raw in self.raw]
        columns["data_sha256"] = pa.array(digests, pa.binary(32))
        columns["transaction_hash"] = pa.array(
            [raw.transaction_hash for raw in self.raw], pa.string()
        )
        for name in _RECORDED:
            columns[name] = pa.array(
                [getattr(raw, name) for raw in self.raw], pa.int64()
            )
        return pa.table(columns)

    def table(self, kind: str) -> pa.Table:
        """Return the transactions of a type as an Arrow table, with the names of the protocol.

        Parameters
        ----------
        kind : str
            ``deposit``, ``withdrawal``, ``transfer``, ``spot_trade``, ``account_update``, ``amm_update``,
            ``signature_verification``, ``nft_mint``, ``nft_data`` or ``noop``.

        Returns
        -------
        pyarrow.Table
            ``block`` (position among these blocks), ``index_in_block``, and every field as it is in the
            block; addresses, keys and hashes are binary.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 2 * 68)).table("noop").to_pylist()
        [{'block': 0, 'index_in_block': 0}, {'block': 0, 'index_in_block': 1}]
        """
        if kind not in slots.KINDS:
            advice = did_you_mean(
                kind,
                slots.KINDS,
                f"Use one of {', '.join(slots.KINDS)}.",
            )
            raise LabError(f"kind={kind!r} is not known. {advice}")
        if kind not in self._tables:
            self._tables[kind] = self._slots.table(kind)
        return self._tables[kind]

    def headers(self) -> pd.DataFrame:
        """Return one row a block: what its header says, and what is known about its submission.

        Returns
        -------
        pandas.DataFrame
            ``block``, ``block_id``, ``created_at``, ``exchange``, ``merkle_root_before``,
            ``merkle_root_after``, ``taker_bips10`` and ``maker_bips10`` (protocol fees in tenths of a basis
            point), ``conditional`` (number of conditional transactions), ``operator`` (account id),
            ``size`` (slots, the empty ones included), ``data_sha256``, ``transaction_hash``, ``l1_block``,
            ``place`` (in its transaction), ``block_type``, ``block_size``, ``block_version``; null where not
            known.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 2 * 68)).headers()["size"].tolist()
        [2]
        """
        frame = block_frames.renamed(self.headers_table.drop_columns(["timestamp"]))
        places = np.arange(len(self), dtype=np.int32)
        frame.insert(0, "block", as_series(pa.array(places)))
        frame.insert(2, "created_at", block_frames.created_at(self, places))
        return block_frames.finished(frame, self)

    def trades(
        self,
        tokens: pd.DataFrame,
        markets: pd.DataFrame | None = None,
    ) -> pd.DataFrame:
        """Return both sides of every fill, as the frame that `tables.trades` makes.

        Parameters
        ----------
        tokens : pandas.DataFrame
            From `tables.tokens`.
        markets : pandas.DataFrame, optional
            From `tables.markets`. Without it, base and quote follow from an order of quote tokens.

        Returns
        -------
        pandas.DataFrame, shape (2 x fills, 21)
            Columns and dtypes of `tables.trades`: a row for the taker (A), then one for the maker (B).
            ``trade_id`` is the block's number times 100,000 plus ``index_in_block``; without a number, the
            block's position. ``fill_type`` is amm where one side is a pool: amm updates name it, or its id is at
            most 10,000, the limit of public subgraphs; the exchange's own list has 1 to 127. ``notional`` is the
            exact amount of quote tokens, and ``price`` is it over size.
            ``order_hash`` is null: (``account_id``, ``token_id``, ``storage_id``) is one order.

        Raises
        ------
        LabError
            `tokens` or `markets` is another frame.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).trades(client.tokens()).shape
        (0, 21)
        """
        return settled.trades(self, tokens, markets)

    def fills(self, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return one row a fill, with both sides: A is the taker, B the maker.

        Parameters
        ----------
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds symbols and amounts in units.

        Returns
        -------
        pandas.DataFrame
            ``trade_id`` (as in `trades`) and, for each side, ``account_``, ``storage_``, ``sell_`` and
            ``buy_`` (token ids), ``fill_`` (amount sold), ``fill_b_limit_`` (the order limits the amount
            bought), ``fee_bips_``, ``fee_`` and ``fee_token_``; ``bit6_`` is bit 6 of the order data, whose
            meaning is not known. The fee is in the token bought; in the token sold where an NFT is bought.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).fills().shape
        (0, 25)
        """
        frame = self._frame("spot_trade", tokens)
        table = self.table("spot_trade")
        found = settled.trade_ids(
            self,
            table["block"].to_numpy(),
            table["index_in_block"].to_numpy(),
        )
        frame.insert(4, "trade_id", as_series(pa.array(found)))
        return frame

    def account_updates(self, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the key updates of accounts.

        Parameters
        ----------
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds the symbol and amount of the fee.

        Returns
        -------
        pandas.DataFrame
            ``kind`` (0: signed with the L2 key, 1: authorised on-chain or by the wallet), ``account_id``,
            ``owner``, ``fee_token_id``, ``fee``, ``public_key`` (packed), ``nonce``, and the unpacked key
            ``x``, ``y``; null where no point of the curve belongs to it.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).account_updates().columns[-3:].tolist()
        ['nonce', 'x', 'y']
        """
        frame = self._frame("account_update", tokens)
        # A key that no point of the curve belongs to is null, not an error: it is what the block says.
        keys = [
            _unpacked(key)
            for key in self.table("account_update")["public_key"].to_pylist()
        ]
        for place, name in enumerate("xy"):
            frame[name] = pd.Series(
                [key[place] if key else None for key in keys],
                dtype=TEXT,
            )
        return frame

    def transfers(self, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the transfers between accounts.

        Parameters
        ----------
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds symbols and amounts in units.

        Returns
        -------
        pandas.DataFrame
            ``kind`` (0: signed, 1: conditional), ``sender_id``, ``receiver_id``, ``token_id``, ``amount``,
            ``fee_token_id``, ``fee``, ``storage_id``, ``to_address`` (zeros unless the account is new or the
            transfer conditional), ``from_address`` (zeros unless conditional), ``to_token_id``.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).transfers().empty
        True
        """
        return self._frame("transfer", tokens)

    def deposits(self, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the deposits from Ethereum.

        Parameters
        ----------
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds symbols and amounts in units.

        Returns
        -------
        pandas.DataFrame
            ``owner``, ``account_id``, ``token_id``, ``amount``.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).deposits().columns[4:].tolist()
        ['owner', 'account_id', 'token_id', 'amount']
        """
        return self._frame("deposit", tokens)

    def withdrawals(self, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the withdrawals to Ethereum.

        Parameters
        ----------
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds symbols and amounts in units.

        Returns
        -------
        pandas.DataFrame
            ``kind`` (0: signed, 1: conditional, 2: forced, 3: forced and invalid), ``owner``,
            ``account_id``, ``token_id``, ``amount``, ``fee_token_id``, ``fee``, ``storage_id``,
            ``onchain_data_hash``.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).withdrawals().empty
        True
        """
        return self._frame("withdrawal", tokens)

    def amm_updates(self, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the updates of AMM pools: each publishes the pool's balance of one token.

        Parameters
        ----------
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds symbols and balances in units.

        Returns
        -------
        pandas.DataFrame
            ``owner`` (the pool's contract), ``account_id``, ``token_id``, ``fee_bips``, ``weight``,
            ``nonce``, ``balance``.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).amm_updates().columns[-1]
        'balance'
        """
        return self._frame("amm_update", tokens)

    def balances(
        self, account_id: int, tokens: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return what happens to one account's balances: every change, and every balance published.

        Only AMM updates publish balances, those of pools. Between two of them, nothing but the transactions
        of these blocks can change one, so that each published balance can be recomputed from the one before. What
        operators of blocks receive as fees and pay as protocol fees is left out, and so is account 0, which gets these.

        Parameters
        ----------
        account_id : int
            The account, such as a pool's.
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds symbols and amounts in units.

        Returns
        -------
        pandas.DataFrame
            One row per transaction and token, in block order: its ``kind``, ``token_id``, the ``change`` with
            fees (null for AMM updates), the balance ``published`` (null for others), and ``recomputed``: the
            balance published before plus all changes since, this one included; null before the first. It is
            wrong if blocks between are missing.

        Raises
        ------
        LabError
            `account_id` is not valid.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).balances(1).columns[-3:].tolist()
        ['change', 'published', 'recomputed']
        """
        return balances.balances(self, account_id, tokens)

    def pool_fills(
        self, account_id: int, tokens: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return the fills of a pool, with its balances before each and what it kept as a fee.

        A pool without a fee keeps the product of its two balances. What it receives beyond that is its fee,
        which no block states; it is computed here from balances alone. The taker's own fee goes to the
        exchange, not to the pool.

        Parameters
        ----------
        account_id : int
            A pool of two tokens with equal weights.
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds symbols and amounts in units.

        Returns
        -------
        pandas.DataFrame
            ``token_in_id``, ``amount_in``, ``token_out_id``, ``amount_out``, the balances before the fill,
            ``balance_in`` and ``balance_out`` (null where none was published yet), ``kept`` in the token that
            came in, rounded down, and ``kept_bps``, its share of ``amount_in`` in basis points.

        Raises
        ------
        LabError
            `account_id` is not valid.

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).pool_fills(1).columns[-2:].tolist()
        ['kept', 'kept_bps']
        """
        return balances.pool_fills(self, account_id, tokens)

    def nft_mints(self, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the NFT mints; what the NFT-data slots after a mint say is in its row.

        Parameters
        ----------
        tokens : pandas.DataFrame, optional
            From `tables.tokens`: adds the symbol and amount of the fee.

        Returns
        -------
        pandas.DataFrame
            ``kind`` (0: signed; others are conditional and have two NFT-data slots), ``minter_id``,
            ``to_token_id``, ``fee_token_id``, ``fee``, ``amount`` (number minted), ``storage_id``,
            ``nft_type`` (0: ERC-1155, 1: ERC-721), ``token_account_id`` (of the token contract; null for
            other kinds), ``nft_id``, ``creator_bips``, ``receiver_id``, ``to_address``, and ``minter`` and
            ``token_address`` (null for kind 0).

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).nft_mints().empty
        True
        """
        frame = self._frame("nft_mint", tokens)
        data = block_frames.renamed(self.table("nft_data"))
        return block_frames.finished(_with_nft_data(frame, data), self)

    def accounts(self) -> pd.DataFrame:
        """Return the accounts that these blocks name, by account id.

        Returns
        -------
        pandas.DataFrame
            ``account_id``, ``owner`` (null where no transaction here names it), ``block``, ``block_id``,
            ``index_in_block`` and ``created_at`` of the first transaction, ``is_pool`` (named by an amm
            update, or an id up to 10,000, the limit of public subgraphs).

        Examples
        --------
        >>> lab.rollup.decode_data(bytes(98 + 68)).accounts().columns[:2].tolist()
        ['account_id', 'owner']
        """
        parts = []
        for kind, pairs in _OWNERS.items():
            for account, owner in pairs:
                parts.append(self._named(kind, account, owner))
        named = pd.concat(parts).sort_values(
            ["account_id", "block", "index_in_block"], kind="stable"
        )
        # Each column gives the first value that it has, as the owner may become known later than the account.
        first = named.groupby("account_id").first()
        frame = block_frames.places(self, first)
        accounts = first.index.to_numpy(np.int64)
        frame.insert(0, "account_id", as_series(pa.array(accounts)))
        frame.insert(
            1,
            "owner",
            first["owner"].astype(TEXT).reset_index(drop=True),
        )
        frame["is_pool"] = settled.is_pool(self, accounts)
        return block_frames.finished(frame, self)

    def _frame(self, kind: str, tokens: pd.DataFrame | None) -> pd.DataFrame:
        """Make the frame of one type."""
        table = self.table(kind)
        begin = block_frames.places(self, table)
        fields = block_frames.renamed(table.drop_columns(["block", "index_in_block"]))
        return block_frames.finished(pd.concat([begin, fields], axis=1), self, tokens)

    def _named(self, kind: str, account: str, owner: str | None) -> pd.DataFrame:
        """Return the accounts that transactions name, where, and their owners, null where not named."""
        table = self.table(kind)
        owners: Any = None
        if owner is not None:
            nobody = pa.scalar(bytes(20), table[owner].type)
            is_named = pc.not_equal(table[owner], nobody).to_numpy()
            # An invalid one may name anybody as the owner.
            if kind == "withdrawal":
                is_named &= table["kind"].to_numpy() != _FORCED_AND_INVALID
            owners = (
                block_frames.series(table[owner]).astype(object).where(is_named, None)
            )
        return pd.DataFrame(
            {
                "account_id": table[account].to_numpy(),
                "block": table["block"].to_numpy(),
                "index_in_block": table["index_in_block"].to_numpy(),
                "owner": pd.Series(owners, range(len(table)), dtype=object),
            }
        )


def _with_nft_data(mints: pd.DataFrame, data: pd.DataFrame) -> pd.DataFrame:
    """Fill in what the two slots after a mint say, if they are of the same receiver and token."""
    keys = ["block", "index_in_block", "receiver_id", "to_token_id"]
    data = data.rename(columns={"account_id": "receiver_id", "token_id": "to_token_id"})
    is_conditional = (mints["kind"] != 0).to_numpy(bool)
    # The slot after a mint has the minter (scheme 0), the one after that the token's contract (scheme 1).
    for scheme, address in enumerate(("minter", "token_address")):
        is_part = data["scheme"] == scheme
        part = data[is_part].drop(columns="scheme")
        part["index_in_block"] -= 1 + scheme
        joined = mints[keys].merge(part, on=keys, how="left", validate="m:1")
        mints[address] = joined["address"].where(is_conditional)
        for name in ("nft_type", "nft_id", "creator_bips"):
            # Signed mints name the NFT themselves.
            is_known = ~is_conditional | mints[name].notna()
            mints[name] = mints[name].where(is_known, joined[name])
    return mints


@lru_cache(100_000)  # keys of 64 bytes: an account's key is in many blocks
def _unpacked(packed: bytes) -> tuple[str, str] | None:
    try:
        x, y = unpack_public_key(packed)
    except ProtocolError:
        return None
    return f"0x{x:064x}", f"0x{y:064x}"
