"""What a hostile server does with the bytes of an answer: each behaviour writes one, or never ends it."""

import asyncio
import functools
import gzip
import zlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

Write = Callable[[bytes], Awaitable[None]]


class Asked(NamedTuple):
    """A request, with the regular answer to it."""

    path: str
    body: bytes
    port: int
    case: str
    repeated: int


Behaviour = Callable[[Asked, Write], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}
RIGHT: set[str] = set()
"""Behaviours that are no attack: the client must read the regular answer through them."""
PAUSE = 0.05
BLOCK = b" " * 65_536


def head(status: str = "200 OK", *lines: str, length: int | None = None) -> bytes:
    sized = [] if length is None else [f"Content-Length: {length}"]
    text = "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: application/json", *sized, *lines])
    return text.encode("latin-1") + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def trickle(write: Write, data: bytes) -> None:
    """Write a byte at a time, so that no pause is ever long; after the data, go on for ever."""
    for letter in data:
        await write(bytes([letter]))
        await asyncio.sleep(PAUSE)


async def forever(write: Write, data: bytes, pause: float = 0.0) -> None:
    while True:
        await write(data)
        await asyncio.sleep(pause)


def add(
    name: str, parts: Callable[[Asked], bytes], *, then: bytes = b"", pause: float = 0.0, right: bool = False
) -> None:
    """Register an answer that is written as it is; `then` follows again and again."""

    async def behave(asked: Asked, write: Write) -> None:
        await write(parts(asked))
        if then:
            await forever(write, then, pause)

    BEHAVIOURS[name] = behave
    if right:
        RIGHT.add(name)


def _plain() -> None:
    add("regular", lambda asked: head(length=len(asked.body)) + asked.body, right=True)
    add("until closed", lambda asked: head() + asked.body, right=True)
    add("chunks", lambda asked: head("200 OK", "Transfer-Encoding: chunked") + b"".join(chunk(asked.body[i : i + 50]) for i in range(0, len(asked.body), 50)) + b"0\r\n\r\n", right=True)  # fmt: skip
    add("gzip", lambda asked: _packed("gzip", gzip.compress(asked.body)), right=True)
    add("deflate", lambda asked: _packed("deflate", zlib.compress(asked.body)))
    add("100 Continue once", lambda asked: b"HTTP/1.1 100 Continue\r\n\r\n" + head(length=len(asked.body)) + asked.body, right=True)  # fmt: skip
    add("trailers", lambda asked: head("200 OK", "Transfer-Encoding: chunked") + chunk(asked.body) + b"0\r\nX-Sum: 1\r\n\r\n", right=True)  # fmt: skip
    add("second answer behind the first", lambda asked: head(length=len(asked.body)) + asked.body + head(length=2) + b"{}", right=True)  # fmt: skip


def _packed(encoding: str, data: bytes) -> bytes:
    return head("200 OK", f"Content-Encoding: {encoding}", length=len(data)) + data


