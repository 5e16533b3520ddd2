"""Which code a benchmark measures, and whether a result still describes that code.

A benchmark names what it measures:

    MEASURES = "model training.build hydra_plugins.posfuse_parallel conf/protocol"

These are modules and packages of src/posfuse or src, and YAML files or folders of the repository.
A result stores their digest, and is current while the digest is the same. The digest also covers
the benchmark's script, the scripts that this imports, except store.py, which writes a result and
measures nothing, and torch's minor version. Comments and docstrings do not count.
"""

import ast
import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

WRITER = "store"  # the script that is not part of a digest
HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def minor(torch: str) -> str:
    """2.13.0+cpu -> 2.13"""
    return ".".join(torch.partition("+")[0].split(".")[:2])


def installed_torch() -> str:
    return minor(version("torch"))


def is_current(result: dict[str, Any], script: Path, torch: str) -> bool:
    """Whether a result file's content was measured with the code of today and this torch."""
    return bool(result.get("code") == digest(script, torch))


def benchmarks(folder: Path) -> dict[str, Path]:
    """The scripts of a folder that say what they measure, by name; the most important one first."""
    paths = sorted(folder.glob("*.py"), key=lambda path: (path.stem != "training", path.stem))
    return {path.stem: path for path in paths if constant(path, "MEASURES")}


def digest(script: Path, torch: str) -> str:
    """The digest of what a benchmark measures; `torch` is a minor version, as 2.13."""
    root = script.resolve().parents[1]
    files = set(imported(script.resolve()))
    for name in str(constant(script, "MEASURES")).split():
        files |= set(measured(name, script, root))
    contents = {path.relative_to(root).as_posix(): content(path) for path in files}
    text = json.dumps([torch, contents], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measured(name: str, script: Path, root: Path) -> list[Path]:
    """The files that a word of MEASURES names."""
    paths = [root / name]
    if "/" not in name:
        paths = [root / "src" / room / name.replace(".", "/") for room in ("posfuse", "")]
    for path in paths:
        if (module := path.with_suffix(".py")).is_file():
            return [module]
        if path.exists():
            files = path.rglob("*") if path.is_dir() else [path]
            return sorted(file for file in files if file.suffix in (".py", ".yaml"))
    raise SystemExit(f"error: {script}: MEASURES names {name!r}, which does not exist; correct it")


def imported(script: Path) -> list[Path]:
    """The script and the scripts beside it that it imports, directly or not."""
    found, todo = [], [script]
    while todo:
        path = todo.pop()
        found.append(path)
        for node in ast.walk(tree(path)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            beside = (script.parent / f"{name}.py" for name in names if name != WRITER)
            todo += [p for p in beside if p.exists() and p not in found and p not in todo]
    return found


def constant(script: Path, name: str) -> Any:
    """The literal that a script assigns to a name at its top level; None if it assigns none."""
    for node in tree(script).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return None


def folders(script: Path) -> list[str]:
    """The corpora of which a benchmark takes folders."""
    return list(constant(script, "FOLDERS") or ())


def docstring(script: Path) -> str:
    return ast.get_docstring(tree(script)) or ""


def tree(script: Path) -> ast.Module:
    return ast.parse(script.read_text(encoding="utf-8"))


def content(path: Path) -> Any:
    return parsed(path.read_text(encoding="utf-8"), path.suffix)


@cache  # benchmarks measure the same files
def parsed(text: str, suffix: str) -> Any:
    return yaml.safe_load(text) if suffix == ".yaml" else shape(ast.parse(text))


def shape(node: Any) -> Any:
    """A syntax tree as nested lists, without docstrings. Empty fields are left out, since new
    versions of Python add some."""
    if isinstance(node, list):
        return [shape(item) for item in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, HAVE_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    return [type(node).__name__, {k: shape(v) for k, v in fields.items() if v not in (None, [])}]
