"""A session of `requests` that keeps nothing from one answer to the next."""

from __future__ import annotations

import os
from http.cookiejar import DefaultCookiePolicy

import requests

# Variables of the environment that name a file of certificates, in the order of `requests`.
CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Session(requests.Session):
    """A session that keeps nothing from one answer to the next, and reads no body by itself."""

    def __init__(self, *, trust_env: bool) -> None:
        super().__init__()
        # This says whether the environment's proxies count; its certificates do in any case, as those of a server on
        # this machine are never signed by a public authority.
        self.trust_env = trust_env
        given = [os.environ.get(name) for name in CERTIFICATES]
        self.verify = next(filter(None, given), True)
        self.headers["Accept-Encoding"] = "gzip"
        # An answer must not change the next request.
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return no target: `requests` would read the whole body of the answer that redirects."""
