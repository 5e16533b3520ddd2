"""Reports of bits per byte: lower is better, in every number and every sentence."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from posfuse.evidence.collect import collect
from posfuse.evidence.metric import ACCURACY, BITS_PER_BYTE, METRICS, metric_of
from posfuse.evidence.saved import read_windows
from posfuse.report import page
from posfuse.report.entry import sections_of
from posfuse.report.sections import paper
from posfuse.report.sweep import Sweep
from posfuse.runs.measurements import LOSS_BY_POSITION, WHOLE, Measurement, table_of, write_table
from posfuse.runs.records import MECHANISM
from posfuse.statistics.budget import budgets
from posfuse.statistics.comparisons import Criteria, cells, compare, criteria_for, step_of
from posfuse.statistics.over_documents import hierarchical_bootstrap
from posfuse.statistics.own_best import own_best
from posfuse.verdicts.claims import Claim, Claims
from posfuse.verdicts.sentences import size_text
from refusals import refusal
from small_records import posfuse_report, reported, write_record

CRITERIA = criteria_for(Criteria(), BITS_PER_BYTE)
# Bits per byte by operator and seed, and at twice the trained length.
BITS = {"add": [2.5, 2.6, 2.4], "concat": [2.4, 2.48, 2.31], "mul": [2.5004, 2.6002, 2.3998]}
LONGER = {"add": [3.0, 3.0, 3.0], "concat": [3.1, 3.2, 3.3], "mul": [3.0, 3.1, 3.0]}


def write(root, fusion, seed, bits, at_32, **more):
    # Accuracy says the contrary of bits: it is highest where bits are highest.
    results = {"accuracy": bits / 10, "bits_per_byte": bits}
    folder = write_record(
        root, bits / 10, fusion, seed, "text", test=results, validation=results, label_names=[],
        lengths={"32": {"accuracy": 0.5, "bits_per_byte": at_32}},
        sliding={n: {"accuracy": 0.5, "bits_per_byte": at_32 - 1} for n in ("16", "32")},
        settings={"data.max_len": 16, "task.name": "language_model", **more.pop("settings", {})},
        **more,
    )  # fmt: skip
    epochs = {"epoch": [1, 2], "val_accuracy": [0.1, 0.2], "val_bits_per_byte": [bits + 1, bits]}
    pd.DataFrame(epochs).to_csv(folder / "history.csv", index=False)
    # Four windows of ten bytes from two articles. Their mean is `bits`.
    part = np.array([-0.2, 0.1, 0.3, -0.2]) * (1 + seed / 10)
    windows = {"index": range(4), "group": [0, 0, 5, 5], "targets": 10, "right": 1}
    frame = pd.DataFrame({**windows, "loss": (bits + part) * 10 * np.log(2)})
    frame.to_parquet(folder / "predictions.parquet", index=False)
    rows = [Measurement(LOSS_BY_POSITION, WHOLE, 10, 2 - n / 10, n, 2 * n) for n in (1, 2)]
    write_table(folder / MECHANISM, table_of(Measurement, rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("metric") / "sweep"
    for fusion, values in BITS.items():
        for seed, bits in enumerate(values):
            write(root, fusion, seed, bits, LONGER[fusion][seed])
    return root


@pytest.fixture(scope="module")
def runs(folder):
    return collect(folder)[0]


def sweep_of(folder, runs, claims=(), criteria=CRITERIA):
    return Sweep(str(folder), runs, criteria, Claims(claims=list(claims)), own_claims=True)


def test_a_half_is_rounded_in_one_direction_whatever_sum_it_comes_from():
    values = (3.125, 3.125 + 4e-15, 3.125 - 4e-15)
    assert {ACCURACY.signed(value) for value in values} == {"+3.12"}
    assert (ACCURACY.number(-1e-9), ACCURACY.number(np.nan)) == ("0.00", "nan")


def test_windows_that_overlap_have_a_table_of_their_own(folder, runs):
    sections = sections_of(sweep_of(folder, runs))
    tables = {table.name: table for section in sections for table in section.tables}
    whole, sliding = tables["lengths"], tables["sliding"]
    assert (whole.columns[-3:], sliding.columns[-2:]) == (["16", "32", "beyond"], ["16", "32"])
    assert "do not overlap" in whole.caption
    assert [row[-1] for row in sliding.rows] == ["2.0000", "2.2000", "2.0333"]


@pytest.mark.parametrize("column", ["index", "group", "targets", "loss"])
def test_windows_with_a_missing_value_are_refused(column, tmp_path):
    write(tmp_path, "add", 0, BITS["add"][0], LONGER["add"][0])
    (run,) = collect(tmp_path)[0].to_dict("records")
    path = Path(run["folder"]) / "predictions.parquet"
    frame = pd.read_parquet(path).convert_dtypes()
    frame.loc[4] = frame.loc[3]  # another window, without this value
    frame.loc[4, column] = pd.NA
    frame.to_parquet(path, index=False)
    expected = f"{path}: not usable ({column} has missing values); remove it to run again"
    assert refusal(read_windows, run, BITS_PER_BYTE) == expected


def test_a_difference_is_the_operator_minus_addition(runs):
    rows = compare(runs, CRITERIA)[0].set_index("fusion")
    assert rows["deltas"]["concat"] == pytest.approx([-0.1, -0.12, -0.09])
    assert rows["wins"].tolist() == pytest.approx([1, 1 / 3])
    assert np.isnan(rows["resolution"]["concat"])  # bits are no share of documents
    # mul is worse by far less than the margin of 0.01 bits.
    assert rows["p_equivalence_holm"]["mul"] < 0.05 < rows["p_equivalence_holm"]["concat"]
    of_accuracy = compare(runs, Criteria())[0].set_index("fusion")
    assert of_accuracy["deltas"]["concat"] == pytest.approx([-1, -1.2, -0.9])


def test_windows_are_resampled_with_their_articles(folder, runs):
    statistics = sweep_of(folder, runs).documents[0].statistics.set_index("fusion")
    concat = statistics.loc["concat"]
    assert (concat["n_documents"], concat["n_groups"]) == (4, 2)
    assert concat["documents_mean"] == pytest.approx(-0.31 / 3)
    # Every window of a seed differs as much, so the interval is that of the seeds alone.
    alone = hierarchical_bootstrap(np.tile([[-0.1], [-0.12], [-0.09]], 4))
    assert (concat["documents_low"], concat["documents_high"]) == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize(
    ("metric", "gains"),
    [
        # Of 2, 4, 2 and 0 targets: 2, 1, 0 and 0 are right, and 1, 1, 0 and 0 are decoded.
        ("accuracy", [100 * 2 * 4 / 8, 100 * 1 * 4 / 8, 0, 0]),
        ("greedy_accuracy", [100 * 1 * 4 / 8, 100 * 1 * 4 / 8, 0, 0]),
        ("exact_match", [100, 0, 0]),  # a string without targets does not count
    ],
)
def test_strings_are_resampled_for_each_metric_of_answers(tmp_path, metric, gains):
    """One operator finds nothing, so a string's difference is what the other one finds."""
    strings = {"index": range(4), "group": range(4), "targets": [2, 4, 2, 0], "loss": 1.0}
    task = {"task.name": "language_model"}
    for seed, (fusion, right, greedy) in product(
        range(3), (("add", 0, 0), ("concat", [2, 1, 0, 0], [1, 1, 0, 0]))
    ):
        frame = pd.DataFrame({**strings, "right": right, "greedy_right": greedy})
        shares = frame.sum() / 8
        found = {"accuracy": shares["right"], "greedy_accuracy": shares["greedy_right"]}
        found["exact_match"] = float((frame["right"] == frame["targets"])[:3].mean())
        results = {"test": found, "validation": found}
        folder = write_record(tmp_path, 0.5, fusion, seed, "copy", settings=task, **results)
        frame.to_parquet(folder / "predictions.parquet", index=False)
        curve = {"epoch": [1, 2], f"val_{metric}": [0.1, found[metric]]}
        pd.DataFrame(curve).to_csv(folder / "history.csv", index=False)
    criteria = criteria_for(Criteria(), METRICS[metric])
    report = sweep_of(tmp_path, collect(tmp_path)[0], criteria=criteria)
    (row,) = report.documents[0].statistics.to_dict("records")
    assert row["documents_mean"] == pytest.approx(np.mean(gains))
    assert (row["document_seeds"], row["n_documents"]) == ([0, 1, 2], len(gains))
    assert page.problems_of(sections_of(report)) == []


