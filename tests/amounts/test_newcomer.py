"""Operations that somebody who knows pandas tries first, on amounts and on the same values as floats."""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from support.amount_trades import as_numbers, differences, names, packages
from support.newcomer import OPERATIONS
from support.optional import often

# On the page "pandas with exact amounts", with what to write instead.
RAISES = {
    "seaborn.heatmap(t.pivot_table(values='fee', index='market', columns='side', aggfunc='sum'))": (
        "of a frame with several columns of amounts pandas makes an array of objects without asking the columns"
    ),
    **dict.fromkeys(
        [
            "t.to_csv(float_format='%.3f')",
            "t.to_markdown()",
            "t[['fee', 'notional']].to_records()",
            "sql(t)",
            "excel(t)",
        ],
        "these writers make floats of Decimals, without asking the column",
    ),
    "np.interp(.5, [0, 1], [fee.min(), fee.max()])": "NumPy makes an array of objects of a list of amounts",
    **dict.fromkeys(
        [
            "formulas.ols('fee ~ notional', t).fit().params",
            "formulas.ols('fee ~ notional + C(side)', t).fit().params",
            "formulas.ols('fee ~ np.log(notional)', t).fit().params",
            "plotly.express.scatter(t.fillna({'size': 0}), x='notional', y='fee', size='size')",
        ],
        "these take the values of a column as Decimals, and compute with floats alone",
    ),
    **dict.fromkeys(
        [
            "polars.from_pandas(t)['fee'].sum()",
            "polars.from_pandas(fee.to_frame()).select(polars.col('fee').mean()).item()",
            "polars.DataFrame({'fee': fee})['fee'].sum()",
            "polars.Series(fee).sum()",
        ],
        "in Arrow's tables amounts are marked, so that files give them back, and Polars does not compute with marks",
    ),
}
ON_FLOATS_TOO = {"t.cov(numeric_only=True)"}


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    return names(True, tmp_path_factory.mktemp("exact"))


@pytest.fixture(scope="module")
def floats(tmp_path_factory):
    return names(False, tmp_path_factory.mktemp("floats"))


@pytest.fixture(autouse=True)
def no_figures():
    yield
    plt.close("all")


def run(operation, known):
    """Return what an operation gives, as numbers, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = as_numbers(eval(operation, known | packages(operation)))
        except ImportError as error:
            pytest.skip(f"a package is not installed: {error}")
    return found, {f"{one.category.__name__}: {one.message}" for one in caught}


# Drawing, learning, models and spreadsheets take most of the time, also to be imported; two figures are always drawn.
SLOW = (
    "seaborn",
    "plot",
    "plt.",
    "hist(",
    "regress(",
    "cluster(",
    "forest(",
    "excel(",
    "formulas",
    "statsmodels",
)
FAST = {"fee.plot()", "plt.plot(t['created_at'], fee)"}


def quick(operations):
    return [
        one
        for one in operations
        if one in FAST or not any(name in one for name in SLOW)
    ]


WORKING = [one for one in OPERATIONS if one not in {*RAISES, *ON_FLOATS_TOO}]


@pytest.mark.parametrize("operation", often(quick(WORKING), WORKING))
def test_amounts_do_what_floats_do(operation, exact, floats):
    ours, our_warnings = run(operation, exact)
    theirs, their_warnings = run(operation, floats)
    assert differences(ours, theirs) == []
    assert our_warnings <= their_warnings


@pytest.mark.parametrize("operation", often(quick(RAISES), RAISES))
def test_what_raises_has_its_reason_on_the_page(operation, exact, floats):
    page = Path(__file__).parents[2] / "docs" / "how-to" / "exact-amounts.md"
    assert RAISES[operation] in page.read_text(encoding="utf-8")
    run(operation, floats)
    with pytest.raises(Exception, match="array|object|dtype|number"):
        run(operation, exact)


@pytest.mark.parametrize("operation", sorted(ON_FLOATS_TOO))
def test_what_raises_on_floats_raises_on_amounts(operation, exact, floats):
    for known in (exact, floats):
        with pytest.raises(TypeError):
            run(operation, known)


def test_few_operations_raise():
    assert len(OPERATIONS) > 355
    assert set(OPERATIONS) > FAST
    # Five of them are writers of floats, which raise on purpose.
    assert len(RAISES) + len(ON_FLOATS_TOO) <= 16