def _stalls() -> None:
    add("nothing at all", lambda asked: b"", then=b"", pause=1)

    def slowly(name: str, start: Callable[[Asked], bytes], slow: Callable[[Asked], bytes], then: bytes) -> None:
        async def behave(asked: Asked, write: Write) -> None:
            await write(start(asked))
            await trickle(write, slow(asked))
            await forever(write, then, PAUSE)

        BEHAVIOURS[name] = behave

    async def silence(asked: Asked, write: Write) -> None:
        await asyncio.sleep(60)

    BEHAVIOURS["nothing at all"] = silence
    slowly("trickled status line", lambda asked: b"", lambda asked: b"HTTP/1.1 2", b"0")
    slowly("trickled header", lambda asked: b"HTTP/1.1 200 OK\r\nX-A: ", lambda asked: b"", b"a")
    slowly("trickled headers", lambda asked: b"HTTP/1.1 200 OK\r\n", lambda asked: b"", b"X-A: a\r\n")
    slowly("trickled body", lambda asked: head(length=10**6), lambda asked: asked.body[:5], b" ")
    slowly("trickled body to the end", lambda asked: head(), lambda asked: asked.body, b" ")
    chunked = head("200 OK", "Transfer-Encoding: chunked")
    slowly("trickled chunks", lambda asked: chunked, lambda asked: b"", chunk(b" "))
    slowly("trickled chunk size", lambda asked: chunked, lambda asked: b"", b"0")
    slowly("trickled chunk extension", lambda asked: chunked + b"5;", lambda asked: b"", b"a")
    slowly(
        "trickled trailer",
        lambda asked: chunked + chunk(asked.body) + b"0\r\n",
        lambda asked: b"",
        b"X-A: a\r\n",
    )
    slowly(
        "trickled trailer line",
        lambda asked: chunked + chunk(asked.body) + b"0\r\nX: ",
        lambda asked: b"",
        b"a",
    )
    slowly("trickled gzip", lambda asked: head("200 OK", "Content-Encoding: gzip"), lambda asked: gzip.compress(asked.body)[:12], b"\0")  # fmt: skip
    slowly("trickled error body", lambda asked: head("500 Oops", length=10**6), lambda asked: b"", b" ")
    slowly("trickled refusal", lambda asked: head("400 No", length=10**6), lambda asked: b'{"resultInfo"', b" ")
    slowly("trickled 204", lambda asked: head("204 No Content"), lambda asked: b"", b" ")
    slowly("endless 100 Continue", lambda asked: b"", lambda asked: b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    slowly(
        "endless 103 Early Hints",
        lambda asked: b"",
        lambda asked: b"",
        b"HTTP/1.1 103 Hints\r\nLink: a\r\n\r\n",
    )
    add("flood of 100 Continue", lambda asked: b"", then=b"HTTP/1.1 100 Continue\r\n\r\n" * 500)
    add("flood of headers", lambda asked: b"HTTP/1.1 200 OK\r\n", then=b"X-A: " + b"a" * 100 + b"\r\n")
    add("flood of one header", lambda asked: b"HTTP/1.1 200 OK\r\nX-A: ", then=BLOCK)
    add("flood of trailers", lambda asked: chunked + chunk(asked.body) + b"0\r\n", then=b"X-A: a\r\n" * 500)
    add("flood of one trailer", lambda asked: chunked + chunk(asked.body) + b"0\r\nX: ", then=BLOCK)
    add("flood of empty body", lambda asked: head(), then=BLOCK)
    add("flood of chunks of one byte", lambda asked: chunked, then=chunk(b" ") * 5_000)
    add("flood in a chunk size", lambda asked: chunked, then=b"0" * 65_536)
    add("flood in a chunk extension", lambda asked: chunked + b"5;", then=BLOCK)
    add("flood of digits", lambda asked: head() + b'{"totalNum": ', then=b"9" * 65_536)
    add("flood of brackets", lambda asked: head(), then=b"[" * 65_536)
    add("flood of an error body", lambda asked: head("500 Oops"), then=BLOCK)
    add("flood of a refusal", lambda asked: head("400 No"), then=BLOCK)
    add("body announced and left out", lambda asked: head(length=len(asked.body)), then=b"", pause=1)


@functools.cache
def bomb(letter: bytes = b"\0") -> bytes:
    """Return 4 GiB of one letter, in members of 64 MiB, as gzip."""
    return gzip.compress(letter * (1 << 26), 6) * 64


@functools.cache
def deflated() -> bytes:
    stream = zlib.compressobj(6)
    return b"".join(stream.compress(bytes(1 << 24)) for _ in range(64)) + stream.flush()


def _bombs() -> None:
    add("gzip bomb of 4 GiB", lambda asked: _packed("gzip", bomb()))
    add("gzip bomb of spaces", lambda asked: _packed("gzip", bomb(b" ")))
    add("deflate bomb of 1 GiB", lambda asked: _packed("deflate", deflated()))
    add("gzip bomb in gzip", lambda asked: _packed("gzip, gzip", gzip.compress(bomb())))
    add(
        "gzip bomb in chunks",
        lambda asked: head("200 OK", "Content-Encoding: gzip", "Transfer-Encoding: chunked") + chunk(bomb()),
    )
    add(
        "gzip bomb as error",
        lambda asked: head("500 Oops", "Content-Encoding: gzip", length=len(bomb())) + bomb(),
    )
    add("cut gzip", lambda asked: _packed("gzip", gzip.compress(asked.body)[:-9]))
    add("spoiled gzip", lambda asked: _packed("gzip", _flipped(gzip.compress(asked.body * 5))))
    add("spoiled gzip head", lambda asked: _packed("gzip", b"\x1f\x8b\x07" + gzip.compress(asked.body)[3:]))
    add("gzip that is none", lambda asked: _packed("gzip", asked.body))
    add("deflate that is none", lambda asked: _packed("deflate", asked.body))
    add("brotli", lambda asked: _packed("br", b"\x8b\x03\x80" + asked.body))
    add("unknown encoding", lambda asked: _packed("rot13", asked.body))
    add("a thousand encodings", lambda asked: _packed(", ".join(["gzip"] * 1000), asked.body))
    add("gzip with something behind", lambda asked: _packed("gzip", gzip.compress(asked.body) + b"garbage"))


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x5A]) + data[middle + 1 :]


