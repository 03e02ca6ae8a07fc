"""The embedded relayer: a real HTTP server on loopback, for work, tests and lessons without a network.

- `server` has the `Relayer`, which users start; `settings` is what a user may choose.
- What is served: `world` (from `simulation`, `venues` and `mainnet`), and the blocks of `chain`.
- How: `history` has rows and their pages, `app` the endpoints, `schemas` their JSON, `network` the failures.
  Accounts and their keys: `accounts` and `key_updates`.
- Start at `app`, whose endpoints lead everywhere else. Only bounded, errors and protocol are shared with the
  client, so that each is a check on the other.
"""

from loopring_lab.relayer.server import Relayer, embedded, running
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.simulation import Fill
from loopring_lab.relayer.world import World

__all__ = [
    "Fill",
    "Relayer",
    "Settings",
    "World",
    "embedded",
    "running",
]
