"""Fixtures of the widget tests: a client and its trades, and a widget as it is on the page."""

import threading
from html import unescape

import ipywidgets
import pytest
from ipywidgets.widgets.widget import _instances

import loopring_lab as lab
from loopring_lab.http.transport import Transport
from loopring_lab.sources.client import Client
from loopring_lab.widgets.figure_view import FigureView
from loopring_lab.widgets.panel import CodePanel
from loopring_lab.widgets.table_view import TableView

SMALL = 10083
SECONDS = 600


class Gated(Transport):
    """A transport whose pages of trades wait until a test lets them through."""

    def __init__(self, *words, **named):
        super().__init__(*words, **named)
        self.asked = threading.Event()
        self.let = threading.Event()

    def get(self, path, params=None, **how):
        if path == "/user/trades":
            self.asked.set()
            assert self.let.wait(20)
        return super().get(path, params, **how)


class OnPage:
    """A widget as a notebook displays it: found and used by labels, as somebody at the page would."""

    def __init__(self, widget):
        self.widget = widget
        bundle, _ = widget._repr_mimebundle_()
        model = bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
        self.box = _instances[model]

    def wait(self):
        self.widget.wait(SECONDS)
        return self

    def parts(self, kind=ipywidgets.Widget):
        """Return everything of a kind that is displayed, in order."""
        return [part for part in displayed_parts(self.box) if isinstance(part, kind)]

    def control(self, label):
        """Return the control with a label that is displayed."""
        found = [
            part for part in self.parts() if getattr(part, "description", None) == label
        ]
        assert len(found) == 1, f"{label}: {len(found)} controls"
        return found[0]

    def offers(self, label):
        """Tell whether a control with a label is displayed."""
        return any(getattr(part, "description", None) == label for part in self.parts())

    def enter(self, label, value):
        """Choose or type a value, and wait for what follows."""
        self.control(label).value = value
        return self.wait()

    def press(self, label):
        """Press a button, and wait for what follows."""
        self.control(label).click()
        return self.wait()

    def type_secret(self, label, secret):
        """Send the message that the page sends when a secret is submitted, and wait for what follows."""
        send(self.control(label), typed=secret)
        return self.wait()

    @property
    def text(self):
        """All HTML that is displayed."""
        return "\n".join(unescape(part.value) for part in self.parts(ipywidgets.HTML))

    @property
    def problem(self):
        """The error that is displayed, if any."""
        found = [
            unescape(part.value)
            for part in self.parts(ipywidgets.HTML)
            if 'role="alert"' in part.value
        ]
        assert len(found) <= 1
        return found[0].partition(">")[2].removesuffix("</div>") if found else ""

    @property
    def code(self):
        """The code that is displayed."""
        (panel,) = self.parts(CodePanel)
        return str(panel.value)

    @property
    def figure(self):
        """The figure that is displayed, if any."""
        return next(iter(self.parts(FigureView)), None)

    @property
    def table(self):
        """The table that is displayed, if any."""
        return next(iter(self.parts(TableView)), None)


def displayed_parts(widget):
    """Return a widget and everything in it, without what is hidden."""
    if widget.layout.display == "none":
        return
    yield widget
    for child in getattr(widget, "children", ()):
        yield from displayed_parts(child)


def send(view, **content):
    """Send a message as the page of a view does."""
    data = {"method": "custom", "content": content}
    view.comm.handle_msg({"content": {"data": data}, "buffers": []})


def found(secrets, text):
    """Return the secrets whose beginning, middle or end stands in a text, in upper or lower case."""
    lower = text.lower()
    parts = {one: [one[2:18], one[20:36], one[-16:]] for one in secrets}
    return [one for one in secrets if any(part.lower() in lower for part in parts[one])]


@pytest.fixture(scope="session")
def client():
    return lab.connect()


@pytest.fixture(scope="session")
def trades(client):
    return client.trades(SMALL)


@pytest.fixture
def gated(client):
    """Make clients of the same relayer whose trades wait."""
    made = []

    def make():
        base = client._transport
        transport = Gated(base.base_url, api_key=base._key, rate=None, proxies=False)
        made.append(transport)
        return Client(
            transport, client.source, synthetic=True, accounts=client.accounts
        ), transport

    yield make
    for transport in made:
        transport.let.set()
        transport.close()
