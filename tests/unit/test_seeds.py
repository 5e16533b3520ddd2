"""Each source of randomness follows its own seed, or the run's; so do the splits."""

import torch
from omegaconf import OmegaConf

from posfuse.model.network import seed_from
from posfuse.runs import identity
from posfuse.runs.checks import checked
from posfuse.runs.seeds import split_seed, validation_seed, with_split_seed
from posfuse.training.build import build_data, build_module
from small_runs import KEEP_WORDS, composed, small_config, texts_of

GENERATED = ("bbc_lead_paragraph", "bbc_article", "bbc_digest", "bbc_lead_story", "listops",
             "parity", "indirect_index")  # fmt: skip


def drawn(corpus, *overrides):
    """What a run draws: initial values, order of batches, dropout masks."""
    cfg = small_config(corpus, *overrides)
    data = build_data(cfg)
    classifier = build_module(cfg, data)
    values = torch.cat([p.detach().flatten() for p in classifier.model.parameters()])
    order = [batch.tolist() for batch in data.train_dataloader().sampler]
    return {"init": values.tolist(), "order": order, "dropout": classifier.seed}


def test_a_source_with_a_seed_of_its_own_is_that_of_a_run_with_this_seed(two_splits):
    run, other = drawn(two_splits, "seed=1"), drawn(two_splits, "seed=0")
    for source in run:
        assert run[source] != other[source]
        mixed = drawn(two_splits, "seed=1", f"seeds.{source}=0")
        for name in run:
            assert mixed[name] == (other if name == source else run)[name], (source, name)


def test_the_notebooks_order_follows_its_seed_too(two_splits):
    cfg = small_config(two_splits, "fidelity.batch_order=by_run", "seed=1", "seeds.order=2")
    assert build_data(cfg).seed == seed_from(2, "batch order", "sinusoidal", "add")


# data.split_seed: a number, or the run's seed


def test_the_seed_reaches_every_generated_corpus_as_a_number() -> None:
    for data in GENERATED:
        for asked, expected in ((["data.split_seed=3"], 3), (["data.split_seed=seed"], 7)):
            cfg = checked(composed(f"data={data}", "seed=7", *asked))
            found = with_split_seed(cfg)
            assert (split_seed(cfg), validation_seed(cfg)) == (expected, expected)
            assert (found.split_seed, found.corpus["split_seed"]) == (expected, expected)
    fixed = checked(composed("seed=7", "data.split_seed=seed", "data.corpus.split_seed=2"))
    assert with_split_seed(fixed).corpus["split_seed"] == 2


def test_the_config_keeps_the_word() -> None:
    one, other = (checked(composed("data.split_seed=seed", f"seed={seed}")) for seed in (1, 2))
    assert one.data.split_seed == one.data.corpus["split_seed"] == "seed"
    assert identity.fingerprint(one) != identity.fingerprint(other)
    settings = [{**identity.settings(cfg), "seed": None} for cfg in (one, other)]
    assert settings[0] == settings[1]
    again = checked(OmegaConf.structured(one))  # as a run's config.yaml is read
    assert identity.fingerprint(again) == identity.fingerprint(one)


def test_runs_of_one_seed_share_their_splits_and_seeds_do_not(two_splits) -> None:
    asked = ["data.split_seed=seed", "data.limit=12", *KEEP_WORDS]
    by_seed = []
    for seed in (1, 2):
        runs = [
            small_config(two_splits, *asked, f"seed={seed}", f"fusion={f}") for f in ("add", "mul")
        ]
        numbered = small_config(two_splits, *asked[1:], f"data.split_seed={seed}", "seed=9")
        stores = {build_data(cfg).store.folder for cfg in (*runs, numbered)}
        assert len(stores) == 1
        data = build_data(runs[0])
        by_seed.append([texts_of(data, split) for split in ("train", "validation", "test")])
    assert all(one != other for one, other in zip(*by_seed, strict=True))


def test_a_split_seed_by_run_draws_the_sample_of_the_test_split_too(two_splits) -> None:
    asked = ["fidelity.validation_split=by_seed", "data.limit=12", *KEEP_WORDS, "seed=1"]
    one, both = (small_config(two_splits, *asked, f"data.split_seed={s}") for s in (0, "seed"))
    assert (validation_seed(one), validation_seed(both)) == (1, 1)
    assert texts_of(build_data(both), "test") != texts_of(build_data(one), "test")
