"""The schema, the values that it refuses, folders and fingerprints."""

import importlib
import re
import runpy
import sys
import sysconfig
from copy import deepcopy
from dataclasses import asdict
from functools import reduce
from itertools import zip_longest

import pytest
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import strategies as st
from omegaconf.errors import OmegaConfBaseException

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.limits import NAME_LETTERS
from posfuse.runs import identity
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.identity import fingerprint, flatten, is_neutral
from posfuse.training.build import build_parts
from small_runs import composed, hydra_composed


def test_every_choice_of_a_group_composes_and_builds() -> None:
    """Groups that do not interact are tested together. Some encodings refuse some data."""
    causal = ("copy", "reverse", "associative_recall", "bbc_bytes")
    of_a_pretrained_model = ["encoding=host", "model=pretrained"]

    def choices(group: str) -> list[str]:
        every = sorted(f"{group}={path.stem}" for path in (CONF_DIR / group).glob("*.yaml"))
        return [choice for choice in every if choice not in of_a_pretrained_model]

    together = [["data", "optim", "trainer", "speed", "logger"], ["encoding", "fusion", "model"]]
    alone = [["fidelity"], ["experiment"], ["protocol"]]
    for chosen in (c for groups in together + alone for c in zip_longest(*map(choices, groups))):
        own = dict(choice.split("=") for choice in chosen if choice)
        more = ["data.path=somewhere"] if own.get("data") == "folder" else []
        more += ["task=language_model"] if own.get("data") in causal else []
        cfg = checked(composed(*filter(None, chosen), *more))
        build_parts(cfg)
        names = {"data": cfg.data.name, "encoding": cfg.encoding.name, "fusion": cfg.fusion["name"]}
        assert all(names[group] == own[group] for group in names if group in own), chosen


def complaint(*overrides: str, compose=composed) -> str:
    with pytest.raises((InputError, HydraException, OmegaConfBaseException)) as caught:
        build_parts(checked(compose(*overrides)))
    text = one_line(caught.value)
    assert "\n" not in text
    return text


# What Hydra refuses while it composes a config.
HYDRAS = {
    "model.d_modle=3": "model.d_modle: unknown key; use model.d_model",
    "lr=3": "lr: unknown key; use optim.lr or pretrain.lr",
    "epochs=3": "epochs: unknown key; use trainer.max_epochs or pretrain.max_epochs",
    "+epochs=3": "epochs: unknown key; use trainer.max_epochs or pretrain.max_epochs",
    "optim.learning_rate=1": "optim.learning_rate: unknown key; use optim.lr or pretrain.lr",
    "bach_size=8": "bach_size: unknown key; use data.batch_size or pretrain.batch_size",
    "model.fusion=add": "model.fusion: unknown key; use fusion",
    "dropout=0": "dropout: unknown key; use model.dropout or seeds.dropout",
    "nonsense=1": "nonsense: unknown key; use one of seed, sweep_id",
    "model.d_model=4.5": "model.d_model: Value '4.5' of type 'float' could not",
    "data.test_lengths=80": "data.test_lengths: Invalid value assigned: int is not a ListConfig",
    "encoding.positions=[randomized]": "encoding.positions: Cannot convert 'list' to string",
    "encoding.table.options=1": "encoding.table.options: unknown key; an option of this part "
    "needs a +, as in +encoding.table.options=VALUE",
    "fusion.zap=1": "fusion.zap: unknown key",
    "+fusion.zap=1": "fusion.zap: unknown; posfuse.model.fusion.Add takes no options",
    "+encoding.table.zap=1": "encoding.table.zap: unknown",
    "+data.corpus.zap=1": "posfuse.data.bbc.lead_paragraph takes split_seed",
    "~data.corpus.split_seed": "data.corpus.split_seed: missing",
    "+encoding.attention._target_=posfuse.model.encoding.Learned": "Learned is not a subclass of",
    "seed=0,": "seed=0,: not an override that Hydra can read; write key=value, or",
    "seed=nope(3)": "seed=nope(3): Unknown function 'nope' Available: bool,",
    "sweep_id='ü'": f"sweep_id: {NAME_LETTERS} (got 'ü')",
}


