"""The commands of README.md and the docs, and the configs of their runs."""

import re
import shlex
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from posfuse.process.arguments import file_options, overrides_first

TOP = Path(__file__).parents[1]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
# Not checked here: commands that need more than this machine, or that other tests run.
ELSEWHERE = {
    "docker": "needs docker",
    "pip": "needs the package index",
    "ray start": "needs a cluster",
    "docs/length_generalization/accuracy.csv": "test_foreign.py makes this page",
}


def blocks(page: str, language: str = "python", begin: str = "") -> list[str]:
    """The blocks of code in a page that begin with this text."""
    text = (TOP / page).read_text()
    return re.findall(rf"^```{language}\n({begin}.*?)^```", text, re.M | re.S)


def commands() -> list:
    """The commands of indented lines and of blocks for a shell, each once, named by its page. Those
    of the docs are slow."""
    cases = {}
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        shell = re.findall(r"^```(?:bash|sh|console)\n(.*?)^```", text, re.M | re.S)
        outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        lines = re.findall(r"^ {4}(\S.*)$", outside, re.M)
        for line in [*lines, *(line for block in shell for line in block.splitlines())]:
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[0].startswith("PYTHONPATH="):
                del words[0]
            is_command = words[0] in ("posfuse", "make", "python", "docker", "pip", "ray")
            if is_command and not any(known in " ".join(words) for known in ELSEWHERE):
                name = f"{page.relative_to(TOP)}: {' '.join(words)}"
                marks = [] if page == PAGES[0] else [pytest.mark.slow]
                cases.setdefault(tuple(words), pytest.param(page, words, id=name, marks=marks))
    return list(cases.values())


def own_files(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the modules and config files of a page, whose names precede them or begin them. Its
    modules can be imported during the test."""
    text = page.read_text()
    named = re.findall(r"`(my_[\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```", text, re.M | re.S)
    named += re.findall(r"^```yaml\n# (my_\S+\.yaml)\n(.*?)^```", text, re.M | re.S)
    for name, content in named:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    monkeypatch.syspath_prepend(folder)
    for module in folder.glob("my_*.py"):
        monkeypatch.delitem(sys.modules, module.stem, raising=False)


def jobs(words: list[str]) -> list[list[str]]:
    """The overrides of as few runs as contain each value of each override. The current folder must
    have the files of the docs."""
    ordered = overrides_first(
        [word.replace("FOLDER", str(Path.cwd() / "FOLDER")) for word in words]
    )
    own = [f"hydra.searchpath=[{Path.cwd() / 'my_conf'}]"] * bool(file_options(ordered, []))
    parsed = OverridesParser.create().parse_overrides(
        [w for w in ordered if re.match(r"[^-]\S*=", w)]
    )
    values = [values_of(o) for o in parsed]
    assert "-m" in words or all(len(each) == 1 for each in values)
    runs = zip_longest(*values) if values else [()]
    return [[*own, *(each or of[0] for each, of in zip(run, values, strict=True))] for run in runs]


def values_of(override: Override) -> list[str]:
    """An override for each value; the ends of an interval."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if override.is_interval_sweep():
        values = [override.value().start, override.value().end]
    else:
        values = override.sweep_string_iterator()
    return [f"{override.get_key_element()}={value}" for value in values]
