"""What verdicts lean on: two groups of runs, chance, shared documents, few seeds, tuning."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from finding_tables import settings_of
from posfuse.config import CONF_DIR
from posfuse.evidence.collect import collect
from posfuse.report.sections.cautions_table import cautions_section
from posfuse.report.terminal import show
from posfuse.statistics import cautions as st
from posfuse.statistics.cautions import Arm
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.own_best import own_best
from posfuse.study import caveats as cautions
from posfuse.study import results_page
from posfuse.study.configurations import compose
from posfuse.study.looks import progress
from posfuse.study.plan import Choice, Plan
from posfuse.study.spec import Assumed, Evaluation, Hypothesis, Study, Tuning
from small_records import reported, write_sweep
from study_runs import study_runs

STEADY = [60.0, 61, 59.5, 60.2, 62, 58.8, 60.9, 61.3]
BY_SEED = {"data.split_seed": "seed"}
DRAWN = {**BY_SEED, "data.corpus.split_seed": "seed"}


def test_the_rates_of_the_docs():
    """How many arms are in two groups; the bounds are 4 standard errors from the docs."""
    rng = np.random.default_rng(3)

    def flagged(values):
        return np.mean([st.in_two_groups(arm, 10) for arm in values])

    for n in (3, 8, 16, 24):
        assert 0 < flagged(rng.normal(0, 100, (1000, n))) < 0.023, n
        assert flagged(rng.normal(60, 3, (1000, n))) < 0.008, n
    for n, share, least in ((8, 0.1, 0.98), (8, 0.9, 0.75), (16, 0.9, 0.98)):
        solves = rng.random((1000, n)) < share
        solves = solves[solves.any(1) & ~solves.all(1)]
        values = rng.normal(np.where(solves, 65, 20), np.where(solves, 5, 1.5))
        assert flagged(values) > least, (n, share)


def test_two_groups_are_of_several_runs_and_far_apart():
    solved_once = np.array([20.0] * 7 + [70.0])
    assert st.in_two_groups(solved_once, 10)
    assert not st.in_two_groups(solved_once / 10, 10)  # too close to matter
    assert not st.in_two_groups([50.0] * 8)
    spread = np.linspace(-1, 1, 150)  # more runs than the limits are known for, in any order
    many = np.sort(np.where(np.arange(150) % 10 < 7, 50, 95) + spread)
    assert st.in_two_groups(many, 10)
    assert st.in_two_groups(many[::-1], 10)
    assert not st.in_two_groups([20.0, 70.0])


@pytest.mark.parametrize(
    ("settings", "documents", "shared"),
    [
        ({}, np.nan, ""),  # a record that does not say
        ({"data.split_seed": 0, "data.corpus.split_seed": 0}, 400, st.ONE_SPLIT),
        ({"data.split_seed": 0, "fidelity.validation_split": "by_seed"}, 400, st.ONE_TEST),
        (DRAWN, 400, ""),
        (BY_SEED, 400, st.ONE_TEST),
        ({**BY_SEED, "data.limit": 1000}, 400, st.ONE_TEST),  # the whole test split
        ({**BY_SEED, "data.limit": 400.0}, 400, ""),  # a sample of it by seed
        ({**BY_SEED, "data.limit": 400}, np.nan, ""),
        ({**BY_SEED, "data.limit": np.nan}, 400, st.ONE_TEST),
        # Documents are windows here, and data.limit is the beginning of a text.
        ({**BY_SEED, "data.limit": 400, "task.name": "language_model"}, 900, st.ONE_TEST),
    ],
)
def test_what_all_seeds_share_follows_from_the_settings(settings, documents, shared):
    assert st.shared(Arm(settings=settings, documents=documents)) == shared


def test_each_caution_names_its_arms():
    good = Arm(values=STEADY, guess=20, settings=DRAWN)
    assert st.cautions({"a": good, "b": good}, 8) == {}
    assert st.cautions({"a": good}, 7) == {st.FEW: []}
    changes = {
        st.ONE_SPLIT: {"settings": {"data.split_seed": 0}},
        st.TUNED: {"is_tuned": True},
        st.CHANCE: {"values": [24.0, 23.9] * 4},
        st.GROUPS: {"values": [20, 21, 19, 20, 20, 70, 69, 72]},
        st.LAST: {"last": 0.51},
        st.EDGE: {"is_at_edge": True},
    }
    for text, change in changes.items():
        bad = replace(good, **change)
        assert st.cautions({"a": good, "b": bad}, 8) == {text: ["b"]}
        of_both = ["a", "b"] if text in (st.CHANCE, st.GROUPS) else []
        assert st.cautions({"a": bad, "b": bad}, 8) == {text: of_both}
    assert st.cautions({"a": replace(good, values=[24.1] * 8)}, 8) == {}  # 4 points is 1/20
    assert st.cautions({"a": replace(good, last=0.51)}, 8, most_last=0.6) == {}


def test_few_bits_per_byte_are_far_from_guessing():
    language_model = Arm(values=[2.7] * 8, guess=8, perfect=0)
    assert st.cautions({"a": language_model}, 8) == {}
    assert st.cautions({"a": replace(language_model, values=[7.7] * 8)}, 8) == {st.CHANCE: ["a"]}
    diverged = replace(language_model, values=[2.7, 2.71, 2.69, 2.7, 2.72, 2.7, 2.68, 8])
    assert st.cautions({"a": diverged}, 8) == {st.GROUPS: ["a"]}


def lines_of(section):
    return list(section.shown)


def test_the_table_has_each_caution_once():
    found = {
        "gain": {st.FEW: [], st.CHANCE: ["a", "b"]},
        "position": {st.FEW: [], st.CHANCE: ["b"], st.EDGE: ["c"]},
    }
    section = cautions_section(found, "hypotheses")
    (table,) = section.tables
    assert table.columns == ["caution", "arms", "hypotheses"]
    assert table.rows == [
        [st.FEW, "all", "all"], [st.CHANCE, "a, b", "all"], [st.EDGE, "c", "position"]
    ]  # fmt: skip
    assert lines_of(section) == [
        "caution: fewer than 8 seeds", "caution: close to guessing (a, b)",
        "caution: best value at the edge of those tried (c)",
    ]  # fmt: skip
    assert cautions_section({"gain": {}}).tables == ()
    mixed = {"gain": {st.LAST: []}, "position": {st.LAST: ["c"]}, "other": {}}
    assert lines_of(cautions_section(mixed)) == [f"caution: {st.LAST} (all arms of gain, c)"]
    many = {f"h{i}": {st.CHANCE: [f"arm{i}"]} for i in range(10)}
    (row,) = cautions_section(many | {"last": {}}).tables[0].rows
    assert [cell.split(", ")[-1] for cell in row[1:]] == ["2 more", "2 more"]


H = Hypothesis("gain", "Concat gains.", "concat", "add", expects="greater")
STUDY = Study(
    "q",
    settings={"data": "lead_story_short", "data.split_seed": "seed"},
    arms={"add": {"fusion": "add"}, "concat": {"fusion": "concat"}},
    testing=Evaluation(seeds="0-7", looks=[8]),
    hypotheses=[H, replace(H, name="same", text="Both are equal.", expects="equivalent")],
    assumed=Assumed(2.0, 0.5),
)


def test_a_plan_says_what_its_verdicts_will_lean_on():
    drawn = dict.fromkeys(STUDY.arms, DRAWN)
    assert cautions.of_plan(STUDY, drawn) == []
    fixed = {arm: {"data.split_seed": 3} for arm in STUDY.arms}
    tuned = replace(
        STUDY,
        tuning=Tuning(grid={"optim.lr": [1, 2]}, seeds=[90]),
        testing=Evaluation(seeds="0-7", looks=[4, 6, 8]),
    )
    assert cautions.of_plan(tuned, fixed) == [
        "caution: fewer than 8 seeds (looks at 4, 6)",
        f"caution: {st.ONE_SPLIT}",
        f"caution: {st.TUNED}",
    ]


def test_a_plan_with_repeats_counts_repeats_and_is_not_tuned_once():
    tuning = Tuning(grid={"optim.lr": [1, 2]}, seeds="90-97", repeats=8)
    testing = Evaluation(seeds="0-15", looks=[4, 8])
    study = replace(STUDY, tuning=tuning, testing=testing, assumed=Assumed(2.0, 0.5, 0.1))
    drawn = dict.fromkeys(STUDY.arms, DRAWN)
    assert cautions.of_plan(study, drawn) == [f"caution: {st.FEW_VALUES} (looks at 4)"]


@pytest.mark.parametrize(
    ("base", "changes", "arm", "lines"),
    [
        ("", {"data": "lead_story_short"}, {}, [st.ONE_SPLIT]),  # its default is one split
        ("", {"data": "lead_story_short", "seeds": "everything"}, {}, []),
        ("", {"data.split_seed": "seed"}, {"data": "agnews"}, [f"{st.ONE_TEST} (concat)"]),
        ("", {"data": "parity", "data.split_seed": "seed"}, {"data.split_seed": 0},
         [f"{st.ONE_SPLIT} (concat)"]),
        ("experiment/pretrained", {"data": "parity"}, {}, []),
    ],
)  # fmt: skip
def test_the_settings_of_rows_come_from_the_overrides_and_their_files(base, changes, arm, lines):
    arms = {**STUDY.arms, "concat": {"fusion": "concat", **arm}}
    study = replace(STUDY, base=base, settings=changes, arms=arms)
    of_arms = {name: Arm(settings=settings_of(study, name)) for name in arms}
    found = st.cautions(of_arms, 8)
    assert [st.sentence({text: names}) for text, names in found.items()] == lines


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({"data": "mine", "data.split_seed": "seed"}, []),  # the corpus draws its test documents
        ({"data": "mine", "fidelity": "notebook"}, [f"caution: {st.ONE_TEST}"]),
    ],
)
def test_a_plans_settings_are_composed(settings, lines, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text((CONF_DIR / "data" / "parity.yaml").read_text())
    arms = {"add": STUDY.arms["add"]}
    study = replace(STUDY, settings=settings, arms=arms, searchpath=[f"file://{tmp_path}"])
    own = compose(study, arms, [])["add"].settings
    assert cautions.of_plan(study, {"add": own}) == lines


def shown(plan, runs):
    """What posfuse study prints of the verdicts; in no terminal wider than the terminal."""
    for width in (40, 80, 200):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        show(results_page.verdict_sections(plan, progress(plan.study, runs), runs), console)
        text = console.file.getvalue()
        assert max(map(len, text.splitlines())) <= width
    return " ".join(text.split())


def test_the_terminal_has_the_verdicts_and_then_their_cautions():
    groups = [21, 70, 20, 69, 20, 21, 70, 22]
    runs = study_runs(add=[20, 21, 19, 20] * 2, concat=groups, mul=[20.5, 21, 19, 20.5] * 2)
    arms = {**STUDY.arms, "mul": {"fusion": "mul"}}
    other = Hypothesis("other", "Other [/].", "mul", "add", expects="greater")
    tuning = Tuning(grid={"optim.lr": [1, 2]}, seeds=[90])
    study = replace(STUDY, arms=arms, hypotheses=[H, other], tuning=tuning)
    choices = {arm: Choice({"optim.lr": 1}, 50.0, ["optim.lr"] * (arm == "mul")) for arm in arms}
    text = shown(Plan(study, choices, {}, "d"), runs)
    assert text.startswith(
        "q 2 hypotheses: 1 equivalent, 1 undecided. undecided Concat gains. gain: concat - add: +"
    )
    assert f"Caution: {st.TUNED}; {st.CHANCE}; {st.GROUPS}. equivalent " in text
    assert 'equivalent "Other [/]." other: mul - add: +0.2 points (' in text
    assert text.endswith(
        f"caution: {st.TUNED} caution: {st.CHANCE} (add, mul) caution: {st.GROUPS} (concat) "
        f"caution: {st.EDGE} (mul)"
    )


def test_a_hypothesis_without_a_look_has_no_caution():
    plan = Plan(STUDY, {}, {}, "d")
    assert cautions.of_verdicts(plan, progress(STUDY, study_runs()), study_runs()) == {}
    assert "caution" not in shown(plan, study_runs())


def test_a_run_that_diverged_has_no_settings_and_counts_as_guessing():
    values = {"add": STEADY, "concat": [None, *STEADY[1:]]}
    runs, plan = study_runs(**values), Plan(STUDY, {}, {}, "d")
    found = cautions.of_verdicts(plan, progress(STUDY, runs), runs)
    assert found["gain"] == {st.GROUPS: ["concat"]}
    runs = study_runs(best=2, **values)
    settings = {"data.split_seed": 5}  # a record is more exact than the overrides
    runs["record"] = [None if diverged else {"settings": settings} for diverged in runs["diverged"]]
    found = cautions.of_verdicts(plan, progress(STUDY, runs), runs)
    assert list(found["gain"]) == [st.ONE_SPLIT, st.GROUPS, st.LAST]


def test_a_caution_leaves_out_the_variant_of_all_runs(tmp_path):
    values = {"add": [0.8, 0.825, 0.775], "concat": [0.5, 0.525, 0.5]}
    write_sweep(tmp_path / "sweep", values, variant="trainer.max_epochs=2")
    assert f"caution: {st.CHANCE} (tiny sinusoidal concat)" in of_sweep(tmp_path / "sweep")
    more = {"add": [0.8, 0.8, 0.7], "concat": [0.8, 0.7, 0.7]}
    write_sweep(tmp_path / "sweep", more, variant="trainer.max_epochs=3")
    named = "tiny sinusoidal concat trainer.max_epochs=2"
    assert f"caution: {st.CHANCE} ({named})" in of_sweep(tmp_path / "sweep")


def of_sweep(sweep):
    """The cautions of a sweep's comparisons, as the lines of its report."""
    runs, _ = collect(sweep)
    (comparisons, _), best = compare(runs, Criteria()), own_best(runs, Criteria())
    found = st.of_comparisons(comparisons, best, runs, Criteria())
    return lines_of(cautions_section(found))


