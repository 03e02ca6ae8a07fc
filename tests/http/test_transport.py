import heapq
import itertools
import logging
import socket
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_server import Answer, Request, Script, repeating, scripted

from loopring_lab.errors import (
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    RelayerUnreachable,
    TransportError,
)
from loopring_lab.http.channel import Channel
from loopring_lab.http.pace import RateLimiter
from loopring_lab.http.refusals import HINTS, relayer_error
from loopring_lab.http.transport import Transport

KEY = "k3y-that-must-never-be-seen-0123456789"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between attempts instead of waiting."""
    measured: list[float] = []
    monkeypatch.setattr(
        Channel, "pause", lambda self, seconds: measured.append(seconds)
    )
    return measured


def refused_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def get(script: Script, **how: Any) -> tuple[bytes, list[Request]]:
    with scripted(script) as server:
        client = Transport(
            server.base_url, api_key=KEY, rate=None, proxies=False, **how
        )
        try:
            return client.get(
                "/user/trades", {"accountId": 10083}, keyed=True
            ), server.requests
        finally:
            client.close()


def failing(answer: Answer, times: int = 99) -> Script:
    return lambda number, request: (
        answer if number < times else Answer(body=b'{"ok": 1}')
    )


@contextmanager
def asking(
    answer: Answer, path: str = "", **how: Any
) -> Iterator[tuple[Transport, list[Request]]]:
    """Ask a server that repeats an answer; return the client, and the requests that arrived."""
    with repeating(answer) as server:
        client = Transport(server.base_url + path, rate=None, proxies=False, **how)
        try:
            yield client, server.requests
        finally:
            client.close()


def test_the_key_is_sent_only_where_it_is_needed():
    # An address may hold the path of the interface.
    with asking(Answer(), "/api/v3/", api_key=KEY) as (client, asked):
        client.get("/user/trades", {"accountId": 10083}, keyed=True)
        client.get("/exchange/tokens")
    keyed, open_to_all = asked
    assert keyed.path == "/api/v3/user/trades?accountId=10083"
    assert keyed.headers["x-api-key"] == KEY
    assert open_to_all.path == "/api/v3/exchange/tokens"
    assert "x-api-key" not in open_to_all.headers


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (
            Answer(429, b'{"code": 100000, "msg": "slow down"}'),
            RateLimited,
            "The relayer refused: slow down. Send fewer requests",
        ),
        (
            Answer(500, b"oops"),
            RelayerError,
            "The relayer failed without a reason. The problem is on the relayer's side",
        ),
        (Answer(503, b""), RelayerError, "The relayer failed without a reason."),
        (
            Answer(hang_up=True),
            RelayerUnreachable,
            "cannot be reached, or drops the connection. Check base_url",
        ),
        (
            Answer(200, b'{"a": 1', announced=900),
            TransportError,
            "broke off in the middle",
        ),
    ],
)
def test_what_may_pass_is_tried_again_and_ends_in_its_error(answer, kind, said, pauses):
    body, requests = get(failing(answer, 3))
    assert body == b'{"ok": 1}'
    assert len(requests) == 4
    # At once, and then doubled each time, with some chance so that clients do not come together again.
    assert pauses == pytest.approx([0, 0.25, 0.45], abs=0.06)
    with asking(answer, attempts=3) as (client, asked):
        with pytest.raises(kind) as caught:
            client.get("/user/trades")
        assert len(asked) == 3
    assert type(caught.value) is kind
    assert said in str(caught.value)


# The forms of a refusal, which the codes meet in turns.
REFUSALS = [
    (400, '{"resultInfo": {"code": CODE, "message": "no"}}'),
    (400, '{"code": CODE, "msg": "no"}'),
    (200, '{"resultInfo": {"code": CODE, "message": "no"}}'),
]


@pytest.mark.parametrize(
    ("code", "form"), list(zip(sorted(HINTS), itertools.cycle(REFUSALS), strict=False))
)
def test_a_refusal_is_not_tried_again_and_says_what_to_do(code, form):
    status, text = form
    answer = Answer(status, text.replace("CODE", str(code)).encode())
    with asking(answer) as (client, asked):
        with pytest.raises(RelayerError) as caught:
            client.get("/user/trades")
        assert len(asked) == 1
    refusal = caught.value
    assert (refusal.status, refusal.code) == (status, code)
    assert (refusal.message, refusal.endpoint) == ("no", "GET /api/v3/user/trades")
    details = f"(GET /api/v3/user/trades, code {code}, HTTP {status})"
    assert str(refusal) == f"The relayer refused: no. {HINTS[code][:-1]} {details}."
    assert isinstance(refusal, NotAuthorized) == (code in (104001, 104002))


def test_code_0_is_no_refusal():
    body = b'{"resultInfo": {"code": 0, "message": "SUCCESS"}, "trades": []}'
    assert get(failing(Answer(body=body)))[0] == body


@pytest.mark.parametrize("status", [301, 403, 404, 500])
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>no</html>", b'{"resultInfo": 5}', b"\xff{"],
)
def test_any_error_body_becomes_an_error_with_a_hint(status, body):
    error = relayer_error(status, body, "GET /x")
    assert (error is None) == (status < 400)
    if error:
        assert (error.status, error.code) == (status, None)
        assert str(error).endswith(".")


def test_a_web_page_with_403_is_not_about_the_key():
    page = b"<!DOCTYPE html><title>Attention Required! | Cloudflare</title>"
    error = relayer_error(403, page, "GET /x")
    assert type(error) is RelayerError
    assert "something between here and the relayer refuses programs" in str(error)
    assert type(relayer_error(403, b"", "GET /x")) is NotAuthorized


def test_a_proxy_that_asks_who_is_there_is_named(pauses):
    with pytest.raises(
        RelayerUnreachable,
        match="The proxy that this machine's settings name cannot be used",
    ) as caught:
        get(failing(Answer(407, b"<html>Proxy Authentication Required</html>")))
    assert "HTTP_PROXY" in str(caught.value)


def test_unprintable_reasons_are_cleaned_and_cut():
    error = relayer_error(
        400, b'{"code": 1, "msg": "a\\u001b[31m' + b"b" * 5000 + b'"}', "GET /x"
    )
    assert error
    assert "\x1b" not in error.message
    assert len(error.message) < 320


def test_retry_after_is_obeyed(pauses):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    asks = [
        "7",
        later,
        "soon",
        "Mon, 1 Jan 99999999999999999999 00:00:00 GMT",
        "9999",
    ]
    get(
        lambda number, request: (
            Answer(429, headers={"Retry-After": asks[number]})
            if number < len(asks)
            else Answer()
        ),
        attempts=len(asks) + 1,
    )
    assert pauses[0] == 7
    assert 28 <= pauses[1] <= 30
    assert pauses[2] < 1
    # However long the relayer asks for: a minute at most.
    assert pauses[-1] == 60


def test_nobody_at_the_address(pauses):
    client = Transport(f"http://127.0.0.1:{refused_port()}", attempts=2, proxies=False)
    with pytest.raises(
        RelayerUnreachable, match=r"connect\(\) without arguments works offline"
    ) as caught:
        client.get("/exchange/tokens")
    assert not caught.value.maybe_received


def at_loopback(ports: dict[str, int]) -> Callable[..., list[Any]]:
    """Look hosts up at loopback, those named at ports of their own."""
    return lambda host, port, *_, **__: [
        (
            socket.AF_INET,
            socket.SOCK_STREAM,
            socket.IPPROTO_TCP,
            "",
            ("127.0.0.1", ports.get(host, port)),
        )
    ]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"https_proxy": "http://127.0.0.1:PORT"},
            "The proxy that this machine's settings name cannot be used. Check the environment variables HTTP_PROXY",
        ),
        (
            {"https_proxy": "http://"},
            "The proxy that this machine's settings name cannot be used.",
        ),
        (
            {"https_proxy": "what://127.0.0.1:PORT"},
            "The proxy that this machine's settings name cannot be used.",
        ),
        (
            {"REQUESTS_CA_BUNDLE": "/no/such/file.pem"},
            "The file of certificates that this machine's settings name cannot be read. Check the environment variables REQUESTS_CA_BUNDLE",
        ),
        (
            {"REQUESTS_CA_BUNDLE": __file__},
            "No secure connection can be made, or the server's certificate is not trusted. Check the address, and "
            "this machine's clock. Check the environment variables REQUESTS_CA_BUNDLE",
        ),
    ],
)
def test_what_the_environment_names_wrongly_is_named(
    variables, said, monkeypatch, pauses
):
    port = str(refused_port())
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "HTTPS_PROXY",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("PORT", port))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            at_loopback({"relayer.example": silent.getsockname()[1]}),
        )
        with pytest.raises(LabError) as caught:
            Transport("https://relayer.example", timeout=2.0, attempts=2).get(
                "/exchange/tokens"
            )
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("/elsewhere?accountId=5", "/elsewhere"),
        ("https://other.example/x?accountId=5", "https://other.example/x"),
        ("http://h\xf6st/\x01", "http://höst/?"),
        (f"/{KEY}", "/<hidden>"),
        ("/" + "a" * 5_000, "aaa..."),
    ],
    ids=ascii,
)
def test_a_redirect_is_not_followed_but_named(location, named):
    with repeating(Answer(302, headers={"Location": location})) as server:
        with pytest.raises(TransportError) as caught:
            Transport(server.base_url, api_key=KEY, rate=None).get(
                "/user/trades", {"accountId": 5}, keyed=True
            )
        assert len(server.requests) == 1
    message = str(caught.value)
    assert message.startswith("The relayer redirects to ")
    assert (
        f"{named}, which is not followed. Check base_url (GET /api/v3/user/trades)."
        in message
    )
    assert len(message) < 350


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_is_above_zero(rate):
    with pytest.raises(LabError, match="give requests per second above 0, or None"):
        Transport("https://host", rate=rate)


class ScriptedServer:
    """Requests on a clock of its own: each is on its way, and its answer too, for as long as is drawn."""

    def __init__(self, rate: float, ways: Iterable[tuple[float, float]]) -> None:
        self.now = 0.0
        self.sent = list[float]()
        self.arrivals = list[float]()
        self.limiter = RateLimiter(rate, clock=lambda: self.now)
        self._ways = ways
        self._answers: list[float] = []

    def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        while self._answers and self._answers[0] <= end:
            self.now = heapq.heappop(self._answers)
            self.limiter.answered()
        self.now = end

    def run(self) -> None:
        for there, back in self._ways:
            self.limiter.wait(self.sleep)
            self.sent.append(self.now)
            self.arrivals.append(self.now + there)
            heapq.heappush(self._answers, self.now + there + back)

    def most_in(self, window: float) -> int:
        arrivals = sorted(self.arrivals)
        return max(
            bisect_left(arrivals, first + window) - place
            for place, first in enumerate(arrivals)
        )


LATENCIES = st.one_of(
    st.floats(0, 0.05), st.floats(0, 5), st.sampled_from([0.0, 0.2, 1.0])
)


@given(
    st.sampled_from([1, 2, 5, 20]),
    st.lists(st.tuples(LATENCIES, LATENCIES), min_size=1, max_size=80),
)
def test_no_delay_of_requests_or_answers_brings_more_than_the_rate_into_a_second(
    rate, ways
):
    server = ScriptedServer(rate, ways)
    server.run()
    assert server.most_in(1.0) <= rate


@given(
    st.lists(
        st.tuples(st.floats(0, 0.01), st.floats(0, 0.01)), min_size=40, max_size=80
    )
)
def test_a_server_that_answers_quickly_gets_most_of_the_rate_and_no_bunches(ways):
    server = ScriptedServer(5, ways)
    server.run()
    assert (len(ways) - 1) / server.sent[-1] / 5 >= 0.95
    assert all(
        later - earlier > 0.1 for earlier, later in itertools.pairwise(server.sent)
    )


def test_the_log_has_neither_key_nor_query(caplog):
    with caplog.at_level(logging.DEBUG):
        get(failing(Answer(), 0))
    assert "GET /api/v3/user/trades: HTTP 200, 9 bytes" in caplog.text
    assert KEY not in caplog.text
    assert "10083" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "maybe_received"),
    [
        (Answer(500, b"oops"), True),
        (Answer(hang_up=True), True),
        (Answer(200, b'{"a": 1', announced=900), True),
        (Answer(400, b'{"code": 114002, "msg": "fee too low"}'), False),
        (Answer(429, b'{"code": 100000, "msg": "slow down"}'), False),
        (Answer(307, headers={"Location": "/elsewhere"}), False),
        (Answer(303, headers={"Location": "/elsewhere"}), True),
    ],
)
def test_an_error_says_whether_the_relayer_may_have_acted(answer, maybe_received):
    with asking(answer) as (client, asked):
        with pytest.raises((RelayerError, TransportError)) as caught:
            client.post("/account", b"{}", signature="0x1b")
        assert len(asked) == 1
    assert caught.value.maybe_received is maybe_received
