"""The real block that the package brings: the recorded one, and what is known of it."""

import gzip
import json

import pytest
from support.rollup_blocks import recorded, recorded_bytes

import loopring_lab as lab
from loopring_lab.cli import templates
from loopring_lab.sources.connect import BUNDLED


@pytest.fixture(scope="module")
def client():
    return lab.connect(blocks="sample")


def test_its_bytes_are_those_of_the_recorded_block():
    data = gzip.decompress((BUNDLED["sample"] / "block.bin.gz").read_bytes())
    assert data == recorded_bytes("data.hex")
    header = json.loads((recorded() / "header.json").read_text())
    source = json.loads((BUNDLED["sample"] / "source.json").read_text())
    assert header["transaction_hash"] in source["name"]
    assert source["exchange"] == header["exchange"]
    assert source["synthetic"] is False


def test_its_fills_are_exact_on_both_sides(client):
    trades = client.trades()
    fills = trades.groupby("trade_id")
    # 182 fills of tokens, and one of an NFT, which is kept and listed.
    assert len(fills) == 183
    assert (fills.size() == 2).all()
    assert (fills["side"].nunique() == 2).all()
    odd = lab.anomalies(trades)
    assert odd["reason"].tolist() == ["token 32768 is an NFT"] * 2
    assert not client.synthetic
    assert trades["base"].notna().sum() == 364


def test_its_balances_can_be_recomputed(client):
    proof = client.store.check()
    balances = proof.summary.loc["balances"]
    assert (balances["checked"], balances["wrong"]) == (8, 0)
    assert proof.problems.empty
    assert len(client.store.blocks().account_updates(client.tokens())) == 11


@pytest.mark.parametrize("template", ["fee-analysis", "real-trades"])
def test_a_template_takes_it_by_name(tmp_path, template):
    copy = tmp_path / "copy.ipynb"
    templates.new(templates.find(template), copy, {"blocks": "sample"})
    [cell] = [
        cell
        for cell in json.loads(copy.read_text())["cells"]
        if "parameters" in cell["metadata"].get("tags", [])
    ]
    assert "blocks = 'sample'" in "".join(cell["source"])
