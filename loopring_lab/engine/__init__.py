"""Questions asked of trades in SQL: frames of any kind in, DuckDB in between, a frame of the same kind out.

`frames` says which frames there are and hands their amounts over exactly; `groups` turns ``by=`` and
``every=`` into SQL; `query` puts a question together and runs it; `estimates` has the means with intervals;
`spark` runs the same questions on Spark's workers; `session` holds the connection and its limits.
Start with `ask.ask`. Whatever is asked is logged at DEBUG on ``loopring_lab.sql``.
"""

from loopring_lab.engine.frames import portable
from loopring_lab.engine.session import set_memory

__all__ = ["portable", "set_memory"]


def __dir__() -> list[str]:
    return sorted(__all__)
