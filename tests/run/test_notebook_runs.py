"""Runs with fidelity=notebook: what they record, and how the report pairs them."""

from itertools import product

import pytest
from omegaconf import OmegaConf

from posfuse.evidence.bag_of_words import bags_of_words
from posfuse.evidence.collect import collect
from posfuse.model.fusion import GateFeature
from posfuse.runs import identity, records
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.train import train
from posfuse.training.trained import load_run
from small_runs import SMALL, composed, write_corpus


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """The folder of four runs as the notebooks do them."""
    root = tmp_path_factory.mktemp("sweep")
    corpus = write_corpus(tmp_path_factory.mktemp("notebook") / "corpus", validation=False)
    given = ["data=agnews", f"data.path={corpus}", "data.batch_size=16", f"cache_dir={root}/cache"]
    for fusion, seed in product(("add", "gate_scalar"), (1, 2)):
        asked = ["fidelity=notebook", "encoding=rope", f"fusion={fusion}", f"seed={seed}"]
        folder = root / run_folder("agnews", "rope", fusion, seed, asked)
        folder.mkdir(parents=True)
        train(checked(composed(*given, *SMALL, "trainer.max_epochs=1", *asked)), folder)
    return root


def test_a_run_shows_what_ran_and_is_read_back(sweep) -> None:
    folder = sweep / "agnews" / "rope" / "gate_scalar" / "fidelity=notebook" / "seed=1"
    shown = OmegaConf.load(folder / "config.yaml")
    assert shown.fusion == {
        "name": "gate_scalar", "_target_": "posfuse.model.fusion.GateFeature", "start": "linear"
    }  # fmt: skip
    assert shown.encoding.table._target_ == "posfuse.model.encoding.RopeFeatures"
    assert shown.encoding.attention == {}
    assert (shown.fidelity.gate_scalar, shown.fidelity.rope) == ("feature", "table")
    record = records.read_result(folder / "result.json")
    assert record["variant"] == "fidelity=notebook"
    cfg, _, classifier = load_run(folder)
    assert identity.fingerprint(cfg) == record["fingerprint"]
    assert type(classifier.model.fusion) is GateFeature


def test_the_report_pairs_runs_whose_validation_split_follows_the_seed(sweep) -> None:
    runs, problems = collect(sweep)
    assert problems == []
    rows, notes = compare(runs, Criteria())
    assert rows[["fusion", "variant", "n"]].to_numpy().tolist() == [
        ["gate_scalar", "fidelity=notebook", 2]
    ]
    assert not [note for note in notes if "not compared" in note or "unpaired" in note]
    stores = sorted((sweep / "cache").glob("*/meta.json"))
    assert len(stores) == 2  # one a seed, shared by the operators
    bags, without = bags_of_words(runs)
    assert (set(bags), without) == ({("agnews", "fidelity=notebook")}, [])
    # Fitted on the documents that a run was trained on, not on a split of its own.
    assert sorted((sweep / "cache").glob("*/meta.json")) == stores