def test_a_sweep_has_the_cautions_of_its_runs_or_none(tmp_path):
    values = [0.8, 0.825, 0.775, 0.75, 0.8, 0.85, 0.775, 0.8]
    sweep = write_sweep(tmp_path / "sweep", {"add": values, "concat": values}, settings=DRAWN)
    assert of_sweep(sweep) == []
    more = {"settings": DRAWN, "best_evaluation": 2, "evaluations": 2}
    write_sweep(tmp_path / "last", {"add": values, "concat": values}, **more)
    assert of_sweep(tmp_path / "last") == [f"caution: {st.LAST}"]


def test_own_best_values_of_a_sweep_were_tuned_once(tmp_path):
    for scale, score in ((1, 0.6), (2, 0.7)):
        write_sweep(
            tmp_path / "sweep", {"add": [score + 0.1] * 2, "concat": [score] * 2},
            variant=f"model.token_scale={scale}", settings={"model.token_scale": scale},
            validation={"accuracy": score}, best_evaluation=2, evaluations=2,
        )  # fmt: skip
    lines = [f"caution: {text}" for text in (st.FEW, st.TUNED, st.EDGE)]
    assert of_sweep(tmp_path / "sweep") == lines  # LAST is not known of the chosen values alone


def test_own_best_values_have_the_cautions_of_their_own_variant(tmp_path):
    for split, variant in (("seed", "data.split_seed=seed__"), (0, "data.split_seed=0__")):
        for scale, score in ((1, 0.6), (2, 0.7)):
            write_sweep(
                tmp_path / "sweep", {"add": [score + 0.1] * 2, "concat": [score] * 2},
                variant=f"{variant}model.token_scale={scale}", validation={"accuracy": score},
                settings={"model.token_scale": scale, "data.split_seed": split},
            )  # fmt: skip
    lines = of_sweep(tmp_path / "sweep")
    for split, text in ((0, st.ONE_SPLIT), ("seed", st.ONE_TEST)):
        (line,) = (line for line in lines if text in line)
        assert f"concat data.split_seed={split}" in line