def _framing() -> None:
    def framed(name: str, *lines: str, cut: int = 0) -> None:
        add(name, lambda asked: head("200 OK", *lines) + asked.body[: len(asked.body) - cut])

    framed("length too large", "Content-Length: 100000", cut=0)
    add("length too small", lambda asked: head(length=len(asked.body) - 9) + asked.body)
    add("length 0", lambda asked: head(length=0) + asked.body)
    for name, value in {
        "negative": "-5", "word": "many", "huge": "9" * 30, "5000 digits": "9" * 5000, "empty": "", "plus": "+50",
        "hex": "0x50", "float": "1e3", "list": "5, 6", "fullwidth": "\xb2\xb3",
    }.items():  # fmt: skip
        framed(f"length {name}", f"Content-Length: {value}")
    framed("two lengths", "Content-Length: 5", "Content-Length: 50000")
    framed("length and chunks", "Content-Length: 5", "Transfer-Encoding: chunked")
    framed("chunks that are none", "Transfer-Encoding: chunked")
    framed("unknown transfer encoding", "Transfer-Encoding: snail, chunked")
    for name, data in {
        "negative chunk": b"-5\r\nabcde\r\n0\r\n\r\n", "chunk of a word": b"zz\r\nabc\r\n", "empty chunk size": b"\r\n\r\n",
        "chunk of 2^64": b"1" + b"0" * 16 + b"\r\nabc", "chunk of 10000 digits": b"f" * 10_000 + b"\r\nabc",
        "cut chunk": b"50\r\nabc", "chunks without end": chunk(b"{}"), "chunk with long extension": b"2;" + b"a" * 100_000 + b"\r\n{}\r\n0\r\n\r\n",
        "chunk without newline": b"2\r\n{}0\r\n\r\n", "NUL chunk": b"2\0\r\n{}\r\n0\r\n\r\n",
    }.items():  # fmt: skip
        add(name, lambda asked, data=data: head("200 OK", "Transfer-Encoding: chunked") + data)
    for name, data in {
        "no status line": b"hello\r\n\r\n", "garbage": bytes(range(256)) * 40, "NULs": bytes(5000), "empty line": b"\r\n\r\n",
        "HTTP/0.9": b"<html>", "HTTP/9.9": b"HTTP/9.9 200 OK\r\n\r\n{}", "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "TLS alert": b"\x15\x03\x03\x00\x02\x02\x28", "SSH": b"SSH-2.0-OpenSSH_9.2\r\n", "long status line": b"HTTP/1.1 200 " + b"O" * 100_000 + b"\r\n\r\n{}",
        "status of a word": b"HTTP/1.1 abc OK\r\n\r\n{}", "status -1": b"HTTP/1.1 -1 OK\r\n\r\n{}", "status 99": b"HTTP/1.1 99 OK\r\n\r\n{}",
        "status 5000 digits": b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n{}", "status cut": b"HTTP/1.1", "status line alone": b"HTTP/1.1 200 OK\r\n",
        "header cut": b"HTTP/1.1 200 OK\r\nContent-Le",
    }.items():  # fmt: skip
        add(name, lambda asked, data=data: data)
    for name, line in {
        "header of 1 MB": "X-A: " + "a" * 1_000_000, "header without colon": "nonsense", "header with NUL": "X-A: a\0b",
        "header not ASCII": "X-A: \xff\xfe\x80", "header folded": "X-A: a\r\n b\r\n\tc", "header name empty": ": a",
        "header name with space": "X A: a", "10000 headers": "\r\n".join(f"X-{n}: a" for n in range(10_000)),
        "90 headers": "\r\n".join(f"X-{n}: a" for n in range(90)), "cookies": "\r\n".join(f"Set-Cookie: a{n}={'b' * 3000}" for n in range(20)),
        "bare newline": "X-A: a\nX-B: b", "bare return": "X-A: a\rX-B: b", "strange charset": "Content-Type: text/html; charset=\xff\x00zip",
        "digest challenge": 'WWW-Authenticate: Digest realm="a", nonce="b"', "upgrade": "Connection: upgrade\r\nUpgrade: h2c",
        "strict transport": "Strict-Transport-Security: max-age=9", "refresh": "Refresh: 0; url=http://127.0.0.1:1/", "link": "Link: <http://[>; rel=next",
        "source: no JSON": "X-Loopring-Lab-Source: {", "source: wrong types": 'X-Loopring-Lab-Source: {"name": 5, "synthetic": "no"}',
        "source: a list": "X-Loopring-Lab-Source: []", "source: brackets": "X-Loopring-Lab-Source: " + "[" * 30_000,
        "source: surrogate": 'X-Loopring-Lab-Source: {"name": "\\ud800", "synthetic": true}',
        "source: escapes": 'X-Loopring-Lab-Source: {"name": "\\u001b[2J\\u0000", "synthetic": true}',
        "source: number": 'X-Loopring-Lab-Source: {"name": "a", "synthetic": 1e999999999}',
        "source: long": 'X-Loopring-Lab-Source: {"name": "' + "a" * 60_000 + '", "synthetic": false}',
        "source: bytes": "X-Loopring-Lab-Source: \xff\xfe", "source: twice": 'X-Loopring-Lab-Source: {"name": "a", "synthetic": true}\r\nX-Loopring-Lab-Source: {"name": "b", "synthetic": false}',
        "source: chain": 'X-Loopring-Lab-Source: {"name": "a", "synthetic": false, "chainId": 1e99999999, "exchange": []}',
    }.items():  # fmt: skip
        add(name, lambda asked, line=line: head("200 OK", line, length=len(asked.body)) + asked.body)


