"""Checks of a config that need no data and no model."""

import dataclasses
import importlib
import inspect
import re
import sys
from typing import Any, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.config import LARGEST_SEED, TASKS, Config
from posfuse.errors import InputError, input_errors, lacks_memory, own_line
from posfuse.limits import check_limits, check_name
from posfuse.runs.combinations import check_combinations
from posfuse.runs.configs import config_of
from posfuse.runs.fidelity import apply_fidelity
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.identity import HUB, flatten
from posfuse.runs.seeds import with_split_seed

# Keys that follow the run's seed, with how to write that.
FOLLOWING = {
    "data.split_seed": "data.split_seed=seed",
    "data.corpus.split_seed": "${data.split_seed} in its file, and set data.split_seed=seed",
    **{key: f"{key}=null" for key in ("seeds.init", "seeds.order", "seeds.dropout")},
}
SEED = re.compile(r"\$\{[\s.]*seed\s*\}")
# The base of the classes that a key may name. Importing one here would import torch.
BASES = {
    "fusion": "posfuse.model.fusion.Fusion",
    "encoding.table": "posfuse.model.encoding.Table",
    "encoding.attention": "posfuse.model.attention_encoding.AttentionEncoding",
    "task": "posfuse.training.task.Task",
}


def checked(config: DictConfig) -> Config:
    """The composed config as dataclasses. Raises InputError, which names the key and the fix.

    The parts of the model are not built here: `training.build.build_parts` does that.
    """
    try:
        cfg = config_of(config)
    except OmegaConfBaseException as error:
        raise InputError(one_line(error)) from error
    _check_seeds(config)
    cfg.model.token_scale = _number(cfg.model.token_scale)
    if cfg.trainer.accelerator == "auto" and sys.platform == "darwin":
        cfg.trainer.accelerator = "cpu"  # Apple's GPUs have no float64, which measurements need
    check_limits(cfg)
    check_name("fusion.name", cfg.fusion.get("name"))
    apply_fidelity(cfg)
    task = task_of(cfg)
    task.check()
    _check_corpus(cfg)
    check_combinations(cfg)
    if task.needs_labels and cfg.data.text == cfg.data.labels:
        raise InputError(
            f"data.text: {cfg.data.text} is data.labels too, so each text would be its own label; "
            "name another column in one of them"
        )
    if cfg.trainer.monitor not in ("metric", "loss", *task.metrics):
        raise InputError(
            f"trainer.monitor: task={cfg.task.name} has no {cfg.trainer.monitor}; set "
            "trainer.monitor=metric, the task's metric, or loss"
        )
    table, attention = cfg.encoding.table, cfg.encoding.attention
    table |= _check_arguments("encoding.table", table, given=("d_model", "max_len"))
    if attention:
        given = ("d_model", "n_heads", "max_len")
        attention |= _check_arguments("encoding.attention", attention, given)
    fusion = {k: v for k, v in cfg.fusion.items() if k != "name"}
    cfg.fusion |= _check_arguments("fusion", fusion, given=("d_model",))
    return cfg


def _check_seeds(config: DictConfig) -> None:
    """Raise InputError for ${seed}. It would be a number in the record's settings, so the runs of a
    cell would differ in more than their seed, and the report would leave them out."""
    parts = {key: OmegaConf.to_container(config[key], resolve=False) for key in ("data", "seeds")}
    for key, value in flatten(parts).items():
        if key in FOLLOWING and SEED.fullmatch(str(value)):
            raise InputError(f"{key}: write {FOLLOWING[key]} (got {value})")


def _number(value: Any) -> Any:
    """A number or a fraction as a float. Other values are not changed."""
    try:
        above, _, below = str(value).partition("/")
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return value


def _check_corpus(cfg: Config) -> None:
    names = [name for name in vars(cfg.data.splits).values() if name is not None]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"data.splits: two splits are {twice[0]}; name another for one of them")
    if cfg.data.corpus is None:
        if cfg.data.path is None:
            raise InputError("data.path: no corpus given; name a folder with data.path=FOLDER")
        return
    target = cfg.data.corpus.get("_target_")
    if cfg.data.path is not None and target not in (None, HUB):
        raise InputError(  # otherwise the folder's texts would have the name of another corpus
            f"data.path: {cfg.data.name} is made by {target}, which reads no folder; for your own "
            "texts use data=folder data.name=NAME"
        )
    cfg.data.corpus |= _check_arguments("data.corpus", with_split_seed(cfg).corpus or {}, given=())
    seed = cfg.data.corpus.get("split_seed")
    if isinstance(seed, int) and not 0 <= seed <= LARGEST_SEED:
        raise InputError(
            f"data.corpus.split_seed: must be between 0 and {LARGEST_SEED} (got {seed})"
        )


