"""The studies in docs: every verdict, table and number follows from the committed plan and rows."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

import finding_tables
import questions
import studies
import without_order
from posfuse.config import CONF_DIR, DataConfig
from posfuse.evidence import bag_of_words, published
from posfuse.report import formats
from posfuse.study.plan import Choice, freeze
from posfuse.study.spec import Evaluation, Hypothesis
from study_runs import small_study, study_runs

DOCS = CONF_DIR.parent / "docs"
PLANS = [path.parent for path in sorted(DOCS.glob("findings/*/plan.yaml"))]
KEPT = [folder for folder in PLANS if (folder / "runs.csv").exists()]  # the others are not finished
SWEEPS = [
    studies.FOLDER / name for name in (*finding_tables.GRIDS, "agnews_four_layers", "long_pilot")
]
FOLDERS = [studies.DEMO, *KEPT]
DOCUMENT = studies.DOCUMENT.read_text()
README = studies.README.read_text()
ERROR_RATES = (DOCS / "error_rates.md").read_text()
FIRST_SCREEN = README.partition("Lightning and Hydra.")[2].partition("![")[0]
NUMBER = r"([+-]?\d+\.\d+)"


def prose(text):
    """The text in one line, without its generated parts and the targets of its links."""
    return " ".join(re.sub(r"\]\([^)]*\)", "]", studies.PART.sub("", text)).split())


NOTES = {path.parent.name: prose(path.read_text()) for path in DOCS.glob("findings/*/notes.md")}


@pytest.mark.parametrize("folder", [*KEPT, *SWEEPS], ids=lambda folder: folder.name)
def test_the_page_of_a_study_follows_from_its_plan_rows_and_notes(folder):
    assert (folder / "README.md").read_text() == studies.study_page(folder)
    assert {path.name for path in folder.glob("*.md")} <= {"README.md", "notes.md"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_report_of_a_study_follows_from_its_plan_and_rows(folder):
    """All of the page but its drawings, whose last digits other processors may round."""
    page = (folder / "index.html").read_text()
    figures = r"<figure id=\"figure-(\w+)\">\n.*?\n<figcaption id"
    drawn = dict.fromkeys(re.findall(figures, page, re.DOTALL), "")
    assert re.sub(figures, "", studies.report(folder, drawn), flags=re.DOTALL) == re.sub(
        figures, "", page, flags=re.DOTALL
    )


def test_the_tables_of_the_demo_follow_from_its_plan_and_rows(tmp_path):
    formats.write_tables(studies.tables_of(studies.DEMO), tmp_path)
    shown = {path.name: path.read_text() for path in (studies.DEMO / "tables").iterdir()}
    assert shown == {path.name: path.read_text() for path in tmp_path.iterdir()}


def test_every_folder_with_rows_has_a_page():
    assert {path.parent for path in DOCS.glob("findings/*/runs.csv")} == {*KEPT, *SWEEPS}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_verdicts_agree_with_pandas_and_scipy(folder):
    """Means over seeds and ordinary p-values, from the rows alone."""
    study = yaml.safe_load((folder / "plan.yaml").read_text())["study"]
    tables = _outcomes(study, pd.read_csv(folder / "runs.csv").query("stage == 'testing'"))
    _, _, state = finding_tables.judged(folder)
    for h, v in zip(study["hypotheses"], state.verdicts, strict=True):
        every = _differences(h, tables).dropna().to_numpy()
        decided = every[: v.decision.n]
        assert v.decision.mean == pytest.approx(decided.mean(), abs=1e-9)
        if h["expects"] != "equivalent" and v.verdict in ("supported", "refuted"):
            assert stats.ttest_1samp(decided, 0).pvalue <= study["testing"]["alpha"]
            wanted = {"greater": 1, "less": -1}[h["expects"]]
            assert (np.sign(decided.mean()) == wanted) == (v.verdict == "supported")
        is_early = len(every) > v.decision.n and v.verdict != "undecided"
        assert (v.all_seeds is not None) == is_early
        if is_early:
            low, high = stats.ttest_1samp(every, 0).confidence_interval()
            found = (v.all_seeds.n, v.all_seeds.mean, v.all_seeds.low, v.all_seeds.high)
            assert found == pytest.approx((len(every), every.mean(), low, high), abs=1e-9)


def _outcomes(study, runs):
    """A table of seeds, or of means of repeats of the tuning, and arms for each outcome; a run that
    diverged counts as guessing."""
    is_repeated = (study.get("tuning") or {}).get("repeats", 1) > 1
    unit = runs["repeat"].str.removesuffix("_null") if is_repeated else runs["seed"]
    metric = study.get("metric", "accuracy")
    guess = 100 / runs["classes"].max() if metric == "accuracy" else 8.0
    values = {metric: runs[f"test_{metric}"], "beyond": _beyond(runs, metric)}
    tables = {}
    for name, own in values.items():
        rows = runs.assign(value=own.where(~runs["diverged"], guess), unit=unit)
        tables[name] = rows.pivot_table(index="unit", columns="arm", values="value")
    return tables


def _differences(h, tables):
    table = tables[h.get("outcome", "accuracy")]
    sides = [[s] if isinstance(s, str) else s for s in (h["arm"], h["than"], *h["minus"])]
    one, other, *minus = (table[side].mean(axis=1) for side in sides)
    return one - other - (minus[0] - minus[1] if minus else 0)


def _beyond(runs, metric):
    """The mean of the results above max_len where each length is twice the one before."""
    own = [name for name in runs if re.fullmatch(rf"test_{metric}_at_\d+", name)]
    longer = {int(name.rpartition("_")[2]): runs[name] for name in own}
    lengths = sorted(n for n in longer if n > runs["max_len"].max())
    if not lengths:
        return runs[f"test_{metric}"] * np.nan
    assert all(long == 2 * short for short, long in itertools.pairwise(lengths))
    values = [longer[n] for n in lengths]
    weights = [0.5, *[1.0] * (len(lengths) - 2), 0.5] if len(lengths) > 1 else [1.0]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


@pytest.mark.parametrize("folder", PLANS, ids=lambda folder: folder.name)
def test_plans_that_are_run_are_those_of_conf(folder):
    """A plan that was kept has the study that conf/study defines today."""
    kept = yaml.safe_load((folder / "plan.yaml").read_text())["study"]
    own = yaml.safe_load((CONF_DIR / "study" / f"{folder.name}.yaml").read_text())
    assert kept["question"] == own["question"]
    null = own.get("tuning", {}).get("null_arm")
    control = {"null_arm": own["arms"][null]} if null else {}
    assert kept["arms"] == own["arms"] | control
    assert kept["settings"] == own.get("settings", {})
    hypotheses = [h for h in kept["hypotheses"] if h["name"] not in control]
    assert hypotheses == [{**old, **new} for old, new in zip(
        hypotheses, own["hypotheses"], strict=True)]  # fmt: skip


def test_the_tables_of_findings_and_readme_are_the_computed_ones():
    pages = (
        (DOCUMENT, {"questions", "claims"}),
        (studies.STUDIES.read_text(), {"studies", "again"}),
        (README, {"answers"}),
    )
    for page, parts in pages:
        assert {found["name"] for found in studies.PART.finditer(page)} == parts
        assert studies.with_parts(page) == page


def test_findings_and_first_screen_are_short():
    assert len(DOCUMENT.splitlines()) <= 150
    assert len(prose(FIRST_SCREEN).split()) <= 60
    assert 3 <= questions.first_screen().count("\n") - 2 <= 7
    words = [words for q in questions.ASKED["questions"] for words in q.get("words", {}).values()]
    assert all(len(text.split()) <= 3 for text in [*words, *questions.WORDS.values()])


def test_what_the_paper_reports_is_what_it_published():
    p = published.numbers()
    gate, concat = ([p["table1"][data][name][0] - p["table1"][data]["add"][0]
                     for data in ("agnews", "imdb", "arxiv")]
                    for name in ("gate_scalar", "concat"))  # fmt: skip
    expected = [f"{x:+.2f}" for x in (*gate[:2], *concat[:2])]
    by_encoding = [own["gate_scalar"][0] - own["add"][0]
                   for own in p["table3_arxiv"].values() if isinstance(own, dict)]  # fmt: skip
    three = p["figure4_arxiv"]["accuracy"]
    cnn = [100 * (three[name] - three["add"]) for name in ("gate_cnn", "gate_scalar")]
    expected += [f"{x:+.1f}" for x in (gate[2], concat[2], *by_encoding, *cnn)]
    reported = " ".join(claim["reports"] for claim in questions.ASKED["claims"])
    assert set(re.findall(r"[+-]\d+\.\d+", reported)) == set(expected)
    deltas = p["figure3_arxiv_delta_vs_add"]["gate_scalar"]
    assert f"{sum(d > 0 for d in deltas)} of {len(deltas)} seeds" in reported
    times = p["figure4_arxiv"]["latency_ms"]
    assert f"{times['gate_scalar']} ms with the gate, {times['add']} ms" in reported
    assert f"by {gate[2]:.1f} points" in prose(FIRST_SCREEN)


def test_every_number_in_the_prose_is_a_result():
    """A number with a decimal point or a sign; those of the README are the paper's."""
    tables = [text for folder in (*KEPT, *SWEEPS) for text in studies.further(folder)]
    drawn = [f"{g['mean']:.1f} ({g['low']:.1f} to {g['high']:.1f})" for g in questions.gains()]
    found = " ".join([*tables, *drawn, *map(studies.answers, KEPT)])
    pages = {"findings.md": prose(DOCUMENT), **NOTES}
    assert sum(len(re.findall(NUMBER, text)) for text in pages.values()) > 80
    for name, text in pages.items():
        quoted = re.findall(
            r"(?<![\w.`=])[+-]?\d+\.\d+(?![\d.])|(?<![\w.`=])[+-]\d+(?![\d.])", text
        )
        for number in quoted:
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", found), (name, number)
        assert _estimates(text) <= _estimates(found), name
    assert sum(len(_estimates(text)) for text in pages.values()) >= 12


