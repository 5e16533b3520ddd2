"""Hand-written records for tests of the report; no run is needed."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import called
from posfuse import seals
from posfuse.data.corpora import files_digest, folder_files
from posfuse.report import page
from posfuse.runs import records
from small_runs import write_corpus

NAMES = {"data": "tiny", "encoding": "sinusoidal", "fusion": "add"}  # of a sweep's own run
CONFIG = """
data:
  name: {data}
  path: {corpus}
  max_len: 16
cache_dir: {cache}
encoding: {{name: sinusoidal}}
"""


def write_record(
    root: Path, accuracy: float, fusion: str = "add", seed: int = 0, data: str = "tiny", **more: Any
) -> Path:
    """Write result.json, predictions.parquet, history.csv and config.yaml of one run.

    The accuracy is rounded to one of 40 documents; `more` are keys of the record, such as
    `encoding` and `settings`.
    """
    more = {"encoding": "sinusoidal", "variant": "", "tokens": 10.0, **more}
    folder = root / data / more["encoding"] / fusion / more["variant"] / f"seed={seed}"
    folder.mkdir(parents=True)
    corpus = root.parent / "corpus"
    if not corpus.exists():
        write_corpus(corpus, n_classes=2)
    settings = {"seed": seed, "data.name": data, "fusion.name": fusion, "model.d_model": 8}
    settings["data.path"] = files_digest(folder_files(str(corpus)))
    scores = more.get("test", {})
    metric = next((name for name in ("bits_per_byte", "exact_match") if name in scores), "accuracy")
    reads_windows = more.get("settings", {}).get("task.name") == "language_model"
    record = {
        "task": {"metric": metric, "predictions": "windows" if reads_windows else "classes"},
        "schema": records.SCHEMA,
        "fingerprint": seals.short_digest(f"{folder.relative_to(root)}{more.get('settings')}"),
        "sweep_id": root.name,
        "data": data,
        "fusion": fusion,
        "seed": seed,
        "test": {"accuracy": accuracy, "macro_f1": accuracy},
        "mean_tokens": {"train": more.pop("tokens")},
        "label_names": ["even", "odd"],
        "latency_ms": 0.5 + 0.1 * seed,
        "parameters": 1000,
        "fusion_parameters": 10,
        **more,
        "settings": settings | more.get("settings", {}),
    }
    (folder / "result.json").write_text(json.dumps(record))
    write_predictions(folder, accuracy)
    epochs = {"epoch": [1, 2], "val_accuracy": [accuracy / 2, accuracy]}
    pd.DataFrame(epochs).to_csv(folder / "history.csv", index=False)
    (folder / "config.yaml").write_text(
        CONFIG.format(data=data, corpus=corpus, cache=root.parent / "cache")
    )
    return folder


def write_failure(folder: Path, kind: str, message: str, **more: Any) -> None:
    """Write failure.json of a run; `more` are keys of it."""
    failure = {"id": "1", "time": 1.0, "kind": kind, "message": message, "overrides": []}
    records.write_json(folder / records.FAILURE, failure | more)


def ask(root: Path, params: Any, task: Iterable[str] = (), **sweeper: Any) -> None:
    """Write multirun.yaml of a sweep with these parameters, None or a dict, and overrides."""
    hydra = {"sweeper": {"params": params, **sweeper}, "overrides": {"task": list(task)}}
    names = {key: {"name": name} for key, name in NAMES.items()}
    (root / "multirun.yaml").write_text(json.dumps({"hydra": hydra, "seed": 0, **names}))


def write_predictions(folder: Path, accuracy: float, shift: int = 0) -> None:
    """The first `accuracy` of the documents are correct; `shift` changes their labels."""
    index = np.arange(40)
    label = (index + shift) % 2
    is_right = index < np.nan_to_num(np.round(40 * accuracy), posinf=0)
    columns = {"index": index, "length": 5 + index, "group": index, "label": label}
    columns["predicted"] = np.where(is_right, label, 1 - label)
    pd.DataFrame(columns).to_parquet(folder / "predictions.parquet", index=False)


def write_sweep(
    root: Path, accuracies: Mapping[str, Iterable[float] | dict[int, float]], **more: Any
) -> Path:
    """One cell per fusion, with an accuracy for each seed from 0, or by seed."""
    for fusion, values in accuracies.items():
        by_seed = values if isinstance(values, dict) else dict(enumerate(values))
        for seed, accuracy in by_seed.items():
            write_record(root, accuracy, fusion, seed, **more)
    return root


def posfuse_report(*arguments, draw=False):
    """As `called`; figures take longest, so they are drawn on request only."""
    with pytest.MonkeyPatch.context() as patch:
        if not draw:
            patch.setattr(page, "draw_all", lambda *_: {})
        return called("report", *arguments)


def reported(*arguments, draw=False):
    """What `posfuse report` prints; there is no error."""
    printed, error = posfuse_report(*arguments, draw=draw)
    assert error is None
    return printed


def repeated(page: str) -> list[str]:
    """The sentences of four words or more that a page has twice, as in tests/system/test_page.py.
    Tables may share a value of all rows."""
    page = re.sub(r"</?(?:a|code|em|strong)\b[^>]*>", "", page)  # tags inside a sentence
    blocks = re.findall(r"<(?:p|li|dd|figcaption|summary)\b[^>]*>([^<]*)", page)
    sentences = [s for text in blocks for s in re.split(r"(?<=[.?!])\s+", text.strip())]
    long = [s for s in sentences if s[-1:] in tuple(".?!") and len(s.split()) > 3]
    return [s for i, s in enumerate(long) if s in long[:i] and not s.startswith("All rows: ")]
