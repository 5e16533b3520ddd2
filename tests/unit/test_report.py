"""From records to the report: the table of runs, missing runs, damaged records, the files."""

import contextlib
import csv
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from filelock import FileLock

from posfuse.errors import Conflict, InputError
from posfuse.evidence.collect import collect, declared_family, failures, missing, plan_status
from posfuse.evidence.metric import ACCURACY
from posfuse.evidence.rows import row_of
from posfuse.report import page
from posfuse.report.sections.run_list import run_of, runs_html
from posfuse.runs import identity, records
from posfuse.runs.folders import run_folder
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.verdicts.claims import judge_claims, not_judged, read_claims
from refusals import refusal
from small_records import (
    ask,
    posfuse_report,
    repeated,
    reported,
    write_failure,
    write_predictions,
    write_record,
    write_sweep,
)

TABLES = {
    *(f"tables/{name}.{end}" for end in ("csv", "md", "tex") for name in (
        "table1", "table2", "paired_differences", "paired_tests", "interaction",
        "gain_by_length", "documents")),
    "tables/tables.tex", "index.html", "runs.csv",
}  # fmt: skip
CAUTIONS = {f"tables/cautions.{end}" for end in ("csv", "md", "tex")}  # here: of few seeds
FIGURES = {
    f"figures/{name}.{end}" for end in ("png", "svg") for name in (
        "forest", "accuracy_latency", "gain_by_length", "learning_curves", "confusions")
}  # fmt: skip


def written(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def write_whole(root):
    """Two corpora, two fusions, three seeds; no record is damaged."""
    write_sweep(root, {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65, 0.8]})
    wordy = {"add": [0.5, 0.55, 0.6], "concat": [0.7, 0.8, 0.9]}
    return write_sweep(root, wordy, data="wordy", tokens=80.0)


@pytest.fixture
def whole(tmp_path):
    return write_whole(tmp_path / "sweep")


@pytest.fixture(scope="module")
def whole_report(tmp_path_factory):
    """The sweep's folder with its report, and what the command printed."""
    root = write_whole(tmp_path_factory.mktemp("whole") / "sweep")
    return root, reported(root, draw=True)


@pytest.fixture
def sweep(tmp_path):
    return write_sweep(tmp_path / "sweep", {"add": [0.5, 0.6, 0.7], "concat": [0.52, 0.66]})


def test_of_one_configuration_in_two_folders_one_record_is_left_out(tmp_path):
    """model.d_model=8 is what these runs have anyway."""
    for seed, variant in product((0, 1), ("", "model.d_model=8")):
        write_record(tmp_path, 0.5, "add", seed, variant=variant, fingerprint=f"run {seed}")
    runs, problems = collect(tmp_path)
    assert (len(runs), len(problems)) == (2, 2)
    assert set(runs["variant"]) == {""}


@pytest.mark.parametrize("variant", ["", "model.token_scale=sqrt_d"])
def test_of_a_sweep_and_its_copy_inside_the_copy_is_left_out(tmp_path, variant):
    root = tmp_path / "sweep"
    run = write_record(root, 0.5, "add", 0, variant=variant)
    shutil.copytree(root / "tiny", root / "backup" / "tiny")
    runs, (line,) = collect(root)
    assert runs["folder"].tolist() == [str(run)]
    assert line.startswith(f"{root / 'backup' / run.relative_to(root)}: second record")


def test_a_result_that_is_not_the_one_asked_for_is_left_out_and_missing(tmp_path):
    """A run whose folder held another configuration's result, and a copied folder."""
    root = write_sweep(tmp_path / "sweep", {"add": [0.5, 0.5], "concat": [0.5]})
    ask(root, {"fusion": "add,concat", "seed": "7"}, ["seed=range(0,2)"])  # the command's counts
    place = root / "tiny" / "sinusoidal"
    shutil.copytree(place / "concat" / "seed=0", place / "concat" / "seed=1")
    conflict = "another configuration's result"
    write_failure(place / "add" / "seed=1", Conflict.kind, conflict)
    runs, problems = collect(root)
    assert len(runs) == 2
    not_used, second = problems
    assert not_used.startswith(f"{place}/add/seed=1: this result is not used, because the last ")
    assert second.startswith(f"{place}/concat/seed=1: second record of the run in {place}/concat/")
    assert missing(runs) == [f"tiny/sinusoidal/{name}/seed=1" for name in ("add", "concat")]
    # The user has followed the message: the sweep's last command asks for other folders.
    ask(root, {"fusion": "add,concat", "seed": "0,2"})
    runs, problems = collect(root)
    assert (len(runs), len(problems)) == (3, 1)


