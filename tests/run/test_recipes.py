"""Every command of README.md and the docs, composed or run on stored records."""

import random
import re
import shlex
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from posfuse import options
from posfuse.process.arguments import config_options, overrides_first
from posfuse.runs.checks import checked
from posfuse.study.reading import read_study
from small_records import posfuse_report, write_sweep
from small_runs import composed, write_corpus

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
MAKEFILE = (TOP / "Makefile").read_text()
# Not checked here: commands that need more than this machine, or that other tests run.
ELSEWHERE = {
    "docker": "needs docker",
    "pip": "needs the package index",
    "ray start": "needs a cluster",
    "docs/length_generalization/accuracy.csv": "test_foreign.py makes this page",
}


def commands() -> list:
    """The commands of indented lines and of blocks for a shell, each once, named by its page."""
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
                cases.setdefault(tuple(words), pytest.param(page, words, id=name))
    return list(cases.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which README's sweep has run, with texts, a table and the docs' own files."""
    root = tmp_path_factory.mktemp("recipes")
    write_corpus(root / "FOLDER")
    draw = random.Random(1)
    for name in ("mine", "default", "copy_reverse", "own_best"):
        accuracies = {f: [draw.randint(20, 36) / 40 for _ in range(3)] for f in ("add", "concat")}
        write_sweep(root / "multirun" / name, accuracies)
    rows = ["seed,method,task,accuracy,loss"]
    for seed in range(5):
        for method in ("adam", "sgd", "lion"):
            rows += [f"{seed},{method},{t},{draw.random()},{draw.random()}" for t in "abc"]
    (root / "results.csv").write_text("\n".join(rows))
    claims = re.search(
        r"^```yaml\n(claims:.*?)^```", (TOP / "docs/report.md").read_text(), re.M | re.S
    )
    (root / "my_claims.yaml").write_text(claims[1])
    study = re.search(
        r"^```yaml\n(question:.*?)^```", (TOP / "docs/studies.md").read_text(), re.M | re.S
    )
    (root / "my_study.yaml").write_text(study[1])
    return root


def own_files(page: Path, folder: Path) -> None:
    """Write the modules and config files of a page, whose names precede them or begin them."""
    text = page.read_text()
    named = re.findall(r"`(my_[\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```", text, re.M | re.S)
    named += re.findall(r"^```yaml\n# (my_\S+\.yaml)\n(.*?)^```", text, re.M | re.S)
    for name, content in named:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


@pytest.mark.parametrize(("page", "words"), commands())
def test_a_command_of_the_docs_can_be_given(page, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    program, *rest = words
    if program == "make":
        assert re.search(rf"^{rest[0]}:", MAKEFILE, re.M)
    elif program == "python":
        assert (TOP / rest[0]).is_file()
    elif rest[0] == "train":
        own_files(page, folder)
        monkeypatch.syspath_prepend(folder)
        for module in folder.glob("my_*.py"):
            monkeypatch.delitem(sys.modules, module.stem, raising=False)
        check_training(rest[1:])
    elif rest[0] == "report":
        assert posfuse_report(*rest[1:])[1] is None
    else:
        given = options.parsed(rest[0], "", rest[1:])
        if rest[0] == "study":
            read_study(given.study, [str(folder)])


def values_of(override: Override) -> list[str]:
    """An override for each value; the ends of an interval."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if override.is_interval_sweep():
        values = [override.value().start, override.value().end]
    else:
        values = override.sweep_string_iterator()
    return [f"{override.get_key_element()}={value}" for value in values]


def check_training(words: list[str]) -> None:
    """Compose runs that have each value of each override, and check their configs."""
    ordered = overrides_first(
        [word.replace("FOLDER", str(Path.cwd() / "FOLDER")) for word in words]
    )
    own = [f"hydra.searchpath=[{Path.cwd() / 'my_conf'}]"] * bool(config_options(ordered))
    parsed = OverridesParser.create().parse_overrides(
        [w for w in ordered if re.match(r"[^-]\S*=", w)]
    )
    is_sweep = "-m" in words
    values = [values_of(o) for o in parsed]
    assert is_sweep or all(len(each) == 1 for each in values)
    for job in zip_longest(*values):
        run = [each or of[0] for each, of in zip(job, values, strict=True)]
        config = composed(*own, *run)
        if not any(word.startswith("host.path=") for word in run):
            checked(config)
