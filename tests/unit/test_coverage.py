"""The warning for texts of which a run's tokens say little."""

import html

import pandas as pd
import pytest

from posfuse.config import LoggerConfig
from posfuse.runs.checks import checked
from posfuse.runs.coverage import coverage_warning, training_lengths
from posfuse.runs.identity import flatten
from posfuse.runs.records import RESULT, read_result
from posfuse.tracking.projection import Finished
from small_records import reported, write_record
from small_runs import composed

SPLITS = ("train", "validation", "test")
CHARACTERS = "set data.vocabulary.unit=characters for texts without spaces between words"
MORE = "lower data.vocabulary.min_count or raise data.vocabulary.max_size"


def record(unknown=(0.0, 0.0, 0.0), tokens=(9.0, 9.0, 9.0), unit="words", **settings):
    return {
        "data": "zh",
        "settings": {"data.vocabulary.unit": unit, **settings},
        "unknown_share": dict(zip(SPLITS, unknown, strict=True)),
        "mean_tokens": dict(zip(SPLITS, tokens, strict=True)),
    }


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (record((0.1, 0.2, 0.3)),
         f"zh: 30% of the tokens of test are <unk>; {CHARACTERS}, or {MORE}"),
        (record((0.49, 0, 0), unit="characters"),
         f"zh: 49% of the tokens of train are <unk>; {MORE}"),
        (record((0, 0.5, 0), **{"host.name": "transformers"}),
         "zh: 50% of the tokens of validation are <unk>; use a model whose tokenizer has tokens "
         "for these texts"),
        (record((0, 0, 0.5), **{"data.vocabulary.file": "a digest"}),
         "zh: 50% of the tokens of test are <unk>; take a tokenizer that was trained on such "
         "texts"),
        (record(tokens=(3.0, 3.0, 2.96)),
         f"zh: a document of test has 2.96 tokens on average; {CHARACTERS}"),
        (record((0.29, 0.29, 0.29), (3.0, 3.0, 3.0)), None),
        (record(tokens=(2.0, 2.0, 2.0), unit="characters"), None),
        (record(tokens=(2.0, 2.0, 2.0), **{"data.corpus.test_lengths": [40]}), None),
        ({"data": "old", "settings": {}, "mean_tokens": {"train": 9.0}}, None),
        (record((float("nan"),) * 3), None),
    ],
)  # fmt: skip
def test_it_names_the_option_that_helps(found, line) -> None:
    assert coverage_warning(flatten(found)) == line


def test_the_documents_of_a_task_that_needs_no_labels_are_counted_without_them(tmp_path) -> None:
    for split in SPLITS:
        pd.DataFrame({"text": ["a b c", "a", "a b"]}).to_parquet(tmp_path / f"{split}.parquet")
    place = ["data=folder", f"data.path={tmp_path}", f"cache_dir={tmp_path / 'cache'}"]
    own = ["task.name=own", "task._target_=posfuse.training.task.NextTokenTask"]
    cfg = checked(composed(*place, *own, "trainer.monitor=loss"))
    assert training_lengths(cfg, lambda: None).tolist() == [1, 2, 3]


def test_the_report_and_wandb_show_it_once(tmp_path) -> None:
    more = record((0.5, 0.4, 0.4))
    line = coverage_warning(flatten(more))
    done = {"best_epoch": 1, "validation": {"accuracy": 0.5}, "seconds": {"fit": 1.0}}
    shares = {key: more[key] for key in ("unknown_share", "settings")}
    run, _ = (write_record(tmp_path, 0.5, "add", s, "zh", **done, **shares) for s in (0, 1))
    other = write_record(tmp_path, 0.5, "add", 0, "en", **done)
    text = reported(tmp_path)
    page = html.unescape(next(tmp_path.rglob("index.html")).read_text())
    assert text.count(line) == page.count(line) == 1
    assert "<unk>" not in text.replace(line, "")
    for folder, expected in ((run, line), (other, None)):
        steps = [{"trainer/global_step": 4, "epoch": 1}]
        uploaded = Finished(folder, "", read_result(folder / RESULT), LoggerConfig(), steps, [])
        assert uploaded.summary.get("warning") == expected
