"""Each source of randomness follows its own seed, or the run's."""

import pytest
import torch

from posfuse.model.network import seed_from
from posfuse.training.build import build_data, build_module
from small_runs import small_config, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("seeds") / "corpus")


def drawn(corpus, *overrides):
    """What a run draws: initial values, order of batches, dropout masks."""
    cfg = small_config(corpus, *overrides)
    data = build_data(cfg)
    classifier = build_module(cfg, data)
    values = torch.cat([p.detach().flatten() for p in classifier.model.parameters()])
    order = [batch.tolist() for batch in data.train_dataloader().sampler]
    return {"init": values.tolist(), "order": order, "dropout": classifier.seed}


def test_a_source_with_a_seed_of_its_own_is_that_of_a_run_with_this_seed(corpus):
    run, other = drawn(corpus, "seed=1"), drawn(corpus, "seed=0")
    for source in run:
        assert run[source] != other[source]
        mixed = drawn(corpus, "seed=1", f"seeds.{source}=0")
        for name in run:
            assert mixed[name] == (other if name == source else run)[name], (source, name)


def test_the_notebooks_order_follows_its_seed_too(corpus):
    cfg = small_config(corpus, "fidelity.batch_order=by_run", "seed=1", "seeds.order=2")
    assert build_data(cfg).seed == seed_from(2, "batch order", "sinusoidal", "add")