def test_a_mark_of_a_metric_without_a_unit_has_its_value_and_number_of_seeds(runs):
    axis, _ = paper.accuracy_latency(cells(runs, BITS_PER_BYTE), BITS_PER_BYTE).axes
    texts = [line.get_gid() for line in axis.lines if line.get_gid()]
    assert "title:text sinusoidal add: 2.5 ± 0.1, n=3" in texts


@pytest.mark.slow
def test_the_report_draws_the_figures_of_a_language_model(folder, runs, tmp_path):
    sections = sections_of(sweep_of(folder, runs))
    page.draw_all(sections, tmp_path)
    captions = {drawing.name: drawing.caption for s in sections for drawing in s.drawings}
    assert {"loss_by_position", "results_by_length", "learning_curves", "forest"} <= set(captions)
    assert "attention_by_distance" not in captions
    assert captions["results_by_length"].startswith("Bits per byte by test length")
    text = (tmp_path / "loss_by_position.svg").read_text()
    # The losses of 1.9 and 1.8 nats.
    assert "text sinusoidal add: 3: 2.741, 5: 2.597 bits, n=3" in text


def claim(name, kind, fusion="concat", metric="bits_per_byte", **more):
    where = {"data": "text", "encoding": "sinusoidal", "fusion": fusion}
    return Claim(name, "t", kind, where=where, metric=metric, **more)


