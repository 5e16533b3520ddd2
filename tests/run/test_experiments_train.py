"""Every protocol of an experiment and the study for a GPU train one batch on a small corpus."""

import math

import pytest

from posfuse.process import precision
from posfuse.runs.checks import checked
from posfuse.study import configurations
from posfuse.study.reading import read_study
from posfuse.train import train
from small_runs import ONE_BATCH, composed, write_corpus


@pytest.mark.parametrize(
    ("experiment", "data", "more", "metric"),
    [
        ("quickstart", "bbc_article", [], "accuracy"),
        ("table1", "imdb", [], "accuracy"),
        ("table3", "arxiv", [], "accuracy"),
        ("controls", "listops", [], "accuracy"),
        ("language_model", "bbc_bytes", ["encoding=none"], "bits_per_byte"),
        pytest.param("copy_reverse", "reverse", ["encoding=t5", "fusion=none"], "exact_match",
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_one_batch_trains(experiment, data, more, metric, tmp_path):
    if metric == "accuracy":  # a small corpus in the place of the experiment's
        corpus = write_corpus(tmp_path / "corpus", n_classes=4)
        more = [f"data={data}", f"data.path={corpus}", "data.corpus=null"]
    given = [f"experiment={experiment}", f"data={data}", *more, f"cache_dir={tmp_path / 'cache'}"]
    record = train(checked(composed(*given, *ONE_BATCH)), tmp_path / "run")
    assert (record["data"], record["epochs"]) == (data, 1)
    for found in (record["test"], *record.get("lengths", {}).values()):
        assert math.isfinite(found[metric])


@pytest.mark.slow
def test_one_batch_of_each_arm_of_the_study_for_a_gpu_trains(tmp_path):
    _, study = read_study("long_published_gpu")
    corpus = write_corpus(tmp_path / "corpus", n_classes=11)
    small = ["data.max_len=64", "data.batch_size=4", "data.eval_batch_size=4"]
    place = [f"data.path={corpus}", f"cache_dir={tmp_path / 'cache'}"]
    arms = configurations.compose(study, study.arms, [*place, *ONE_BATCH[2:], *small])
    for arm, (config, *_) in arms.items():
        config.trainer.precision = precision.precision_of(config)  # as the command does
        record = train(config, tmp_path / arm)
        assert (record["data"], record["epochs"]) == ("arxiv_papers", 1)
        assert record["fusion_parameters"] > 0 or config.fusion["name"] == "add"
