"""Commands whose output has no reader, and commands under an ASCII locale."""

import sys

from processes import ended
from small_runs import small_overrides, write_corpus

# The reader of the pipe has ended before the command prints.
NO_READER = (
    'mkfifo pipe; true < pipe & exec 3> pipe; wait; "$@" >&3; status=$?; rm pipe; exit $status'
)


def shell(line, folder, *argv):
    """The line of a shell, in which "$@" is Python with the arguments."""
    return ended(["bash", "-c", line, "-", sys.executable, *map(str, argv)], folder)


def test_a_run_finishes_if_nobody_reads_its_stdout(tmp_path):
    overrides = small_overrides(write_corpus(tmp_path / "corpus"), "trainer.max_epochs=1")
    trained = shell(NO_READER, tmp_path, "-m", "posfuse", "train", *overrides)
    assert (trained.returncode, trained.stderr) == (0, "")
    assert list(tmp_path.rglob("result.json"))
    shown = shell(NO_READER, tmp_path, "-m", "posfuse", "status", "multirun/default")
    assert (shown.returncode, shown.stderr) == (1, "")


def test_an_ascii_locale_reads_prints_and_writes_other_letters(tmp_path):
    corpus = write_corpus(tmp_path / "é")
    given = [f"data.path='{corpus}'", "trainer.max_epochs=1", "fusion=add,concat", "seed=0,1"]
    given += ["output_dir='ö'"]
    train = ["-m", "posfuse", "train", "-m", *small_overrides(corpus, *given)]
    locale = 'LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 "$@"'
    trained = shell(locale, tmp_path, *train)
    assert (trained.returncode, trained.stderr) == (0, "")
    shown = shell(locale, tmp_path / "ö", "-m", "posfuse", "report", "default")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "bag of words" in shown.stdout
    assert "?" in shown.stdout
    tables = (tmp_path / "ö/default/report/tables").glob("*.md")
    assert "±" in "".join(table.read_text("utf-8") for table in tables)
    config = next(tmp_path.rglob("config.yaml"))
    assert f"path: {corpus}\n" in config.read_text("utf-8")  # as under a UTF-8 locale