def test_a_report_has_its_page_tables_and_figures(whole_report):
    root, text = whole_report
    assert set(written(root / "report")) == TABLES | CAUTIONS | FIGURES
    lines = text.splitlines()
    assert lines[0] == "Which operators are better than add on tiny, wordy, by test accuracy?"
    assert lines[1] == "2 differences from add: 2 ahead."
    assert lines[2].startswith("ahead: tiny: concat - add: +8.33 (")
    assert lines[4].startswith("Decided: p ≤ 0.05 after Holm's adjustment")
    assert "60.00 ± 10.00 (3)" in text
    assert "+8.33 ± 2.89" in text  # 10, 5, 10
    assert "With 3 seeds no sign-flip or signed-rank test can give p < 0.25." in text
    assert "\ncaution: fewer than 8 seeds\n" in text
    assert "missing: 0 of 12 runs" in text
    assert str(root / "report" / "index.html") in text
    assert text.count("match no runs here") == 1
    page = (root / "report" / "index.html").read_text()
    assert page.index("concat is ahead of add") < page.index('id="verdicts"')
    assert page.index("Limits of the verdicts") < page.index("Tests of the differences")
    assert page.count("match no runs here") == 1
    assert page.count("concat - add</summary>") == 2
    assert repeated(page) == []
    paired = pd.read_csv(root / "report" / "tables" / "paired_differences.csv")
    assert (paired["deltas"][0], paired["mean"][1]) == ("10 5 10", pytest.approx(25))  # 20, 25, 30


def test_the_same_records_give_the_same_bytes(whole_report):
    root, _ = whole_report
    first = written(root / "report")
    reported(root, draw=True)
    assert written(root / "report") == first


@pytest.fixture
def resumed(tmp_path):
    """A sweep that was renamed and then resumed with a third seed."""
    mine = write_sweep(tmp_path / "all" / "mine", {"add": [0.5, 0.6], "concat": [0.5, 0.7]})
    ask(mine, None, ["fusion=add,concat", "seed=0,1"])
    renamed = mine.rename(mine.parent / "renamed")
    return write_sweep(renamed, {"add": {2: 0.5}, "concat": {2: 0.6}})


def test_a_sweep_that_was_renamed_and_resumed_is_one_sweep(resumed):
    write_sweep(resumed / "other", {"add": [0.5]})
    for folder, others in ((resumed, 1), (resumed.parent, 1), (resumed / "tiny", 0)):
        runs, problems = collect(folder)
        assert sorted(runs["sweep_id"]) == ["other"] * others + ["renamed"] * 6
        assert problems == []
    shutil.rmtree(resumed / "other")
    shutil.copytree(resumed / "tiny", resumed / "backup" / "tiny")
    runs, problems = collect(resumed)
    assert sorted(runs["sweep_id"]) == ["renamed"] * 6
    assert all(line.startswith(f"{resumed}/backup") for line in problems)
    shutil.rmtree(resumed / "backup")
    out = resumed.parent / "out"
    assert "3 seeds" in reported(resumed, "--out", out)
    assert (out / "index.html").exists()


def test_a_sweep_of_two_names_is_checked_as_one_sweep(resumed):
    for fusion, settings in (("add", {"optim.lr": 1}), ("mul", {}), ("mul", {"optim.lr": 1})):
        seed = 3 + len(settings)
        name = "mine" if seed == 3 else "renamed"
        write_record(resumed, 0.5, fusion, seed, settings=settings, sweep_id=name)
    runs, problems = collect(resumed)
    assert set(runs["fusion"]) == {"concat"}
    assert len(problems) == 2
    assert all("one cell with two configurations" in line for line in problems)


def test_a_page_replaces_a_link_and_not_its_target(tmp_path):
    target, link = tmp_path / "target", tmp_path / "index.html"
    target.write_text("kept")
    link.symlink_to(target)
    page.write([], "mine", "posfuse report mine", pd.DataFrame(), tmp_path)
    assert target.read_text() == "kept"
    assert not link.is_symlink()


