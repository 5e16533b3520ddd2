"""The experiment files: their grids and their settings."""

from functools import cache

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from posfuse.config import CONF_DIR
from posfuse.runs import identity
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from posfuse.runs.multirun import with_arm
from small_runs import composed, hydra_composed

CELLS = {"quickstart": 36, "table1": 60, "table2": 15, "table3": 120, "scale_surface": 320,
         "controls": 75, "variance": 120, "positions": 144, "pretrained": 48,
         "language_model": 36, "copy_reverse": 30}  # fmt: skip
STUDIES = {path.stem for path in (CONF_DIR / "study").glob("*.yaml")}
DATA = [
    *(("quickstart", f"bbc_{name}") for name in ("lead_paragraph", "article", "lead_story")),
    *(("pretrained", name) for name in ("agnews", "imdb")),
    *(("table1", name) for name in ("agnews", "imdb", "arxiv")),
    ("table2", "arxiv"),
    ("table3", "arxiv"),
    ("scale_surface", "bbc_lead_story"),
    ("variance", "bbc_lead_story"),
    ("language_model", "bbc_bytes"),
    ("copy_reverse", "copy"),
    ("copy_reverse", "reverse"),
    *(("controls", name) for name in ("bbc_digest", "bbc_lead_story", "listops")),
    *(
        ("positions", name)
        for name in ("missing_duplicate", "indirect_index", "even_pairs", "parity")
    ),
]

