"""The schematics of the docs: their files, and that no text overlaps or is cut off."""

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))

import schematics  # noqa: E402

NAMES = {f"{name}.{kind}" for name in ("operators", "local_gate") for kind in ("png", "svg")}


def test_the_command_writes_the_same_bytes_whatever_the_users_style(tmp_path):
    subprocess.run([sys.executable, DOCS / "schematics.py", tmp_path / "one"], check=True)
    with mpl.rc_context({"font.size": 20, "savefig.dpi": 30, "mathtext.fontset": "cm"}):
        schematics.write(tmp_path / "two")
    assert {path.name for path in (tmp_path / "one").iterdir()} == NAMES
    for name in NAMES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        assert (DOCS / name).exists()
    for path in (tmp_path / "one").glob("*.svg"):
        assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert "date" not in path.read_text().lower()
    for path in (tmp_path / "one").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_all_words_are_inside_the_figure_and_apart():
    for name, draw in schematics.DRAWINGS.items():
        figure = draw()
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()
        words = [t for t in figure.findobj(Text) if t.get_text() and t.get_visible()]
        # Tick labels of the hidden axes are texts too, but never drawn.
        words = [t for t in words if t.axes is None or t in t.axes.texts]
        assert len(words) > 10, name
        boxes = [(word.get_text(), word.get_window_extent()) for word in words]
        for text, box in boxes:
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, text
            assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, text
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            assert not a.overlaps(b), f"{one} and {other}"


def test_the_equations_carry_the_papers_numbers():
    for name, equations in (("operators", (1, 2, 3, 4)), ("local_gate", (5, 6))):
        texts = [t.get_text() for t in schematics.DRAWINGS[name]().findobj(Text)]
        for number in equations:
            assert any(text.startswith(f"eq. {number}") for text in texts), number
