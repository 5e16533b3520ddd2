"""Trains one batch of the first run of every `posfuse train` in README.md and the docs."""

import pandas as pd
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from posfuse.process import precision
from posfuse.runs.checks import checked
from posfuse.train import train
from recipes import commands, jobs, own_files
from small_runs import ONE_BATCH, composed, replaced, write_corpus

ON_HUB = ("data=agnews", "data=imdb", "data=arxiv")  # not to be loaded by a test
TRAINED = [
    case
    for case in commands()
    if case.values[1][:2] == ["posfuse", "train"]
    and "--cfg" not in case.values[1]
    and "host=transformers" not in case.values[1]  # test_hosts.py trains pretrained models
]


@pytest.mark.parametrize(("page", "words"), TRAINED)
def test_one_batch_of_a_command_trains(page, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_files(page, tmp_path, monkeypatch)
    for path in write_corpus(tmp_path / "FOLDER", n_classes=4).iterdir():
        short = pd.read_parquet(path)
        short.assign(text=100 * (short["text"] + " ")).to_parquet(path)  # up to 1,200 words
    (tmp_path / "input.txt").write_text("To be, or not to be.\n\n" * 200)
    tokenizer = Tokenizer(WordLevel({"<unk>": 0, "w1x1": 1}, unk_token="<unk>"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (first, *_) = jobs(words[2:])
    run = [o for o in first if not o.startswith(("hydra/", "hydra.launcher", "hydra.sweeper"))]
    given = [f"cache_dir={tmp_path.parent / 'cache'}"]
    if any(o.startswith(ON_HUB) for o in run) or "experiment=table1" in run:
        run = [o for o in run if not o.startswith(("data.text=", "data.labels=", "data.splits."))]
        given += ["data.corpus=null", f"data.path={tmp_path / 'FOLDER'}"]
    cfg = checked(composed(*replaced([*run, *ONE_BATCH, *given])))
    cfg.trainer.precision = precision.precision_of(cfg)  # as the command does
    record = train(cfg, tmp_path / "run")
    assert record["epochs"] == 1
    assert record["test"]