def _estimates(text):
    """Each mean with its interval, with the sign that makes the mean positive."""
    shown = re.findall(
        rf"{NUMBER}[a-z ]{{0,30}}(?: \(|, )(?:95 % interval )?{NUMBER} to {NUMBER}", text
    )
    values = (map(float, estimate) for estimate in shown)
    return {(-m, -high, -low) if m < 0 else (m, low, high) for m, low, high in values}


def test_the_noise_of_tuning_is_that_of_the_simulation():
    """With 24 seeds, from half of the estimated spread of trials to the whole."""
    for tuning, text in (
        ("own_best", NOTES["own_best"]),
        ("own_best", prose(DOCUMENT)),
        ("operator_or_scale", NOTES["operator_or_scale"]),
    ):
        table = ERROR_RATES.partition("each tuned once: ")[2].partition("\n**")[0].splitlines()
        rows = [line.split(" | ") for line in table if f"| {tuning} | " in line]
        whole, half, _ = (100 * float(row[6].split()[0]) for row in rows)
        both = f"in {half:.0f} to {whole:.0f} of 100 simulated studies"
        assert both in text or f"in {whole:.0f} of 100 studies, in {half:.0f} if the" in text


@pytest.fixture
def long_study(tmp_path, monkeypatch):
    """Writes a small study with one hypothesis, and runs of 8 or fewer seeds, to an empty
    docs/findings."""
    for module in (questions, finding_tables):
        monkeypatch.setattr(module, "FOLDER", tmp_path)

    def write(name, seeds=8, looks=(8,), **hypothesis):
        arms = {"add": {"fusion": "add"}, "gate": {"fusion": "gate_scalar_linear_start"}}
        arms |= {f"{arm}_none": {**own, "encoding": "none"} for arm, own in arms.items()}
        given = {"arm": "gate", "than": "add", "expects": "greater", "margin": 1} | hypothesis
        h, testing = Hypothesis("gate_gains", "T.", **given), Evaluation("0-7", list(looks))
        study = small_study(arms=arms, testing=testing, hypotheses=[h])
        freeze(study, {arm: Choice({}) for arm in arms}, {}, tmp_path / name)
        results = {arm: [60 + i * n % 5 / 10 for n in range(seeds)] for i, arm in enumerate(arms)}
        runs = study_runs(**results).assign(max_len=1024, classes=13, test_documents=1000)
        runs.to_csv(tmp_path / name / "runs.csv")

    return write