def test_a_claim_may_name_the_metric(folder, runs):
    claims = [
        claim("bits", "gain"),
        claim("longer", "extrapolates"),
        claim("accuracy", "gain", metric="accuracy"),
        claim("small", "negligible", "mul"),
        claim("more", "gain", "mul", margin=0.01),
        claim("every", "every_seed_positive"),
        claim("absent", "gain", metric="exact_match"),
    ]
    for criteria in (CRITERIA, Criteria()):
        verdicts = sweep_of(folder, runs, claims, criteria).verdicts
        assert [v.verdict for v in verdicts] == [
            "supported", "undecided", "refuted", "supported", "refuted", *["undecided"] * 2
        ]  # fmt: skip
        assert verdicts[1].numbers[0].startswith("text sinusoidal concat: +0.2000, 95 %")
        assert verdicts[2].numbers[0].startswith("text sinusoidal concat: -1.03, 95 %")
        assert [v.tested for v in verdicts[3:6]] == [
            "each mean difference within ±0.01 bits per byte",
            "each mean difference below -0.01 bits per byte",
            "every difference below 0, by the sign test",
        ]
        assert verdicts[5].numbers[0].endswith("3 of 3 seeds below 0")
        assert verdicts[6].settle == "needs runs with the metric exact_match"


def test_the_best_setting_has_the_fewest_bits(tmp_path):
    key = "model.token_scale"
    for (scale, shift), fusion in product(
        {1.0: 0.3, 2.0: 0.0, 4.0: 0.2}.items(), ("add", "concat")
    ):
        for seed, bits in enumerate(BITS[fusion]):
            more = {"variant": f"{key}={scale}", "settings": {key: scale}}
            write(tmp_path, fusion, seed, bits + shift, 3.0, **more)
    own = own_best(collect(tmp_path)[0], CRITERIA)
    assert own.cells.query("best")["scale"].tolist() == ["2", "2"]
    assert own.best["deltas"][0] == pytest.approx([-0.1, -0.12, -0.09])
    # The expected fewest bits of one, two and three of the trials 2.8, 2.5 and 2.7.
    expected = budgets(own.cells, BITS_PER_BYTE)["expected"][0]
    assert expected == pytest.approx([8 / 3, (2.7 + 2.5 + 2.5) / 3, 2.5])