@pytest.mark.parametrize("override", HYDRAS)
def test_an_error_of_hydra_is_one_line_with_its_key(override: str) -> None:
    text = complaint(override, compose=hydra_composed)
    assert HYDRAS[override] in text
    assert not re.search("BRACE|Lexer|hydra.cc", text)


SCALE = "must be sqrt_d, learned, or between 1e-6 and 1e6"
BAD = {
    "model.n_heads=7": "must divide model.d_model=64 (got 7); use one of 1, 2, 4, 8",
    "model.dropout=1": "must be at least 0 and below 1 (got 1)",
    "model.activation=tanh": "must be gelu or relu (got tanh)",
    "model.token_scale=true": f"{SCALE} (got True)",
    "model.token_scale=loud": f"{SCALE} (got loud)",
    "model.token_scale=1/0": f"{SCALE} (got 1/0)",
    "model.token_scale='1e999999999'": f"{SCALE} (got inf)",
    "model.token_scale=1e300": f"{SCALE} (got 1e300)",
    "data.max_len=-5": "must be between 1 and 1048576 (got -5)",
    "data.path=": "'' is empty; name a folder with data.path=FOLDER",
    "cache_dir=/": "'/' is the root of the file system; name a folder with cache_dir=FOLDER",
    "data.name=a/b": "must be a folder name of letters (A-Z, a-z), digits and _.- (got 'a/b')",
    "fusion.name=null": "must be a string (got None); for example fusion.name=my_name",
    "fusion._target_=posfuse.model.fusion": "cannot import 'posfuse.model.fusion'",
    "fusion._target_=builtins.dict": "cannot import 'builtins.dict'",
    "fusion._target_=null": "missing",
    "encoding.table._target_=posfuse.model.fusion.Add": "posfuse.model.fusion.Add is not a "
    "subclass of posfuse.model.encoding.Table; make it one",
    "optim.lr=nan": "must be above 0 (got nan)",
    "logger.tags=[a,'']": "has an empty tag; remove it",
    "trainer.monitor=f1": "must be accuracy, macro_f1, loss, or metric (got f1)",
}


@pytest.mark.parametrize("override", BAD)
def test_a_bad_value_is_named_with_its_limits(override: str) -> None:
    key = override.split("=")[0]
    assert complaint(override).startswith(f"{key}: {BAD[override]}")


def test_limits_include_their_bounds() -> None:
    values = ["model.dropout=0", "data.max_len=1", "trainer.threads=1024", "seed=4294967295"]
    checked(composed(*values, "model.token_scale=1e-6", "data.vocabulary.max_size=3"))
    for text, scale in (("1/8", 0.125), ("2", 2.0), ("sqrt_d", "sqrt_d")):
        assert checked(composed(f"model.token_scale={text}")).model.token_scale == scale


def test_a_folder_replaces_the_hub_but_not_a_corpus_that_is_made() -> None:
    assert complaint("data=folder").startswith("data.path: no corpus given")
    checked(composed("data=agnews", "data.path=somewhere"))
    text = complaint("data=listops", "data.path=somewhere")
    assert text.startswith("data.path: listops is made by posfuse.data.")
    assert "use data=folder data.name=NAME" in text


def test_bad_options_of_operators_are_named() -> None:
    negative = complaint("fusion=gate_cnn", "fusion.half_width=-1")
    assert "fusion=gate_cnn: half_width is -1" in negative
    odd = ["model.d_model=5", "model.n_heads=5"]
    assert re.search("encoding=sinusoidal.*use an even model.d_model", complaint(*odd))
    for more in (["encoding=learned"], ["encoding=alibi", "fusion=none"]):
        build_parts(checked(composed(*odd, *more)))