def test_ids_of_a_page_are_unique_and_every_reference_is_found(whole_report):
    root, _ = whole_report
    page = (root / "report" / "index.html").read_text()
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids)) > 100
    used = re.findall(r'(?:url\(|href=")#([^)"]*)', page)
    assert len(used) > 100
    assert set(used) <= set(ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--primary concat,foo", "no run to compare with add has fusion=foo; choose among "),
        ("--primary concat,", "no run to compare with add has fusion=''; choose among "),
        ("--primary add,concat", "no run to compare with add has fusion=add; choose among "),
        ("--baseline none", "no run has fusion=none; use add, concat"),
        ("--margin 0", "must be above 0 (got 0)"),
        ("--margin nan", "must be above 0 (got nan)"),
        ("--effect -1", "must be above 0 (got -1)"),
        ("--metric speed", "no metric 'speed'; use one of accuracy, macro_f1, exact_match, "),
        ("--select-seeds 0,x", "must be seeds such as 0-7 or 0,1,2, at most 4294967295 (got "),
        ("--select-seeds 1-9", "no run has seed 3; choose among 0, 1, 2"),
        ("--select-seeds 0-2", "0-2 contains all seeds; leave at least one to test"),
        ("--select-seeds 0", "there is nothing to choose, because all runs have the same"),
    ],
)
def test_a_mistake_is_one_line_and_the_report_stays_as_it_was(whole_report, options, message):
    root, _ = whole_report
    before = written(root / "report")
    option, value = options.split()
    printed, error = posfuse_report(root, option, value)
    assert error.startswith(f"error: {option}: {message}")
    assert (printed, error.count("\n")) == ("", 0)
    assert written(root / "report") == before


@pytest.mark.slow
def test_the_primary_family_is_the_sweeps_or_that_of_the_command(whole):
    write_sweep(whole, {"mul": [0.6, 0.6, 0.9]})
    ask(whole, {"fusion": "add"})
    asked = json.loads((whole / "multirun.yaml").read_text())
    declared = asked | {"sweep": {"primary": ["concat", "mlp"]}}
    for content, arguments, exploratory in (
        (asked, (), set()),
        (declared, (), {"mul"}),
        (declared, ("--primary", "mul"), {"concat"}),
        (declared, ("--primary", "all"), set()),
        (declared, ("--primary", " mul , concat"), set()),
    ):
        (whole / "multirun.yaml").write_text(json.dumps(content))
        text = reported(whole, *arguments)
        table = pd.read_csv(whole / "report" / "tables" / "paired_tests.csv")
        assert set(table["fusion"][table["role"] == "exploratory"]) == exploratory
        absent = "mlp: in the primary family, but without runs here"
        assert (absent in text) == (content is declared and not arguments)
    # A sweep below the given folder declares its own family.
    (whole / "multirun.yaml").write_text(json.dumps(declared))
    assert "\n2 differences from add: 2 ahead. 1 more is exp" in reported(whole.parent)


def declare(run, family):
    """Write sweep.primary of a run."""
    with (run / "config.yaml").open("a") as file:
        file.write(f"sweep: {{primary: {family}}}\n")


def test_the_family_of_the_first_run_is_kept_if_a_later_command_does_not_declare_it(tmp_path):
    root = tmp_path / "mine"
    for seed, accuracies in enumerate(((0.5, 0.6, 0.7), (0.5, 0.7, 0.6), (0.6, 0.7, 0.7))):
        for fusion, accuracy in zip(("add", "concat", "mul"), accuracies, strict=True):
            started = f"2026-01-0{9 - seed}"
            run = write_record(root, accuracy, fusion, seed, started=started)
            declare(run, "[concat]" if seed else "[]")
    ask(root, None, ["fusion=add,concat,mul", "seed=0"])  # the last command declares no family
    runs, _ = collect(root)
    family, (line,) = declared_family(runs)
    assert family == ("concat",)
    assert "differs between the sweep's commands (concat; all operators)" in line
    text = reported(root)
    assert "Primary family: concat. Differences of other operators are exploratory." in text
    assert line in text
    assert line not in reported(root, "--primary", "all")
    same = runs[runs["seed"] > 0]
    (root / "multirun.yaml").unlink()
    assert declared_family(same) == (("concat",), [])


def test_runs_of_earlier_versions_started_first_and_a_family_has_no_order(tmp_path):
    root = tmp_path / "mine"
    times = {0: {"started": "2026-01-01"}, 1: {}}  # the records of earlier versions have no time
    for (seed, more), family in zip(times.items(), ("[concat, mul]", "[mul, concat]"), strict=True):
        declare(run := write_record(root, 0.5, "add", seed, **more), family)
    runs, _ = collect(root)
    assert declared_family(runs) == (("mul", "concat"), [])
    declare(run, '["\\e[31mred"]')  # no name, which would reach the terminal
    assert declared_family(runs) == (("concat", "mul"), [])


def test_a_multirun_file_above_a_sweep_is_not_the_sweeps(tmp_path):
    (tmp_path / "multirun.yaml").write_text("of: another project")
    runs, _ = collect(write_sweep(tmp_path / "projects" / "mine", {"add": [0.5], "mul": [0.6]}))
    assert (missing(runs), declared_family(runs)) == ([], ((), []))


