"""The notebooks run, and are committed without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from posfuse.train import train
from small_runs import small_config, write_corpus

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_on_a_sweeps_records(path: Path, tmp_path, monkeypatch) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    for fusion in ("add", "concat"):
        folder = tmp_path / "sweep" / "tiny" / "sinusoidal" / fusion / "seed=0"
        folder.mkdir(parents=True)
        train(small_config(corpus, f"fusion={fusion}", "trainer.max_epochs=1"), folder)
    monkeypatch.setenv("POSFUSE_SWEEP", str(tmp_path / "sweep"))
    monkeypatch.setenv("POSFUSE_FIGURE", str(tmp_path / "figure.png"))
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=120).execute()
    assert (tmp_path / "figure.png").stat().st_size > 1000
