"""Claims: what a file may contain, which comparisons a claim selects, and each verdict."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria, seeds_for_equivalence
from posfuse.verdicts.claims import Claim, Claims, judge_claims, read_claims

REGIMES = {"short": ["tiny"], "long": ["wordy", "wordier"]}
GAIN = [3.0, 3.5, 4.0, 3.2, 3.8]
NOTHING = [0.05, -0.05, 0.02, -0.04, 0.01]
LOSS = [-d for d in GAIN]
UNCLEAR = [3.0, -2.5, 1.0, -4.0, 2.0]
CRITERIA = Criteria()


TABLES = {"none": "NoTable", "learned": "Learned"}  # others, rope among them, fuse Sinusoidal


def frame(*rows):
    """Comparisons from (data, fusion, deltas[, encoding]). The corpora are of one task."""
    lengths = {"tiny": 16.0, "wordy": 64.0, "wordier": 256.0}
    records = [
        {
            "data": data,
            "encoding": (encoding := rest[0] if rest else "sinusoidal"),
            "fusion": fusion,
            "variant": "",
            "baseline_variant": "",
            "table": TABLES.get(encoding, "Sinusoidal"),
            "attention": "Rotary" if encoding == "rope" else "",
            "other_settings": "same",
            "task": "story-1",
            "length": lengths[data],
            "seeds": list(range(len(deltas))),
            "deltas": list(deltas),
            "n": len(deltas),
            "resolution": np.nan,
        }
        for data, fusion, deltas, *rest in rows
    ]
    names = ["data", "encoding", "fusion", "variant", "baseline_variant", "table", "attention"]
    names += ["other_settings", "task", "length", "seeds", "deltas", "n", "resolution"]
    return pd.DataFrame(records, columns=names)


def judge(comparisons, *claims, criteria=CRITERIA):
    return judge_claims(Claims(REGIMES, list(claims)), comparisons, criteria)


def one(comparisons, kind, where=None, criteria=CRITERIA, **more):
    claim = Claim("c", "text", kind, where=where or {}, **more)
    (verdict,) = judge(comparisons, claim, criteria=criteria)
    return verdict


def test_a_verdict_follows_the_differences():
    for kind, deltas, verdict in (
        ("gain", GAIN, "supported"),
        ("gain", NOTHING, "undecided"),
        ("gain", [0.2, 0.25, 0.3, 0.22, 0.28], "supported"),  # above 0, whatever the margin
        ("gain", LOSS, "refuted"),
        ("gain", UNCLEAR, "undecided"),
        ("negligible", NOTHING, "supported"),
        ("negligible", GAIN, "refuted"),
        ("negligible", LOSS, "refuted"),
        ("negligible", UNCLEAR, "undecided"),
        ("every_seed_positive", GAIN, "supported"),  # 0.5^5 = 0.03125
        ("every_seed_positive", GAIN[:4], "undecided"),  # 0.0625
        ("every_seed_positive", [*GAIN, -0.1], "refuted"),
        ("every_seed_positive", [*GAIN, 0.0], "refuted"),
    ):
        found = one(frame(("tiny", "concat", deltas)), kind)
        assert found.verdict == verdict, (kind, deltas)
        assert bool(found.settle) == (verdict == "undecided")
        (line,) = found.evidence.numbers
        assert f"n = {len(deltas)}" in line or f"of {len(deltas)} seeds" in line


def test_p_values_are_those_of_the_tests():
    comparisons = frame(("tiny", "concat", UNCLEAR))
    gain, negligible = one(comparisons, "gain"), one(comparisons, "negligible")
    assert gain.p_support == pytest.approx(st.p_above(UNCLEAR))
    assert gain.p_refute == pytest.approx(st.p_below(UNCLEAR))
    beyond = one(frame(("tiny", "concat", GAIN)), "negligible")
    assert beyond.p_refute == pytest.approx(2 * st.p_above(GAIN, 0.5))
    assert negligible.p_support == pytest.approx(st.p_equivalence(UNCLEAR, 0.5))


def test_a_claim_about_several_comparisons_must_hold_for_each():
    both = frame(("wordy", "concat", GAIN), ("wordy", "gate_scalar", UNCLEAR))
    assert one(both, "gain").verdict == "undecided"
    assert one(both, "gain").p_support == pytest.approx(st.p_above(UNCLEAR))
    against = frame(("wordy", "concat", GAIN), ("wordy", "gate_scalar", LOSS))
    assert one(against, "gain").verdict == "refuted"
    assert one(against, "gain").p_refute == pytest.approx(2 * st.p_below(LOSS))


def test_refutations_are_adjusted_by_holm_too():
    """Alone the loss is refuted at p = 0.03, beside another claim it is not."""
    loss = [-1.2, -0.4, -2.0, -0.3]
    assert 0.025 < st.p_below(loss) < 0.05
    where = [{"regime": "short"}, {"regime": "long"}]
    claims = [Claim(n, "t", "gain", where=w) for n, w in zip("ab", where, strict=True)]
    comparisons = frame(("tiny", "concat", loss), ("wordy", "concat", UNCLEAR))
    assert judge(comparisons, claims[0])[0].verdict == "refuted"
    first, _ = judge(comparisons, *claims)
    assert first.verdict == "undecided"
    assert first.p_refute == pytest.approx(2 * st.p_below(loss))


def test_seeds_are_planned_at_the_strictest_level_of_all_claims():
    claims = [Claim(n, "t", "every_seed_positive") for n in "abcdefg"]
    found = judge(frame(("tiny", "concat", GAIN[:3])), *claims)
    assert found[0].settle.startswith("8 seeds")  # 2^-8 <= 0.05 / 7 < 2^-7


def test_claims_on_another_baseline_are_not_judged():
    claims = Claims(REGIMES, [Claim("c", "t", "gain")], baseline="add")
    comparisons = frame(("tiny", "concat", GAIN))
    (judged,) = judge_claims(claims, comparisons, CRITERIA)
    assert judged.verdict == "supported"
    (other,) = judge_claims(claims, comparisons, Criteria(baseline="mlp"))
    assert other.verdict == "undecided"
    assert other.settle == "needs --baseline add"
    assert read_claims().baseline == "add"


def test_runs_with_other_settings_count_only_where_a_claim_names_them():
    comparisons = frame(("tiny", "concat", GAIN), ("tiny", "concat", LOSS))
    comparisons.loc[1, "variant"] = "model.d_model=4"
    assert one(comparisons, "gain").verdict == "supported"
    named = one(comparisons, "gain", {"variant": "model.d_model=4"})
    assert named.verdict == "refuted"
    assert len(named.evidence.numbers) == 1


def test_every_combination_that_a_claim_names_must_be_there():
    where = {"data": ["tiny", "wordy"], "fusion": ["concat", "mlp"]}
    diagonal = frame(("tiny", "concat", GAIN), ("wordy", "mlp", GAIN))
    found = one(diagonal, "gain", where)
    assert found.verdict == "undecided"
    assert "with data=tiny fusion=mlp; with data=wordy fusion=concat" in found.settle
    short = one(frame(("tiny", "concat", GAIN)), "gain", {"regime": ["short", "long"]})
    assert short.verdict == "undecided"
    assert "data=wordy or wordier (long)" in short.settle
    loss = one(frame(("tiny", "concat", LOSS)), "gain", {"fusion": ["concat", "mlp"]})
    assert loss.verdict == "refuted"


def test_runs_without_position_are_not_tested_unless_a_claim_names_them():
    two = frame(("wordy", "concat", GAIN), ("wordy", "concat", GAIN, "learned"))
    assert one(two, "gain", each="encoding").verdict == "supported"
    blank = pd.concat([two, frame(("wordy", "concat", NOTHING, "none"))], ignore_index=True)
    for each in (None, "encoding"):
        found = one(blank, "gain", each=each)
        assert found.verdict == "supported"
        assert len(found.evidence.numbers) == 2
    named = one(blank, "gain", {"encoding": "none"})
    assert named.verdict == "undecided"
    assert len(named.evidence.numbers) == 1
    alone = one(frame(("wordy", "concat", GAIN, "none")), "gain")
    assert (alone.verdict, alone.settle) == ("undecided", "needs runs with other settings")


def test_each_encoding_needs_two_and_those_that_fuse_the_same_table_count_once():
    alone = one(frame(("wordy", "concat", GAIN)), "gain", each="encoding")
    assert "at least two values of encoding" in alone.settle
    for other, enough in (("none", False), ("rope", False), ("learned", True)):
        two = frame(("wordy", "concat", GAIN), ("wordy", "concat", GAIN, other))
        found = one(two, "gain", each="encoding")
        needs = "needs runs with at least two values of encoding with different tables"
        assert (needs in found.settle) == (not enough), other
        assert found.verdict == ("supported" if enough else "undecided")
    # They are tested all the same.
    three = frame(("wordy", "concat", GAIN), ("wordy", "concat", GAIN, "learned"),
                  ("wordy", "concat", LOSS, "rope"))  # fmt: skip
    assert one(three, "gain", each="encoding").verdict == "refuted"


def test_the_margin_is_the_reports_unless_the_claim_has_its_own():
    comparisons = frame(("tiny", "concat", GAIN))
    assert one(comparisons, "gain", margin=3.5).verdict == "undecided"
    assert one(comparisons, "negligible", margin=5.0).verdict == "supported"
    assert one(comparisons, "negligible", criteria=Criteria(margin=5.0)).verdict == "supported"


def test_holm_runs_over_the_claims_of_the_file():
    comparisons = frame(("tiny", "concat", GAIN), ("wordy", "concat", UNCLEAR))
    claims = [
        Claim("a", "t", "every_seed_positive", where={"regime": "short"}),
        Claim("b", "t", "gain", where={"regime": "long"}),
    ]
    first, second = judge(comparisons, *claims)
    alone = 0.5**5
    assert first.p_support == pytest.approx(2 * alone)
    assert first.verdict == "undecided"  # alone it is supported
    assert second.p_support == pytest.approx(max(2 * alone, st.p_above(UNCLEAR)))


def test_a_claim_without_a_test_does_not_count_in_the_family():
    comparisons = frame(("tiny", "concat", GAIN))
    claims = [
        Claim("a", "t", "every_seed_positive"),
        Claim("b", "t", "gain", where={"fusion": "mlp"}),
    ]
    first, second = judge(comparisons, *claims)
    assert first.verdict == "supported"
    assert math.isnan(second.p_support)
    assert second.settle == "needs runs with fusion=mlp"


def test_where_selects_by_regime_data_encoding_and_fusion():
    comparisons = frame(
        ("tiny", "concat", GAIN),
        ("wordy", "concat", GAIN),
        ("wordy", "mlp", GAIN),
        ("wordier", "concat", GAIN, "learned"),
    )
    names = ["tiny sinusoidal concat", "wordy sinusoidal concat", "wordy sinusoidal mlp",
             "wordier learned concat"]  # fmt: skip
    for where, selected in (
        ({}, names),
        ({"regime": ["short", "long"]}, names),
        ({"regime": "long", "fusion": ["concat", "mlp"]}, names[1:]),
        ({"data": "wordy"}, names[1:3]),
        ({"encoding": "learned"}, names[3:]),
    ):
        lines = one(comparisons, "gain", where).evidence.numbers
        assert [line.split(":")[0] for line in lines] == selected


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
    assert "n = 2" in few.evidence.numbers[0]
    assert "at least 3 seeds in common" in few.settle


def test_grows_with_length_is_a_test_of_each_seeds_slope():
    per_doubling = np.array([1.0, 1.2, 0.9, 1.1, 1.05])
    comparisons = frame(
        ("tiny", "concat", 2 + 0 * per_doubling),
        ("wordy", "concat", 2 + 2 * per_doubling),
        ("wordier", "concat", 2 + 4 * per_doubling),
    )
    found = one(comparisons, "grows_with_length")
    assert found.verdict == "supported"
    assert "+1.05 points per doubling" in found.evidence.numbers[0]
    assert found.p_support == pytest.approx(st.p_above(per_doubling))
    alone = one(frame(("tiny", "concat", GAIN)), "grows_with_length")
    assert "needs one task at several lengths" in alone.settle


def test_corpora_of_several_tasks_show_nothing_about_length():
    comparisons = frame(("tiny", "concat", NOTHING), ("wordy", "concat", GAIN))
    assert one(comparisons, "grows_with_length").verdict == "supported"
    comparisons["task"] = ["agnews-1", "arxiv-2"]
    found = one(comparisons, "grows_with_length")
    assert not found.judged
    assert "needs one task at several lengths" in found.settle
    three = pd.concat([comparisons, frame(("wordier", "concat", LOSS))], ignore_index=True)
    three["task"] = ["story-1", "arxiv-2", "story-1"]
    (line,) = one(three, "grows_with_length").evidence.numbers
    assert "tiny (16 tokens" in line
    assert "wordier (256 tokens" in line
    assert "wordy (64" not in line


def at_three_lengths(*gains, noise=0.3):
    """Comparisons with these mean gains at 16, 64 and 256 tokens, of five seeds."""
    noises = noise * np.random.default_rng(1).normal(size=(3, 5))
    data = ("tiny", "wordy", "wordier")
    return frame(*((d, "concat", g + n) for d, g, n in zip(data, gains, noises, strict=True)))


def test_a_gain_that_is_not_monotone_does_not_grow_with_length():
    """Its slope is clearly above 0, but it falls first."""
    found = one(at_three_lengths(4, 0, 8), "grows_with_length")
    slopes = st.slopes(np.transpose(at_three_lengths(4, 0, 8)["deltas"].tolist()), [16, 64, 256])
    assert st.p_above(slopes) < 0.001
    assert found.verdict == "undecided"
    assert found.p_support == found.p_refute == 1
    (line,) = found.evidence.numbers
    assert "the gain is not monotone (lack of fit: p = " in line
    for text in ("tiny (16 tokens, +4.", "wordy (64 tokens, +0.0", "wordier (256 tokens, +7.9"):
        assert text in line
        assert text in found.settle
    assert "the gain is not monotone over" in found.settle
    assert one(at_three_lengths(0, 4, 8), "grows_with_length").verdict == "supported"
    assert one(at_three_lengths(8, 4, 0), "grows_with_length").verdict == "refuted"
    falling = one(at_three_lengths(8, 12, 0), "grows_with_length")
    assert falling.verdict == "undecided"
    bent = one(at_three_lengths(0, 8, 9), "grows_with_length")
    assert bent.verdict == "undecided"
    assert "the gain does not follow a straight line" in bent.settle


def test_a_line_that_does_not_fit_leaves_the_other_operators_slopes():
    both = pd.concat([at_three_lengths(4, 0, 8), at_three_lengths(8, 4, 0)], ignore_index=True)
    both.loc[3:, "fusion"] = "mlp"
    assert one(both, "grows_with_length").verdict == "refuted"
    both = pd.concat([at_three_lengths(4, 0, 8), at_three_lengths(0, 4, 8)], ignore_index=True)
    both.loc[3:, "fusion"] = "mlp"
    assert one(both, "grows_with_length").verdict == "undecided"


def test_a_claim_about_position_is_about_the_difference_of_gains():
    comparisons = frame(("tiny", "concat", GAIN), ("tiny", "concat", UNCLEAR, "none"))
    plain = one(comparisons, "gain", {"encoding": "sinusoidal"})
    found = one(comparisons, "gain", {"encoding": "sinusoidal"}, of="position")
    added = np.subtract(GAIN, UNCLEAR)
    assert found.p_support == pytest.approx(st.p_above(added))
    assert plain.p_support == pytest.approx(st.p_above(GAIN))
    judged, line = found.evidence.numbers
    assert judged == (
        "judged: what position adds, the gain with position minus the gain without (tiny "
        f"sinusoidal concat {np.mean(GAIN):+.2f} and {np.mean(UNCLEAR):+.2f})"
    )
    assert line.startswith(f"tiny sinusoidal concat: {np.mean(added):+.2f}, 95 % interval")
    assert len(plain.evidence.numbers) == 1


def test_without_the_placebo_the_gain_is_judged_and_the_verdict_says_so():
    alone = frame(("tiny", "concat", GAIN))
    found = one(alone, "gain", of="position")
    assert found.verdict == "supported"
    assert found.evidence.numbers[0] == (
        "judged: the plain gain, because the placebo (encoding=none) was not run"
    )
    # Gains and differences of gains are not mixed in one claim.
    both = frame(
        ("tiny", "concat", GAIN), ("wordy", "concat", GAIN), ("tiny", "concat", GAIN, "none")
    )
    found = one(both, "gain", {"encoding": "sinusoidal"}, of="position")
    assert found.verdict == "supported"
    assert found.evidence.numbers[0].endswith("was not run for wordy sinusoidal concat")
    assert one(frame(), "gain", of="position").evidence.numbers == []


def test_growth_with_length_of_what_position_adds():
    """The gain grows by what needs no position alone."""
    rising, noise = np.array([1.0, 3.0, 5.0]), np.random.default_rng(0).normal(0, 0.2, (2, 3, 5))
    data = ("tiny", "wordy", "wordier")
    gains = frame(*((d, "concat", g + n) for d, g, n in zip(data, rising, noise[0], strict=True)))
    blank = [(d, "concat", g + n, "none") for d, g, n in zip(data, rising, noise[1], strict=True)]
    every = pd.concat([gains, frame(*blank)], ignore_index=True)
    where = {"encoding": "sinusoidal"}
    assert one(every, "grows_with_length", where).verdict == "supported"
    found = one(every, "grows_with_length", where, of="position")
    assert found.verdict == "undecided"
    slopes = st.slopes((noise[0] - noise[1]).T, [16, 64, 256])
    assert found.p_support == pytest.approx(st.p_above(slopes))


def test_no_control_or_task_is_among_the_papers_long_texts():
    regimes = read_claims().regimes
    assert regimes["long"] == ["arxiv"]
    signs = re.compile(r"passages|articles:|listops|data\.tasks")
    composed = {
        path.stem for path in (CONF_DIR / "data").iterdir() if signs.search(path.read_text())
    }
    assert {"bbc_digest", "bbc_lead_story", "listops", "parity"} <= composed
    assert not composed & {name for names in regimes.values() for name in names}


def test_one_seed_settles_nothing():
    comparisons = frame(("tiny", "concat", [3.0]), ("wordy", "concat", [5.0]))
    for kind in ("gain", "negligible", "grows_with_length"):
        found = one(comparisons, kind)
        assert found.verdict == "undecided"
        assert "at least 2 seeds" in found.settle


def test_equal_differences_are_judged_by_the_accuracys_resolution():
    equal = frame(("tiny", "concat", [0.25] * 3))
    for kind in ("gain", "negligible"):
        assert one(equal, kind).verdict == "undecided"  # nothing is known of the resolution
        assert "at least 2 seeds" in one(equal, kind).settle
    # One of 1,000 documents: t = 2.5 sqrt(3), p = 0.025 with 2 degrees of freedom.
    equal["resolution"] = 0.1
    found = one(equal, "gain")
    assert found.verdict == "supported"
    assert found.p_support == pytest.approx(stats.t.sf(2.5 * math.sqrt(3), 2))
    assert "+0.25, 95 % interval +0.00 to +0.50, n = 3" in found.evidence.numbers[0]
    assert one(equal, "negligible").p_support == pytest.approx(found.p_support)  # 0.5 - 0.25
    equal["resolution"] = 1.0
    undecided = one(equal, "negligible")
    assert undecided.verdict == "undecided"
    limit = math.sqrt(2 / stats.chi2.ppf(0.2, 2))
    seeds = seeds_for_equivalence(limit, 0.5, 0.25, 0.05)
    assert undecided.settle.startswith(f"about {seeds:,.0f} seeds per cell")


def test_no_comparisons_leave_every_claim_of_the_paper_open():
    verdicts = judge_claims(read_claims(), frame(), CRITERIA)
    assert len(verdicts) == 7
    assert {v.verdict for v in verdicts} == {"undecided"}
    assert all("needs" in v.settle for v in verdicts)


BASE = "{name: a, text: t, kind: gain"
BAD = [
    (BASE.replace("gain", "win") + "}", "claims[0].kind: no 'win'; use one of negligible"),
    (BASE + ", wher: {}}", "claims[0].wher: unknown key; use claims[0].where"),
    (BASE + ", where: {fuson: add}}", "unknown axis 'fuson'; use one of regime"),
    (BASE + ", where: {regime: huge}}", "unknown regime 'huge'; use one of"),
    ("{name: a, kind: gain}", "claims[0].text: Field required; add it"),
    (BASE + ", than: add}", "`than` is for kind less_stable only; remove it"),
    (BASE.replace("gain", "less_stable") + "}", "kind less_stable needs `than`; add"),
    (BASE + ", each: seeds}", "unknown axis 'seeds'"),
    (BASE + ", of: place}", "claims[0].of: no 'place'; use one of difference, position"),
    (
        BASE.replace("gain", "less_stable") + ", than: add, of: position}",
        "`of: position` is not for kind less_stable; remove it",
    ),
    (BASE + ", margin: wide}", "claims[0].margin: Input should be a valid number"),
    (
        BASE.replace("gain", "negligible") + ", margin: -1}",
        "claims[0].margin: must be above 0 for kind negligible",
    ),
    (BASE + ", where: {fusion: {a: b}}}", "where.fusion: must be a name or a list of names (got {"),
    (BASE + ", where: {fusion: []}}", "must be a name or a list of names (got [])"),
    (BASE + "}\n- " + BASE + "}", "claims: two are named a; rename one"),
]


def test_a_mistake_in_a_file_is_one_line_that_names_it(tmp_path):
    path = tmp_path / "mine.yaml"
    texts = [(f"regimes: {{short: [tiny]}}\nclaims:\n- {text}\n", message)
             for text, message in BAD]  # fmt: skip
    texts += [(text, "") for text in ("claims: [", "- a\n- b\n", "claims: 3", "words", "\x00")]
    for text, message in texts:
        path.write_text(text)
        with pytest.raises(InputError) as error:
            read_claims(path)
        assert str(error.value).startswith(str(path)), text
        assert message in str(error.value), text
        assert "\n" not in str(error.value), text
    with pytest.raises(InputError, match=r"cannot be read \(No such file .*; give a YAML file"):
        read_claims(tmp_path / "none.yaml")


def test_the_claims_of_the_docs_are_valid(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    one, other = re.findall(r"```yaml\n((?:regimes|claims):.*?)```", page, re.DOTALL)
    path = tmp_path / "mine.yaml"
    path.write_text(one)
    (claim,) = read_claims(path).claims
    assert claim.margin == -0.5
    path.write_text(other)
    (claim,) = read_claims(path).claims
    assert claim.kind == "extrapolates"


def test_aliases_and_deep_nesting_are_refused_and_not_expanded(tmp_path):
    path = tmp_path / "claims.yaml"
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]" for i in range(1, 40))]
    for text in ("\n".join(lines), "claims: " + "[" * 9_000 + "]" * 9_000):
        path.write_text(text)
        with pytest.raises(InputError, match=r"claims.yaml: has an alias .* instead$"):
            read_claims(path)