def test_a_study_appears_once_its_rows_are_there(long_study):
    assert "| not yet run |  |  | long_published |" in questions.questions()
    assert len(questions.first_screen().splitlines()) == 2
    long_study("long_published")
    question = {"study": "long_published", "hypothesis": "gate_gains"}
    assert questions.row_of(question) == ["Yes", "+0.2 (+0.0 to +0.3)", "8"]


def test_an_unfinished_study_has_not_decided_yet(long_study):
    for name, seeds, answer in (("one", 5, "Not decided yet"), ("two", 8, "Not decided")):
        long_study(name, seeds, looks=[5, 8], minus=["gate_none", "add_none"], margin=0.01)
        question = {"study": name, "hypothesis": "gate_gains"}
        assert questions.row_of(question)[0] == answer


def test_gains_are_counted_in_the_direction_that_the_hypothesis_expects(long_study):
    less = {"arm": "add", "than": "gate", "expects": "less"}
    for name, own in {"greater": {}, "less": less, "wrong": {"expects": "less"}}.items():
        long_study(name, **own)
        finds, _ = questions.judged_by([(name, "gate_gains", "gate")], "supported")
        assert finds.endswith(f", {0 if name == 'wrong' else 6} of 8 seeds")  # two are equal


def test_the_questions_are_about_hypotheses_of_the_studies():
    verdicts = {*questions.WORDS, "ahead", "behind"}
    asked, hypotheses = questions.ASKED, {}
    for path in CONF_DIR.glob("study/*.yaml"):
        for h in yaml.safe_load(path.read_text())["hypotheses"]:
            hypotheses[path.stem, h["name"]] = h
    needed, one_of = {"ask", "study"}, {"hypothesis", "hypotheses"}
    for q in asked["questions"]:
        assert needed <= q.keys() <= needed | one_of | {"words", "arm", "readme", "tuned"}
        assert len(q.keys() & one_of) == 1
        assert q.get("words", {}).keys() <= verdicts
        for name in q.get("hypotheses", {"": q.get("hypothesis")}).values():
            arm = hypotheses[q["study"], name]["arm"]
            assert q.get("arm", arm) == arm  # its words are for this arm as the first one
    needed = {"claim", "reports", "holds", "evidence"}
    for claim in asked["claims"]:
        assert needed <= claim.keys() <= needed | {"synthetic", "finds"}
        assert claim["holds"] in verdicts
        assert {(study, name) for study, name, _ in claim["evidence"]} <= hypotheses.keys()