def test_a_result_that_is_not_used_is_not_used_from_inside_the_sweep(tmp_path, monkeypatch):
    mine = write_sweep(tmp_path / "mine", {"add": [0.5]})
    ask(mine, None, ["fusion=add", "seed=0"])
    write_failure(mine / "tiny" / "sinusoidal" / "add" / "seed=0", "conflict", "m")
    monkeypatch.chdir(mine / "tiny" / "sinusoidal")
    for folder in (".", "..", mine):
        with pytest.raises(InputError, match="this result is not used, because the last command"):
            collect(folder)


def test_several_sweeps_get_a_folder_each_and_the_page_of_one_sweep_is_removed(tmp_path):
    out = tmp_path / "out"
    one = write_sweep(tmp_path / "one", {"add": [0.5, 0.6], "concat": [0.6, 0.65]})
    reported(one, "--out", out, draw=True)
    # No row of the table of interactions, which needs two corpora.
    empty = {"tables/interaction.csv", "tables/interaction.md", "tables/interaction.tex"}
    assert {"figures/forest.png", "tables/cautions.csv", *empty} <= set(written(out))
    write_sweep(tmp_path / "other", {"add": [0.5]})
    (out / "tables" / "own.csv").touch()
    _, error = posfuse_report(tmp_path, "--baseline", "concat", "--out", out)
    assert "--baseline" in error
    assert (out / "index.html").exists()  # a mistake changes nothing
    text = reported(tmp_path, "--out", out)
    files = set(written(out))
    removed = {"index.html", "runs.csv", "figures/forest.png", "tables/tables.tex"}
    assert not files & {*removed, *empty, "tables/paired_tests.csv"}
    assert "tables/own.csv" in files
    assert {file for file in files if file.startswith("other/")} == {f"other/{t}" for t in TABLES}
    assert {f"one/{file}" for file in TABLES} < files
    other = text.partition(f"{out / 'one' / 'index.html'}")[2].splitlines()
    assert "No difference from add could be tested." in other
    assert "To compare, run another operator with the same settings and seeds." in other
    for file in ("index.html", "runs.csv"):
        (out / file).write_text("the user's page")
    reported(tmp_path, "--out", out)
    assert {"index.html", "runs.csv"} <= set(written(out))


def test_no_sweep_is_reported_if_an_option_does_not_fit_the_second_one(tmp_path):
    write_sweep(tmp_path / "first", {"add": [0.5, 0.5], "mul": [0.5, 0.5]})
    write_sweep(tmp_path / "second", {"add": [0.5]}, test={"accuracy": 0.5})
    for option, error in (
        ("--metric=macro_f1", "no metric 'macro_f1' here; these runs have accuracy"),
        ("--select-seeds=1", "no run has seed 1; choose among 0"),
        ("--baseline=mul", "no run has fusion=mul; use add"),
    ):
        _, refused = posfuse_report(tmp_path, option)
        assert refused == f"error: {option.partition('=')[0]}: {error}"
        assert not (tmp_path / "report").exists()
    reported(tmp_path)
    assert {f"{name}/index.html" for name in ("first", "second")} < {*written(tmp_path / "report")}


def test_missing_failed_and_unpaired_runs_are_listed_and_stop_nothing(whole):
    for path in (whole / "wordy").rglob("config.yaml"):
        path.unlink()  # the corpus of the runs cannot be found
    write_record(whole, 0.9, "gate_scalar", 0)
    write_record(whole, 0.9, "mul", 3)
    fusions = "add,concat,gate_scalar"
    ask(whole, {"data": "tiny,wordy", "fusion": fusions, "seed": "range(0,4)"})
    (folder := whole / "tiny/sinusoidal/add/seed=3").mkdir()
    write_failure(folder, "diverged", "out of luck")
    text = reported(whole)
    page = (whole / "report" / "index.html").read_text()
    for shown in (text, page):
        assert "wordy/sinusoidal/concat/seed=3" in shown
        assert "out of luck" in shown
        assert "so they are left out: 1, 2" in shown
        assert "gate_scalar: no test, because there is only one seed" in shown
        assert "mul: not compared, because it has no seed in common with add" in shown
        assert "wordy: no bag of words, because the corpus cannot be loaded" in shown
        assert "90.00 (1)" in shown
    assert "missing: 11 of 25 runs" in text
    assert set(written(whole / "report")) == TABLES | CAUTIONS