def test_the_report_compares_what_the_runs_are_judged_by():
    """As the log of a run: its task's own metric."""
    every = {}
    for name in (*METRICS, "error"):
        columns = {"task.metric": name, "test.accuracy": [0.9, 0.8], f"test.{name}": [0.1, 0.2]}
        every[name] = pd.DataFrame(columns)
        assert metric_of(every[name]) == METRICS.get(name, ACCURACY)
    assert metric_of(pd.concat([every["exact_match"], every["bits_per_byte"]])) == ACCURACY


def test_the_report_chooses_the_metric_that_all_runs_have(folder, runs, tmp_path):
    assert metric_of(runs) == BITS_PER_BYTE
    assert metric_of(runs, "accuracy") == ACCURACY
    assert ": concat - add: -0.1033 (" in reported(folder, "--out", tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "test bits per byte (negative: better), paired by seed" in page
    options = ["--metric", "accuracy", "--margin", "2"]
    assert "within ±2 points" in posfuse_report(folder, "--out", tmp_path, *options)[0]


def test_a_margin_is_kept_for_a_metric_of_the_same_unit():
    own = Criteria(margin=2, effect=3)
    assert criteria_for(own, METRICS["macro_f1"]).margin == 2
    assert criteria_for(own, BITS_PER_BYTE).margin == BITS_PER_BYTE.margin


def test_no_difference_has_no_minus():
    assert ACCURACY.signed(-0.0) == ACCURACY.signed(-0.004) == "+0.00"
    assert size_text(0.0, -1.0, 1.0, 1, direction=-1) == "0.0 (-1.0 to 1.0)"
    assert size_text(-50.0, -72.0, 0.0, 1, direction=-1) == "50.0 (0.0 to 72.0)"
    assert size_text(1.0, -0.04, 2.0, 1) == "+1.0 (-0.0 to +2.0)"  # it contains 0


def test_guessing_gives_one_of_the_classes():
    for name in ("accuracy", "macro_f1"):
        guesses = METRICS[name].guesses(pd.Series([5.0, 1.0])).tolist()
        assert guesses == pytest.approx([20.0, np.nan], nan_ok=True)


@pytest.mark.parametrize(("name", "difference"), [("accuracy", 0.0), ("macro_f1", 10.1)])
def test_a_report_of_macro_f1_is_about_it_alone(name, difference, tmp_path):
    """Macro F1 has no documents to resample, no step of one document, and no bag of words."""
    for fusion, gain in (("add", 0.0), ("concat", 0.1)):
        for seed in range(3):
            f1 = 0.3 + gain + seed * (1 + gain) / 100
            scores = {"accuracy": 0.9, "macro_f1": f1}
            write_record(tmp_path, 0.9, fusion, seed, test=scores, validation=scores)
    is_f1 = name == "macro_f1"
    assert ("macro F1" in posfuse_report(tmp_path, "--metric", name)[0]) == is_f1
    table = pd.read_csv(tmp_path / "report" / "tables" / "paired_differences.csv")
    assert table["mean"].tolist() == pytest.approx([difference])
    assert np.isnan(step_of(METRICS[name], 200)) == is_f1


def test_a_run_without_a_known_metric_is_left_out(tmp_path):
    write_record(tmp_path, 0.5, test={"error": 0.25})
    assert "has none of the metrics accuracy, macro_f1, exact_match" in refusal(collect, tmp_path)
    f1 = pd.DataFrame({"task.metric": "error", "test.macro_f1": [0.5, 0.6]})
    assert metric_of(f1).name == "macro_f1"
    line = "--metric: no metric 'accuracy' here; these runs have macro_f1"
    assert refusal(metric_of, f1, "accuracy") == line
    runs = pd.DataFrame({"test.accuracy": [0.5, None], "test.bits_per_byte": [None, 2.0]})
    line = "these runs have no metric in common; report them apart"
    assert refusal(metric_of, runs) == line
    assert refusal(metric_of, runs, "accuracy") == f"--metric: {line}"
