"""The notebooks run, and are committed without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from posfuse.train import train
from processes import HANG
from small_runs import small_config, write_corpus

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
FUSIONS = ["add", "concat", "gate_scalar"]
# Other gates: of every feature, and of the position alone.
GATES = ["gate_mlp", "gate_cnn"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    """Finished runs of one seed, in <data>/<encoding>/<fusion>/seed=0."""
    root = tmp_path_factory.mktemp("notebooks")
    corpus = write_corpus(root / "corpus")
    for fusion in FUSIONS:
        train_one(corpus, root / "sweep", fusion)
    return root / "sweep"


def train_one(corpus: Path, sweep: Path, fusion: str) -> Path:
    folder = sweep / "tiny" / "sinusoidal" / fusion / "seed=0"
    folder.mkdir(parents=True)
    train(small_config(corpus, f"fusion={fusion}", "trainer.max_epochs=1"), folder)
    return folder


def execute(path: Path, folder: Path, monkeypatch, sweep: Path, run: Path) -> list[Path]:
    """Run a notebook from an empty folder; returns what it leaves there."""
    monkeypatch.setenv("POSFUSE_SWEEP", str(sweep))
    monkeypatch.setenv("POSFUSE_RUN", str(run))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=HANG, resources={"metadata": {"path": str(folder)}}).execute()
    return list(folder.iterdir())


def test_the_notebooks_are_found() -> None:
    assert {"published_numbers", "what_a_gate_learns"} <= {path.stem for path in NOTEBOOKS}


@every_notebook
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert all("id" in cell for cell in notebook.cells)


@every_notebook
def test_a_notebook_runs_on_a_sweeps_records(path: Path, sweep, tmp_path, monkeypatch) -> None:
    run = sweep / "tiny" / "sinusoidal" / "gate_scalar" / "seed=0"
    assert execute(path, tmp_path, monkeypatch, sweep, run) == []


@pytest.mark.parametrize("fusion", GATES)
def test_any_gate_can_be_looked_at(fusion, sweep, tmp_path, monkeypatch) -> None:
    run = train_one(sweep.parent / "corpus", tmp_path / "runs", fusion)
    (path,) = (p for p in NOTEBOOKS if p.stem == "what_a_gate_learns")
    (tmp_path / "empty").mkdir()
    assert execute(path, tmp_path / "empty", monkeypatch, sweep, run) == []
