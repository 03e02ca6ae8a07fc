"""Blocks as frames: every transaction of a batch of blocks, by type."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.rollup import slots
from loopring_lab.rollup.calldata import RawBlock


class Blocks:
    """Decoded blocks of the exchange."""

    def __init__(
        self,
        raw: Sequence[RawBlock],
        known_pools: Collection[int] = (),
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.raw = tuple(raw)
        self.known_pools = frozenset(known_pools)
        self.attrs = dict(attrs or {})
        self._headers, self._slots, self._sizes = slots.assemble(self.raw)
        self._tables: dict[str, pa.Table] = {}
        self._headers_table: pa.Table | None = None

    @property
    def headers_table(self) -> pa.Table:
        """One row a block, in order."""
        if self._headers_table is None:
            self._headers_table = self._read_headers()
        return self._headers_table

    def table(self, kind: str) -> pa.Table:
        """Return the transactions of one type."""
        if kind not in slots.KINDS:
            raise LabError(
                f"kind={kind!r} is not known. {did_you_mean(kind, slots.KINDS, f'Use one of {slots.KINDS}.')}"
            )
        if kind not in self._tables:
            places = np.flatnonzero(self._slots[:, 0] == slots.KINDS.index(kind))
            starts = np.cumsum(self._sizes) - self._sizes
            block = np.repeat(np.arange(len(self._sizes), dtype=np.int32), self._sizes)[places]
            within = (places - starts[block]).astype(np.int32)
            found = {"block": pa.array(block), "index_in_block": pa.array(within)}
            self._tables[kind] = pa.table(found | slots.columns(kind, self._slots[places]))
        return self._tables[kind]

    def trades(
        self,
        tokens: pd.DataFrame,
        markets: pd.DataFrame | None = None,
        *,
        pools: Collection[int] | None = None,
    ) -> pd.DataFrame:
        """Return trades."""
        from loopring_lab.rollup import settled

        return settled.trades(self, tokens, markets, pools)

    def _read_headers(self) -> pa.Table:
        read = slots.read(slots.HEADER_FIELDS, self._headers)
        integers = ("block_id", "l1_block", "place", "block_type", "block_size", "block_version")
        known = {name: pa.array([getattr(raw, name) for raw in self.raw], pa.int64()) for name in integers}
        digests = [hashlib.sha256(raw.data).digest() for raw in self.raw]
        hashes = pa.array([raw.transaction_hash for raw in self.raw], pa.string())
        known |= {"data_sha256": pa.array(digests, pa.binary(32)), "transaction_hash": hashes}
        return pa.table({"block_id": known.pop("block_id"), **read, "size": pa.array(self._sizes), **known})
