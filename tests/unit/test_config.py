"""The schema, what it refuses, fingerprints and folders."""

import re
from copy import deepcopy
from dataclasses import asdict
from functools import reduce
from itertools import product

import pytest
from hydra.errors import HydraException
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf.errors import OmegaConfBaseException

from posfuse.config import CONF_DIR, NEUTRAL_KEYS, one_line, run_folder
from posfuse.errors import InputError
from posfuse.runs.checks import checked
from posfuse.runs.records import fingerprint, flatten
from small_runs import composed, write_corpus


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))


# The gates with another start are the same classes; test_fidelity.py builds them.
FUSIONS = [name for name in names("fusion") if not name.endswith("_linear_start")]
PAIRS = list(product(names("encoding"), FUSIONS))
GROUPS = ("model", "optim", "trainer", "fidelity", "speed", "logger", "experiment")


@pytest.mark.parametrize("data", names("data"))
def test_every_combination_composes_and_builds(data: str) -> None:
    for encoding, fusion in PAIRS:
        path = ["data.path=somewhere"] if data == "folder" else []
        cfg = checked(composed(f"data={data}", f"encoding={encoding}", f"fusion={fusion}", *path))
        assert (cfg.data.name, cfg.encoding.name, cfg.fusion["name"]) == (data, encoding, fusion)


@pytest.mark.parametrize(
    ("group", "name"),
    [(g, n) for g in GROUPS for n in names(g)],
)
def test_every_other_choice_composes(group: str, name: str) -> None:
    checked(composed(f"{group}={name}"))


def complaint(*overrides: str) -> str:
    with pytest.raises((InputError, HydraException, OmegaConfBaseException)) as caught:
        checked(composed(*overrides))
    text = one_line(caught.value)
    assert "\n" not in text
    return text


BAD = {
    "model.d_modle=3": "model.d_modle: unknown key; use one of d_model, n_heads",
    "nonsense=1": "nonsense: unknown key; use one of seed, sweep_id",
    "model.n_heads=7": "model.n_heads: 7 does not divide model.d_model=64; use one of 1, 2, 4",
    "model.d_model=4.5": "model.d_model: Value '4.5'",
    "model.dropout=1": "model.dropout",
    "model.attention_dropout=-1": "model.attention_dropout",
    "model.activation=tanh": "model.activation: 'tanh' is unknown; use one of gelu, relu",
    "model.token_scale=0": "model.token_scale: 0 is no scale that",
    "model.token_scale=-1": "model.token_scale: -1 is no scale that",
    "model.token_scale=loud": "model.token_scale",
    "model.token_scale=1/0": "model.token_scale",
    "data.max_len=-5": "data.max_len: -5 is not positive",
    "data.max_len=abc": "data.max_len: Value 'abc'",
    "data.max_len=999999999": "data.max_len: 999999999 is too large; use at most 1048576",
    "trainer.threads=100000": "trainer.threads: 100000 is too large; use at most 1024",
    "data.path=": "data.path: '' is empty; name a folder with data.path=FOLDER",
    "cache_dir=": "cache_dir: '' is empty; name a folder with cache_dir=FOLDER",
    "cache_dir=/": "cache_dir: '/' is the root of the file system; name a folder",
    "data.validation_fraction=1": "data.validation_fraction",
    "data.vocabulary.max_size=2": "data.vocabulary.max_size",
    "data.vocabulary.source=test": "data.vocabulary.source",
    "data.vocabulary.unit=letters": "data.vocabulary.unit: 'letters' is unknown; use one of bytes",
    "data.name=a/b": "data.name",
    "data.name=null": "data.name: null is no value; give one",
    "encoding.name=null": "encoding.name: null is no value; give one",
    "fusion.name=null": "fusion.name: None is not a text; give a name, as fusion.name=my_name",
    "fusion.name=3": "fusion.name: 3 is not a text",
    "fusion.name=[a,b]": "fusion.name: ['a', 'b'] is not a text",
    "data=folder": "data.path: no corpus given",
    "sweep_id=../up": "sweep_id",
    "+model.depth=8": "model.depth: unknown key; use one of d_model, n_heads",
    "+nonsense=1": "nonsense: unknown key; use one of seed, sweep_id",
    "+data.vocabulary.size=1": "data.vocabulary.size: unknown key; use one of max_size",
    "fusion=foo": "gate_scalar",
    "fusion._target_=posfuse.model.fusion": "fusion._target_: cannot import 'posfuse.model.fusion'",
    "fusion._target_=builtins.dict": "fusion._target_: cannot import 'builtins.dict'",
    "fusion._target_=5": "fusion._target_: cannot import 5",
    "data.corpus._target_=math.pi": "data.corpus._target_: cannot import 'math.pi'",
    "fusion._target_=null": "fusion._target_: missing",
    "fusion.zap=1": "fusion.zap: unknown key",
    "+fusion.zap=1": "fusion.zap: unknown; posfuse.model.fusion.Add takes no options",
    "+encoding.table.zap=1": "encoding.table.zap: unknown",
    "encoding.table._target_=x.y": "encoding.table._target_: cannot import 'x.y'",
    "+data.corpus.zap=1": "posfuse.data.bbc.lead_paragraph takes split_seed",
    "~data.corpus.split_seed": "data.corpus.split_seed: missing",
    "optim.lr=nan": "optim.lr",
    "optim.name=sgd": "optim.name: 'sgd' is unknown; use one of adam, adamw",
    "seed=-1": "seed: -1 is below 0",
    "trainer.max_epochs=null": "trainer.max_epochs",
    "trainer.precision=8": "trainer.precision",
    "trainer.precision=64-true": "trainer.precision: '64-true' is unknown; use one of 32-true",
    "model.token_scale=1e300": "use sqrt_d, learned, or a number from 1e-6 to 1e6",
    "model.token_scale=1e-9": "use sqrt_d, learned, or a number from 1e-6 to 1e6",
    "data.path=somewhere": "bbc_lead_paragraph is made by posfuse.data.bbc.lead_paragraph, which",
    "encoding.table._target_=posfuse.model.fusion.Add": "posfuse.model.fusion.Add takes no max_len",
    "+encoding.attention._target_=posfuse.model.encoding.Learned": "Learned takes no n_heads",
}


