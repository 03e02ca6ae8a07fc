"""The embedded relayer: a real HTTP server on loopback, for work, tests and lessons without a network.

It shares nothing with the client but the error tree, so that each checks the other.
"""

from loopring_lab.relayer.recording import Recording
from loopring_lab.relayer.server import Relayer
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.world import Fill, World

__all__ = ["Fill", "Recording", "Relayer", "Settings", "World"]