def test_a_renamed_sweep_lacks_the_same_runs(whole, tmp_path):
    ask(whole, {"data": "tiny,wordy", "fusion": "add,concat", "seed": "0,1,2"})
    name = "tiny/sinusoidal/add/seed=1"
    (whole / name / "result.json").unlink()
    (whole / name / "failure.json").write_text("{")
    asked = json.loads((whole / "multirun.yaml").read_text())
    asked["sweep"] = {"primary": ["concat"]}
    (whole / "multirun.yaml").write_text(json.dumps(asked))
    for folder in (whole, tmp_path / "renamed"):
        whole.rename(folder)  # the first time to its own name
        for given in (folder, tmp_path, folder / "tiny"):
            runs, _ = collect(given)
            assert missing(runs) == [name]
            assert declared_family(runs) == (("concat",), [])
            failed = f"{folder / name}: the run failed, but failure.json is damaged"
            assert failures(given, runs) == ["runs without a result: 1 failed", failed]
        with contextlib.chdir(folder / "tiny"):
            assert missing(collect(".")[0]) == [name]


def test_a_refused_command_does_not_make_a_finished_run_one_without_a_result(tmp_path):
    folder = write_record(tmp_path, 0.5)
    for kind, expected in (("config", 0), ("failed", 2)):
        write_failure(folder, kind, "data.path: no folder")
        assert len(failures(tmp_path, collect(tmp_path)[0])) == expected


def test_failures_of_another_sweep_are_not_those_of_a_sweep_with_the_name_of_its_corpus(tmp_path):
    write_sweep(tmp_path / "tiny", {"add": [0.5]})
    for sweep, own in product(("tiny", "other"), ([], ["a=1"], ["~encoding.attention.clip"])):
        run = tmp_path / sweep / run_folder("tiny", "sinusoidal", "concat", 1, own)
        run.mkdir(parents=True)
        write_failure(run, "failed", sweep, overrides=["fusion=concat", *own])
    count, *lines = failures(tmp_path, collect(tmp_path)[0])
    assert count == "runs without a result: 3 failed"
    assert [line.rpartition(": ")[2] for line in lines] == ["tiny"] * 3


def test_a_run_links_to_its_folder_if_the_page_lies_in_the_sweep(tmp_path):
    root, name, link = tmp_path / "sweep", "tiny a b seed=1", "../tiny/a%20b/seed%3D1"
    row = {"seed": 1, "folder": str(root / "tiny/a b/seed=1"), "best_evaluation": 2}
    run = partial(run_of, name="tiny a b", metric=ACCURACY, value=61.5, root=root)
    listed = run(row | {"evaluations": 3.0}, out=root / "report")
    assert listed == {"name": name, "result": "61.50", "best": "2 of 3", "link": link}
    assert f'<a href="{link}/">{name}</a>' in runs_html([listed], ACCURACY)
    elsewhere = run(row | {"diverged": True}, out=tmp_path)  # without the number of evaluations
    assert elsewhere == {"name": name, "result": "diverged", "best": "", "link": ""}


def test_each_problem_is_one_line_and_the_rest_is_reported(whole):
    """One run of each further corpus is damaged."""
    names = ("documents", "predictions", "record", "contradiction")
    for data in names:
        write_sweep(whole, {"add": [0.5, 0.6], "concat": [0.6, 0.65]}, data=data)
    folders = [whole / data / "sinusoidal" / "concat" / "seed=1" for data in names]
    documents, predictions, record, contradiction = folders
    write_predictions(documents, 0.65, shift=1)
    (predictions / "predictions.parquet").write_bytes(b"PAR1 no more")
    (record / "result.json").write_text("{")
    write_predictions(contradiction, 0.5)
    text, error = posfuse_report(whole)
    lines = error.splitlines()
    assert len(lines) == 4
    for problem in (
        f"error: {documents}/predictions.parquet: its documents are not those of the runs",
        f"error: {predictions}/predictions.parquet: not ",
        f"error: {record}/result.json: not a readable record",
        "50.00 % are right, result.json says 65.00 %",
    ):
        assert sum(problem in line for line in lines) == 1, problem
    assert set(written(whole / "report")) == TABLES | CAUTIONS
    assert "55.00 ± 5.00 (3)" in text  # of a corpus without damage
    assert "27 runs, 0 missing, 1 left out; " in text
    assert "\nmissing: 0 of 28 runs\n" in text
    assert "Left out" in (whole / "report" / "index.html").read_text()


