"""`loopring-lab new`: copies of the notebooks run as they are, with other parameters, in other folders."""

import ast
import json
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from support.wire_rows import page, row

import loopring_lab as lab
from loopring_lab import cli
from loopring_lab.cli import templates

ROOT = Path(__file__).parents[2]


def first_cell(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return next(cell.source for cell in cells if cell.cell_type == "code")


def set_by(source: str) -> dict[str, object]:
    return {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
    }


def test_each_notebook_is_a_template():
    found = templates.templates()
    stems = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    assert [template.path.stem for template in found] == stems
    for template in found:
        assert template.name == template.path.stem[3:].replace("_", "-")
        assert (
            nbformat.read(template.path, as_version=4)
            .cells[0]
            .source.startswith(f"# {template.title}\n")
        )
        assert template.parameters == set_by(first_cell(template.path))


@pytest.mark.parametrize(
    "template", templates.templates(), ids=lambda template: template.name
)
def test_a_copy_has_no_outputs_and_the_same_cells(template, tmp_path):
    target = tmp_path / "deep" / "my.ipynb"
    templates.new(template, target)
    copy, source = (
        nbformat.read(path, as_version=4) for path in (target, template.path)
    )
    nbformat.validate(copy)
    assert [cell.source for cell in copy.cells if cell.cell_type == "code"] == [
        cell.source for cell in source.cells if cell.cell_type == "code"
    ]
    assert all(
        not cell.outputs and cell.execution_count is None
        for cell in copy.cells
        if "outputs" in cell
    )
    assert copy.metadata == source.metadata
    prose = "".join(cell.source for cell in copy.cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\((.*?)\)", prose)
    assert [link for link in links if "://" not in link] == [], (
        "links that lead nowhere"
    )


def test_a_recording_is_named_as_seen_from_the_copy(tmp_path, monkeypatch):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "tokens.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    template = templates.find("first-look")
    templates.new(template, Path("study/my.ipynb"), {"recording": "saved"})
    assert (
        set_by(first_cell(tmp_path / "study" / "my.ipynb"))["recording"] == "../saved"
    )


@pytest.mark.parametrize(
    "given",
    ["--recording saved", "--set recording=saved", "--base-url http://a"],
)
def test_a_given_source_takes_the_place_of_the_template_s_own(
    given, tmp_path, monkeypatch
):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "tokens.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert templates.find("liquidity").parameters["blocks"] == "demo"
    assert cli.main(["new", "liquidity", "my.ipynb", *given.split()]) == 0
    filled = set_by(first_cell(Path("my.ipynb")))
    sources = {name: filled[name] for name in ("base_url", "recording", "blocks")}
    kept = {name: value for name, value in sources.items() if value is not None}
    assert kept in ({"recording": "saved"}, {"base_url": "http://a"})


def test_a_recording_may_be_one_file_whose_account_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("7-amm.json").write_bytes(page([row()[:7]]))
    assert (
        cli.main(["new", "fee-analysis", "my.ipynb", "--recording", "7-amm.json"]) == 0
    )
    filled = set_by(first_cell(Path("my.ipynb")))
    assert filled["recording"] == "7-amm.json"
    assert filled["account_id"] == 7


def test_the_accounts_with_most_trades_are_taken(any_block_folder):
    counts = Counter[int]()
    for file in (any_block_folder / "trades").glob("*.json"):
        account = int(file.stem.partition("-")[0])
        counts[account] += json.loads(file.read_text())["totalNum"]
    most = sorted(counts, key=lambda account: (-counts[account], account))
    given = {"recording": str(any_block_folder)}
    chosen = {
        name: templates.suited_to_source(templates.find(name), given)
        for name in ("fee-analysis", "archive-and-scale", "amm-versus-orderbook")
    }
    assert chosen == {
        "fee-analysis": {"account_id": most[0]},
        "archive-and-scale": {"accounts": most[:3]},
        "amm-versus-orderbook": {},  # takes all
    }


def test_the_command_lists_and_copies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new"]) == 0
    listed = capsys.readouterr().out
    for template in templates.templates():
        assert f"{template.name} " in listed
        assert template.title in listed
    words = (
        "new fee-analysis my.ipynb --account 11519 --set every=1w --base-url http://a"
    )
    assert cli.main(words.split()) == 0
    source = first_cell(Path("my.ipynb"))
    given = {"account_id": 11519, "every": "1w", "base_url": "http://a"}
    assert set_by(source) == templates.find("fee-analysis").parameters | given
    assert "# a folder of saved responses" in source
    words = "new amm-versus-orderbook --account 1 --account 2"
    assert cli.main(words.split()) == 0
    assert set_by(first_cell(Path("amm-versus-orderbook.ipynb")))["accounts"] == [1, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fist-look my.ipynb", "Did you mean 'first-look'"),
        ("first-look my.txt", "does not end in .ipynb"),
        ("first-look my.ipynb --recording nowhere", "nowhere: expected a folder"),
        ("liquidity my.ipynb --set blocks=[1]", "A path is text or a pathlib.Path"),
        (
            "fee-analysis there.ipynb",
            "already exists. Choose another name, or use --force",
        ),
        (
            "fee-analysis my.ipynb --account 1 --account 2",
            "takes one account, but 2 are given",
        ),
        ("fee-analysis my.ipynb --set every", "give a name and a value"),
        ("fee-analysis my.ipynb --set evry=1w", "Did you mean 'every'"),
        ("key-update my.ipynb --recording .", "has no parameter 'recording'"),
        (
            "liquidity my.ipynb --base-url http://a --blocks demo",
            "base_url and blocks are given, and each is a source of its own. Give one",
        ),
    ],
)
def test_the_command_refuses_in_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("there.ipynb").write_text("mine")
    assert cli.main(["new", *words.split()]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.ipynb"]
    assert Path("there.ipynb").read_text() == "mine"


@pytest.mark.parametrize("text", ["{[]}", "-" * 10_000 + "1"])
def test_what_python_cannot_evaluate_is_text(text, tmp_path):
    target = tmp_path / "a.ipynb"
    words = ["new", "fee-analysis", str(target), "--set", f"every={text}"]
    assert cli.main(words) == 0
    assert f"every = '{text}'" in target.read_text()


def test_a_file_in_the_way_is_replaced_by_force(tmp_path):
    target = tmp_path / "my.ipynb"
    target.write_text("mine")
    assert cli.main(["new", "first-look", str(target), "--force"]) == 0
    assert json.loads(target.read_text())["nbformat"] == 4


def texts(path: Path) -> str:
    notebook = nbformat.read(path, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(
        output.get("text", output.get("data", {}).get("text/plain", ""))
        for output in outputs
    )


@pytest.mark.thorough
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)
def test_a_copy_runs_under_papermill_with_other_parameters(tmp_path, any_block_folder):
    import papermill

    copy = tmp_path / "my.ipynb"
    done = tmp_path / "done.ipynb"
    template = templates.find("fee-analysis")
    templates.new(template, copy, {"account_id": 40659})
    papermill.execute_notebook(
        copy,
        done,
        {"every": "1q", "value_in": "USDC"},
        cwd=tmp_path,
        progress_bar=False,
    )
    count = len(lab.connect().trades(40659))
    assert f"account 40659: {count:,} fills, fees valued in USDC" in texts(done)
    saved = any_block_folder
    papermill.execute_notebook(
        copy,
        done,
        {"account_id": 58344, "recording": str(saved)},
        cwd=tmp_path,
        progress_bar=False,
    )
    rows = sum(
        json.loads((saved / "trades" / f"58344-{kind}.json").read_text())["totalNum"]
        for kind in ("amm", "dex")
    )
    assert f"account 58344: {rows} fills" in texts(done)
