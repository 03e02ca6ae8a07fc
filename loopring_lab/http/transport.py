"""Requests to one relayer, with its API key or a signature where they are needed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

from loopring_lab.errors import LabError
from loopring_lab.http.addresses import check_base_url, check_header, is_confidential
from loopring_lab.http.channel import (
    TRANSIENT_STATUSES,
    Channel,
    Request,
    Secrets,
    Server,
)
from loopring_lab.http.refusals import relayer_error
from loopring_lab.redaction import SecretText, hide

Params = Mapping[str, str | int]
API = "/api/v3"


class Transport(Channel):
    """Sends requests to one relayer.

    `get` and `post` return the body of the answer, or raise a `RelayerError` or a `TransportError`. The
    ``maybe_received`` of either error tells whether the relayer may have acted on the request all the same.
    """

    base_url: str = ""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        allow_http: bool = False,
        **limits: Any,
    ) -> None:
        key = hide(api_key)
        del api_key
        address = hide(base_url)
        del base_url
        self.base_url = check_base_url(address)
        self._allow_http = allow_http
        self._use(key)
        super().__init__(Server(self.base_url), **limits)

    def get(
        self,
        path: str,
        params: Params | None = None,
        *,
        keyed: bool = False,
        signature: str | None = None,
        api: str = API,
    ) -> bytes:
        """Send a GET request, retrying transient failures."""
        if signature is not None:
            auth = Secrets(signature=self._checked("signature", hide(signature)))
        elif keyed:
            auth = self._keyed
        else:
            auth = self._unkeyed
        del signature
        return self._retry(
            self._request_for("GET", api + path, auth, {"params": params or {}})
        )

    def post(
        self,
        path: str,
        body: bytes,
        *,
        signature: str,
        key_seed: SecretText | None = None,
    ) -> bytes:
        """Send a POST request exactly once; neither secret of its body is shown where the answer repeats it."""
        payload = {
            "data": hide(body),
            "headers": {"Content-Type": "application/json"},
        }
        checked = self._checked("signature", hide(signature))
        auth = Secrets(signature=checked, in_body=key_seed)
        del body, signature, key_seed
        return self._exchange(
            self._request_for("POST", API + path, auth, payload)
        ).unwrap()

    def with_key(self, api_key: str) -> Self:
        """Return the same transport with another API key; connections and pacing are shared."""
        key = hide(api_key)
        del api_key
        other = copy.copy(self)
        other._use(key)
        return other

    def _request_for(
        self,
        method: str,
        path: str,
        auth: Secrets,
        payload: dict[str, Any],
    ) -> Request:
        endpoint = f"{method} {path}"
        url = f"{self.base_url}{path}"
        return Request(self.server, endpoint, method, url, auth, payload)

    def _read_error(
        self, status: int, body: bytes, endpoint: str
    ) -> tuple[LabError | None, bool]:
        return relayer_error(status, body, endpoint), status in TRANSIENT_STATUSES

    def _use(self, key: SecretText | None) -> None:
        self._key = self._checked("api_key", key)
        self._keyed = Secrets(self._key)
        # Answers to requests without the key may repeat it all the same.
        self._unkeyed = Secrets(self._key, send=False)

    def _checked(self, name: str, secret: SecretText | None) -> SecretText | None:
        """Return a secret that can be sent to this address, or refuse it."""
        checked = check_header(name, secret)
        if checked and not self._allow_http and not is_confidential(self.base_url):
            raise LabError(
                f"{self.base_url}: over plain http, anyone on the way can read an API key or a signature. "
                "Give an https address, or connect(..., allow_http=True) if the network is trusted."
            )
        return checked