def test_a_module_that_is_not_found_needs_pythonpath():
    assert complaint("fusion._target_=absent.sub.Own") == (
        "fusion._target_: cannot import 'absent.sub.Own' (ModuleNotFoundError: No module named "
        "'absent'); set PYTHONPATH to the folder that contains absent, or give the path of a class "
        "or function that Python can import"
    )
    assert "PYTHONPATH" not in complaint("fusion._target_=posfuse.absent.Own")


def test_an_operator_whose_module_fails_is_named_by_its_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    # wandb replaces sys.exit by a function of its own.
    code = "import sys\nold = sys.exit\ndef exit(code): old(code)"
    scope = {}
    exec(compile(code, f"{sysconfig.get_path('purelib')}/wandb/hooks.py", "exec"), scope)
    monkeypatch.setattr(sys, "exit", scope["exit"])
    codes = {
        "def f(:": "SyntaxError: invalid syntax (broken_0.py, line 1)",
        "\nimport absent": "ModuleNotFoundError: No module named 'absent', {file} line 2",
        "raise RuntimeError('a\\nb')": "RuntimeError: a b, {file} line 1",
        "import sys\nsys.exit(3)": "SystemExit: 3, {file} line 2",
    }
    for i, (code, reason) in enumerate(codes.items()):
        file, target = tmp_path / f"broken_{i}.py", f"broken_{i}.Operator"
        file.write_text(code)
        importlib.invalidate_caches()  # the folder may have the same time as before
        text = complaint(f"fusion._target_={target}")
        expected = f"fusion._target_: cannot import {target!r} ({reason.format(file=file)}); give"
        assert text.startswith(expected)


OWN = """
from __future__ import annotations
from collections.abc import Sequence
from posfuse.model.fusion import Add

class Typed(Add):
    def __init__(self, d_model: int, width: int = 16, sizes: Sequence[int] = (), x: Absent = 1):
        super().__init__(d_model)

class Flagged(Add):
    def __init__(self, d_model, flag: bool = False, other: bool | None = False):
        super().__init__(d_model)

class Open(Add):
    def __init__(self, d_model, width=16, **options):
        super().__init__(d_model)
"""


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("Open width=[8]", ""),
        ("Open my-key=8", ""),
        ("Open class=8", ""),
        ("Open d_model=8", "fusion.d_model: unknown; own_arguments.Open takes width"),
        ("Typed width=8", ""),
        ("Flagged flag=true", ""),
        ("Flagged flag=no", "fusion.flag: must be true or false (got no)"),
        ("Flagged other=no", "fusion.other: must be true or false (got no)"),
        ("Typed width=wide", "fusion.width: Value 'wide' of type 'str' could not be converted to "
         "Integer; give another value"),
        ("Typed sizes=[1,2]", ""),  # OmegaConf cannot check it
        ("Typed x=1", "fusion.x: its annotation 'Absent' cannot be evaluated (name 'Absent' is not "
         "defined); import its type in the module of the class, or remove the annotation"),
    ],
)  # fmt: skip
def test_arguments_of_ones_own_class_may_lack_annotations(own, message, own_module):
    own_module("own_arguments", OWN)
    name, *options = own.split()
    given = [f"fusion._target_=own_arguments.{name}", *(f"+fusion.{o}" for o in options)]
    if message:
        assert complaint(*given).startswith(message)
    else:
        build_parts(checked(composed(*given)))


def test_a_null_argument_of_ones_own_class_is_passed_on(own_module) -> None:
    own_module("own_arguments", OWN)
    cfg = checked(composed("fusion._target_=own_arguments.Flagged", "+fusion.other=null"))
    assert cfg.fusion["other"] is None


def test_a_number_written_as_text_is_a_number() -> None:
    text, number = (checked(composed("fusion=mlp", f"fusion.hidden={n}")) for n in ('"64"', "64"))
    assert text == number
    assert text.fusion["hidden"] == 64


def test_the_config_reference_and_the_schemas_are_current() -> None:
    docs = CONF_DIR.parent / "docs"
    pages = runpy.run_path(str(docs / "config_reference.py"))["pages"]()
    assert {name: (docs / name).read_text() for name in pages} == pages
    row = "| `model.token_scale` | any | `sqrt_d` | sqrt_d, learned, or between"
    assert row in pages["config.md"]


