"""The schematics: their files, and that nothing in them overlaps or is cut off."""

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from posfuse.analysis import schematics

NAMES = {f"{name}.{kind}" for name in ("operators", "local_gate") for kind in ("png", "svg")}


def test_the_command_writes_both_drawings_as_png_and_svg(tmp_path) -> None:
    command = [sys.executable, "-m", "posfuse.analysis.schematics", str(tmp_path / "docs")]
    assert subprocess.run(command, check=True).returncode == 0
    assert {path.name for path in (tmp_path / "docs").iterdir()} == NAMES
    for path in (tmp_path / "docs").glob("*.svg"):
        root = ET.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "date" not in path.read_text().lower()
    for path in (tmp_path / "docs").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_without_a_folder_it_says_how_it_is_used() -> None:
    command = [sys.executable, "-m", "posfuse.analysis.schematics"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "schematics FOLDER" in done.stderr


def test_the_bytes_are_the_same_each_time_whatever_the_users_style(tmp_path) -> None:
    schematics.write(tmp_path / "one")
    with mpl.rc_context({"font.size": 20, "savefig.dpi": 30, "mathtext.fontset": "cm"}):
        schematics.write(tmp_path / "two")
    for name in NAMES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("name", schematics.DRAWINGS)
def test_all_words_are_inside_the_figure_and_apart(name) -> None:
    figure = schematics.DRAWINGS[name]()
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    words = [t for t in figure.findobj(Text) if t.get_text() and t.get_visible()]
    # Tick labels of the hidden axes are texts too, but never drawn.
    words = [t for t in words if t.axes is None or t in t.axes.texts]
    assert len(words) > 10
    extents = {t.get_text() + str(i): t.get_window_extent() for i, t in enumerate(words)}
    for text, box in extents.items():
        inside = figure.bbox
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1, text
        assert inside.y0 <= box.y0 < box.y1 <= inside.y1, text
    for (one, a), (other, b) in itertools.combinations(extents.items(), 2):
        assert not a.overlaps(b), f"{one} and {other}"


@pytest.mark.parametrize(
    ("name", "equations"), [("operators", ["eq. 1", "eq. 2", "eq. 3", "eq. 4"]), ("local_gate", [])]
)
def test_the_equations_carry_the_papers_numbers(name, equations) -> None:
    texts = [t.get_text() for t in schematics.DRAWINGS[name]().findobj(Text)]
    for equation in equations or ["eq. 5", "eq. 6"]:
        assert any(text.startswith(equation) for text in texts), equation
