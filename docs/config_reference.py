"""Writes docs/config.md, the reference of every config key, from src/posfuse/config.py, and
docs/study.schema.json and docs/claims.schema.json, the schemas of files that users write.

python docs/config_reference.py
"""

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from posfuse.config import Config
from posfuse.limits import limits_of
from posfuse.study.spec import Study
from posfuse.verdicts.claims import Claims

START = """\
# Config keys

    posfuse train data=imdb fusion=concat model.d_model=128 optim.lr=1e-3
    posfuse train --cfg job                # prints the composed config
    eval "$(posfuse --completion bash)"    # lets bash complete commands, groups, choices and keys

Set a key with `key=value`. Choose a file of a group with `group=name`: a group is a folder of
`conf/`, and each file states its settings. `python docs/config_reference.py` writes this page from
`src/posfuse/config.py`. In zsh, run `autoload -U bashcompinit && bashcompinit` before the line for
bash.
"""
CHECKED = {
    "check_folder": "a folder",
    "check_name": "letters, digits, _.-",
    "check_project": "no /\\#?%:",
    "check_tags": "no empty text",
}


def page() -> str:
    """The text of docs/config.md."""
    return "\n".join([START, *_sections(Config, "")])


def _sections(schema: Any, prefix: str) -> list[str]:
    nested = [f for f in dataclasses.fields(schema) if dataclasses.is_dataclass(f.type)]
    rows = ["| key | type | default | limits | meaning |", "|---|---|---|---|---|"]
    rows += [_row(f, prefix) for f in dataclasses.fields(schema) if f not in nested]
    title = f"## {prefix.rstrip('.') or 'Run'}\n"
    lines = [title, *rows, ""]
    for f in nested:
        lines += _sections(f.type, f"{prefix}{f.name}.")
    return lines


def _row(f: "dataclasses.Field[Any]", prefix: str) -> str:
    default = f.default_factory() if callable(f.default_factory) else f.default
    text = {"???": "required", "None": "null", "False": "false", "True": "true"}
    limits = limits_of(f.metadata)
    if check := f.metadata.get("check"):
        limits = CHECKED[check.__name__]
    shown = f"`{text.get(str(default), default)}`"
    return (
        f"| `{prefix}{f.name}` | {_type(f.type)} | {shown} | {limits} | {f.metadata['meaning']} |"
    )


def _type(kind: Any) -> str:
    names = {str: "text", bool: "true or false", int: "integer", float: "number", Any: "any"}
    options = [o for o in typing.get_args(kind) if o is not type(None)]
    if isinstance(kind, types.UnionType):
        null = ["null"] if type(None) in typing.get_args(kind) else []
        return " or ".join([*map(_type, options), *null])
    kind = typing.get_origin(kind) or kind
    return names.get(kind, {dict: "mapping", list: "list"}.get(kind, str(kind)))


def pages() -> dict[str, str]:
    """The text of each file that this script writes, by its name."""
    parts = {"study.schema.json": Study, "claims.schema.json": Claims}
    schemas = {name: TypeAdapter(part).json_schema() for name, part in parts.items()}
    texts = {name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas.items()}
    return {"config.md": page(), **texts}


if __name__ == "__main__":
    for name, text in pages().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")