def test_another_studys_table_has_the_cautions_that_its_numbers_show(tmp_path):
    table, page = tmp_path / "table.csv", tmp_path / "out" / "index.html"
    options = ["--from", table, "--baseline", "a", "--out", page.parent]
    a, b = [60, 61, 62, 60, 61, 62, 60, 61], [20, 21, 22, 20, 21, 22, 70, 71]
    for runs, unit, more, expected, least in (
        (8, 1, [], [f"caution: {st.GROUPS} (table b)"], "12.5 points"),
        (7, 1, [], [f"caution: {st.FEW}", f"caution: {st.GROUPS} (table b)"], "12.5 points"),
        (8, 100, ["--unit", "raw", "--margin", 0.6], [], ""),  # closer than the margin
        (8, 100, ["--unit", "raw", "--margin", 0.1], [f"caution: {st.GROUPS} (table b)"],
         "the margin"),
    ):  # fmt: skip
        values = {"seed": range(runs), "a": a[:runs], "b": b[:runs]}
        rows = pd.DataFrame(values).melt("seed", var_name="method", value_name="accuracy")
        rows.assign(accuracy=rows["accuracy"] / unit).to_csv(table, index=False)
        printed = reported(*options, *more).splitlines()
        assert [line for line in printed if line.startswith("caution: ")] == expected
        assert (f"means also differ by at least {least}." in page.read_text()) == bool(least)
    assert "Limits of the verdicts" in page.read_text()
