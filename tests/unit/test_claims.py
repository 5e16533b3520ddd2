"""Claims: what a file may contain, which comparisons a claim selects, and each verdict."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.config import CONF_DIR
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.power import seeds_for_difference, seeds_for_equivalence
from posfuse.verdicts.claims import Claim, Claims, judge_claims, read_claims
from recipes import blocks
from refusals import refusal

REGIMES = {"short": ["tiny"], "long": ["wordy", "wordier"]}
GAIN = [3.0, 3.5, 4.0, 3.2, 3.8]
NOTHING = [0.05, -0.05, 0.02, -0.04, 0.01]
LOSS = [-d for d in GAIN]
UNCLEAR = [3.0, -2.5, 1.0, -4.0, 2.0]
CRITERIA = Criteria()
LENGTHS = {"tiny": 16.0, "wordy": 64.0, "wordier": 256.0}
TABLES = {"none": "NoTable", "learned": "Learned", "sinusoidal": "Sinusoidal", "rope": "Sinusoidal"}


def frame(*rows):
    """Comparisons from (data, fusion, deltas[, encoding]). The corpora are of one task."""
    rows = [(*row, "sinusoidal")[:4] for row in rows]
    found = pd.DataFrame(rows, columns=["data", "fusion", "deltas", "encoding"])
    same = {"variant": "", "baseline_variant": "", "other_settings": "same", "task": "story-1"}
    return found.assign(
        n=found["deltas"].map(len),
        seeds=[list(range(len(deltas))) for deltas in found["deltas"]],
        length=found["data"].map(LENGTHS),
        table=found["encoding"].map(TABLES),
        attention=np.where(found["encoding"] == "rope", "Rotary", ""),
        resolution=np.nan,
        **same,
    )


def judge(comparisons, *claims, criteria=CRITERIA):
    compared = {criteria.metric.name: (comparisons, comparisons[:0])}
    return judge_claims(Claims(REGIMES, list(claims)), compared, criteria)


def one(comparisons, kind, where=None, criteria=CRITERIA, **more):
    claim = Claim("c", "text", kind, where=where or {}, **more)
    (verdict,) = judge(comparisons, claim, criteria=criteria)
    return verdict


def test_a_verdict_follows_the_differences():
    for kind, deltas, verdict in (
        ("gain", NOTHING, "undecided"),
        ("gain", [0.2, 0.25, 0.3, 0.22, 0.28], "supported"),  # above 0, whatever the margin
        ("gain", LOSS, "refuted"),
        ("negligible", NOTHING, "supported"),
        ("negligible", GAIN, "refuted"),
        ("negligible", LOSS, "refuted"),
        ("negligible", UNCLEAR, "undecided"),
        ("every_seed_positive", GAIN, "supported"),  # 0.5^5 = 0.03125
        ("every_seed_positive", GAIN[:4], "undecided"),  # 0.0625
        ("every_seed_positive", [*GAIN, 0.0], "refuted"),
    ):
        found = one(frame(("tiny", "concat", deltas)), kind)
        assert found.verdict == verdict, (kind, deltas)
        assert bool(found.settle) == (verdict == "undecided")
        (line,) = found.numbers
        assert f"n = {len(deltas)}" in line or f"of {len(deltas)} seeds" in line


def test_a_claim_about_several_comparisons_must_hold_for_each():
    found = one(frame(("wordy", "concat", GAIN), ("wordy", "gate_scalar", UNCLEAR)), "gain")
    assert (found.verdict, found.p_support) == ("undecided", pytest.approx(st.p_above(UNCLEAR)))
    found = one(frame(("wordy", "concat", GAIN), ("wordy", "gate_scalar", LOSS)), "gain")
    assert (found.verdict, found.p_refute) == ("refuted", pytest.approx(2 * st.p_below(LOSS)))


def test_seeds_are_planned_at_the_strictest_level_of_all_claims():
    claims = [Claim(n, "t", "every_seed_positive") for n in "abcdefg"]
    found = judge(frame(("tiny", "concat", GAIN[:3])), *claims)
    assert found[0].settle.startswith("8 seeds")  # 2^-8 <= 0.05 / 7 < 2^-7
    untested = Claim("x", "t", "gain", where={"fusion": "mlp"})
    found = judge(frame(("tiny", "concat", GAIN[:3])), *claims[:2], untested)
    assert found[0].settle.startswith("6 seeds")  # 2^-6 <= 0.05 / 2 < 2^-5


def test_every_combination_that_a_claim_names_must_be_there():
    where = {"data": ["tiny", "wordy"], "fusion": ["concat", "mlp"]}
    found = one(frame(("tiny", "concat", GAIN), ("wordy", "mlp", GAIN)), "gain", where)
    assert found.verdict == "undecided"
    assert "with data=tiny fusion=mlp; with data=wordy fusion=concat" in found.settle
    short = one(frame(("tiny", "concat", GAIN)), "gain", {"regime": ["short", "long"]})
    assert short.verdict == "undecided"
    assert "data=wordy or wordier (long)" in short.settle
    loss = one(frame(("tiny", "concat", LOSS)), "gain", {"fusion": ["concat", "mlp"]})
    assert loss.verdict == "refuted"


def test_runs_without_position_are_not_tested_unless_a_claim_names_them():
    cells = [("wordy", "concat", GAIN), ("wordy", "concat", GAIN, "learned")]
    comparisons = frame(*cells, ("wordy", "concat", NOTHING, "none"))
    for each in (None, "encoding"):
        found = one(comparisons, "gain", each=each)
        assert (found.verdict, len(found.numbers)) == ("supported", 2)
    named = one(comparisons, "gain", {"encoding": "none"})
    assert (named.verdict, len(named.numbers)) == ("undecided", 1)
    alone = one(frame(("wordy", "concat", GAIN, "none")), "gain")
    assert (alone.verdict, alone.settle) == ("undecided", "needs runs with other settings")


def test_each_encoding_needs_two_and_those_that_fuse_the_same_table_count_once():
    needs = "needs runs with at least two values of encoding with different tables"
    for encodings, enough in (
        (["sinusoidal"], False),
        (["sinusoidal", "none"], False),
        (["sinusoidal", "rope"], False),
        (["sinusoidal", "learned"], True),
    ):
        cells = [("wordy", "concat", GAIN, encoding) for encoding in encodings]
        found = one(frame(*cells), "gain", each="encoding")
        assert (needs in found.settle) == (not enough), encodings
        named = one(frame(*cells), "gain", {"encoding": encodings}, each="encoding")
        assert (needs in named.settle) == (not enough), encodings
        assert found.verdict == ("supported" if enough else "undecided")
    # They are tested all the same.
    three = frame(("wordy", "concat", GAIN), ("wordy", "concat", GAIN, "learned"),
                  ("wordy", "concat", LOSS, "rope"))  # fmt: skip
    assert one(three, "gain", each="encoding").verdict == "refuted"


def test_each_regime_counts_regimes_and_only_their_corpora():
    for corpora, tested, enough in (
        (["wordy", "wordier"], 2, False),
        (["tiny", "task"], 1, False),
        (["tiny", "wordy", "task"], 2, True),
    ):
        found = one(frame(*((data, "concat", GAIN) for data in corpora)), "gain", each="regime")
        assert len(found.numbers) == tested, corpora
        assert ("at least two values of regime" in found.settle) == (not enough), corpora
        assert found.verdict == ("supported" if enough else "undecided")


def test_a_claim_has_its_own_margin_or_that_of_the_report():
    comparisons = frame(("tiny", "concat", GAIN))
    assert one(comparisons, "gain", margin=3.5).verdict == "undecided"
    beyond = one(comparisons, "negligible")
    assert beyond.p_refute == pytest.approx(2 * st.p_above(GAIN, 0.5))
    small = frame(("tiny", "concat", [0.2, 0.25, 0.3, 0.22, 0.28]))
    assert one(small, "gain", margin=0.5).verdict == "refuted"
    assert one(comparisons, "negligible", margin=5.0).verdict == "supported"
    assert one(comparisons, "negligible", criteria=Criteria(margin=5.0)).verdict == "supported"


def test_holm_runs_over_the_claims_of_the_file_that_have_a_test():
    """Alone each of them is decided, beside another claim it is not."""
    of_long, of_none = ({"regime": "long"}, {"fusion": "mlp"})
    for kind, deltas, p_alone, side in (
        ("every_seed_positive", GAIN, 0.5**5, "support"),
        ("gain", loss := [-1.2, -0.4, -2.0, -0.3], st.p_below(loss), "refute"),
    ):
        claims = [Claim("a", "t", kind, where={"regime": "short"})]
        claims += [Claim("b", "t", "gain", where=where) for where in (of_long, of_none)]
        comparisons = frame(("tiny", "concat", deltas), ("wordy", "concat", UNCLEAR))
        alone, untested = judge(comparisons, claims[0], claims[2])
        assert alone.verdict == ("supported" if side == "support" else "refuted")
        assert math.isnan(untested.p_support)
        assert untested.settle == "needs runs with fusion=mlp"
        first, second = judge(comparisons, *claims[:2])
        assert first.verdict == "undecided"
        assert getattr(first, f"p_{side}") == pytest.approx(2 * p_alone)
        if side == "support":
            assert second.p_support == pytest.approx(max(2 * p_alone, st.p_above(UNCLEAR)))


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        ({"regime": ["short", "long"]}, [0, 1, 2, 3]),
        ({"regime": "long", "fusion": ["concat", "mlp"]}, [1, 2, 3]),
        ({"data": "wordy"}, [1, 2]),
        ({"encoding": "learned"}, [3]),
    ],
)
def test_where_selects_by_axis(where, selected):
    comparisons = frame(
        ("tiny", "concat", GAIN), ("wordy", "concat", GAIN), ("wordy", "mlp", GAIN),
        ("wordier", "concat", GAIN, "learned"),
    )  # fmt: skip
    lines = one(comparisons, "gain", where).numbers
    names = comparisons["data"] + " " + comparisons["encoding"] + " " + comparisons["fusion"]
    assert [line.split(":")[0] for line in lines] == names[selected].tolist()


def test_a_claim_that_only_runs_with_overrides_match_says_how_to_judge_them():
    name = "task=language_model"
    comparisons = frame(("tiny", "concat", GAIN), ("tiny", "mul", GAIN)).assign(variant=name)
    where = {"data": "tiny", "fusion": "concat"}
    assert one(comparisons, "gain", where).settle == (
        "needs runs with data=tiny fusion=concat without overrides (to judge those here, add "
        f"`variant: {name}` to `where`)"
    )
    assert one(comparisons, "gain", {**where, "variant": name}).verdict == "supported"
    assert one(comparisons, "gain", {"fusion": "mlp"}).settle == "needs runs with fusion=mlp"


def test_each_variant_counts_the_runs_with_overrides():
    plain = frame(("tiny", "concat", GAIN))
    variants = pd.concat([plain.assign(variant=name) for name in ("", "scale=1", "scale=8")])
    found = one(variants, "gain", each="variant")
    assert (found.verdict, len(found.numbers)) == ("supported", 3)
    assert one(variants.iloc[1:], "gain", each="variant").verdict == "supported"
    assert "at least two values of variant" in one(plain, "gain", each="variant").settle


def test_less_stable_without_a_fusion_tests_all_others():
    small, large = ([scale * d for d in (1, -1, 2, -2, 0.5, 3)] for scale in (0.01, 5))
    cells = [("tiny", "concat", large), ("tiny", "mul", large[::-1]), ("tiny", "film", small)]
    found = one(frame(*cells), "less_stable", than="film")
    assert (found.verdict, len(found.numbers)) == ("supported", 2)
    alone = one(frame(cells[-1]), "less_stable", than="film")
    assert (alone.verdict, alone.numbers) == ("undecided", [])


def test_less_stable_is_pitman_and_morgans_test_of_the_seeds_in_common():
    rng = np.random.default_rng(0)
    wild, calm = 5 * rng.normal(size=12), 0.5 * rng.normal(size=12)
    comparisons = frame(("wordy", "gate_cnn", wild), ("wordy", "gate_scalar", calm))
    found = one(comparisons, "less_stable", {"fusion": "gate_cnn"}, than="gate_scalar")
    assert found.verdict == "supported"
    assert found.p_support == pytest.approx(st.p_more_variable(wild, calm))
    reverse = one(comparisons, "less_stable", {"fusion": "gate_scalar"}, than="gate_cnn")
    assert reverse.verdict == "refuted"
    comparisons.at[1, "seeds"] = [0, 1, *range(50, 60)]
    few = one(comparisons, "less_stable", {"fusion": "gate_cnn"}, than="gate_scalar")
    assert "n = 2" in few.numbers[0]
    assert "at least 3 seeds in common" in few.settle


def test_corpora_of_several_tasks_show_nothing_about_length():
    comparisons = frame(("tiny", "concat", NOTHING), ("wordy", "concat", GAIN))
    assert one(comparisons, "grows_with_length").verdict == "supported"
    comparisons["task"] = ["agnews-1", "arxiv-2"]
    found = one(comparisons, "grows_with_length")
    assert not found.numbers
    assert "needs one task at several lengths" in found.settle
    three = pd.concat([comparisons, frame(("wordier", "concat", LOSS))], ignore_index=True)
    three["task"] = ["story-1", "arxiv-2", "story-1"]
    (line,) = one(three, "grows_with_length").numbers
    assert "tiny (16 tokens" in line
    assert "wordier (256 tokens" in line
    assert "wordy (64" not in line


def at_three_lengths(*gains, noise=0.3):
    """Comparisons with these mean gains at 16, 64 and 256 tokens, of five seeds."""
    noises = noise * np.random.default_rng(1).normal(size=(3, 5))
    data = ("tiny", "wordy", "wordier")
    return frame(*((d, "concat", g + n) for d, g, n in zip(data, gains, noises, strict=True)))


@pytest.mark.parametrize(
    ("gains", "verdict", "how", "beside_another"),
    [
        ((0, 4, 8), "supported", "", "undecided"),
        ((8, 4, 0), "refuted", "", "refuted"),
        ((4, 0, 8), "undecided", "the gain is not monotone", "undecided"),
        ((8, 12, 0), "undecided", "the gain is not monotone", "undecided"),
        ((0, 8, 9), "undecided", "the gain does not follow a straight line", "undecided"),
    ],
)
def test_growth_is_a_test_of_slopes_and_undecided_where_a_line_does_not_fit(
    gains, verdict, how, beside_another
):
    comparisons = at_three_lengths(*gains)
    found = one(comparisons, "grows_with_length")
    slopes = st.slopes(np.transpose(comparisons["deltas"].tolist()), [16, 64, 256])
    (line,) = found.numbers
    assert f": {slopes.mean():+.2f} points per doubling, 95 % interval" in line
    assert found.verdict == verdict
    if how:
        assert found.p_support == found.p_refute == 1
        assert f"{how} (lack of fit: p = " in line
        assert f"{how} over tiny (16 tokens, {gains[0]:+d}." in found.settle
    else:
        assert found.p_support == pytest.approx(st.p_above(slopes))
    # A line that does not fit leaves the slopes of another operator.
    others = at_three_lengths(4, 0, 8).assign(fusion="mlp")
    both = pd.concat([comparisons, others], ignore_index=True)
    assert one(both, "grows_with_length").verdict == beside_another


def test_a_claim_about_position_is_about_the_difference_of_gains():
    comparisons = frame(("tiny", "concat", GAIN), ("tiny", "concat", UNCLEAR, "none"))
    plain = one(comparisons, "gain", {"encoding": "sinusoidal"})
    found = one(comparisons, "gain", {"encoding": "sinusoidal"}, of="position")
    added = np.subtract(GAIN, UNCLEAR)
    assert found.p_support == pytest.approx(st.p_above(added))
    assert plain.p_support == pytest.approx(st.p_above(GAIN))
    judged, line = found.numbers
    assert judged == (
        "judged: what position adds, the gain with position minus the gain without (tiny "
        f"sinusoidal concat {np.mean(GAIN):+.2f} and {np.mean(UNCLEAR):+.2f})"
    )
    assert line.startswith(f"tiny sinusoidal concat: {np.mean(added):+.2f}, 95 % interval")


def test_without_the_placebo_the_gain_is_judged_and_the_verdict_says_so():
    alone = frame(("tiny", "concat", GAIN))
    found = one(alone, "gain", of="position")
    assert found.verdict == "supported"
    assert found.numbers[0].startswith("judged: the plain gain, because the placebo ")
    # Gains and differences of gains are not mixed in one claim.
    both = frame(
        ("tiny", "concat", GAIN), ("wordy", "concat", GAIN), ("tiny", "concat", GAIN, "none")
    )
    found = one(both, "gain", {"encoding": "sinusoidal"}, of="position")
    assert found.verdict == "supported"
    assert found.numbers[0].endswith("was not run for wordy sinusoidal concat")
    assert one(frame(), "gain", of="position").numbers == []


def test_no_control_or_task_is_among_the_papers_long_texts():
    regimes = read_claims().regimes
    assert regimes["long"] == ["arxiv"]
    signs = re.compile(r"passages|articles:|listops|data\.tasks")
    composed = {
        path.stem for path in (CONF_DIR / "data").iterdir() if signs.search(path.read_text())
    }
    assert {"bbc_digest", "bbc_lead_story", "listops", "parity"} <= composed
    assert not composed & {name for names in regimes.values() for name in names}


def test_one_comparison_that_contradicts_a_claim_can_settle_it():
    """The other comparison would need 20,000 seeds or more, but one counter-example refutes."""
    against = [-2.0, -4.0, 0.0]
    found = one(frame(("tiny", "concat", against), ("wordy", "concat", [0.1, -1.9, 2.1])), "gain")
    assert found.verdict == "undecided"
    seeds = seeds_for_difference(2.0, st.spread_limit(against), 2 * 0.05 / 2)  # one of two
    assert 30 < seeds < 50
    assert found.settle.startswith(f"about {seeds:,.0f} seeds per cell")


def test_one_seed_settles_nothing():
    comparisons = frame(("tiny", "concat", [3.0]), ("wordy", "concat", [5.0]))
    for kind in ("gain", "negligible", "grows_with_length"):
        found = one(comparisons, kind)
        assert found.verdict == "undecided"
        assert "at least 2 seeds" in found.settle
        assert math.isnan(found.p_support)
        assert math.isnan(found.p_refute)


def test_equal_differences_are_judged_by_the_accuracys_resolution():
    equal = frame(("tiny", "concat", [0.25] * 3))
    assert one(equal, "gain").verdict == "undecided"  # nothing is known of the resolution
    # One of 1,000 documents: t = 2.5 sqrt(3), p = 0.025 with 2 degrees of freedom.
    equal["resolution"] = 0.1
    found = one(equal, "gain")
    assert found.verdict == "supported"
    assert found.p_support == pytest.approx(stats.t.sf(2.5 * math.sqrt(3), 2))
    assert "+0.25, 95 % interval +0.00 to +0.50, n = 3" in found.numbers[0]
    assert one(equal, "negligible").p_support == pytest.approx(found.p_support)  # 0.5 - 0.25
    equal["resolution"] = 1.0
    undecided = one(equal, "negligible")
    assert undecided.verdict == "undecided"
    limit = math.sqrt(2 / stats.chi2.ppf(0.2, 2))
    seeds = seeds_for_equivalence(limit, 0.5, 0.25, 0.05)
    assert undecided.settle.startswith(f"about {seeds:,.0f} seeds per cell")


BAD = [  # what is added to a claim, without the key `kind`, and the message
    ("kind: win", "claims[0].kind: no 'win'; use one of negligible"),
    ("kind: gain, wher: {}", "claims[0].wher: unknown key; use claims[0].where"),
    ("kind: gain, where: {fuson: add}", "unknown axis 'fuson'; use one of regime"),
    ("kind: gain, where: {regime: huge}", "unknown regime 'huge'; use one of"),
    ("kind: gain, than: add", ".than: name a fusion for kind less_stable; remove it for other"),
    ("kind: less_stable", ".than: name a fusion for kind less_stable; remove it for other kinds"),
    ("kind: less_stable, than: add, of: position", "`of: position` is not for kind less_stable"),
    ("kind: less_stable, than: add, where: {fusion: [mul, add]}", ".than: must be another fusion"),
    ("kind: gain, of: position, where: {encoding: none}", "compares with encoding none; remove"),
    ("kind: gain, each: seeds", "unknown axis 'seeds'"),
    ("kind: gain, of: place", "claims[0].of: no 'place'; use one of difference, position"),
    ("kind: gain, metric: speed", "claims[0].metric: no 'speed'; use one of accuracy, macro_f1, "),
    ("kind: gain, margin: wide", "claims[0].margin: Input should be a valid number"),
    ("kind: negligible, margin: -1", "claims[0].margin: must be above 0 for kind negligible"),
    ("kind: gain, where: {fusion: []}", "must be a name or a list of names, numbers in quotes (g"),
    ("kind: gain, where: {data: 2024}", "a list of names, numbers in quotes (got 2024)"),
    ("kind: every_seed_positive, margin: 1", ".margin: is not for kind every_seed_positive; rem"),
    ("kind: less_stable, than: add, margin: 1", "margin: is not for kind less_stable; remove it"),
    ("kind: gain}\n- {name: a, text: t, kind: gain", "claims: two are named a; rename one"),
    ("kind: gain}\n- {name: b, kind: gain", "claims[1].text: Field required; add it"),
]


@pytest.mark.parametrize(("added", "message"), BAD)
def test_a_mistake_in_a_file_is_one_line_that_names_it(tmp_path, added, message):
    path = tmp_path / "mine.yaml"
    path.write_text(f"regimes: {{short: [tiny]}}\nclaims:\n- {{name: a, text: t, {added}}}\n")
    error = refusal(read_claims, path)
    assert error.startswith(str(path))
    assert message in error


@pytest.mark.parametrize("text", ["claims: [", "- a\n- b\n", "claims: 3", "words", "\x00", None])
def test_what_is_no_file_of_claims_is_one_line(tmp_path, text):
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    error = refusal(read_claims, path)
    assert error.startswith(str(path))
    absent = "cannot be read (No such file or directory); give a YAML file"
    assert (absent in error) == (text is None)


def test_the_claims_of_the_docs_are_valid(tmp_path):
    path, found = tmp_path / "mine.yaml", []
    for text in blocks("docs/report.md", "yaml", "(?:regimes|claims):"):
        path.write_text(text)
        (claim,) = read_claims(path).claims
        found.append((claim.kind, claim.margin))
    assert found == [("gain", -0.5), ("extrapolates", None)]
