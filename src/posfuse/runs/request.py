"""What a run was asked for, kept beside its record: a sweep then sees that the run is done without
composing its config, which takes Hydra a tenth of a second.

A request is the overrides and all that makes a config of them: the files of conf/, the schema and
the code between the two. If any of it changes, the config is composed and compared as ever.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.conf import ConfigSourceInfo

from posfuse import config
from posfuse.config import Config
from posfuse.data.corpora import files_digest, folder_files
from posfuse.errors import InputError
from posfuse.runs import checks, fidelity, records

REQUEST = ".request"
KNOWN = ("hydra.conf", "")  # where configs come from beside folders: Hydra itself, the schema
ENVIRONMENT = b"oc.env"  # the resolver that reads it


def basis(sources: Sequence[ConfigSourceInfo]) -> str | None:
    """sha256 over all but the overrides; None where the environment can decide the config too.

    `sources` are Hydra's, hydra.runtime.config_sources.
    """
    folders = [Path(s.path) for s in sources if s.schema == "file"]
    if len(folders) + sum(s.path in KNOWN for s in sources) < len(sources):
        return None
    code = [Path(str(module.__file__)) for module in (checks, config, fidelity, records)]
    files = [f for folder in folders for f in sorted(folder.rglob("*.yaml")) if f.is_file()]
    if any(ENVIRONMENT in file.read_bytes() for file in files):
        return None
    found = hashlib.sha256(hydra.__version__.encode())
    for file in code + files:
        text = file.read_bytes()
        found.update(f"{file}\0{len(text)}\0".encode() + text)
    return found.hexdigest()


def digest(basis: str | None, overrides: Sequence[str]) -> str | None:
    """sha256 over the request; None where the environment can decide the config too."""
    text = json.dumps([basis, *overrides]).encode()
    return None if basis is None or ENVIRONMENT in text else hashlib.sha256(text).hexdigest()


def remember(folder: Path, asked: str | None, cfg: Config, record: records.Record) -> None:
    """Keep the digest of the request whose record lies in `folder`."""
    if asked is not None:
        kept = {"request": asked, "fingerprint": record["fingerprint"], "path": cfg.data.path}
        records.write_json(folder / REQUEST, kept)


def finished(sweep_dir: Path) -> dict[str, records.Record]:
    """The records of a sweep's folder that are whole and belong to a request, by its digest."""
    return dict(_finished(sweep_dir))


def _finished(sweep_dir: Path) -> Iterator[tuple[str, records.Record]]:
    for path in sorted(sweep_dir.rglob(REQUEST)):
        try:
            kept: dict[str, Any] = json.loads(path.read_text())
            record = records.read_result(path.with_name(records.RESULT))
            texts = kept["path"] and files_digest(folder_files(kept["path"]))
        except (OSError, ValueError, LookupError, TypeError, InputError):
            continue  # whoever does that run says what is wrong
        is_same = record["fingerprint"] == kept["fingerprint"]
        is_same &= texts is None or texts == record["settings"]["data.path"]
        if is_same and records.is_complete(path.parent):
            yield kept["request"], record
