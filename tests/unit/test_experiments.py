"""The experiment files: their grids and their settings."""

from functools import cache

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from posfuse.config import CONF_DIR
from posfuse.runs import identity
from posfuse.runs.checks import checked
from posfuse.runs.multirun import with_arm
from posfuse.study import stages
from posfuse.study.reading import read_study
from small_runs import composed, hydra_composed, write_corpus

# The cells of each grid, and how many seeds are among them.
CELLS = {"quickstart": (36, 3), "table1": (60, 5), "table2": (15, 3), "table3": (120, 5),
         "scale_surface": (320, 5), "controls": (75, 5), "variance": (120, 10),
         "positions": (144, 3), "pretrained": (48, 3), "language_model": (36, 3),
         "copy_reverse": (30, 3)}  # fmt: skip
STUDIES = {path.stem for path in (CONF_DIR / "study").glob("*.yaml")}


def slow_but(usual, names):
    """Parameters that are slow, except the usual one."""
    return [pytest.param(n, marks=[pytest.mark.slow] * (n != usual)) for n in names]


# The authors' settings, from their notebooks. Of the quickstart, which is sized by time, these too.
COMMON = {
    "model.activation": "gelu", "model.norm_first": False, "model.dropout": 0.1,
    "model.token_scale": "sqrt_d", "optim.name": "adamw", "optim.weight_decay": 0.0,
    "trainer.clip_norm": 1.0, "trainer.patience": None, "data.limit": None,
}  # fmt: skip
SHORT = COMMON | {
    "model.d_model": 256, "model.n_heads": 8, "model.n_layers": 4, "model.d_ff": 1024,
    "model.attention_dropout": None, "optim.lr": 3e-4, "trainer.max_epochs": 20,
    "data.max_len": 512, "data.batch_size": 64, "data.drop_empty": False,
    "data.vocabulary.max_size": 50_000, "data.vocabulary.min_count": 2,
}  # fmt: skip
ARXIV = SHORT | {
    "model.d_model": 128, "model.n_layers": 2, "model.d_ff": 256, "model.activation": "relu",
    "optim.name": "adam", "trainer.clip_norm": None, "trainer.patience": 4,
    "trainer.min_delta": 1e-4, "data.max_len": 4096, "data.drop_empty": True,
}  # fmt: skip
QUICKSTART = COMMON | {"trainer.accelerator": "cpu", "trainer.threads": 1}
EXPECTED = {
    ("quickstart", "bbc_article"): QUICKSTART,
    ("table1", "agnews"): SHORT | {"data.corpus.id": "fancyzhx/ag_news"},
    ("table1", "imdb"): SHORT | {"data.corpus.id": "stanfordnlp/imdb"},
    ("table1", "arxiv"): ARXIV | {"data.corpus.id": "mteb/ArxivClassification"},
    ("table2", "arxiv"): ARXIV,
    ("table3", "arxiv"): ARXIV,
    ("scale_surface", "bbc_lead_story"): QUICKSTART,
    ("variance", "bbc_lead_story"): QUICKSTART | {"model.token_scale": 1.0},
    ("controls", "listops"): QUICKSTART,
}


@cache
def grid(experiment):
    """The overrides of each job, as Hydra's own sweeper expands them."""
    sweeper = hydra_composed(f"experiment={experiment}", hydra_too=True).hydra.sweeper
    asked = [f"{key}={value}" for key, value in sweeper.params.items()]
    overrides = OverridesParser.create().parse_overrides(asked)
    jobs = BasicSweeper.split_arguments(overrides, max_batch_size=None)[0]
    return [with_arm(job, sweeper.get("arms") or {}) for job in jobs]


def values(job):
    return dict(override.split("=") for override in job)


def of_grid(experiment, axis):
    return {values(job)[axis] for job in grid(experiment)}


def test_every_experiment_file_is_tested_here():
    assert {path.stem for path in (CONF_DIR / "experiment").iterdir()} == set(CELLS)


@pytest.mark.parametrize("experiment", CELLS)
def test_a_grid_has_its_size_and_its_seeds_and_names_no_cell_twice(experiment):
    (cells, seeds), jobs = CELLS[experiment], grid(experiment)
    assert len(jobs) == len({tuple(job) for job in jobs}) == cells
    assert of_grid(experiment, "seed") == {*map(str, range(seeds))}


@pytest.mark.parametrize("experiment", [e for e in CELLS if e != "language_model"])
def test_a_gate_runs_with_both_starts(experiment):
    """Wherever it is judged; of language_model the second start is optional."""
    fusions = of_grid(experiment, "fusion")
    arms = {fusion for fusion in fusions if fusion.endswith("_linear_start")}
    gates = {f for f in fusions - arms if f.startswith("gate_") and f != "gate_constant"}
    assert arms == {f"{gate}_linear_start" for gate in gates}


