"""data.test_lengths: the values that are refused, the further test splits, and what reads them."""

import json
import re
from dataclasses import replace

import numpy as np

from posfuse.config import longest
from posfuse.data.token_store import open_store
from posfuse.evidence.collect import collect
from posfuse.runs import identity, records
from posfuse.runs.checks import checked
from posfuse.runs.identity import LATER_KEYS
from posfuse.training.build import build_data, build_network
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


def test_the_table_of_runs_has_the_accuracies_by_length(tmp_path) -> None:
    root = tmp_path / "sweep"
    write_record(root, 0.9, "add", lengths=LENGTHS, settings={"data.max_len": 16})
    write_record(root, 0.8, "concat")
    runs, problems = collect(root)
    assert not problems
    found = runs.set_index("fusion")
    assert found.loc["add", "lengths.80.accuracy"] == 0.75
    assert found.loc["add", "lengths.80.documents"] == 40
    assert np.isnan(found.loc["concat", "lengths.80.accuracy"])
    for wrong in ("high", 1.5, None):
        write_record(root, 0.9, f"mul_{wrong}", lengths={"160": {"accuracy": wrong}})
    runs, problems = collect(root)
    assert set(runs["fusion"]) == {"add", "concat"}
    assert len(problems) == 3
    assert all("lengths.160.accuracy is " in line for line in problems)


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
