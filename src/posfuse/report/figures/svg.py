"""Saves a figure as PNG and SVG files, and as an SVG inside an HTML page."""

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from posfuse.report.figures.style import rc_style

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
USED = re.compile(r"url\(#(.*?)\)")
TITLE = "title:"  # the prefix of an artist's gid that contains a hover text


def mark(artist: Artist, text: str) -> None:
    """Give an artist a hover text, which `save` writes as the <title> of its SVG group."""
    artist.set_gid(TITLE + text)


def save(figure: Figure, folder: Path, name: str) -> str:
    """Write folder/name.png and folder/name.svg with the same bytes each time, and return the
    SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = io.StringIO()
    with rc_style():
        png = folder / f"{name}.png"
        figure.savefig(png, facecolor="white", metadata={"Software": None})
        figure.savefig(drawn, format="svg", facecolor="white", metadata={"Date": None})
    svg = for_page(drawn.getvalue(), name)
    (folder / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")
    return svg


def for_page(drawn: str, name: str) -> str:
    """Matplotlib's SVG with unique ids and without rules for the whole page."""
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    root = ET.fromstring(NOT_XML.sub("\ufffd", drawn))  # class names may have such characters
    # The only style rule is for "*", so it would apply to the whole page. It is moved to the root.
    for child in [c for c in root if c.tag != f"{{{SVG}}}g"]:
        if child.tag == f"{{{SVG}}}metadata" or child.find(f"{{{SVG}}}style") is not None:
            root.remove(child)
    root.set("role", "group")
    root.set("aria-labelledby", f"caption-{name}")
    root.set("style", "stroke-linejoin:round;stroke-linecap:butt")
    ids = {}
    with_ids = [element for element in root.iter() if "id" in element.attrib]
    for i, element in enumerate(with_ids, 1):
        # Matplotlib's own ids may be hashes of unrounded sizes, or the same for equal pictures.
        old = element.attrib["id"]
        ids[old] = f"{name}-{i}"
        element.set("id", ids[old])
        if old.startswith(TITLE):
            title = ET.Element(f"{{{SVG}}}title")
            title.text = old.removeprefix(TITLE)
            element.insert(0, title)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == f"{{{XLINK}}}href" and value.startswith("#"):
                element.set(key, f"#{ids[value[1:]]}")
            elif "url(#" in value:
                element.set(key, USED.sub(lambda used: f"url(#{ids[used[1]]})", value))
    return ET.tostring(root, encoding="unicode")
