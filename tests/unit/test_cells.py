"""Facts about the runs of a cell: their spread by source of randomness, and whether they were
trained long enough."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.evidence.collect import collect
from posfuse.report import page
from posfuse.report.entry import sections_of
from posfuse.report.sections import answer
from posfuse.report.sections.spread import convergence_tables, variance_tables
from posfuse.report.sweep import Sweep
from posfuse.statistics import paired as st
from posfuse.statistics.cells import SEEDS, _row, convergence, follows_seed, is_held, variance
from posfuse.statistics.comparisons import Criteria
from posfuse.verdicts.claims import read_claims
from small_records import write_sweep

SETS = {
    "together": {},
    "init": {"order": 0, "dropout": 0},
    "order": {"init": 0, "dropout": 0},
    "dropout": {"init": 0, "order": 0},
}
ALL = "initial values, batch order, dropout"


def held_in(name, prefix=""):
    return {f"{prefix}seeds.{s}": SETS[name].get(s) for s in ("init", "order", "dropout")}


def frame(accuracies, **settings):
    """Runs of each (fusion, set of SETS), from its accuracies in percent by seed."""
    rows = [
        {
            "data": "tiny", "encoding": "sin", "fusion": fusion, "seed": seed,
            "test.accuracy": accuracy / 100, **held_in(name, "settings."), **settings,
        }
        for (fusion, name), values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def row_of(found, fusion, varied):
    (row,) = found[(found["fusion"] == fusion) & (found["varied"] == varied)].to_dict("records")
    return row


def test_a_run_follows_its_seed_where_the_source_has_none():
    runs = frame({("add", "together"): [1], ("add", "order"): [1]})
    runs["settings.data.split_seed"] = [0, "seed"]
    found = follows_seed(runs)
    assert found.to_numpy().tolist() == [[True, True, True, False], [False, True, False, True]]
    assert is_held(runs).tolist() == [False, True]
    earlier = runs[["data"]]  # of records without these settings
    assert follows_seed(earlier).to_numpy().tolist() == [[True, True, True, False]] * 2


TOGETHER_OF_ADD = {("add", "together"): [50, 54, 58]}
TOGETHER = TOGETHER_OF_ADD | {("mlp", "together"): [60, 60, 66]}


def test_rows_by_hand():
    runs = frame(TOGETHER | {("add", "init"): [50, 51, 52], ("mlp", "init"): [60, 62, 61]})
    found = variance(runs, Criteria())
    assert found["varied"].tolist() == ["initial values", ALL] * 2
    init, whole = (row_of(found, "add", varied) for varied in ("initial values", ALL))
    assert (init["n"], init["std"], whole["std"]) == (3, pytest.approx(1), pytest.approx(4))
    assert (init["share"], whole["share"]) == (pytest.approx(100 / 16), 100)
    assert init["held"] == "order=0 dropout=0"
    assert np.isnan(init["delta_std"])
    init, whole = (row_of(found, "mlp", varied) for varied in ("initial values", ALL))
    assert init["delta_std"] == pytest.approx(np.std([10, 11, 9], ddof=1))
    assert whole["delta_std"] == pytest.approx(np.std([10, 6, 8], ddof=1))
    assert init["delta_share"] == pytest.approx(100 / 4)
    (table,) = variance_tables(found, Criteria())
    assert table.columns[:6] == ["data", "encoding", "fusion", "varied", "n", "std"]
    assert table.rows[0] == [
        "tiny", "sin", "add", "initial values", "3", "1.00", "0.52 to 6.28", "6", "", "", ""
    ]  # fmt: skip


def test_an_operator_may_have_runs_with_every_source_fixed():
    none = {f"settings.seeds.{source}": 0 for source in SEEDS}
    fixed = frame({("mlp", "together"): [60, 61, 63]}).assign(**none)
    init = {("add", "init"): [50, 51, 52]}
    found = variance(
        pd.concat([frame(TOGETHER_OF_ADD | init), fixed], ignore_index=True), Criteria()
    )
    assert row_of(found, "mlp", "none")["held"] == "init=0 order=0 dropout=0"


@pytest.mark.parametrize(
    ("key", "of_corpus"), [("data.split_seed", False), ("data.split_seed", True),
                           ("data.corpus.split_seed", False), ("fidelity.validation_split", False)]
)  # fmt: skip
def test_each_fixed_split_has_its_rows(key, of_corpus):
    """A spread is compared with that of the runs with the same split."""
    both = []
    for split, scale in ((0, 1), (1, 2)):
        settings = {f"settings.{key}": split}
        if of_corpus:
            settings["settings.data.corpus.split_seed"] = split
        init = [50, 50 + scale, 50 + 2 * scale]
        together = {key: 50 + (np.array(own) - 50) / scale for key, own in TOGETHER.items()}
        values = together | {("add", "init"): init, ("mlp", "init"): init}
        both.append(frame(values, **settings))
    found = variance(pd.concat(both, ignore_index=True), Criteria())
    own = found[(found["fusion"] == "add") & (found["varied"] == "initial values")]
    assert own["held"].tolist() == [f"order=0 dropout=0 {key}={split}" for split in (0, 1)]
    assert own["share"].tolist() == pytest.approx([100 / 16, 100])
    assert (found[found["fusion"] == "mlp"]["delta_n"] == 3).all()


def test_the_interval_of_a_spread_is_that_of_the_chi_square():
    # Box, Hunter and Hunter: (n - 1) s^2 / chi-square.
    values = [1.0, 2.0, 4.0, 8.0]
    ends = np.sqrt(3 * np.var(values, ddof=1) / stats.chi2(3).ppf([0.975, 0.025]))
    assert st.spread_interval(values) == pytest.approx(tuple(ends))
    assert np.isnan(st.spread_interval([1.0])).all()
    assert np.isnan(st.spread_interval([1.0, 1.0])).all()


def test_without_sets_to_compare_there_is_no_table():
    for names in (["together"], ["init"]):
        runs = frame({("add", name): [1, 2] for name in names})
        assert variance(runs, Criteria()).empty
    assert variance_tables(pd.DataFrame(), Criteria()) == []
    alone = frame({("add", "together"): [1], ("add", "init"): [1]})
    assert variance(alone, Criteria()).empty


def test_runs_with_a_fixed_source_are_described_and_not_compared(tmp_path):
    scores = {"add": [0.5, 0.525, 0.55], "concat": [0.6, 0.6275, 0.655]}
    for name in SETS:
        write_sweep(tmp_path, scores, settings=held_in(name), variant=f"seeds={name}")
    runs, _ = collect(tmp_path)
    assert set(runs["variant"]) == {"", "seeds=init", "seeds=order", "seeds=dropout"}
    sweep = Sweep(str(tmp_path), runs, Criteria(), read_claims())
    assert sweep.comparisons["variant"].tolist() == [""]
    assert len(sweep.cells) == 8
    sections = sections_of(sweep)
    assert "variance" in [table.name for section in sections for table in section.tables]
    start = "18 runs have a source of randomness fixed"
    assert any(note.startswith(start) for note in page.notes_of(sections))
    held = runs[runs["variant"] != ""].reset_index(drop=True)
    alone = answer.section(Sweep(str(tmp_path), held, Criteria(), read_claims())).lead
    assert alone[1] == "No difference from add could be tested."


def test_a_cell_counts_the_runs_that_were_best_at_their_last_evaluation():
    best = {"add": [7, 3, 7, np.nan], "gate": [1, 2]}
    runs = pd.DataFrame([(fusion, at) for fusion, own in best.items() for at in own])
    runs = runs.set_axis(["fusion", "best_evaluation"], axis=1)
    runs = runs.assign(data="tiny", encoding="sin", variant="", evaluations=7)
    (table,) = convergence_tables(convergence(runs))
    assert table.rows == [
        ["tiny", "sin", "add", "2 of 3", "5.7", "7.0"],
        ["tiny", "sin", "gate", "0 of 2", "1.5", "7.0"],
    ]
    without = runs.drop(columns=["best_evaluation", "evaluations"])
    assert convergence_tables(convergence(without)) == []


def test_a_run_exactly_at_the_threshold_solves_the_task() -> None:
    """100 * 0.57 is 56.99999999999999."""
    assert _row([100 * 0.57, 56.9, 57.1], None, 57.0)["solved"] == 2
    pairs = {"scores": [100 * 0.57, 56.9], "baseline_scores": [56.9, 57.0]}
    assert _row([57.0, 56.9], pairs, 57.0)["gained"] == 1
    assert _row([100 * 7 / 12], None, (100 / 6 + 100) / 2)["solved"] == 1  # 6 classes, halfway