def test_the_gain_by_length_is_that_of_the_rows():
    points = {(g["text"], g["fusion"], g["placebo"]): g for g in questions.gains()}
    runs = pd.read_csv(studies.FOLDER / "text_imdb" / "runs.csv")
    table = runs.pivot(index="seed", columns="arm", values="test_accuracy")
    for fusion, placebo in itertools.product(("concat", "gate_scalar"), (False, True)):
        gain = table[fusion + "_none" * placebo] - table["add" + "_none" * placebo]
        low, high = stats.ttest_1samp(gain, 0).confidence_interval()
        own = points["IMDB", fusion, placebo]
        assert (own["mean"], own["low"], own["high"]) == pytest.approx((gain.mean(), low, high))
        assert own["words"] == 177
    texts = "text_agnews text_imdb text_bbc long_by_length long_published long_scotus"
    assert set(questions.ASKED["lengths"]) == set(texts.split())


def test_the_figure_is_drawn_with_texts_of_the_same_length(long_study, tmp_path):
    long_study("long_published")
    long_study("long_scotus")
    questions.draw(tmp_path / "gain")
    assert 1024 < (tmp_path / "gain.svg").stat().st_size < 100_000
    assert (tmp_path / "gain.png").exists()


def test_answers_without_order_are_counted_over_ties():
    """b is most frequent; a and b tie; c does not occur; no letter at all."""
    labels = np.array([1, 0, 2, 3])
    assert without_order.answered(["bab", "ab", "aab", ""], labels, "abcd") == 1 + 1 / 2 + 0 + 1 / 4


def test_a_bag_of_words_can_be_computed_for_a_committed_plan(monkeypatch):
    runs = without_order.configs("text_bbc", "add", [])
    seed, cfg = next(runs)  # their folder exists as long as `runs`
    assert (seed, cfg.data.name) == (cfg.seed, "bbc_lead_paragraph")
    monkeypatch.setattr(without_order, "configs", lambda *_: [(seed, cfg)])
    monkeypatch.setattr(bag_of_words, "_fit", lambda cfg: bag_of_words.BagOfWords(80.0, 9))
    (row,) = without_order.bags("text_bbc", []).to_dict("records")
    assert row == {"seed": seed, "test_documents": 9, "bag_of_words": 80.0}


def test_repeated_strings_are_counted_by_length():
    """Strings of 6 symbols are few, so all splits draw from the same ones; longer ones are many."""
    corpus = {
        "_target_": "posfuse.data.tasks.indirect_index", "symbols": 4, "farthest": 4,
        "split_seed": 0, "lengths": [6, 7], "test_lengths": [12], "sizes": [4000, 140, 140],
    }  # fmt: skip
    rows = pd.DataFrame(without_order.counted("indirect_index", DataConfig(corpus=corpus)))
    assert list(rows["length"]) == [*range(6, 8), 12]
    assert rows["strings"].sum() == 280
    assert list(rows["in_training"] > 0) == [True, False, False]
    long = rows[rows["length"] == 12]
    assert 0.15 < long["most_frequent"].sum() / long["strings"].sum() < 0.35
    assert 0.4 < long["near_mark"].sum() / long["strings"].sum() < 0.6


def test_rows_of_a_commit_that_does_not_exist_are_refused(tmp_path):
    report = tmp_path / "mine" / "report"
    report.mkdir(parents=True)
    (report / "runs.csv").write_text(f"arm,commit\nadd,{'0' * 40}\nconcat,\n")
    line = r"error: .*mine: no commit 0{40} here; run it at a commit"
    with pytest.raises(SystemExit, match=line):
        studies.keep(tmp_path / "mine")
    assert not (studies.FOLDER / "mine").exists()
