"""Questions asked of trades in SQL: frames of any kind in, DuckDB in between, a frame of the same kind out.

Start with `ask`, where a frame and a question come in. `kinds` are the kinds of frames there are, and `frames` hands
their amounts over exactly. `question` says what a question is, `groups` what answers are grouped by; `text` writes the
query and `running` has DuckDB run it, on a connection of `session`; `spark` has Spark's workers do so. `sums`,
`clusters`, `estimates`, `asof` and `worth` are steps that many questions have; `near` reads the prices near
the trades of a question. Whatever is asked is logged at DEBUG on ``loopring_lab.sql``.
"""

from loopring_lab.engine.kinds import portable
from loopring_lab.engine.session import set_memory

__all__ = ["portable", "set_memory"]


def __dir__() -> list[str]:
    return sorted(__all__)
