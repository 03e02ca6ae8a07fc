"""The README's claims hold."""

import re
from pathlib import Path

import pytest
from tools.pictures import PICTURES, drawn

import loopring_lab as lab

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tour_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tour, archive, blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    monkeypatch.chdir(tmp_path)
    exec(compile(tour + archive + blocks, "README.md", "exec"), names)
    assert len(names["trades"]) > 1_000  # type: ignore[arg-type]
    assert names["archive"].report()["complete"].all()  # type: ignore[attr-defined]
    assert names["store"].check().problems.empty  # type: ignore[attr-defined]
    assert len(names["client"].trades()) == len(names["settled"]) > 1_000  # type: ignore[attr-defined, arg-type]
    assert len(tour.strip().splitlines()) == 10


def test_the_pictures_are_the_project_s_own() -> None:
    for name, picture in drawn().items():
        assert (PICTURES / name).read_bytes() == picture
        assert f"notebooks/pictures/{name}" in README


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^):#]+)\)", README))))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_the_numbers_about_the_world_are_true() -> None:
    client = lab.connect()
    assert f"{len(client.tokens())} tokens and {len(client.markets())} markets" in README


def test_every_environment_variable_named_is_read() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "loopring_lab").rglob("*.py"))
    for name in set(re.findall(r"LOOPRING_[A-Z_]+", README)):
        assert f'"{name}"' in code