# The authors' settings, from their notebooks.
SHORT = {
    "model.d_model": 256,
    "model.n_heads": 8,
    "model.n_layers": 4,
    "model.d_ff": 1024,
    "model.activation": "gelu",
    "model.norm_first": False,
    "model.dropout": 0.1,
    "model.attention_dropout": None,
    "model.token_scale": "sqrt_d",
    "optim.name": "adamw",
    "optim.lr": 3e-4,
    "optim.weight_decay": 0.0,
    "trainer.max_epochs": 20,
    "trainer.clip_norm": 1.0,
    "trainer.patience": None,
    "data.max_len": 512,
    "data.batch_size": 64,
    "data.vocabulary.max_size": 50_000,
    "data.vocabulary.min_count": 2,
    "data.limit": None,
    "data.drop_empty": False,
}
ARXIV = SHORT | {
    "model.d_model": 128,
    "model.n_layers": 2,
    "model.d_ff": 256,
    "model.activation": "relu",
    "optim.name": "adam",
    "trainer.clip_norm": None,
    "trainer.patience": 4,
    "trainer.min_delta": 1e-4,
    "data.max_len": 4096,
    "data.drop_empty": True,
}
# The quickstart is sized by time; these stay the paper's, and the folder's own sizes are free.
QUICKSTART = {
    "model.activation": "gelu",
    "model.norm_first": False,
    "model.dropout": 0.1,
    "model.token_scale": "sqrt_d",
    "optim.name": "adamw",
    "optim.weight_decay": 0.0,
    "trainer.clip_norm": 1.0,
    "trainer.patience": None,
    "trainer.accelerator": "cpu",
    "trainer.threads": 1,
    "data.limit": None,
}
PRETRAINED = QUICKSTART | {
    "model.n_layers": 1,
    "trainer.monitor": "loss",
    "trainer.patience": 4,
    "data.limit": 10_000,
    "data.max_len": 128,
    "data.split_seed": "seed",
}
# Tasks: sized by time too, without dropout and at the scale where addition sees positions.
POSITIONS = {
    "model.d_model": 64,
    "model.n_layers": 2,
    "model.dropout": 0.0,
    "model.token_scale": 1.0,
    "trainer.accelerator": "cpu",
    "trainer.threads": 1,
    "data.batch_size": 128,
    "data.max_len": 40,
    "data.test_lengths": [40, 80, 160],
    "data.corpus.test_lengths": [40, 80, 160],
}
BYTES = {
    "task.name": "language_model",
    "model.dropout": 0.0,
    "model.token_scale": 1.0,
    "trainer.monitor": "loss",
    "trainer.accelerator": "cpu",
    "trainer.threads": 1,
    "data.max_len": 64,
    "data.test_lengths": [128, 256],
    "data.vocabulary.unit": "bytes",
}
COPIES = {
    "task.name": "language_model",
    "model.dropout": 0.0,
    "trainer.threads": 1,
    "data.corpus.lengths": [3, 41],
    "data.max_len": 41,
    "data.test_lengths": [41, 51, 61, 71, 81],
    "data.corpus.test_lengths": [41, 51, 61, 71, 81],
}
EXPECTED = {
    ("language_model", "bbc_bytes"): BYTES,
    ("copy_reverse", "copy"): COPIES,
    ("copy_reverse", "reverse"): COPIES,
    ("quickstart", "bbc_lead_paragraph"): QUICKSTART,
    ("quickstart", "bbc_article"): QUICKSTART,
    ("quickstart", "bbc_lead_story"): QUICKSTART,
    ("table1", "agnews"): SHORT,
    ("table1", "imdb"): SHORT,
    ("table1", "arxiv"): ARXIV,
    ("pretrained", "agnews"): PRETRAINED,
    ("pretrained", "imdb"): PRETRAINED,
    ("table2", "arxiv"): ARXIV,
    ("table3", "arxiv"): ARXIV,
    ("scale_surface", "bbc_lead_story"): QUICKSTART,
    ("variance", "bbc_lead_story"): QUICKSTART | {"model.token_scale": 1.0},
    ("controls", "bbc_digest"): QUICKSTART,
    ("controls", "bbc_lead_story"): QUICKSTART,
    ("controls", "listops"): QUICKSTART,
    ("positions", "missing_duplicate"): POSITIONS,
    ("positions", "indirect_index"): POSITIONS,
    ("positions", "even_pairs"): POSITIONS,
    ("positions", "parity"): POSITIONS,
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


def test_every_experiment_file_is_tested_here():
    assert {path.stem for path in (CONF_DIR / "experiment").iterdir()} == set(CELLS)
    assert {(e, values(job)["data"]) for e in CELLS for job in grid(e)} == set(DATA)


@pytest.mark.parametrize("experiment", CELLS)
def test_a_grid_has_its_size_and_names_no_cell_twice(experiment):
    jobs = grid(experiment)
    assert len(jobs) == CELLS[experiment]
    assert len({tuple(job) for job in jobs}) == CELLS[experiment]


@pytest.mark.parametrize("experiment", CELLS)
def test_every_seed_has_every_fusion(experiment):
    cells = [values(job) for job in grid(experiment)]
    seeds = {int(cell["seed"]) for cell in cells}
    others = {"variance": 10} | dict.fromkeys(
        ("quickstart", "table2", "pretrained", "positions", "language_model", "copy_reverse"), 3
    )
    assert seeds == set(range(others.get(experiment, 5)))


def test_grids_hold_the_papers_operators_and_encodings():
    cells = {e: [values(job) for job in grid(e)] for e in CELLS}
    fusions = {e: {cell["fusion"] for cell in cells[e]} for e in CELLS}
    # Wherever a gate is judged, it runs with both starts; of language_model the second is optional.
    arms = {e: {f for f in fusions[e] if f.endswith("_linear_start")} for e in CELLS}
    for e in CELLS.keys() - {"language_model"}:
        gates = {f for f in fusions[e] - arms[e] if f.startswith("gate_") and f != "gate_constant"}
        assert arms[e] == {f"{gate}_linear_start" for gate in gates}
    assert {e: fusions[e] - arms[e] for e in CELLS} == {
        "quickstart": {"add", "concat", "gate_scalar"},
        "table1": {"add", "concat", "gate_scalar"},
        "pretrained": {"add", "concat", "gate_scalar"},
        "table2": {"add", "gate_cnn", "gate_scalar"},
        "table3": {"add", "concat", "gate_scalar", "gate_mlp"},
        "scale_surface": {
            "add", "concat", "gate_scalar", "gate_cnn", "gate_constant", "add_scaled"
        },
        "controls": {"none", "add", "concat", "gate_scalar"},
        "variance": {"add", "concat"},
        "positions": {"none", "add", "concat"},
        "language_model": {"add", "concat", "gate_scalar"},
        "copy_reverse": {"none", "add"},
    }  # fmt: skip
    encodings = {e: {cell["encoding"] for cell in cells[e]} for e in CELLS}
    assert encodings == {
        "quickstart": {"sinusoidal"},
        "pretrained": {"sinusoidal"},
        "table1": {"sinusoidal"},
        "table2": {"sinusoidal"},
        "table3": {"sinusoidal", "learned", "rope_features", "relative_table"},
        "scale_surface": {"sinusoidal"},
        "controls": {"sinusoidal"},
        "variance": {"sinusoidal"},
        "positions": {"sinusoidal", "rope", "alibi", "t5"},
        "language_model": {"none", "sinusoidal", "rope", "alibi"},
        "copy_reverse": {"none", "sinusoidal", "rope", "alibi", "t5"},
    }


def test_controls_are_in_no_primary_family():
    """The baseline is in none: it is what the others are compared with."""
    controls = {"none", "gate_constant", "add_scaled", "linear", "add_matched"}
    for experiment in CELLS:
        primary = checked(composed(f"experiment={experiment}")).sweep.primary
        run = {values(job)["fusion"] for job in grid(experiment)}
        if run & controls:
            assert set(primary) == run - controls - {"add"}, experiment
        else:
            assert primary == []


def test_the_scale_surface_gives_every_operator_the_same_scales_none_twice():
    scales: dict[str, list[str]] = {}
    for cell in map(values, grid("scale_surface")):
        if cell["seed"] == "0":
            scales.setdefault(cell["fusion"], []).append(cell["model.token_scale"])
    assert all(found == scales["add"] for found in scales.values())
    assert scales["add"] == ["0.125", "0.25", "0.5", "1", "2", "4", "sqrt_d", "learned"]
    cfg = checked(composed("experiment=scale_surface"))
    assert f"{cfg.model.d_model**0.5:g}" not in scales["add"]  # sqrt_d stands for it


def test_a_run_of_the_scale_surface_has_a_folder_that_says_its_scale():
    overrides = ["experiment=scale_surface", "seed=1", "model.token_scale=0.125"]
    assert run_folder("imdb", "sinusoidal", "add", 1, overrides) == (
        "imdb/sinusoidal/add/model.token_scale=0.125/seed=1"
    )


def test_the_scale_surface_takes_another_corpus_small_enough_for_a_cpu():
    quickstart = identity.settings(checked(composed("experiment=quickstart", "data=imdb")))
    imdb = identity.settings(checked(composed("experiment=scale_surface", "data=imdb")))
    assert imdb == quickstart
    assert (imdb["data.corpus.id"], imdb["data.limit"]) == ("stanfordnlp/imdb", 2500)
    assert imdb["data.max_len"] == 256


def test_every_string_of_the_positions_experiment_is_read_whole_in_2000_steps():
    for data in {values(job)["data"] for job in grid("positions")}:
        cfg = checked(composed("experiment=positions", f"data={data}"))
        strings, lengths = cfg.data.corpus["sizes"][0], cfg.data.corpus["lengths"]
        assert cfg.trainer.max_epochs * strings / cfg.data.batch_size == 2000
        assert lengths[1] == cfg.data.max_len


def test_the_variance_experiment_lets_one_source_at_a_time_follow_the_seed():
    free = {}
    for name in {values(job)["seeds"] for job in grid("variance")}:
        cfg = checked(composed("experiment=variance", f"seeds={name}", "seed=7"))
        free[name] = {k for k, v in vars(cfg.seeds).items() if v is None}
        free[name] |= {"split"} if cfg.data.split_seed == "seed" else set()
        assert {v for v in vars(cfg.seeds).values() if v is not None} <= {0}
    three = {"init", "order", "dropout"}
    alone = {name: {name} for name in (*three, "split")}
    assert free == {"together": three, "everything": three | {"split"}, **alone}


@pytest.mark.parametrize("experiment", CELLS)
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


@pytest.mark.parametrize(("experiment", "data"), DATA)
def test_settings_are_the_papers(experiment, data):
    cfg = checked(composed(f"experiment={experiment}", f"data={data}"))
    expected = EXPECTED[experiment, data]
    settings = identity.settings(cfg)
    assert {key: settings[key] for key in expected} == expected


def test_the_tables_corpora_are_the_papers():
    ids = {
        name: composed("experiment=table1", f"data={name}").data.corpus.id
        for name in ("agnews", "imdb", "arxiv")
    }
    assert ids == {
        "agnews": "fancyzhx/ag_news",
        "imdb": "stanfordnlp/imdb",
        "arxiv": "mteb/ArxivClassification",
    }


@pytest.mark.parametrize("data", ["agnews", "imdb", "arxiv"])
def test_speed_fast_changes_the_precision_and_attentions_dropout_alone(data: str) -> None:
    exact, fast = (
        identity.flatten(
            OmegaConf.to_container(composed("experiment=table1", f"data={data}", *speed))
        )
        for speed in ((), ("speed=fast",))
    )
    changed = {key: fast[key] for key in exact if fast[key] != exact[key]}
    assert changed == {"model.attention_dropout": 0.0, "trainer.precision": "fastest"}
    assert exact["model.attention_dropout"] is None