BAD_VALUES = {
    "sweep_id": None, "variant": None, "seed": None, "fusion": 3, "label_names": [1, 2],
    "latency_ms": "fast", "mean_tokens": {"train": 0}, "test": {"accuracy": 55.0},
    "documents": {"test": 0}, "settings": "none", "task": {"metric": "accuracy"},
    "code": ["x"], "plan": ["x"], "best_evaluation": "5", "evaluations": [3],
}  # fmt: skip
BAD_SETTINGS = {
    "data.max_len": (0, "x", [16], 2**63, True),
    "model.token_scale": (0, [1], "1/0"),
    "seeds.init": (0.5, 2**63),
}
BAD_NAMES = ("=cmd()", "<img src=x>", "../up", "", "a\n")
BAD_VARIANTS = ("=cmd('a')", "<b>", "x/../y")


def test_a_value_or_a_name_that_no_run_can_have_is_one_line(sweep):
    path = sweep / "tiny" / "sinusoidal" / "concat" / "seed=1" / "result.json"
    record = json.loads(path.read_text())
    below = {"80": {"accuracy": 0.5}}, {"80": {"documents": "many"}}
    names = product(("data", "encoding", "fusion", "sweep_id"), BAD_NAMES)
    for values, message in (
        *(({key: value}, key) for key, value in BAD_VALUES.items()),
        ({"lengths": below[0]}, "settings.data.max_len is None, not a whole number above 0"),
        ({"lengths": below[1]}, "lengths.80.documents is 'many', not a whole number above 0"),
        *(({"lengths": {"80": {"accuracy": wrong}}}, f"lengths.80.accuracy is {wrong!r}, not a ")
          for wrong in ("high", 1.5, None)),
        *(({"test": {"accuracy": 0.5, "bits_per_byte": bits}}, f"test.bits_per_byte is {bits!r}, ")
          for bits in (-1.0, "much")),
        *(({"settings": record["settings"] | {key: value}}, f"{path}: settings.{key} is ")
          for key, bad in BAD_SETTINGS.items() for value in bad),
        *(({key: name}, f"{path}: {key} is {name!r}, not a name of letters, digits and _.-; the "
           "run is left out, remove this file to run it again") for key, name in names),
        *(({"variant": variant}, f"variant is {variant!r}, not the name of a run's folder")
          for variant in BAD_VARIANTS),
    ):  # fmt: skip
        path.write_text(json.dumps(record | values))
        runs, (problem,) = collect(sweep)
        assert len(runs) == 4
        assert problem.startswith(f"{path}: ")
        assert message in problem


def test_the_order_of_a_records_keys_does_not_matter(sweep):
    path = next(sweep.rglob("result.json"))
    record = json.loads(path.read_text())
    record["settings"] |= {"data.max_len": 16, "seeds.init": 1}
    record["lengths"] = {"80": {"accuracy": 0.5, "documents": 9}}

    def backwards(value):
        if not isinstance(value, dict):
            return value
        return {key: backwards(value[key]) for key in reversed(value)}

    assert row_of(path, backwards(record)) == row_of(path, record)
    record["settings"] |= {"data.max_len": 16.5, "seeds.init": 0.5}
    record["lengths"]["80"] = {"accuracy": 55.0, "documents": 0}
    assert refusal(row_of, path, backwards(record)) == refusal(row_of, path, record)


def test_the_variants_that_runs_make_are_collected(tmp_path):
    overrides = ("+a.b=1", "~x", "a=<img>", "a='=cmd()'", "a=" + "é" * 50)
    variants = {run_folder("d", "e", "f", 0, [override]).split("/")[3] for override in overrides}
    for variant in variants:
        write_record(tmp_path, 0.5, variant=variant)
    runs, problems = collect(tmp_path)
    assert problems == []
    assert set(runs["variant"]) == variants


def test_a_cut_name_stays_if_its_settings_are_the_name_of_another_variant(tmp_path):
    """The third variant differs from the first in an option of the operator only."""
    cut = run_folder("d", "e", "f", 0, [f"model.d_model=8,a={'x' * 90}"]).split("/")[3]
    for variant, d_model, way in (
        (cut, 8, 1),
        ("model.d_model=8", 8, 2),
        ("model.d_model=16", 16, 1),
    ):
        settings = {"model.d_model": d_model, "fusion.way": way}
        for fusion in ("add", "concat"):
            write_record(tmp_path, 0.5, fusion, variant=variant, settings=settings)
    runs, problems = collect(tmp_path)
    assert problems == []
    assert set(runs["variant"]) == {cut, "model.d_model=8", "model.d_model=16"}
    compare(runs, Criteria())
    shutil.rmtree(tmp_path / "tiny/sinusoidal/add/model.d_model=8")
    shutil.rmtree(tmp_path / "tiny/sinusoidal/concat/model.d_model=8")
    assert set(collect(tmp_path)[0]["variant"]) == {"model.d_model=8", "model.d_model=16"}


