"""The notebooks run, and are committed without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from posfuse.train import train
from processes import HANG
from small_runs import small_config, write_corpus

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
FUSIONS = ["add", "concat", "gate_scalar"]
SMOKE = "what_a_gate_learns"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    """Runs of one seed in <data>/<encoding>/<fusion>/seed=0."""
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


def execute(name: str, folder: Path, monkeypatch, sweep: Path, run: Path) -> set[str]:
    """Run a notebook in an empty folder, where it must leave no file; returns the output kinds."""
    monkeypatch.setenv("POSFUSE_SWEEP", str(sweep))
    monkeypatch.setenv("POSFUSE_RUN", str(run))
    monkeypatch.setenv("POSFUSE_RUNS", f"{run}:{run.parents[1] / 'add' / run.name}")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    folder.mkdir()
    NotebookClient(notebook, timeout=HANG, resources={"metadata": {"path": str(folder)}}).execute()
    assert not list(folder.iterdir())
    return {
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        for kind in [output.output_type, *output.get("data", {})]
    }


def test_notebooks_are_committed_without_outputs() -> None:
    assert {"published_numbers", "what_a_gate_learns"} <= set(NOTEBOOKS)
    for name in NOTEBOOKS:
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert code, name
        assert all(cell.outputs == [] and cell.execution_count is None for cell in code), name
        assert all("id" in cell for cell in notebook.cells), name


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.smoke] * (n == SMOKE)) for n in NOTEBOOKS]
)
def test_a_notebook_runs_on_the_records_of_a_sweep(name, sweep, tmp_path, monkeypatch) -> None:
    run = sweep / "tiny" / "sinusoidal" / "gate_scalar" / "seed=0"
    kinds = execute(name, tmp_path / "empty", monkeypatch, sweep, run)
    assert "error" not in kinds
    assert kinds & {"stream", "text/plain", "image/png"}
