"""Clients of relayers and of scripted servers that neither wait for a turn nor ask a proxy."""

from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer
from loopring_lab.sources.client import Client


def client_at(base_url: str, **how) -> Client:
    return Client(Transport(base_url, **{"rate": None, "proxies": False} | how))


def client_of(relayer: Relayer, **how) -> Client:
    return client_at(relayer.base_url, **{"api_key": relayer.api_key} | how)
