"""The length axis of the report: the area beyond the trained length, tables, claim and figure."""

from itertools import product

import numpy as np
import pytest

from posfuse.evidence.collect import collect
from posfuse.report.figures.svg import save
from posfuse.report.sections.by_test_length import length_tables, results_by_length
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.lengths import area, beyond, by_test_length, length_cells
from posfuse.verdicts.claims import Claim, Claims, judge_claims
from small_records import write_record

CRITERIA = Criteria()
# Accuracies at 16 (trained), 32 and 128, by fusion and seed. The area is the mean of the last two.
AT = {
    "add": [(0.9, 0.6, 0.5), (0.8, 0.7, 0.4), (0.7, 0.5, 0.5)],
    "concat": [(0.9, 0.9, 0.7), (0.8, 0.8, 0.8), (0.6, 0.9, 0.6)],
}
TRAINED = {"settings": {"data.max_len": 16}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("lengths") / "sweep"
    for fusion, seed in product(AT, range(3)):
        by_length = zip(("16", "32", "128"), AT[fusion][seed], strict=True)
        lengths = {length: {"accuracy": accuracy} for length, accuracy in by_length}
        write_record(root, 0.5, fusion, seed, lengths=lengths, **TRAINED)
    return collect(root)[0]


def test_the_area_is_the_mean_over_the_logarithm_of_the_longer_lengths():
    accuracies = {10: 90.0, 20: 80.0, 40: 60.0, 160: 30.0}
    assert area(accuracies, 40) == 30
    # Over log2: 40 to 160 is twice as wide as 20 to 40. (1 * 70 + 2 * 45) / 3 = 53.33.
    assert area(accuracies, 10) == pytest.approx(160 / 3)
    assert np.isnan(area(accuracies, 160))


def test_areas_are_compared_seed_by_seed(runs):
    longer = beyond(runs)
    assert longer["test.accuracy"].round(9).tolist() == [0.55, 0.55, 0.5, 0.8, 0.8, 0.75]
    (row,) = compare(longer, CRITERIA)[0].to_dict("records")
    assert row["deltas"] == pytest.approx([25, 25, 25])
    assert runs["test.accuracy"].tolist() == [0.5] * 6  # the frame itself is unchanged


def test_equal_areas_are_judged_by_the_documents_of_the_longer_tests(tmp_path):
    """Of texts, only some test documents are longer than those of training."""
    for fusion, seed in product(("add", "concat"), range(3)):
        lengths = {"32": {"accuracy": 0.75, "documents": 4}, "16": {"accuracy": 0.5}}
        write_record(tmp_path, 0.5, fusion, seed, lengths=lengths, **TRAINED)
    runs = collect(tmp_path)[0]
    (row,) = compare(beyond(runs), CRITERIA)[0].to_dict("records")
    assert (row["resolution"], row["verdict"]) == (25, "undecided")


def test_the_table_has_each_length_and_the_area(runs):
    rows = by_test_length(runs)
    assert len(rows) == 18
    cells = length_cells(rows)
    assert cells[["16", "32", "128"]].to_numpy() == pytest.approx(
        np.array([[80, 60, 140 / 3], [230 / 3, 260 / 3, 70]])
    )
    tables = length_tables(rows, rows.iloc[:0], compare(beyond(runs), CRITERIA)[0], CRITERIA)
    assert tables[0].columns[3:] == ["16", "32", "128", "beyond"]
    assert [row[-1] for row in tables[0].rows] == ["53.33 ± 2.89 (3)", "78.33 ± 2.89 (3)"]
    assert tables[1].name == "beyond"
    assert "+25.00" in " ".join(tables[1].rows[0])


def test_a_run_without_a_test_at_its_trained_length_has_its_ordinary_test_there(tmp_path):
    write_record(tmp_path, 0.5, "add", lengths={"32": {"accuracy": 0.75}}, **TRAINED)
    write_record(tmp_path, 0.9, "concat")  # no test lengths at all
    runs = collect(tmp_path)[0]
    rows = by_test_length(runs)
    assert rows["fusion"].tolist() == ["add", "add"]
    assert rows[["test_length", "value"]].to_numpy().tolist() == [[16, 50], [32, 75]]
    assert beyond(runs)["fusion"].tolist() == ["add"]
    nothing = runs.iloc[:0]
    assert [t.name for t in length_tables(rows, nothing, nothing, CRITERIA)] == ["lengths"]


def test_a_number_that_no_text_has_as_its_length_is_left_out(tmp_path):
    """A table cannot hold the largest of these numbers."""
    lengths = {key: {"accuracy": 0.5} for key in ("0", "032", "32", "9" * 20, "9" * 5000)}
    write_record(tmp_path, 0.9, lengths=lengths, **TRAINED)
    rows = by_test_length(collect(tmp_path)[0])
    assert rows["test_length"].tolist() == [16, 32]


def test_claims_of_kind_extrapolates_are_about_the_area(runs):
    rng = np.random.default_rng(0)
    noisy = runs.copy()
    for name in ("lengths.32.accuracy", "lengths.128.accuracy"):
        noisy[name] += rng.normal(0, 0.01, len(noisy))
    plain, longer = (compare(frame, CRITERIA)[0] for frame in (noisy, beyond(noisy)))

    def judged(margin=None, kind="extrapolates", beyond=longer):
        claim = Claim("c", "t", kind, where={"fusion": "concat"}, margin=margin)
        return judge_claims(Claims(claims=[claim]), {"accuracy": (plain, beyond)}, CRITERIA)[0]

    assert judged().verdict == "supported"
    assert judged(margin=40).verdict == "refuted"
    assert judged(kind="gain").verdict == "undecided"  # no difference inside
    untested = judged(beyond=longer[:0])
    assert untested.verdict == "undecided"
    assert untested.settle == "needs runs tested beyond data.max_len with fusion=concat"


def test_the_figure_draws_every_mean_and_shades_the_trained_lengths(runs, tmp_path):
    figure = results_by_length(by_test_length(runs), {"tiny": 50.0})
    (axis,) = figure.axes
    drawn = [line.get_ydata() for line in axis.lines if len(line.get_xdata()) == 3]
    assert drawn == [pytest.approx([80, 60, 140 / 3]), pytest.approx([230 / 3, 260 / 3, 70])]
    (shaded,) = [p for p in axis.patches if p.get_width() > 1]
    assert shaded.get_x() + shaded.get_width() == 16
    assert "16: 80.0 %, 32: 60.0 %" in save(figure, tmp_path, "f")
    (band, _) = axis.collections
    assert band.get_paths()[0].vertices[:, 1].max() <= 100
    equal = by_test_length(runs.assign(**{"lengths.32.accuracy": 0.5}))
    parts = results_by_length(equal, {"tiny": 50}).axes[0].collections
    banded = {x for part in parts for path in part.get_paths() for x in path.vertices[:, 0]}
    assert 32 not in banded  # all are equal there
