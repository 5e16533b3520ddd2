"""The notebooks run, leave no file behind, and compute what their committed outputs show."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from processes import HANG

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
SMOKE = "why_answers_differ"


def outputs(notebook) -> list[list[tuple[str, str]]]:
    """Of each code cell, the kind of each output, and its text."""
    return [
        [
            (kind, output.data[kind] if kind == "text/plain" else "")
            for output in cell.outputs
            for kind in sorted(output.get("data", {}))
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.smoke] * (n == SMOKE)) for n in NOTEBOOKS]
)
def test_a_notebook_computes_what_it_shows(name: str) -> None:
    committed = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    fresh = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    files = sorted(FOLDER.rglob("*"))
    place = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(fresh, timeout=HANG, startup_timeout=HANG, resources=place).execute()
    assert sorted(FOLDER.rglob("*")) == files
    assert outputs(fresh) == outputs(committed)
