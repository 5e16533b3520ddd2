"""data.test_lengths: refused values, the further test splits, and what the report makes of them:
the area beyond the trained length, tables, claim and figure."""

import json
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from posfuse.config import longest
from posfuse.data.token_store import open_store
from posfuse.evidence.collect import collect
from posfuse.report.figures.svg import save
from posfuse.report.sections.by_test_length import length_tables, results_by_length
from posfuse.runs import identity, records
from posfuse.runs.checks import checked
from posfuse.runs.identity import LATER_KEYS
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.lengths import area, beyond, by_test_length, length_cells
from posfuse.training.build import build_data, build_network
from posfuse.verdicts.claims import Claim, Claims, judge_claims
from refusals import refusal
from small_records import write_record
from small_runs import composed, small_config, texts_of

TASK = ["data=even_pairs", "data.corpus.sizes=[200,20,30]", "data.corpus.lengths=[2,12]",
        "data.max_len=12"]  # fmt: skip


def test_a_task_can_be_tested_at_any_of_its_lengths() -> None:
    for lengths in ("[]", "[2]", "[7,12,500]"):
        cfg = checked(composed(*TASK, f"data.test_lengths={lengths}"))
        assert cfg.data.corpus["test_lengths"] == cfg.data.test_lengths == json.loads(lengths)


def test_the_model_is_built_for_the_longest_document() -> None:
    usual = checked(composed("data.max_len=60"))
    longer = checked(composed("data.max_len=60", "data.test_lengths=[70,200]"))
    shorter = checked(composed(*TASK, "data.test_lengths=[2,7]"))
    assert [longest(cfg.data) for cfg in (usual, longer, shorter)] == [60, 200, 12]
    tables = [build_network(cfg, 20, 2).table() for cfg in (usual, longer)]
    assert [len(table) for table in tables] == [60, 200]
    assert (tables[0] == tables[1][:60]).all()


def test_runs_without_test_lengths_keep_their_fingerprint() -> None:
    cfg = checked(composed())
    assert identity.settings(cfg).keys().isdisjoint(LATER_KEYS)
    longer = checked(composed("data.test_lengths=[300]"))
    assert identity.settings(longer) == identity.settings(cfg) | {"data.test_lengths": [300]}
    assert identity.fingerprint(longer) != identity.fingerprint(cfg)


def test_splits_that_cannot_be_made_are_refused(corpus, tmp_path) -> None:
    processes = ["data.max_len=11", "data.test_lengths=[12]", "trainer=ddp", "trainer.devices=16"]
    no_longer = small_config(corpus, "data.max_len=12", "data.test_lengths=[20]")
    too_few = small_config(corpus, *processes)
    one_label = checked(composed(*TASK, f"cache_dir={tmp_path}", "data.limit=1"))
    for cfg, message in (
        (no_longer, r"data\.test_lengths: no test document of tiny has more"),
        (too_few, r"trainer\.devices: test@12 has \d documents for 16"),
        (one_label, r".*cannot take 1 of 200 documents .* of classes = 2\); change data\.limit"),
    ):
        assert re.match(message, refusal(build_data, cfg))


def test_a_tasks_strings_have_exactly_the_length_and_are_kept_on_disk(tmp_path) -> None:
    asked = ["data.test_lengths=[12,30]", f"cache_dir={tmp_path}"]
    data = build_data(checked(composed(*TASK, *asked)))
    for length in (12, 30):
        documents = data.documents[f"test@{length}"]
        assert documents.lengths.tolist() == [length] * 30
        assert np.bincount(documents.split.labels).tolist() == [15, 15]
        texts = texts_of(data, f"test@{length}").values()
        assert [text[0] != text[-1] for text in texts] == documents.split.labels.tolist()
    assert data.facts()["documents"] == {"train": 200, "validation": 20, "test": 30}
    assert set(data.facts()["unknown_share"]) == {"train", "validation", "test"}
    again = open_store(data.cfg, tmp_path)
    assert list(again.splits) == ["train", "validation", "test", "test@12", "test@30"]
    limited = replace(data.cfg, limit=10)
    assert [len(part.labels) for part in open_store(limited, tmp_path).splits.values()] == [10] * 5


LENGTHS = {"80": {"accuracy": 0.75, "loss": 0.5, "documents": 40}}


def test_a_run_is_finished_only_with_its_predictions_by_length(corpus, tmp_path) -> None:
    cfg = small_config(corpus, "data.max_len=6", "data.test_lengths=[8]")
    (tmp_path / "checkpoints").mkdir()
    names = (records.PREDICTIONS, records.HISTORY, records.DIAGNOSTICS, records.BEST)
    for name in (*names, records.BY_LENGTH):
        (tmp_path / name).write_text(name)
    record = {**records.identity(cfg, tmp_path), "test": {"accuracy": 0.5}, "lengths": LENGTHS}
    records.write_result(tmp_path, record)
    assert records.finished_record(tmp_path, cfg)["lengths"] == LENGTHS
    (tmp_path / records.BY_LENGTH).write_text("other")
    assert records.finished_record(tmp_path, cfg) is None


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