@pytest.mark.parametrize(
    ("override", "key", "value", "other"),
    [("model.token_scale=sqrt_d", "model.token_scale", "sqrt_d", 1),
     ("seeds=together", "seeds.init", None, 0)],
)  # fmt: skip
def test_a_default_names_a_variant_only_beside_another_value(tmp_path, override, key, value, other):
    for fusion, seed in product(("add", "concat"), (0, 1)):
        write_record(tmp_path, 0.5, fusion, seed, variant=override, settings={key: value})
    assert set(collect(tmp_path)[0]["variant"]) == {""}
    write_record(tmp_path, 0.5, "concat", 2, settings={key: value})  # the same cell
    assert set(collect(tmp_path)[0]["variant"]) == {""}
    for fusion in ("add", "mul"):  # the experiment's own value
        write_record(tmp_path, 0.6, fusion, 0, settings={key: other})
    runs, problems = collect(tmp_path)
    assert (len(runs), problems) == (7, [])
    assert set(runs["variant"][runs["fusion"] == "add"]) == {"", override}


@pytest.mark.slow
def test_texts_of_a_record_are_no_formulas_and_no_html(tmp_path):
    """Settings, versions, labels and keys may be any text."""
    root, more = tmp_path / "sweep", {"=key()": "\t=1+1", "@key": "-1 2", "-key": "+1+cmd()"}
    for scale in (1, 2):
        settings = {"model.token_scale": scale, "fusion.way": f"<b>{scale}[x](y)</b>&amp;"}
        accuracies = [0.4 + 0.1 * scale, 0.5 + 0.1 * scale]
        write_sweep(
            root, {"add": accuracies, "concat": accuracies}, settings=settings, commit="=cmd()",
            variant=f"model.token_scale={scale}", validation={"accuracy": 0.5},
            label_names=["=cmd()", "<script>alert(1)</script>"], **more,
        )  # fmt: skip
    reported(root, draw=True)
    out = root / "report"
    rows = [row for path in out.rglob("*.csv") for row in csv.reader(path.open())]
    cells = {cell for row in rows for cell in row}
    assert {"'=cmd()", "'=key()", "'\t=1+1", "'@key", "-1 2", "'+1+cmd()"} <= cells
    assert [cell for cell in cells if cell[:1] in ("=", "@", "\t")] == []
    assert r"\<b>1\[x\](y)\</b>\&amp;" in (out / "tables" / "by_scale.md").read_text()
    assert "<b>1" not in (out / "index.html").read_text()
    assert not any("<script>" in path.read_text() for path in (out / "figures").glob("*.svg"))


def test_a_sweep_without_the_usual_baseline_has_its_tables(tmp_path):
    sweep = write_sweep(tmp_path / "mine", {"mlp": [0.5, 0.6, 0.7], "concat": [0.6, 0.7, 0.8]})
    text, error = posfuse_report(sweep)
    assert error == "error: --baseline: no run has fusion=add; use concat, mlp"
    assert "60.00 ± 10.00 (3)" in text
    assert "To compare, run fusion=add with the same settings and seeds." in text
    assert "Nothing to compare" in (sweep / "report" / "index.html").read_text()


def test_two_reports_do_not_write_into_a_folder_at_once(tmp_path):
    write = partial(page.write, [], "mine", "posfuse report mine", pd.DataFrame(), tmp_path)
    with ThreadPoolExecutor() as pool:
        with FileLock(tmp_path / ".lock"):
            second = pool.submit(write)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
            assert not written(tmp_path)
        assert second.result(timeout=60).exists()


def test_a_folder_that_can_have_no_report_is_an_error_of_one_line(whole, tmp_path):
    for name in ("empty", "study", "committed"):
        (tmp_path / name).mkdir()
    for file in ("study/plan.yaml", "committed/plan.yaml", "committed/index.html"):
        (tmp_path / file).touch()
    write_sweep(tmp_path / "damaged", {"add": [0.5]})
    (tmp_path / "damaged" / "multirun.yaml").write_text("a: [")
    (whole / "report").write_text("a file where the folder must be")
    for message in (
        "empty: no finished runs",
        "study: is a study; open its report/index.html, or give the folder of its test runs, ",
        "committed: a report without its runs; open index.html in it",
        "x: no such folder",
        "damaged/multirun.yaml: not a sweep's settings",
        "sweep/report",
    ):
        _, error = posfuse_report(tmp_path / re.match(r"\w+", message)[0])
        assert error.startswith(f"error: {tmp_path}/{message}")
        assert "\n" not in error
    assert "--out" in error