@pytest.mark.parametrize("override", BAD)
def test_a_bad_key_or_value_is_named_with_its_cure(override: str) -> None:
    assert BAD[override] in complaint(override)


@pytest.mark.parametrize("data", ["listops", "bbc_digest", "bbc_lead_story"])
def test_a_folder_does_not_take_the_name_of_a_corpus_that_is_made(data: str) -> None:
    told = complaint(f"data={data}", "data.path=somewhere")
    assert told.startswith(f"data.path: {data} is made by posfuse.data.")
    assert "use data=folder data.name=NAME" in told


@pytest.mark.parametrize("data", ["agnews", "imdb", "imdb_bytes", "arxiv"])
def test_a_folder_stands_in_for_the_hub(data: str) -> None:
    checked(composed(f"data={data}", "data.path=somewhere"))


def test_bad_options_of_operators_are_named() -> None:
    assert "half_width: Value 'a'" in complaint("fusion=gate_cnn", "fusion.half_width=a")
    assert "fusion=gate_cnn: half_width is -1" in complaint(
        "fusion=gate_cnn", "fusion.half_width=-1"
    )
    odd = complaint("model.d_model=5", "model.n_heads=5")
    assert "encoding=sinusoidal" in odd
    assert "use an even model.d_model, or encoding=learned" in odd
    checked(composed("model.d_model=5", "model.n_heads=5", "encoding=learned"))
    checked(composed("model.d_model=5", "model.n_heads=5", "encoding=alibi", "fusion=none"))


@pytest.mark.parametrize("body", ["bogus: 3", "model: {d_modle: 3}", "trainer: {max_epoch: 3}"])
def test_an_unknown_key_in_an_experiment_fails_as_on_the_command_line(tmp_path, body: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "bad.yaml").write_text(f"# @package _global_\n{body}\n")
    assert "unknown key; use one of" in complaint(
        f"hydra.searchpath=[file://{tmp_path}]", "experiment=bad"
    )


@pytest.mark.parametrize(
    ("given_scale", "scale"), [("1/8", 0.125), ("2", 2.0), ("sqrt_d", "sqrt_d")]
)
def test_token_scale_takes_numbers_fractions_and_names(given_scale: str, scale) -> None:
    assert checked(composed(f"model.token_scale={given_scale}")).model.token_scale == scale


# Folders


def test_a_plain_runs_folder_names_its_cell_and_seed() -> None:
    overrides = "data=x fusion=add seed=3 logger=none hydra/launcher=parallel experiment=quickstart"
    overrides = [*overrides.split(), "output_dir=/elsewhere", "trainer.progress=none"]
    overrides.append("data.path=/where/the/files/lie")  # their digest is in the record
    assert run_folder("x", "sinusoidal", "add", 3, overrides) == "x/sinusoidal/add/seed=3"
    assert run_folder("x", "y", "z", 0, ["optim.lr=0.1"]) == "x/y/z/optim.lr=0.1/seed=0"


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=300)
override_lists = st.lists(texts.map(lambda v: f"model.token_scale={v}"), max_size=3)


@settings(deadline=None)
@given(override_lists)
def test_any_override_gives_a_folder_name_that_a_file_system_takes(overrides: list[str]) -> None:
    parts = run_folder("x", "y", "z", 0, overrides).split("/")
    assert len(parts) == (5 if overrides else 4)
    for part in parts:
        assert 0 < len(part.encode()) <= 255
        assert part not in (".", "..")
        assert re.fullmatch(r"[A-Za-z0-9._=+-]+", part)


