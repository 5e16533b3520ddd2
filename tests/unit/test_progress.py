"""The bar of a run in a terminal."""

from types import SimpleNamespace

from posfuse.data.evaluations import Evaluations
from posfuse.process import signals
from posfuse.training.progress import Bar, Stopwatch, detail, progress_callbacks, results, terminal


def test_the_bar_counts_epochs_from_1_and_shows_the_last_evaluation():
    state = SimpleNamespace(fn="fit")
    metrics = {"train/loss": 1.25, "val/loss": 2.0, "val/accuracy": 0.5, "val/macro_f1": 0.4}
    best = SimpleNamespace(monitor="val/accuracy")
    trainer = SimpleNamespace(
        state=state, current_epoch=0, max_epochs=6, callback_metrics=metrics,
        checkpoint_callback=best, datamodule=SimpleNamespace(evaluations=Evaluations(2)),
    )  # fmt: skip
    bar = Bar()
    first, *_ = bar.configure_columns(trainer)
    task = SimpleNamespace(description="Testing")
    assert first.render(task).plain == "epoch 0.5/3"
    for trainer.current_epoch in (5, 6):
        assert first.render(task).plain == "epoch 3/3"
    assert bar.get_metrics(trainer, None) == {"loss": 1.25, "accuracy": 0.5}
    best.monitor = "val/macro_f1"
    assert bar.get_metrics(trainer, None) == {"loss": 1.25, "macro f1": 0.4}
    assert [*results(trainer)] == ["train loss", "validation loss", "accuracy", "macro f1"]
    state.fn = "test"
    assert first.render(task).plain == "Testing"


def test_runs_at_once_write_no_progress_into_one_terminal(tmp_path, monkeypatch):
    """Several bars would overwrite each other, and their lines do not name their runs."""
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    given = tmp_path, Stopwatch()
    bar, lines = progress_callbacks("auto", *given)
    assert (type(bar), lines.lines) == (Bar, detail)
    monkeypatch.setattr(signals, "launcher", "parallel")
    assert [each.lines for each in progress_callbacks("auto", *given)] == [detail]
    assert [each.lines for each in progress_callbacks("lines", *given)] == [terminal]
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: False))
    monkeypatch.setattr(signals, "launcher", "slurm")  # each job writes into its own file
    assert [each.lines for each in progress_callbacks("auto", *given)] == [terminal]
