"""The documentation's links, file names and code, and the version of the release files."""

import html
import re
import sys
import textwrap
import tomllib
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
import torch
import yaml
from scipy import stats

import measured_code
import posfuse
from posfuse.config import CONF_DIR
from posfuse.runs.checks import checked
from posfuse.training.build import build_parts
from recipes import TOP, blocks
from small_runs import composed
from variants import ENCODINGS, OPERATORS

OWN = ("README", "CONTRIBUTING", "CHANGELOG", "multirun/README", "notebooks/README")
PAGES = [*(TOP / f"{name}.md" for name in OWN), *sorted((TOP / "docs").rglob("*.md"))]
HTML = sorted((TOP / "docs").rglob("*.html"))
NOTEBOOKS = sorted((TOP / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
# A path of the machine that made a file; </td> is none.
OF_A_MACHINE = re.compile(r"(?<![\w.<:/])/\w+/")
FOLDERS = ("src/", "conf/", "docs/", "tests/", "notebooks/", "benchmarks/")


def headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_and_files_of_a_page_exist(page):
    text = page.read_text()
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        # GitHub resolves links from blob/main, so this one is of the repository's page of actions.
        file = link.replace("../../actions/", ".github/").removesuffix("/badge.svg")
        name, _, anchor = file.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link
    for code in re.findall(r"`([\w./-]+)`", text):
        if code.startswith(FOLDERS):
            assert (TOP / code).exists(), code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_a_table_of_a_page_has_its_rows_on_lines_of_their_own(page):
    lines = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines()
    for before, line in pairwise(lines):
        if re.search(r"\| *:?-{3}", line):
            assert re.fullmatch(r" *\|( *:?-+:? *\|)+", line), line
            columns = [len(re.findall(r"(?<!\\)\|", row)) for row in (before, line)]
            assert columns[0] == columns[1], before


@pytest.mark.parametrize("page", HTML, ids=lambda page: str(page.relative_to(TOP)))
def test_an_html_page_has_no_dead_link_and_no_path_of_the_machine_that_made_it(page):
    text = page.read_text()
    for link in set(re.findall(r'\s(?:href|src)="([^"]*)"', text)):
        name, _, anchor = unquote(html.unescape(link)).partition("#")
        if name.startswith(("https:", "http:", "data:")):
            continue
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".html":
            assert f'id="{anchor}"' in (target.read_text() if name else text), link
        else:
            assert not anchor or anchor in headings(target), link
    text = re.sub(r'"data:.*?"|<(style|script)>.*?</\1>', "", text, flags=re.DOTALL)
    assert OF_A_MACHINE.findall(text) == []


def test_the_operators_of_the_docs_compute_what_they_say():
    code: dict = {}
    for page in ("README.md", "docs/operators.md"):
        for block in blocks(page, "python"):
            exec(block, code)
    gate, table, words = (code[name] for name in ("fusion", "table", "words"))
    tokens = 8 * words(code["ids"])
    both = torch.cat((tokens, table()[:20].expand_as(tokens)), -1)
    weight = torch.cat((gate.weight_token, gate.weight_position), -1)
    g = torch.sigmoid(both @ weight.T + gate.bias)
    expected = g * tokens + (1 - g) * table()[:20]
    torch.testing.assert_close(code["fused"], expected, atol=1e-5, rtol=1e-5)
    tokens, table = torch.randn(2, 3, 4), torch.randn(5, 4)
    torch.testing.assert_close(code["Modulate"](4)(tokens, table), tokens * (1 + table[:3]))
    normed = torch.nn.functional.layer_norm(table[:3], (4,))
    torch.testing.assert_close(code["AddNormed"](4)(tokens, table), tokens + normed)
    torch.testing.assert_close(code["Ramp"](4, 5)()[:, 0], torch.arange(5) / 5)


def test_the_example_of_the_statistics_page_computes_what_scipy_does():
    (block,) = blocks("docs/statistics.md", "python")
    code: dict = {}
    exec(block, code)
    expected = stats.ttest_1samp(code["deltas"], 0)
    assert code["st"].p_paired_t(code["deltas"]) == pytest.approx(expected.pvalue)
    assert code["st"].t_interval(code["deltas"]) == pytest.approx(expected.confidence_interval())


def test_the_sweep_of_wandb_has_numbers_where_wandb_needs_them():
    """W&B reads the file with yaml.safe_load, for which 1e-4 is a text."""
    (text,) = re.findall(
        r"^    program: .*?(?=\n\n)", (TOP / "docs/wandb.md").read_text(), re.M | re.S
    )
    rates = yaml.safe_load(textwrap.dedent(text))["parameters"]["optim.lr"]
    assert 0 < rates["min"] < rates["max"] < 1


def test_the_image_has_the_packages_of_its_extras(monkeypatch, capsys):
    """Of optuna by default."""
    text = (TOP / "Dockerfile").read_text()
    ((default, code),) = re.findall(
        r'^ARG EXTRAS="(.*)"\nRUN python -c \'(.*)\' \$EXTRAS > requirements', text, re.M
    )
    monkeypatch.chdir(TOP)
    for extras in (default.split(), ["ray", "optuna"], []):
        monkeypatch.setattr(sys, "argv", ["-c", *extras])
        exec(code, {})
        more = [name for extra in extras for name in PROJECT["optional-dependencies"][extra]]
        assert capsys.readouterr().out.splitlines() == [*PROJECT["dependencies"], *more]
    assert default == "optuna"


def test_the_config_files_of_the_docs_name_classes_of_the_docs():
    for page in ("README.md", "docs/operators.md"):
        classes = re.findall(r"^class (\w+)", "".join(blocks(page, "python")), re.MULTILINE)
        parts = [yaml.safe_load(block) for block in blocks(page, "yaml")]
        targets = [part.get("table", part)["_target_"].split(".")[-1] for part in parts]
        assert targets == classes


def test_the_options_of_the_encodings_can_be_given_as_the_docs_write_them():
    text = (TOP / "docs/operators.md").read_text()
    given = []
    for item in re.findall(r"^- (`.*?)(?=^- |^\n)", text, re.DOTALL | re.MULTILINE):
        name = item.split("`")[1]
        for key, values in re.findall(r"`(\+?encoding\.\w+\.\w+=)([\w.|]+)`", item):
            for value in values.split("|"):
                build_parts(checked(composed(f"encoding={name}", f"{key}{value}")))
                given.append(f"{name} {key}{value}")
    assert "fire +encoding.attention.shared=true" in given
    assert len(given) == 9


def test_the_readme_is_short():
    text = (TOP / "README.md").read_text()
    assert len(text.split()) <= 600
    before, _, _ = text.partition("<!-- answers -->")
    assert len(before.split("\n\n")[-2].split()) <= 60  # the paper's claim and what was found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_asks_a_question_and_shows_a_figure_first(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert re.match(r"# .*\?\n", notebook.cells[0].source)
    assert f"]({path.name})" in (TOP / "notebooks/README.md").read_text()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [[dict(output.get("data", {})) for output in cell.outputs] for cell in code]
    assert all(outputs and all(outputs) for outputs in shown)  # no cell without, no printed lines
    figures = [data.pop("image/png", "") for outputs in shown for data in outputs]
    assert figures[0]
    assert max(map(len, figures)) * 3 / 4 < 60_000  # bytes; the text is base64
    assert not OF_A_MACHINE.search("\n".join([c.source for c in code] + [str(shown)]))
    for line in re.findall("^from posfuse.*", code[0].source, re.MULTILINE):
        exec(line)


def test_the_workflow_checks_style_before_it_runs_the_commands_of_the_readme():
    workflow = yaml.safe_load((TOP / ".github/workflows/tests.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    job = workflow["jobs"]["tests"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    readme = re.findall(r"^    (make \w+)", (TOP / "README.md").read_text(), re.MULTILINE)
    assert commands == ["make lint", *readme]
    pythons = job["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    (setup,) = (s["with"] for s in job["steps"] if "setup-python" in s.get("uses", ""))
    assert setup["cache"] == "pip"
    assert all((TOP / name).exists() for name in setup["cache-dependency-path"].split())


def test_the_docs_list_every_operator_and_encoding_and_the_choices_of_each_group():
    operators = (TOP / "docs" / "operators.md").read_text()
    assert [name for name in (*OPERATORS, *ENCODINGS) if f"`{name}`" not in operators] == []
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", (TOP / "docs" / "sweeps.md").read_text(), re.M)
    listed = {group: text for group, text in rows if (CONF_DIR / group).is_dir()}
    assert {"experiment", "trainer", "optim", "seeds", "speed"} <= listed.keys()
    for group in listed.keys() - {"data"}:  # tasks have a table of their own
        for path in (CONF_DIR / group).glob("*.yaml"):
            assert f"`{path.stem}`" in listed[group], f"{group}={path.stem}"


def test_the_citation_has_the_version_and_the_address_of_the_paper():
    citation = yaml.safe_load((TOP / "CITATION.cff").read_text())
    assert citation["version"] == posfuse.__version__
    (paper,) = citation["references"]
    assert PROJECT["urls"] == {"Paper": paper["url"]}
    assert f"]({paper['url']})" in (TOP / "README.md").read_text()


def test_the_makefile_lists_its_targets_and_the_docs_name_no_others():
    makefile = (TOP / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    (first,) = re.findall(r"^# make (.*)$", makefile, re.MULTILINE)
    assert set(first.split(" | ")) == targets
    for page in PAGES:
        named = re.findall(r"(?:^ {4}|`)make ([\w-]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= targets, page
    scripts = measured_code.benchmarks(TOP / "benchmarks")
    for only in re.findall(r"run.py --only ([\w ]+)", makefile):
        assert set(only.split()) <= scripts.keys()
    for script in re.findall(r"benchmarks/\w+\.py", makefile):
        assert (TOP / script).exists()