@pytest.mark.parametrize(
    ("experiment", "fusions", "encodings"),
    [
        ("table1", {"add", "concat", "gate_scalar"}, {"sinusoidal"}),
        ("table2", {"add", "gate_cnn", "gate_scalar"}, {"sinusoidal"}),
        ("table3", {"add", "concat", "gate_scalar", "gate_mlp"},
         {"sinusoidal", "learned", "rope_features", "relative_table"}),
    ],
)  # fmt: skip
def test_grids_hold_the_papers_operators_and_encodings(experiment, fusions, encodings):
    run = {fusion.removesuffix("_linear_start") for fusion in of_grid(experiment, "fusion")}
    assert (run, of_grid(experiment, "encoding")) == (fusions, encodings)


def test_controls_are_in_no_primary_family():
    """The baseline is in none: it is what the others are compared with."""
    controls = {"none", "gate_constant", "add_scaled", "linear", "add_matched"}
    for experiment in CELLS:
        primary = checked(composed(f"experiment={experiment}")).sweep.primary
        run = of_grid(experiment, "fusion")
        if run & controls:
            assert set(primary) == run - controls - {"add"}, experiment
        else:
            assert primary == []


def test_the_scale_surface_gives_every_operator_the_same_scales_none_twice():
    scales = {}
    for cell in map(values, grid("scale_surface")):
        if cell["seed"] == "0":
            scales.setdefault(cell["fusion"], []).append(cell["model.token_scale"])
    assert all(found == scales["add"] for found in scales.values())
    assert scales["add"] == ["0.125", "0.25", "0.5", "1", "2", "4", "sqrt_d", "learned"]
    cfg = checked(composed("experiment=scale_surface"))
    assert f"{cfg.model.d_model**0.5:g}" not in scales["add"]  # sqrt_d stands for it


def test_the_scale_surface_takes_another_corpus_small_enough_for_a_cpu():
    quickstart, imdb = (
        identity.settings(checked(composed(f"experiment={name}", "data=imdb")))
        for name in ("quickstart", "scale_surface")
    )
    sizes = {"data.corpus.id": "stanfordnlp/imdb", "data.limit": 2500, "data.max_len": 256}
    assert imdb == quickstart == quickstart | sizes


def test_every_string_of_the_positions_experiment_is_read_whole_in_2000_steps():
    for data in of_grid("positions", "data"):
        cfg = checked(composed("experiment=positions", f"data={data}"))
        strings, lengths = cfg.data.corpus["sizes"][0], cfg.data.corpus["lengths"]
        assert cfg.trainer.max_epochs * strings / cfg.data.batch_size == 2000
        assert cfg.trainer.evaluations == 5
        assert lengths[1] == cfg.data.max_len


def test_the_variance_experiment_lets_one_source_at_a_time_follow_the_seed():
    free = {}
    for name in of_grid("variance", "seeds"):
        cfg = checked(composed("experiment=variance", f"seeds={name}", "seed=7"))
        free[name] = {k for k, v in vars(cfg.seeds).items() if v is None}
        free[name] |= {"split"} if cfg.data.split_seed == "seed" else set()
        assert {v for v in vars(cfg.seeds).values() if v is not None} <= {0}
    three = {"init", "order", "dropout"}
    four = three | {"split"}
    assert free == {"together": three, "everything": four, **{name: {name} for name in four}}


@pytest.mark.parametrize("name", slow_but("demo", sorted(STUDIES)))
def test_every_study_is_read_and_composes(name, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "check_documents", lambda *_: None)  # would read the corpora
    _, study = read_study(name)
    place = [f"data.path={write_corpus(tmp_path)}"] * (study.settings.get("data") == "folder")
    assert stages.Stages(name, study, place).check_arms().keys() == study.arms.keys()


@pytest.mark.parametrize("experiment", slow_but("quickstart", CELLS))
def test_every_cell_passes_the_checks_and_is_of_its_sweep(experiment):
    for job in grid(experiment):
        # The axes do not interact in the checks, so one axis at a time differs from the first job.
        if len(set(job) - set(grid(experiment)[0])) <= 1:
            cfg = checked(composed(f"experiment={experiment}", *job))
            asked = values(job)
            assert cfg.sweep_id in (experiment, f"{experiment}_grid")
            assert cfg.sweep_id not in STUDIES  # both write multirun/NAME/report
            assert (cfg.data.name, cfg.encoding.name) == (asked["data"], asked["encoding"])
            assert cfg.fusion["name"] == asked["fusion"]


@pytest.mark.parametrize(("experiment", "data"), EXPECTED)
def test_settings_are_the_papers(experiment, data):
    settings = identity.settings(checked(composed(f"experiment={experiment}", f"data={data}")))
    assert settings == settings | EXPECTED[experiment, data]


@pytest.mark.parametrize("data", ["agnews", "imdb", "arxiv"])
def test_speed_fast_changes_the_precision_and_attentions_dropout_alone(data: str) -> None:
    given = ["experiment=table1", f"data={data}"]
    exact, fast = (
        identity.flatten(OmegaConf.to_container(composed(*given, *speed)))
        for speed in ([], ["speed=fast"])
    )
    changed = {key: fast[key] for key in exact if fast[key] != exact[key]}
    assert changed == {"model.attention_dropout": 0.0, "trainer.precision": "fastest"}
