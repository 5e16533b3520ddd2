"""The commands as a user sees them: a sweep, its report, and completion in a shell."""

import sys

import pytest

from processes import command, succeeded


@pytest.mark.smoke
def test_a_sweep_is_reported_and_the_same_call_skips_what_is_done(corpus, tmp_path):
    """Each command in a process of its own."""
    grid = ["sweep_id=first", "fusion=add,concat", "seed=0,1"]
    train = command(corpus, "-m", "trainer.max_epochs=1", *grid)
    report = [sys.executable, "-m", "posfuse", "report", "multirun/first"]

    first = succeeded(train, tmp_path)
    results = sorted((tmp_path / "multirun" / "first").rglob("result.json"))
    cells = [path.relative_to(tmp_path / "multirun" / "first").parts for path in results]
    assert [(*parts[:3], parts[-2]) for parts in cells] == [
        ("tiny", "sinusoidal", fusion, f"seed={seed}")
        for fusion in ("add", "concat")
        for seed in (0, 1)
    ]
    assert first.stdout.count("test accuracy") == 4
    assert "already done" not in first.stdout

    written = [path.stat().st_mtime_ns for path in results]
    second = succeeded(train, tmp_path)
    assert second.stdout.count("already done") == 4
    assert "epoch 1/1" not in second.stdout
    assert written == [path.stat().st_mtime_ns for path in results]

    shown = succeeded(report, tmp_path)
    assert (tmp_path / "multirun" / "first" / "report" / "index.html").exists()
    assert "missing: 0 of 4 runs" in shown.stdout


COMPLETE = """
eval "$({posfuse} --completion bash)"
COMP_WORDS=({line}) COMP_LINE="{line}" COMP_CWORD={word}
_posfuse 2> errors
echo "${{COMPREPLY[*]}}"
"""


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("line", "word", "expected"),
    [
        ("posfuse st", 1, "status study"),
        ("posfuse study fr", 2, "freeze"),
        ("posfuse study plan demo --no", 4, "--no-timing"),
        ("posfuse report multirun/mine --uni", 3, "--unit"),
        ("posfuse train --hy", 2, "--hydra-help"),
        ("posfuse train seed=0 model=pap", 3, "model=paper model=paper_long"),
        ("posfuse train -m model.d_", 3, "model.d_ff= model.d_model="),
    ],
)
def test_bash_completes_commands_options_and_overrides(line, word, expected, tmp_path):
    (tmp_path / "posfuse").write_text(f'#!/bin/sh\nexec {sys.executable} -m posfuse "$@"\n')
    (tmp_path / "posfuse").chmod(0o755)
    script = COMPLETE.format(posfuse=tmp_path / "posfuse", line=line, word=word)
    script = f'PATH="{tmp_path}:$PATH"\n{script}'
    done = succeeded(["bash", "-c", script], tmp_path)
    assert " ".join(sorted(done.stdout.split())) == expected