def _ends() -> None:
    add("closed at once", lambda asked: b"")
    add("closed after the head", lambda asked: head(length=5000))
    add("closed in the body", lambda asked: head(length=len(asked.body)) + asked.body[: len(asked.body) // 2])
    add("closed in the body, no length", lambda asked: head() + asked.body[: len(asked.body) // 2])
    add(
        "64 MB of spaces before",
        lambda asked: head(length=len(asked.body) + (60 << 20)) + b" " * (60 << 20) + asked.body,
    )
    add("80 MB of spaces", lambda asked: head() + b" " * (80 << 20) + asked.body)
    add("binary body", lambda asked: head(length=5120) + bytes(range(256)) * 20)
    add("UTF-16 body", lambda asked: head() + asked.body.decode("latin-1").encode("utf-16"))
    add("UTF-32 body", lambda asked: head() + asked.body.decode("latin-1").encode("utf-32-le"))
    add("body with BOM", lambda asked: head() + b"\xef\xbb\xbf" + asked.body)
    add("body twice", lambda asked: head() + asked.body + asked.body)
    add("body with NUL behind", lambda asked: head() + asked.body + b"\0")
    add("form feed around", lambda asked: head() + b"\f" + asked.body)


def _statuses() -> None:
    for status in (101, 201, 202, 203, 204, 205, 206, 226, 300, 304, 305, 306, 401, 402, 403, 404, 405, 407, 408, 409,
                   410, 411, 412, 413, 414, 416, 417, 418, 421, 425, 426, 429, 431, 451, 500, 501, 502, 503, 504, 505,
                   511, 520, 599, 600, 999):  # fmt: skip
        add(
            f"status {status}",
            lambda asked, status=status: head(f"{status} Odd", length=len(asked.body)) + asked.body,
        )
    for wait in ("3600", "1e308", "nan", "inf", "-5", "9" * 5000, "soon", "Fri, 31 Dec 9999 23:59:59 GMT",
                 "Fri, 31 Dec 99999 23:59:59 GMT", "Fri, 00 Foo 0000 99:99:99 GMT", "\xff", "Mon, 01 Jan 0001 00:00:00 +9999",
                 "Mon, 01 Jan 1 00:00:00 -2400", "1_0", "٣"):  # fmt: skip
        name = wait.encode("unicode-escape").decode()[:34]
        line = f"Retry-After: {wait}".encode().decode("latin-1")
        add(f"429, Retry-After {name}", lambda asked, line=line: head("429 Slow", line, length=2) + b"{}")
    add("503, Retry-After 60, body endless", lambda asked: head("503 Later", "Retry-After: 60"), then=BLOCK)
    for name, reason in {
        "escape": "\x1b[2J",
        "not ASCII": "\xff\xfe",
        "empty": "",
        "long": "a" * 60_000,
    }.items():
        add(f"reason {name}", lambda asked, reason=reason: head(f"500 {reason}", length=2) + b"{}")


_LOCATIONS = {
    "empty": "", "space": " ", "bracket": "http://[", "open address": "http://[::1", "no host": "http://", "slashes": "//",
    "three slashes": "///", "ftp": "ftp://127.0.0.1/x", "file": "file:///etc/passwd", "javascript": "javascript:alert(1)", "data": "data:,{}",
    "NUL": "http://\0/", "space in host": "http:// host/", "port too large": "http://127.0.0.1:99999/", "port of a word": "http://127.0.0.1:abc/",
    "port negative": "http://127.0.0.1:-1/", "port fullwidth": "http://127.0.0.1:\xb2/", "two dots": "http://a..b/", "long label": f"http://{'a' * 64}.invalid/",
    "dot": "http://./", "percent": "http://%/", "percent zz": "http://127.0.0.1/%zz", "1 MB": "/" + "a" * 1_000_000, "60 kB": "/" + "a" * 60_000,
    "not ASCII": "http://\xff\xfe/", "latin path": "/\xff\xfe", "user": "http://user:s3cret@127.0.0.1:1/", "closed port": "http://127.0.0.1:1/",
    "https to http port": "https://127.0.0.1:{port}/{case}/x", "zone": "http://[fe80::1%25eth0]/", "ipv6 garbage": "http://[::g]/", "ipv4 garbage": "http://999.999.999.999/",
    "backslash": "http:\\\\127.0.0.1\\x", "fragment": "#x", "query": "?" + "a=1&" * 2000, "dots": "/../../../..", "self": "{path}", "other host": "http://localhost:{port}/{case}/other",
    "at": "http://127.0.0.1:{port}@127.0.0.1:1/", "newline": "/x%0d%0aX-Evil:%201", "template": "{{x}}", "unicode host": "http://xn--\xe9/", "xn": "http://xn--zzzzzzz99999/",
}  # fmt: skip


def _redirects() -> None:
    for name, location in _LOCATIONS.items():

        def redirect(asked: Asked, location: str = location) -> bytes:
            target = (
                location.replace("{path}", asked.path).replace("{port}", str(asked.port)).replace("{case}", asked.case)
            )
            return head("302 Found", f"Location: {target}", length=0)

        add(f"redirect to {name}", redirect)
    for status in (301, 303, 307, 308):
        add(
            f"{status} to itself",
            lambda asked, status=status: head(f"{status} Moved", f"Location: {asked.path}", length=0),
        )
    add("redirect without Location", lambda asked: head("302 Found", length=0))
    add("two Locations", lambda asked: head("302 Found", "Location: /a", "Location: http://[", length=0))
    add("growing redirects", lambda asked: head("302 Found", f"Location: {asked.path}{'a' * 2000}", length=0))
    moved = "Location: {0}"
    add("redirect, body endless", lambda asked: head("302 Found", moved.format(asked.path)), then=BLOCK)
    add(
        "redirect, body trickled",
        lambda asked: head("302 Found", moved.format(asked.path), length=10**6),
        then=b" ",
        pause=PAUSE,
    )
    add(
        "redirect, body a gzip bomb",
        lambda asked: (
            head("302 Found", moved.format(asked.path), "Content-Encoding: gzip", length=len(bomb())) + bomb()
        ),
    )
    add(
        "redirect, chunks endless",
        lambda asked: head("302 Found", moved.format(asked.path), "Transfer-Encoding: chunked"),
        then=chunk(BLOCK),
    )
    add(
        "redirect, spoiled gzip",
        lambda asked: head("302 Found", moved.format(asked.path), "Content-Encoding: gzip", length=5) + b"abcde",
    )
    add("redirect, body cut", lambda asked: head("302 Found", moved.format(asked.path), length=500) + b"abc")

    async def slow_redirects(asked: Asked, write: Write) -> None:
        await asyncio.sleep(0.2)
        await write(head("302 Found", f"Location: {asked.path}", length=0))

    BEHAVIOURS["slow redirects"] = slow_redirects

    async def then_right(asked: Asked, write: Write) -> None:
        if asked.repeated:
            await write(head(length=len(asked.body)) + asked.body)
        else:
            await write(head("302 Found", f"Location: {asked.path}", length=0))

    BEHAVIOURS["redirect, then right"] = then_right


for _register in (_plain, _stalls, _bombs, _framing, _ends, _statuses, _redirects):
    _register()
