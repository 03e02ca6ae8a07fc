"""The embedded relayer: a real HTTP server on loopback, for work, tests and lessons without a network.

It shares only bounded, errors, protocol and redaction with the client, so that each is a check on the other.
"""

from loopring_lab.relayer.recording import Recording
from loopring_lab.relayer.server import Relayer, embedded, running
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.simulation import Fill
from loopring_lab.relayer.world import World

__all__ = ["Fill", "Recording", "Relayer", "Settings", "World", "embedded", "running"]
