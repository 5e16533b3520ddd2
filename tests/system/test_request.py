"""What is done is seen to be done without composing a config, and nothing else is."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from posfuse.config import CONF_DIR
from posfuse.runs import records, request
from small_runs import composed, small_config, small_overrides, write_corpus


def sources(*folders):
    """What Hydra says of where its configs come from, the folders in place of conf/."""
    given = composed(hydra_too=True).hydra.runtime.config_sources
    given[1].path = str(folders[0])
    return given + [{"path": str(f), "schema": "file", "provider": "x"} for f in folders[1:]]


@pytest.fixture
def conf(tmp_path):
    return shutil.copytree(CONF_DIR, tmp_path / "conf")


def test_a_request_is_its_overrides_and_the_files(conf, tmp_path) -> None:
    basis = request.basis(sources(conf))
    one = request.digest(basis, ["seed=1", "fusion=add"])
    assert one == request.digest(request.basis(sources(conf)), ["seed=1", "fusion=add"])
    assert one != request.digest(basis, ["seed=2", "fusion=add"])
    (tmp_path / "more").mkdir()
    assert request.basis(sources(conf, tmp_path / "more")) == basis
    (tmp_path / "more" / "new.yaml").write_text("seed: 3\n")
    assert request.basis(sources(conf, tmp_path / "more")) != basis
    path = conf / "model" / "small.yaml"
    path.write_text(path.read_text().replace("64", "65"))
    assert request.basis(sources(conf)) != basis


def test_what_the_environment_can_decide_is_composed(conf) -> None:
    basis = request.basis(sources(conf))
    assert request.digest(basis, ["seed=${oc.env:SEED}"]) is None
    (conf / "model" / "mine.yaml").write_text("d_model: ${oc.env:WIDTH}\n")
    assert request.basis(sources(conf)) is None
    assert request.digest(None, ["seed=1"]) is None


def test_what_comes_from_an_unknown_place_is_composed(conf) -> None:
    given = sources(conf)
    given[0].path = "some.package"
    assert request.basis(given) is None


@pytest.fixture
def done(tmp_path):
    """A finished run's config, folder and corpus, and its request."""
    corpus = write_corpus(tmp_path / "corpus")
    cfg, folder = small_config(corpus), tmp_path / "sweep" / "tiny" / "seed=0"
    folder.mkdir(parents=True)
    record = {**records.identity(cfg, folder), "test": {"accuracy": 0.5}}
    records.write_json(folder / records.RESULT, record)
    (folder / records.PREDICTIONS).touch()
    request.remember(folder, "asked", cfg, record)
    return folder, corpus, record


def found(folder: Path):
    return request.finished(folder.parents[1])


def test_a_whole_record_is_found_by_its_request(done) -> None:
    folder, _, record = done
    assert found(folder) == {"asked": record}


def spoil_predictions(folder, corpus):
    (folder / records.PREDICTIONS).unlink()


def spoil_result(folder, corpus):
    (folder / records.RESULT).write_text("{")


def spoil_removed(folder, corpus):
    (folder / records.RESULT).unlink()


def spoil_fingerprint(folder, corpus):
    record = records.read_result(folder / records.RESULT)
    records.write_json(folder / records.RESULT, {**record, "fingerprint": "another"})


def spoil_request(folder, corpus):
    (folder / request.REQUEST).write_text("[]")


def spoil_texts(folder, corpus):
    frame = pd.read_parquet(corpus / "test.parquet")
    frame.assign(text=frame["text"] + " more").to_parquet(corpus / "test.parquet")


def spoil_texts_removed(folder, corpus):
    shutil.rmtree(corpus)


SPOILT = [spoil_predictions, spoil_result, spoil_removed, spoil_fingerprint, spoil_request,
          spoil_texts, spoil_texts_removed]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_run_that_is_not_done_any_more_is_left_to_its_job(done, spoil) -> None:
    folder, corpus, _ = done
    spoil(folder, corpus)
    assert found(folder) == {}


# A process that counts the configs it composes, and says whether it has imported torch.
SWEEP = """
import sys
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from posfuse.train import main
composed = 0
compose = ConfigLoaderImpl.load_sweep_config
def count(*arguments, **named):
    global composed
    composed += 1
    return compose(*arguments, **named)
ConfigLoaderImpl.load_sweep_config = count
try:
    main()
finally:
    print("composed", composed, "torch" in sys.modules)
"""


def test_a_sweep_composes_only_what_is_left_to_do(tmp_path) -> None:
    overrides = [*small_overrides(write_corpus(tmp_path / "corpus")), "trainer.limit_batches=1"]

    def sweep(*more):
        command = [sys.executable, "-c", SWEEP, "-m", *overrides, *more]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    first = sweep("seed=0,1,2")
    assert first.count("test accuracy") == 3
    assert "composed 6 True" in first  # to be sure that they are legal, and to run them
    again = sweep("seed=0,1,2")
    lines = [line.split(",")[0] for line in first.splitlines() if "test accuracy" in line]
    cells = [line.split(":")[0] for line in lines]
    accuracies = [line.split()[-1] for line in lines]
    assert again.splitlines() == [
        *(f"{cell}: done already, test accuracy {accuracy}"
          for cell, accuracy in zip(cells, accuracies, strict=True)),
        "composed 0 False",
    ]  # fmt: skip
    more = sweep("seed=0,1,2,3", "fusion=add,concat")
    assert more.count("done already") == 3
    assert more.count("best epoch") == 5