@settings(deadline=None)
@given(override_lists, override_lists)
def test_different_overrides_never_share_a_folder(one: list[str], two: list[str]) -> None:
    same = run_folder("x", "y", "z", 0, one) == run_folder("x", "y", "z", 0, two)
    assert same == (sorted(one) == sorted(two))


@pytest.mark.parametrize("pair", [("a/b", "a,b"), ("a=b", "a b"), ("[1,2]", "[1/2]"), ("A", "Å")])
def test_values_that_look_alike_once_spelt_plainly_stay_apart(pair: tuple[str, str]) -> None:
    folders = {run_folder("x", "y", "z", 0, [f"data.corpus.id={value}"]) for value in pair}
    assert len(folders) == 2


# Fingerprints


def test_any_setting_is_in_the_fingerprint_unless_it_is_neutral() -> None:
    cfg = checked(composed("fusion=gate_cnn", "data=bbc_digest"))
    for key in flatten(asdict(cfg)):
        changed = deepcopy(cfg)
        *parents, last = key.split(".")
        node = reduce(lambda n, k: n[k] if isinstance(n, dict) else getattr(n, k), parents, changed)
        if isinstance(node, dict):
            node[last] = "changed"
        else:
            setattr(node, last, "changed")
        if key == "data.path":  # stands for its files' bytes
            continue
        neutral = any(key == k or key.startswith(f"{k}.") for k in NEUTRAL_KEYS)
        assert (fingerprint(changed) == fingerprint(cfg)) == neutral, key


@pytest.mark.parametrize(
    "override",
    ["seed=1", "fusion=concat", "encoding=learned", "data=bbc_article", "model.d_model=32",
     "optim.lr=0.1", "trainer.max_epochs=3", "trainer.threads=1", "data.split_seed=1",
     "trainer.precision=bf16-mixed", "model.token_scale=1", "data.batch_size=8"],
)  # fmt: skip
def test_the_fingerprint_follows_what_can_change_a_number(override: str) -> None:
    assert fingerprint(checked(composed(override))) != fingerprint(checked(composed()))


@pytest.mark.parametrize(
    "override",
    ["sweep_id=other", "output_dir=/elsewhere", "cache_dir=/elsewhere", "logger=none",
     "logger.tags=[a]", "trainer.progress=none", "model.d_model=64"],
)  # fmt: skip
def test_the_fingerprint_ignores_what_cannot(override: str) -> None:
    assert fingerprint(checked(composed(override))) == fingerprint(checked(composed()))


def test_the_fingerprint_follows_a_folders_bytes_not_its_place(tmp_path) -> None:
    def of(folder) -> str:
        return fingerprint(checked(composed("data=folder", f"data.path={folder}")))

    one, copy = write_corpus(tmp_path / "one"), write_corpus(tmp_path / "copy")
    assert of(one) == of(copy)
    assert of(one) != of(write_corpus(tmp_path / "other", seed=1))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def f(:", "(SyntaxError: invalid syntax (broken_operator.py, line 1))"),
        ("1 / 0", "(ZeroDivisionError: division by zero, {file} line 1)"),
        ("\nimport no_such_module", "(ModuleNotFoundError: No module named 'no_such_module', "),
        ("raise RuntimeError('a\\nb')", "(RuntimeError: a b, {file} line 1)"),
        ("import sys\nsys.exit(3)", "(SystemExit: 3, {file} line 2)"),
    ],
)
def test_an_operator_whose_module_fails_is_named_by_its_key(code, told, tmp_path, monkeypatch):
    file = tmp_path / "broken_operator.py"
    file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    text = complaint("fusion._target_=broken_operator.Operator")
    assert text.startswith("fusion._target_: cannot import 'broken_operator.Operator' (")
    assert told.format(file=file) in text


def test_a_module_inside_a_package_that_fails_is_told_with_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "own_parts").mkdir()
    (tmp_path / "own_parts" / "__init__.py").touch()
    (tmp_path / "own_parts" / "mine.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    assert "No module named 'no_such_module'" in complaint("fusion._target_=own_parts.mine.Mine")


@pytest.mark.parametrize("override", ["seed=ü", "seed=0,", "seed", "seed=[0", "seed={a"])
def test_an_override_that_hydra_cannot_parse_is_told_without_names_of_tokens(override):
    text = complaint(override)
    assert text.startswith(f"{override}: not an override that Hydra can read; write key=value")
    assert "BRACE" not in text
    assert "Lexer" not in text
    assert "hydra.cc" not in text


@pytest.mark.parametrize("override", ["sweep_id=ü", "data.name=a:b", "sweep_id=a b:"])
def test_a_name_that_hydra_cannot_parse_is_told_its_letters(override):
    name = override.split("=")[1]
    key = override.split("=")[0]
    told = f"{key}: the name '{name}' becomes a folder; use letters (A-Z, a-z), digits, _.-"
    assert complaint(override) == told
