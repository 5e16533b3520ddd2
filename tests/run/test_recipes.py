"""Every command of README.md and the docs, composed or run on stored records."""

import random
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from commands import called
from posfuse import options
from posfuse.runs.checks import checked
from posfuse.study.reading import read_study
from recipes import TOP, blocks, commands, jobs, own_files
from small_records import posfuse_report, write_sweep
from small_runs import composed, write_corpus

MAKEFILE = (TOP / "Makefile").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which README's sweep has run, with texts, a table and the docs' own files."""
    root = tmp_path_factory.mktemp("recipes")
    write_corpus(root / "FOLDER")
    draw = random.Random(1)
    for name in ("mine", "default", "copy_reverse", "own_best"):
        accuracies = {f: [draw.randint(20, 36) / 40 for _ in range(3)] for f in ("add", "concat")}
        write_sweep(root / "multirun" / name, accuracies)
    (root / "multirun" / "RUN").mkdir()
    rows = ["seed,method,task,accuracy,loss"]
    for seed in range(5):
        for method in ("adam", "sgd", "lion"):
            rows += [f"{seed},{method},{t},{draw.random()},{draw.random()}" for t in "abc"]
    (root / "results.csv").write_text("\n".join(rows))
    (root / "my_claims.yaml").write_text(blocks("docs/report.md", "yaml", "claims:")[0])
    (root / "my_study.yaml").write_text(blocks("docs/studies.md", "yaml", "question:")[0])
    return root


@pytest.mark.parametrize(("page", "words"), commands())
def test_a_command_of_the_docs_can_be_given(page, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    program, *rest = words
    if program == "make":
        assert re.search(rf"^{rest[0]}:", MAKEFILE, re.M)
    elif program == "python":
        assert (TOP / rest[0]).is_file()
    elif rest[0] == "train":
        own_files(page, folder, monkeypatch)
        for run in jobs(rest[1:]):
            config = composed(*run)
            if not any(word.startswith("host.path=") for word in run):
                checked(config)
    elif rest[0] == "report":
        assert posfuse_report(*rest[1:])[1] is None
    else:
        given = options.parse(rest[0], "", rest[1:])
        if rest[0] == "study":
            read_study(given.study, [str(folder)])
        if "status" in rest[:2] or "--no-timing" in rest:
            assert called(*rest)[1] is None


def study_with(begin, **more):
    """The example of docs/studies.md with the keys of another block of the page."""
    example, own = (
        yaml.safe_load(blocks("docs/studies.md", "yaml", b)[0]) for b in ("question:", begin)
    )
    return {**example, **own, **more}


def test_the_other_studies_of_the_docs_can_be_read(tmp_path):
    arms = {name: {"fusion": name} for name in ("add", "concat")}
    studies = {
        "repeated": study_with("tuning:\n  random:"),
        "solved": study_with("solved:", arms=arms),
    }
    for name, content in studies.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
        _, study = read_study(str(tmp_path / f"{name}.yaml"), [str(TOP / "my_conf")])
        assert study.hypotheses[-1].name == ("null_arm" if name == "repeated" else "gain")


def test_the_arms_of_the_page_of_sweeps_are_overrides_of_runs():
    (text,) = (b for b in blocks("docs/sweeps.md", "yaml") if "arms:" in b)
    sweeper = yaml.safe_load(text)["hydra"]["sweeper"]
    assert set(sweeper["params"]["arm"].split(",")) == set(sweeper["arms"])
    for overrides in sweeper["arms"].values():
        checked(composed(*overrides))


def test_the_code_of_the_page_of_records_reads_a_run(tmp_path, monkeypatch, capsys):
    write_sweep(tmp_path / "multirun" / "mine", {"add": [0.6]}, data="bbc_lead_paragraph")
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("docs/records.md")
    exec(code, {})
    printed = capsys.readouterr().out.split()
    assert float(printed[0]) == 0.6
    assert 0 <= float(printed[1]) <= 1


def test_predictions_are_joined_with_the_users_table(folder, monkeypatch):
    monkeypatch.chdir(folder)
    lines = re.findall(r"^ {4}(\w+ = .*)$", (TOP / "docs/your_text.md").read_text(), re.M)
    mine = pd.DataFrame({"text": ["one", None, "two"], "label": ["b", "c", "a"]})
    mine.to_csv("FOLDER/test.csv", index=False)
    (path,) = re.findall(r'"(\S+\.parquet)"', lines[0])
    Path(path).parent.mkdir(parents=True)
    used = {"index": [0, 1], "row": [0, 2], "label": [1, 0], "predicted": [1, 1]}
    pd.DataFrame(used).to_parquet(path)
    names = {"pandas": pd}
    exec("\n".join(lines), names)
    found = names["both"][["text", "label", "predicted", "label_predictions"]]
    assert found.values.tolist() == [["one", "b", 1, 1], ["two", "a", 1, 0]]