def test_claims_without_runs_are_one_line(tmp_path):
    runs, _ = collect(write_sweep(tmp_path / "sweep", {"add": [0.5], "concat": [0.6]}))
    claims = read_claims()

    def judged(criteria):
        comparisons, _ = compare(runs, criteria)
        return judge_claims(claims, {"accuracy": (comparisons, comparisons[:0])}, criteria)

    (line,) = not_judged(judged(Criteria()))
    assert line.startswith("7 claims of the paper match no runs here: negligible_short, negligib")
    (line,) = not_judged(judged(Criteria(baseline="concat")))
    assert line.startswith("7 claims of the paper match no comparison (needs --baseline add)")
    assert not_judged([]) == []


def test_every_claim_of_the_users_own_file_gets_a_verdict(tmp_path):
    root = write_sweep(tmp_path / "sweep", {"add": [0.5]})
    own = tmp_path / "claims.yaml"
    text = f"Mine {'is long ' * 10}enough."
    own.write_text(f"claims: [{{name: n, text: {text}, kind: gain, where: {{data: other}}}}]")
    shown, _ = posfuse_report(root, "--claims", own)
    assert re.search(r"^UNDECIDED    Mine is long.*\n {13}\S.* enough\. *$", shown, re.MULTILINE)
    assert "To settle it: needs runs with data=other" in " ".join(shown.split())
    assert "match no runs" not in shown
    assert (root / "report" / "index.html").read_text().count('class="verdict ') == 1


def test_the_line_on_a_claim_has_the_whole_name_of_the_variant(tmp_path):
    """The user copies it into the file of claims."""
    variant = f"a=1__{'b' * 90}=2"
    for fusion, seed in product(("add", "concat"), (0, 1)):
        write_record(tmp_path, 0.5 + seed / 10, fusion=fusion, seed=seed, variant=variant)
    own = tmp_path / "claims.yaml"
    own.write_text("claims: [{name: n, text: Mine., kind: gain, where: {fusion: concat}}]")
    shown, _ = posfuse_report(tmp_path, "--claims", own)
    assert f"add`variant:{variant}`to" in "".join(shown.split())


def test_a_sweep_is_exploratory_unless_all_its_runs_test_one_frozen_plan(tmp_path):
    """The names of folders do not matter."""
    exploratory = "This sweep is exploratory: "
    of_study = "These are the test runs of a study, whose own report has its verdicts."
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plan.yaml").touch()
    for name, plans, sentence in (
        ("mine_test", (None, None), f"{exploratory}no plan was frozen before it ran"),
        ("other", ("a", "a"), of_study),
        ("two", ("a", "b"), f"{exploratory}its runs do not all test one frozen plan"),
        ("mixed", ("a", None), f"{exploratory}its runs do not all test one frozen plan"),
    ):
        for seed, plan in enumerate(plans):
            more = {} if plan is None else {"plan": plan}
            write_record(tmp_path / name, 0.5, seed=seed, **more)
        assert plan_status(collect(tmp_path / name)[0]).startswith(sentence)


def test_predictions_of_an_own_form_are_neither_compared_nor_a_problem(tmp_path):
    task = {"metric": "accuracy", "predictions": "other"}
    for fusion, seed in product(("add", "concat"), (0, 1)):
        accuracy = 0.5 + seed / 10 * (fusion == "add")
        folder = write_record(tmp_path / "mine", accuracy, fusion, seed, task=task)
        pd.DataFrame({"index": range(3)}).to_parquet(folder / "predictions.parquet")
    printed = reported(tmp_path / "mine")
    assert "-5.00 ± 7.07" in printed
    assert "bag of words" not in printed


def test_runs_of_an_earlier_version_are_left_out_beside_runs_of_this_version(tmp_path):
    """Their numbers would be paired, although splits or initial values differ."""
    for seed in (0, 1):
        earlier = write_record(tmp_path / "mine", 0.5, seed=seed)
    assert len(collect(tmp_path)[0]) == 2  # alone they can be compared
    folder = write_record(tmp_path / "mine", 0.9, fusion="concat", seed=0)
    record = records.read_result(folder / records.RESULT)
    own = {"fingerprint": identity.fingerprint_of(record["settings"])}
    records.write_result(folder, record | own)
    runs, problems = collect(tmp_path)
    assert runs["folder"].tolist() == [str(folder)]
    assert len(problems) == 2
    assert problems[1].startswith(f"{earlier}: made by an earlier version of posfuse, whose")
