"""Whole trade histories out of pages of 50, complete by the relayer's count or an `IncompleteHistory`.

Start with `plan.PageScheduler`, which decides what to read next and when nothing is missing. A
`histories.History` is what the relayer lists under one filter; a `reader.PageReader` fetches the pages of
several side by side. `loopring_lab.sources.client` puts them together.
"""

from loopring_lab.sources.paging.histories import (
    TRADES_OF,
    FetchedPage,
    History,
    count_shared,
    now_ms,
    plan_histories,
    read_histories,
)
from loopring_lab.sources.paging.plan import EVERYTHING, PAGE, Window
from loopring_lab.sources.paging.reader import WORKERS, PageReader

__all__ = [
    "EVERYTHING",
    "PAGE",
    "TRADES_OF",
    "WORKERS",
    "FetchedPage",
    "History",
    "PageReader",
    "Window",
    "count_shared",
    "now_ms",
    "plan_histories",
    "read_histories",
]