def test_a_plain_runs_folder_names_its_cell_and_seed() -> None:
    overrides = "data=x fusion=add seed=3 logger=none hydra/launcher=parallel experiment=quickstart"
    more = "output_dir=/elsewhere trainer.progress=none data.path=/elsewhere/texts"
    overrides = [*overrides.split(), *more.split()]
    assert run_folder("x", "sinusoidal", "add", 3, overrides) == "x/sinusoidal/add/seed=3"
    assert run_folder("x", "y", "z", 0, ["optim.lr=0.1"]) == "x/y/z/optim.lr=0.1/seed=0"
    for place in ("host.path=/here/bert", "+host.path=/bert", "++host.path=/there/bert"):
        folder = f"x/y/z/{place.partition('=')[0]}=bert/seed=0"  # without the place of the model
        assert run_folder("x", "y", "z", 0, [place]) == folder


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=300)
override_lists = st.lists(texts.map(lambda v: f"model.token_scale={v}"), max_size=3)


@given(override_lists, override_lists)
def test_folders_have_valid_names_and_different_overrides_different_folders(one, two) -> None:
    folders = [run_folder("x", "y", "z", 0, overrides) for overrides in (one, two)]
    assert (folders[0] == folders[1]) == (sorted(one) == sorted(two))
    for folder, overrides in zip(folders, (one, two), strict=True):
        parts = folder.split("/")
        assert len(parts) == (5 if overrides else 4)
        assert all(re.fullmatch(r"[A-Za-z0-9._=+-]{1,255}", part) for part in parts)
        assert not {".", ".."} & {*parts}


@pytest.mark.parametrize("pair", [("a/b", "a,b"), ("a=b", "a b"), ("[1,2]", "[1/2]"), ("A", "Å")])
def test_values_that_look_alike_in_plain_letters_get_different_folders(pair) -> None:
    assert len({run_folder("x", "y", "z", 0, [f"data.corpus.id={value}"]) for value in pair}) == 2


def test_every_setting_is_in_the_fingerprint_unless_it_is_neutral() -> None:
    cfg = checked(composed("fusion=gate_cnn", "data=bbc_digest"))
    for key in flatten(asdict(cfg)):
        # The content of these files counts, not their name.
        if key in ("data.path", "host.path", "data.vocabulary.file"):
            continue
        changed = deepcopy(cfg)
        *parents, last = key.split(".")
        node = reduce(lambda n, k: n[k] if isinstance(n, dict) else getattr(n, k), parents, changed)
        (node if isinstance(node, dict) else vars(node))[last] = "changed"
        assert (fingerprint(changed) == fingerprint(cfg)) == is_neutral(key), key


def test_a_run_of_an_earlier_version_is_found_unless_all_numbers_changed(monkeypatch) -> None:
    """The fingerprint changes only with NUMERICS or the default settings."""
    cfg = checked(composed())
    assert fingerprint(cfg) == "48513f7e86a961bb"
    monkeypatch.setattr(identity, "NUMERICS", identity.NUMERICS + 1)
    assert fingerprint(cfg) != "48513f7e86a961bb"


def test_a_part_whose_numbers_changed_has_another_fingerprint(monkeypatch) -> None:
    on_bbc, *others = (
        checked(composed(f"encoding={encoding}", f"data={data}"))
        for encoding, data in (("rope", "bbc_article"), ("pope", "listops"), ("rope", "listops"))
    )
    before = [fingerprint(cfg) for cfg in (on_bbc, *others)]
    bbc = ("lead_paragraph", "article", "digest", "lead_story")
    assert {f"posfuse.data.bbc.{name}" for name in bbc} <= identity.PART_NUMERICS.keys()
    monkeypatch.setattr(identity, "PART_NUMERICS", {"posfuse.model.polar.Pope": 2})
    assert [fingerprint(cfg) in before for cfg in (on_bbc, *others)] == [False, False, True]
