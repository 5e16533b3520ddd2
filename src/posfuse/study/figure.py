"""The figure of a study: each hypothesis's difference, its interval and its margin."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from posfuse.analysis.figures import style, svg
from posfuse.study.verdicts import Verdict

COLORS = {"supported": "#0072B2", "refuted": "#D55E00", "equivalent": "#009E73"}


@style.styled("no look yet")
def hypotheses(verdicts: Sequence[Verdict], deltas: Mapping[str, Sequence[float]]) -> Figure:
    """One row per hypothesis: a mark for each seed, the mean with its interval, the margin."""
    caption = (
        "difference in points of test accuracy; mark: one seed; dot: mean; line: the interval that "
        "holds at all looks together; grey band: the margin within which it does not matter"
    )
    size = (7.5, 0.8 + 0.42 * len(verdicts))
    figure, ((axis,),) = style.grid([1], [("",)], caption, size)
    for y, v in enumerate(verdicts):
        h, d = v.hypothesis, v.decision
        axis.fill_betweenx([y - 0.35, y + 0.35], -h.margin, h.margin, color="0.9", linewidth=0)
        if d is None:
            continue
        color = COLORS.get(v.verdict, style.QUIET)
        seeds = list(deltas[h.name])[: d.n]
        axis.plot(seeds, [y + 0.22] * len(seeds), "|", color=style.QUIET, markersize=5)
        axis.plot([d.low, d.high], [y, y], color=color)
        (dot,) = axis.plot(d.mean, y, "o", color=color)
        svg.mark(dot, f"{h.name}: {d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}], {v.verdict}")
    axis.axvline(0, color=style.QUIET, linewidth=0.8, zorder=0)
    names = [f"{style.short(v.hypothesis.name, 30)}\n{v.verdict}" for v in verdicts]
    axis.set_yticks(range(len(verdicts)), names)
    axis.set_ylim(len(verdicts) - 0.4, -0.6)
    return figure
