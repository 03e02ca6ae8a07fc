"""A key update against a relayer that lies about the exchange, the chain, the fee, its token or the account."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.key_update_setup import ACCOUNT, CountingSigner, KeyUpdateSetup

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.keys import deployments
from loopring_lab.relayer import Settings
from loopring_lab.relayer.mainnet import TOKENS
from loopring_lab.relayer.settings import UPDATE_FEES

MAINNET = {"exchange": "0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4", "chain_id": 1}
EMBEDDED = {"exchange": Settings().exchange, "chain_id": Settings().chain_id}
UNKNOWN = {"exchange": "0x2e76EBd1c7c0C8e7c2B875b6d505a260C525d25e", "chain_id": 5}
ETH = {"id": 0, "decimals": 18}
STATED = {**UNKNOWN, "tokens": {"ETH": ETH}}
ETHER = 10**18
Change = Callable[[Any], Any]


class LyingSetup(KeyUpdateSetup):
    """A client whose relayer's answers are changed on the way, and a signer that counts."""

    def lie(self, path: str, change: Change) -> None:
        """Change the answers of a path, as a new client reads them."""
        self.connect()
        truthful = self.transport.get

        def get(asked: str, *arguments: Any, **options: Any) -> bytes:
            answer = truthful(asked, *arguments, **options)
            return (
                json.dumps(change(json.loads(answer))).encode()
                if asked == path
                else answer
            )

        self.transport.get = get  # type: ignore[method-assign]

    def claim(self, **terms: Any) -> None:
        """Claim to serve another exchange."""
        claimed = {"exchangeAddress": terms["exchange"], "chainId": terms["chain_id"]}
        self.lie("/exchange/info", lambda info: info | claimed)

    def signer(self) -> CountingSigner:
        return CountingSigner(self.relayer.signer(ACCOUNT))

    def refuses(self, told: str, **options: Any) -> str:
        """Return why an update is refused; nothing was signed or sent."""
        signer = self.signer()
        with pytest.raises(LabError, match=told) as caught:
            self.prepare(signer=signer, **options)
        assert (signer.signatures, self.transport.sent) == (0, [])
        assert len(str(caught.value)) < 2000
        return str(caught.value)


@pytest.fixture(scope="module")
def relayer_setup() -> Iterator[LyingSetup]:
    setup = LyingSetup()
    with setup.relayer:
        setup.connect()
        yield setup
        setup.client.close()


@pytest.fixture
def setup(relayer_setup: LyingSetup) -> LyingSetup:
    relayer_setup.connect()
    return relayer_setup


def signed(update: lab.KeyUpdate) -> tuple[str, int, int, int]:
    """Return exchange, chain, fee token and fee of what is signed, which is also what is sent."""
    data = update.typed_data()
    body = update.body()
    message = data["message"]
    domain = data["domain"]
    assert body["exchange"] == domain["verifyingContract"]
    assert body["maxFee"] == {
        "tokenId": message["feeTokenID"],
        "volume": str(message["maxFee"]),
    }
    return (
        domain["verifyingContract"],
        domain["chainId"],
        message["feeTokenID"],
        int(message["maxFee"]),
    )


# Lies


def token(symbol: str, /, **claims: Any) -> Change:
    """Change a token of the list."""
    return lambda tokens: [
        each | claims if each["symbol"] == symbol else each for each in tokens
    ]


def second(symbol: str, /, **claims: Any) -> Change:
    """List a token a second time."""
    return lambda tokens: [
        *tokens,
        *(each | claims for each in tokens if each["symbol"] == symbol),
    ]


