"""Texts are read and written as UTF-8, whatever the locale is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Their files are ASCII, and another syntax tree would make the results of benchmarks outdated.
ASCII = ("src/posfuse/process/devices.py", "src/posfuse/process/environment.py")
TEXT = ("read_text", "write_text", "open", "NamedTemporaryFile", "TextIOWrapper")


def without_encoding(source: str) -> list[int]:
    """The lines of calls that read or write text in the encoding of the locale."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        is_binary = name == "open" and any("b" in str(mode) for mode in modes[-1:])
        is_low_level = ast.unparse(node.func) == "os.open"
        has_encoding = "encoding" in [keyword.arg for keyword in node.keywords]
        if name in TEXT and not (is_binary or is_low_level or has_encoding):
            found.append(node.lineno)
    return found


def test_every_text_file_has_an_encoding():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("src", "benchmarks", "docs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in ASCII
        for line in without_encoding(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_a_call_without_encoding_is_seen():
    source = "a.read_text()\nb.write_text(x)\nopen(f)\nc.open('a')\nc.open('rb')\nos.open(f, 1)\n"
    assert without_encoding(source) == [1, 2, 3, 4]
    assert without_encoding("a.open(encoding='utf-8')\nb.write_text(x, encoding='utf-8')") == []
