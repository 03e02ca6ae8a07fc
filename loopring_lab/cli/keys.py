"""What the commands about an account's key do: the notebook's walkthrough, with a wallet elsewhere."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from loopring_lab.errors import KeyUpdateError, LabError, visible
from loopring_lab.interactive.preview import Sheet
from loopring_lab.interactive.prose import worded
from loopring_lab.redaction import SecretText, hide_pasted, shielded
from loopring_lab.sources.client import wallet_of_owner
from loopring_lab.sources.records import account_sheet

if TYPE_CHECKING:
    from loopring_lab.keys import KeyUpdate
    from loopring_lab.sources.client import Client

# Asks a wallet for a signature: the method of Ethereum's JSON-RPC, what is signed, and the wallet's address.
AskWallet = Callable[[str, str, str], SecretText]
# How errors of `KeyUpdate` name what a terminal has: each text, as a regular expression, and what stands for it.
IN_TERMINAL = {
    r"Call submit\(\) again: it acts only once": (
        "See loopring-lab key show; if the nonce stays the same, run this command again: only one update acts"
    ),
    r"call wait\(\) again, or check client\.account\(\)": "see loopring-lab key show",
    r"Check client\.account\(\), and prepare a new update": "See loopring-lab key show, and run this command again",
    r"check client\.account\(\)": "see loopring-lab key show",
    r"Sign (key_seed_message|typed_data)\(\) with (\w+), and attach\(signature\)": (
        r"Sign exactly what is shown with \2, and give its signature"
    ),
    r"sign client\.current_key_seed\(\)": "sign exactly what is shown",
    r"lab\.KeyUpdate\.prepare\(\)": "loopring-lab key update",
    r"validUntil: expected.*": "--valid-for is too long. Give a shorter time, such as 30d.",
    r", a timedelta or a datetime": "",
    r"If you know the values.*(?=\.)": (
        "A command cannot vouch for it: if you know its values from elsewhere, use lab.KeyUpdate in Python"
    ),
    r"\bmax_fee=": "--max-fee ",
    r"raise max_fee": "raise --max-fee",
    r"\bfee_token=": "--fee-token ",
    r"\bvalid_for=": "--valid-for ",
}


@contextmanager
def in_words_of_a_terminal() -> Iterator[None]:
    """Let errors name commands and options instead of Python's calls and arguments."""
    try:
        yield
    except LabError as error:
        raise KeyUpdateError(worded(str(error), IN_TERMINAL)) from error


def show_key(client: Client, account_id: int, ask: AskWallet | None) -> None:
    """Print an account and the text of its key; with a wallet, derive the key again and compare."""
    account = client.account(account_id)
    print(account_sheet(account))
    seed = client.current_key_seed(account)
    print(visible(f"Signed for the current key: {seed}"))
    if ask is None:
        return
    # A wallet that is not deployed yet has an owner of its own, who signs for it.
    wallet_info = wallet_of_owner(client, account_id) or {}
    signer = wallet_info.get("walletOwner", account.owner)
    key = account.recover_key(ask("personal_sign", seed, signer))
    print(
        f"{key}\nThis is the key of account {account_id}; its wallet wrote v as {key.v}."
    )


def update_key(update: KeyUpdate, ask: AskWallet, *, sure: bool) -> bool:
    """Have a wallet sign an update, send it, and follow it to its end; return whether it was sent."""
    print_preview(update)
    seed = update.key_seed_message()
    update.attach(ask("personal_sign", seed, update.signer_address))
    print_preview(update)
    typed_data = json.dumps(update.typed_data())
    update.attach(ask("eth_signTypedData_v4", typed_data, update.signer_address))
    if not sure and not click.confirm("Send the update? It voids the current key"):
        print("Nothing was sent.")
        return False
    receipt = update.submit()
    print(receipt)
    account = receipt.wait()
    print(account_sheet(account))
    print(f"Account {account.account_id} has the new key: {update.l2_key}")
    return True


def print_preview(update: KeyUpdate) -> None:
    # The notes are left out, because they name the next call in Python.
    preview = update.preview()
    print(Sheet(preview.title, preview.lines))


def wallet(signer_command: str | None) -> AskWallet:
    """Return how to ask for signatures: a command, or else the person at the terminal."""
    if signer_command is None:
        return paste_signature
    try:
        words = shlex.split(signer_command)
    except ValueError:
        words = []
    if not words:
        raise KeyUpdateError(
            "--signer-command: expected a command, with every quotation mark closed. Write it as in a shell."
        )
    return lambda method, content, address: run_signer(words, method, content, address)


def paste_signature(method: str, content: str, address: str) -> SecretText:
    """Show what is to be signed, and read the signature, which is not shown."""
    print(visible(f"Sign with {method}, as {address}:"))
    print(visible(content), flush=True)
    if sys.stdin.isatty():
        return hide_pasted(  # type: ignore[no-any-return]
            click.prompt("Signature (not shown)", hide_input=True)
        )
    return hide_pasted(sys.stdin.readline())  # type: ignore[no-any-return]


@shielded
def run_signer(words: list[str], method: str, content: str, address: str) -> SecretText:
    """Give a command the request as Ethereum's JSON-RPC has it, and return the signature that it prints."""
    params = [address, content]
    if method == "personal_sign":
        params = ["0x" + content.encode().hex(), address]
    request = json.dumps({"method": method, "params": params})
    try:
        signer = subprocess.run(
            words,
            input=request,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise KeyUpdateError(
            f"--signer-command: it cannot be run ({error.strerror}). Check its path."
        ) from None
    if signer.returncode:
        raise KeyUpdateError(
            f"--signer-command: it ended with exit code {signer.returncode}, and nothing was signed. "
            "Run it by itself to see why."
        )
    return hide_pasted(signer.stdout)  # type: ignore[no-any-return]