def swapped(tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {"ETH": "USDC", "USDC": "ETH"}
    return [
        each | {"symbol": names.get(each["symbol"], each["symbol"])} for each in tokens
    ]


def fee(amount: int, symbol: str = "ETH") -> Change:
    return lambda answer: (
        answer | {"fees": [{"token": symbol, "fee": str(amount), "discount": 1.0}]}
    )


TOKENS_PATH = "/exchange/tokens"
FEE_PATH = "/user/offchainFee"
ACCOUNT_PATH = "/account"
LIES: dict[str, tuple[str, Change, str]] = {
    "decimals": (
        TOKENS_PATH,
        token("ETH", decimals=27),
        r"decimals is 27 .*relayer alone, but 18 .*loopring_lab",
    ),
    "id": (TOKENS_PATH, token("ETH", tokenId=300), "id is 300 .* but 0 "),
    "swapped names": (TOKENS_PATH, swapped, "symbol is 'USDC' .* but 'ETH'"),
    "new name": (
        TOKENS_PATH,
        token("ETH", symbol="WETH"),
        "listed tokens|symbol is 'WETH'",
    ),
    "address": (
        TOKENS_PATH,
        token("ETH", address="0x" + 40 * "1"),
        "address is '0x1111",
    ),
    "listed twice": (
        TOKENS_PATH,
        second("ETH", tokenId=300, decimals=27),
        "listed tokens|symbol is 'ETH#0'",
    ),
    "id twice": (TOKENS_PATH, second("USDC", tokenId=0), "each id once, got 0 twice"),
    "5,000 ETH": (
        FEE_PATH,
        fee(5000 * ETHER),
        r"asks for 5,000 ETH .*ceiling is 0\.005 ETH.*max_fee='5000'",
    ),
    "two fees": (
        FEE_PATH,
        lambda answer: answer | {"fees": answer["fees"] + fee(1)({})["fees"]},
        "has two fees",
    ),
    "another account": (
        ACCOUNT_PATH,
        lambda account: account | {"accountId": 999},
        "account asked for, 10083, got 999",
    ),
    "another owner": (
        ACCOUNT_PATH,
        lambda account: account | {"owner": "0x" + 40 * "1"},
        "does not sign for this",
    ),
    "nonce below 0": (
        ACCOUNT_PATH,
        lambda account: account | {"nonce": -1},
        "nonce: expected",
    ),
    "nonce too large": (
        ACCOUNT_PATH,
        lambda account: account | {"nonce": 2**32},
        "nonce: expected",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_named_and_nothing_is_signed(setup, lie):
    path, change, told = LIES[lie]
    setup.lie(path, change)
    setup.refuses(told)


def test_the_sum_in_the_preview_is_the_sum_that_is_signed(setup):
    update = setup.prepare(signer=setup.signer(), max_fee="0.00002")
    lines = {
        line.field: f"{line.value}: {line.meaning}" for line in update.preview().lines
    }
    assert signed(update)[2:] == (0, 20_000_000_000_000)
    assert lines["maxFee.volume"].startswith(
        "20000000000000: in smallest units; the most you pay: 0.00002 ETH"
    )
    assert (
        lines["maxFee.tokenId"]
        == "0: ETH, with 18 decimals, pays the fee. Vouched for by loopring_lab (embedded)"
    )
    assert lines["exchange"].endswith(
        "on chain 31337: the update is valid nowhere else. Vouched for by loopring_lab (embedded)"
    )


# Other exchanges


def test_another_exchange_is_refused_with_what_to_write(setup):
    for claimed in (UNKNOWN, MAINNET | {"chain_id": 5}, EMBEDDED | {"chain_id": 1}):
        setup.claim(**claimed)
        told = setup.refuses(
            "If you know the values from a source other than this relayer, write them: trust="
        )
        assert (
            f"claims to serve the exchange {claimed['exchange']} on chain {claimed['chain_id']}"
            in told
        )
        assert f"mainnet is {MAINNET['exchange']} on chain 1," in told
        example = re.search(r"trust=(\{.*\}\}\})", told)
        assert example
        written = ast.literal_eval(
            example[1].replace("'id': ..., 'decimals': ...", "'id': 0, 'decimals': 18")
        )
        update = setup.prepare(signer=setup.signer(), trust=written, max_fee="0.001")
        assert signed(update) == (*claimed.values(), 0, 10**15)
    for nonsense in ("0x12", "nobody", ""):
        setup.claim(exchange=nonsense, chain_id=1)
        setup.refuses("exchange: expected")
    setup.claim(exchange=MAINNET["exchange"], chain_id=True)
    setup.refuses("chain(_id|Id): expected")


def test_a_known_exchange_in_another_case_is_spelled_as_it_is_known(setup):
    """The seed contains the address as written, and another seed is another key."""
    usual = setup.prepare(signer=setup.signer())
    for spelled in (
        EMBEDDED["exchange"].lower(),
        "0X" + EMBEDDED["exchange"][2:].upper(),
    ):
        setup.claim(**EMBEDDED | {"exchange": spelled})
        update = setup.prepare(signer=setup.signer())
        assert (update.key_seed_message(), update.l2_key) == (
            usual.key_seed_message(),
            usual.l2_key,
        )
        assert update.body() == usual.body()


def test_the_real_exchange_is_known_and_its_tokens_are_checked(setup):
    for how in ({}, {"trust": "mainnet"}, {"trust": "relayer"}):
        setup.claim(**MAINNET)
        update = setup.prepare(signer=setup.signer(), **how)
        assert signed(update) == (*MAINNET.values(), 0, UPDATE_FEES["ETH"])
        assert (
            repr(update.preview()).count("Vouched for by loopring_lab (mainnet)") == 2
        )
        setup.lie(TOKENS_PATH, token("ETH", decimals=27))
        setup.refuses("decimals is 27", **{**how, "trust": "mainnet"})


def test_what_the_caller_states_is_signed_and_shown_as_such(setup):
    setup.claim(**MAINNET)
    setup.lie(TOKENS_PATH, token("ETH", decimals=6, tokenId=0))
    stated = {**UNKNOWN, "tokens": {"ETH": {"id": 0, "decimals": 6}}}
    update = setup.prepare(signer=setup.signer(), trust=stated, max_fee="19000000.5")
    assert signed(update) == (*UNKNOWN.values(), 0, 19_000_000_500_000)
    assert repr(update.preview()).count("Vouched for by the caller (trust=)") == 2
    assert "Vouched for by the caller (trust=)" in update.preview()._repr_html_()
    assert "loopring_lab" not in repr(update.preview())


def test_a_token_that_nobody_else_knows_is_refused_with_what_to_write(setup):
    told = "'ETH': only the relayer says which token that is .* Known are LRC. .*'tokens': {'ETH': {'id': "
    setup.refuses(told, trust=UNKNOWN | {"tokens": {"LRC": {"id": 1, "decimals": 18}}})


def test_a_caller_cannot_contradict_what_is_known(setup):
    wrong = MAINNET | {"tokens": {"ETH": ETH | {"decimals": 27}}}
    setup.refuses(
        r"decimals is 27 according to the caller \(trust=\), but 18 according to loopring_lab",
        trust=wrong,
    )
    more = EMBEDDED | {"tokens": {"WETH": {"id": 2, "decimals": 18, "ceiling": "1"}}}
    setup.refuses("'WETH': pays no fees", trust=more, fee_token="WETH")
    assert signed(setup.prepare(signer=setup.signer(), trust=more)) == (
        *EMBEDDED.values(),
        0,
        UPDATE_FEES["ETH"],
    )


def test_the_relayers_word_is_taken_on_request_and_shown_as_such(setup):
    setup.claim(**UNKNOWN)
    setup.refuses(
        r"asks for 0\.000019 ETH .*no ceiling is known.*max_fee='0\.000019'",
        trust="relayer",
    )
    update = setup.prepare(signer=setup.signer(), trust="relayer", max_fee="0.001")
    assert signed(update) == (*UNKNOWN.values(), 0, 10**15)
    for text in (repr(update.preview()), update.preview()._repr_html_()):
        assert text.count("Vouched for by the relayer alone") == 2
        assert "the most you pay: 0.001 ETH" in text
    setup.lie(TOKENS_PATH, token("ETH", decimals=78))
    setup.refuses("decimals", trust="relayer")
    setup.claim(**UNKNOWN)
    setup.refuses(
        "'NONE': pays no fees at this relayer", trust="relayer", fee_token="NONE"
    )


@pytest.mark.parametrize(
    "trust",
    [
        "goerli",
        5,
        UNKNOWN,
        STATED | {"tokens": {"ETH": {"id": "0", "decimals": 18}}},
        STATED | {"tokens": {"ETH": {"id": 1 << 15, "decimals": 18}}},
        STATED | {"tokens": {"ETH": {"id": 0, "decimals": 78}}},
        STATED | {"tokens": {"ETH": ETH | {"colour": "red"}}},
        STATED | {"tokens": ["ETH"]},
        STATED | {"exchange": "0x12"},
        STATED | {"chain_id": -1},
        STATED | {"name": "mine"},
    ],
)
def test_what_cannot_be_trusted_is_refused_with_an_example(setup, trust):
    told = setup.refuses("trust|Token ETH|exchange: |chain_id: ", trust=trust)
    assert told.endswith(".")


# Ceilings


def test_a_demand_up_to_the_ceiling_is_paid_and_one_unit_more_is_not(setup):
    ceilings = {
        "ETH": 5 * 10**15,
        "LRC": 10 * 10**18,
        "USDT": 20 * 10**6,
        "DAI": 20 * 10**18,
        "USDC": 20 * 10**6,
    }
    for symbol, most in ceilings.items():
        setup.lie(FEE_PATH, fee(most, symbol))
        assert signed(setup.prepare(signer=setup.signer(), fee_token=symbol))[3] == most
        setup.lie(FEE_PATH, fee(most + 1, symbol))
        told = setup.refuses(
            f"{most + 1} smallest units.; the ceiling is", fee_token=symbol
        )
        allowed = re.search(r"write max_fee='([\d.]+)'", told)
        assert allowed
        update = setup.prepare(
            signer=setup.signer(), fee_token=symbol, max_fee=allowed[1]
        )
        assert signed(update)[3] == most + 1


# The facts


def test_the_pinned_facts_are_those_of_the_embedded_relayer():
    known = deployments.known_deployments()
    assert {name: (each.exchange, each.chain_id) for name, each in known.items()} == {
        "mainnet": tuple(MAINNET.values()),
        "embedded": tuple(EMBEDDED.values()),
    }
    for each in known.values():
        assert {s: (t.id, t.decimals, t.address) for s, t in each.tokens.items()} == {
            symbol: (token.id, token.decimals, token.address)
            for symbol, token in TOKENS.items()
        }
    assert {
        name for name, token in known["mainnet"].tokens.items() if token.ceiling
    } == set(UPDATE_FEES)


def test_the_pinned_facts_are_those_of_the_registry(recordings):
    registered = json.loads(
        (recordings / "mainnet_registered_tokens_v36.json").read_text()
    )
    facts = {
        token["symbol"]: (token["tokenId"], token["decimals"], token["address"])
        for token in registered
    }
    listed = json.loads((recordings / "mainnet_block_a" / "tokens.json").read_text())
    served = {
        token["symbol"]: (token["tokenId"], token["decimals"], token["address"])
        for token in listed
    }
    for symbol, token in deployments.known_deployments()["mainnet"].tokens.items():
        assert (
            (token.id, token.decimals, token.address) == facts[symbol] == served[symbol]
        )