def task_of(cfg: Config) -> Any:
    """The task of a run (training/task.py). Raises InputError for an unknown name."""
    task = cfg.task
    target = task._target_ or TASKS.get(task.name)
    if target is None:
        raise InputError(
            f"task.name: must be {' or '.join(TASKS)} (got {task.name}); another kind of task "
            "needs task._target_, the import path of its class"
        )
    part = import_part("task", target)
    _check_base("task", target, part)
    problem = f"task._target_: {target} cannot be called with one argument"
    with input_errors(problem, "let it take the config"):
        inspect.signature(part).bind(cfg)
    made = part(cfg)
    if not _extends(type(made), BASES["task"]):  # a function may return any object
        raise InputError(
            f"task._target_: {target} returns an object of {type(made).__name__}; return one of a "
            f"subclass of {BASES['task']}"
        )
    return made


def _extends(part: type, base: str) -> bool:
    return base in [f"{c.__module__}.{c.__qualname__}" for c in part.__mro__]


def _check_base(key: str, target: str, part: Any) -> None:
    """Raise InputError for a class that does not extend the base of its kind, or lacks a method
    that the base leaves to it. A function may return an object of any class."""
    if not inspect.isclass(part) or key not in BASES:
        return
    if not _extends(part, BASES[key]):
        raise InputError(f"{key}._target_: {target} is not a subclass of {BASES[key]}; make it one")
    if lacking := sorted(getattr(part, "__abstractmethods__", ())):
        raise InputError(
            f"{key}._target_: {target} does not define {' and '.join(lacking)}, which {BASES[key]} "
            "requires; add what is missing"
        )


def _check_arguments(key: str, node: dict[str, Any], given: tuple[str, ...]) -> dict[str, Any]:
    """Check a node against the signature of its `_target_`. Returns its arguments that are texts,
    with their types: a number may be written as a text, as by ${oc.env:NAME}."""
    target = node.get("_target_")
    if target is None:
        raise InputError(f"{key}._target_: missing; give the import path of the class or function")
    part = import_part(key, target)
    _check_base(key, target, part)
    parameters = inspect.signature(part).parameters.values()
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters)
    if lacking := [name for name in given if name not in named and not takes_any]:
        raise InputError(
            f"{key}._target_: {target} takes no {', '.join(lacking)}; give a class that {key} "
            "can use"
        )
    arguments = {name: p for name, p in named.items() if name not in given}
    names = [name for name in node if name != "_target_"]
    for name in names:
        if name in given or not (name in arguments or takes_any):
            allowed = ", ".join(arguments) or "no options"
            raise InputError(f"{key}.{name}: unknown; {target} takes {allowed}")
    for name, p in arguments.items():
        if name not in node and p.default is inspect.Parameter.empty:
            raise InputError(f"{key}.{name}: missing; {target} needs it")
    # **options have no types, and their names may be no names of fields, such as my-key.
    fields = [(name, _type_of(key, part, arguments[name])) for name in names if name in arguments]
    for name, kind in fields:  # OmegaConf takes "no" for a bool, but the class would get the text
        if kind in (bool, bool | None) and isinstance(node[name], str):
            raise InputError(f"{key}.{name}: must be true or false (got {node[name]})")
    try:  # OmegaConf checks the types as in the rest of the schema
        typed = dataclasses.make_dataclass("_", fields)(**{n: node[n] for n, _ in fields})
        converted = OmegaConf.structured(typed)
    except OmegaConfBaseException as error:
        raise InputError(f"{key}.{one_line(error)}") from error
    return {name: converted[name] for name, _ in fields if isinstance(node[name], str)}


def _type_of(key: str, part: Any, p: inspect.Parameter) -> Any:
    """The annotation of an option if OmegaConf can check it, otherwise Any. Raises InputError for a
    text that cannot be evaluated."""
    if p.annotation is p.empty:
        return Any
    field = dataclasses.make_dataclass("_", [(p.name, p.annotation)])
    # Annotations that are texts are evaluated in the module of the constructor or the function.
    field.__module__ = getattr(getattr(part, "__init__", part), "__module__", part.__module__)
    with input_errors(
        f"{key}.{p.name}: its annotation {p.annotation!r} cannot be evaluated",
        "import its type in the module of the class, or remove the annotation",
    ):
        kind = get_type_hints(field)[p.name]
    try:
        OmegaConf.structured(dataclasses.make_dataclass("_", [(p.name, kind)]))
    except OmegaConfBaseException:
        return Any
    return kind


def import_part(key: str, target: Any) -> Any:
    """The class or function with this import path. Raises InputError if there is none."""
    fix = "give the path of a class or function that Python can import"
    try:
        module, _, name = str(target).rpartition(".")
        part = getattr(importlib.import_module(module), name)
        inspect.signature(part)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        if lacks_memory(error):
            raise
        place = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == place:
            fix = f"set PYTHONPATH to the folder that contains {place}, or {fix}"
        raise InputError(
            f"{key}._target_: cannot import {target!r} ({_reason(error)}); {fix}"
        ) from error
    return part


def _reason(error: BaseException) -> str:
    """An import error in one line, with the line of the user's code that caused it."""
    place = f", {line}" if (line := own_line(error)) else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"
