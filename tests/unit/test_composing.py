"""The composer gives the configs and the errors of Hydra's own loader."""

import pickle

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import Container, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.runs.checks import checked
from posfuse.runs.composing import Composer
from posfuse.runs.configs import config_of

KINDS = {
    "values": ["seed=3", "data.limit=null", "optim.lr=1e-3", "model.token_scale=1/8", "sweep_id=a"],
    "quoted": ["data.name='a b'", 'data.labels="x,y=z"', "logger.notes=", "data.text=''"],
    "lists": ["data.test_lengths=[600,700]", "logger.tags=[]", "sweep.primary=[add,'b c']"],
    "tables": ["fusion={name: x}", "+encoding.table={a: null}", "optim={lr: 0.5}"],
    "interpolations": ["data.max_len=${data.batch_size}", "output_dir=${oc.env:HOME}/${sweep_id}"],
    "the same key twice": ["seed=1", "data.limit=2", "seed=2"],
    "groups": ["fusion=concat", "seed=1", "encoding=rope", "speed=fast", "data.max_len=9"],
    "groups that choose others": ["task=language_model", "fidelity=notebook", "data=arxiv"],
    "groups of Hydra": ["hydra/launcher=parallel", "hydra.launcher.n_jobs=3", "seed=5"],
    "added": ["+fusion.x=1", "fusion.x=2", "++fusion.y=[1]", "++seed=4", "+z={a: 1}", "z.a=2"],
    "removed": ["fusion.name=x", "~fusion.name", "seed=1"],
    "a removed group": ["~fusion", "seed=1"],
    "an experiment": ["experiment=table1", "seed=7", "trainer.patience=null"],
}
REFUSED = [
    ["seed=x"], ["seed=1", "nothing=1"], ["data.nothing=1"], ["data.limit=[1]"], ["+seed=1"],
    ["seed=1,2"], ["seed=range(3)"], ["fusion=nothing"], ["data.limit@x=1"], ["seed=["],
    ["fusion@x=mlp"], ["~data.limit"], ["~nothing"], ["++fusion=add"], ["fusion=1"], ["data=null"],
]  # fmt: skip


@pytest.fixture(scope="module")
def loaders():
    """Hydra's loader, and one composer for all tests, so that later ones find its copies."""
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        hydras = GlobalHydra.instance().config_loader()
        yield hydras, pickle.loads(pickle.dumps(Composer(hydras)))


def facts(node, key=""):
    """The values, types and flags of a config."""
    if key == ".hydra.job.override_dirname":  # posfuse does not use it
        return
    own = node._metadata
    yield key, own.ref_type, own.object_type, own.flags, own.optional
    if isinstance(node, Container) and isinstance(node._value(), dict | list):
        keys = range(len(node)) if OmegaConf.is_list(node) else list(node._value())
        yield key, list(keys)
        for name in keys:
            yield from facts(node._get_node(name), f"{key}.{name}")
    else:
        yield key, type(node), node._value()


@pytest.mark.parametrize("name", KINDS)
def test_a_config_is_as_hydra_composes_it(name, loaders):
    configs = (loader.load_configuration("train", KINDS[name], RunMode.RUN) for loader in loaders)
    hydras, composer = ([*facts(config)] for config in configs)
    assert composer == hydras
    assert len(hydras) > 500


@pytest.mark.parametrize("overrides", REFUSED, ids=" ".join)
def test_an_override_is_refused_as_by_hydra(overrides, loaders):
    messages = []
    for loader in loaders:
        with pytest.raises((HydraException, ValueError)) as error:
            loader.load_configuration("train", overrides, RunMode.RUN)
        messages.append((error.type, str(error.value), str(error.value.__cause__)))
    assert messages[0] == messages[1]


def test_ones_own_folder_of_files_can_hold_a_group(loaders, tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "one.yaml").write_text("# @package _global_\nseed: 8\n")
    own = [f"hydra.searchpath=['file://{tmp_path}']", "+extra=one", "data.limit=3"]
    for loader in loaders:
        config = loader.load_configuration("train", own, RunMode.RUN)
        assert (config.seed, config.data.limit) == (8, 3)
    assert loaders[1].load_configuration("train", own[1:2], RunMode.RUN).extra == "one"  # a value


def test_a_composed_config_becomes_the_dataclasses_of_its_plain_values(loaders):
    for overrides in (KINDS["groups"], KINDS["tables"], ["data=arxiv", "seed=${optim.warmup}"]):
        config = loaders[1].without_hydra("train", overrides)
        assert config_of(config) == config_of(OmegaConf.to_container(config))
    for added in ("+z=1", "+data.vocabulary.z=1"):
        with pytest.raises((InputError, OmegaConfBaseException), match=r"\bz\b"):
            checked(loaders[1].without_hydra("train", [added]))
