"""Commands that are interrupted or killed: their exit status, and that the same command resumes."""

import signal
import sys
import time

import pandas as pd
import pytest

from faulty import FAULTY, faulty
from posfuse.process import signals
from posfuse.runs import records
from processes import HANG, alive, command, descendants, ended, started, succeeded, wait_for
from small_corpora import write_splits
from sweeps import PARALLEL, assert_same_results, at_work, sweep

RESUME = "; run the same command to resume\n"
FOUR = [*FAULTY, "seed=range(4)"]


@pytest.mark.parametrize(
    ("runs", "when"),
    [(["seed=0"], " before training started"), (["-m", "seed=0,1"], "")],
    ids=["run", "sweep"],
)
def test_a_signal_while_the_config_is_checked_is_handled_after_it(runs, when, corpus, tmp_path):
    (tmp_path / "loud.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGHUP)\nfrom posfuse.model.fusion import Add\n"
    )
    argv = command(corpus, *runs, "fusion=add", "fusion._target_=loud.Add")
    done = ended(argv, tmp_path)  # python -m imports from its folder
    expected = f"interrupted by SIGHUP{when}{RESUME}"
    assert (done.returncode, done.stderr) == (signals.EXIT_STATUS, expected)
    assert not list(tmp_path.rglob(records.RESULT))


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """The folder of a sweep that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    succeeded(sweep(corpus, *FOUR), folder, faulty(folder / "fault", ""))
    return folder


@pytest.mark.parametrize(
    ("name", "launcher"),
    [
        pytest.param("SIGTERM", [], id="basic-TERM"),
        pytest.param("SIGINT", PARALLEL, id="parallel-INT"),
        pytest.param("SIGKILL", PARALLEL, id="parallel-KILL"),
    ],
)
def test_an_interrupted_sweep_leaves_no_process_and_resumes(
    name, launcher, corpus, whole, tmp_path
):
    """With the parallel launcher while two workers train; the signal goes to their parent."""
    argv = sweep(corpus, *FOUR, *launcher)
    where = {"to": "parent", "runs": 2} if launcher else {}
    process = started(argv, tmp_path, faulty(tmp_path / "fault", name, **where))
    wait_for(lambda: (tmp_path / "fault" / "sent").exists() or process.poll() is not None)
    below = descendants(process.pid)
    _, err = process.communicate(timeout=HANG)
    wait_for(lambda: not alive(below))
    if name == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == signals.EXIT_STATUS, err
        step = "" if launcher else "; saved at step 6"
        assert err == f"interrupted by {name}{step}{RESUME}"
    assert len(list(tmp_path.rglob(records.LAST))) == (2 if launcher else 1)
    assert not list(tmp_path.rglob(records.RESULT))

    succeeded(argv, tmp_path, faulty(tmp_path / "no fault", ""))
    assert_same_results(whole, tmp_path, 4)


# posfuse train with another REPEAT_SECONDS.
WITHIN = """
import sys
from posfuse import cli
from posfuse.process import signals
signals.REPEAT_SECONDS = float(sys.argv.pop(1))
cli.main()
"""


def within(seconds, argv):
    _, _, _, *overrides = argv
    return [sys.executable, "-c", WITHIN, str(seconds), *overrides]


@pytest.mark.parametrize("launcher", [[], PARALLEL], ids=["basic", "parallel"])
def test_a_second_signal_exits_at_once(launcher, corpus, tmp_path):
    twice, where = "SIGTERM SIGINT", {"to": "parent", "runs": 2} if launcher else {}
    environment = faulty(tmp_path / "fault", twice, **where)
    process = started(within(0, sweep(corpus, *FOUR, *launcher)), tmp_path, environment)
    wait_for(lambda: (tmp_path / "fault" / "sent").exists() or process.poll() is not None)
    below = descendants(process.pid)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == signals.EXIT_STATUS
    if not launcher:
        assert err == "interrupted again; exited at once; run the same command to resume\n"
    assert "Traceback" not in err
    assert not list(tmp_path.rglob(records.RESULT))
    wait_for(lambda: not alive(below))


def test_signals_after_the_last_message_keep_the_exit_status(corpus, tmp_path):
    """Python resets the handlers when it shuts down."""
    process = started(command(corpus, *FAULTY), tmp_path, faulty(tmp_path / "fault", "SIGTERM"))
    line = process.stderr.readline()
    while process.poll() is None:
        for number in signals.SIGNALS:
            process.send_signal(number)
        time.sleep(0.01)
    _, rest = process.communicate(timeout=HANG)
    expected = (signals.EXIT_STATUS, f"interrupted by SIGTERM; saved at step 6{RESUME}")
    assert (process.returncode, line + rest) == expected


def test_a_run_that_gets_one_signal_twice_saves_its_state(corpus, tmp_path):
    """GNU timeout sends it to its child and then to its child's group."""
    argv = ["timeout", str(HANG), *within(HANG, command(corpus, *FAULTY))]
    done = ended(argv, tmp_path, faulty(tmp_path / "fault", "SIGTERM", to="parent"))
    expected = f"interrupted by SIGTERM; saved at step 6{RESUME}"
    assert (done.returncode, done.stderr) == (signals.EXIT_STATUS, expected)
    assert len(list(tmp_path.rglob(records.LAST))) == 1


def test_nohup_protects_a_run_from_the_end_of_its_terminal(corpus, tmp_path):
    process = started(["nohup", *command(corpus, "trainer.max_epochs=3000")], tmp_path)
    wait_for(lambda: at_work(tmp_path))
    (run,) = at_work(tmp_path)

    def epochs():
        return (run / "train.log").read_text().count("epoch ")

    before = epochs()
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: epochs() > before + 1 or process.poll() is not None)
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=HANG)
    assert process.returncode == signals.EXIT_STATUS


def test_a_process_under_a_memory_limit_reports_which_batch_fits(tmp_path):
    """A limit of the address space: a real refusal."""
    words = " ".join(f"w{i % 50}" for i in range(1_000))
    frame = pd.DataFrame({"text": [f"{words} {i}" for i in range(256)], "label": [0, 1] * 128})
    write_splits(tmp_path, train=frame, validation=frame, test=frame)
    sizes = ["data.max_len=1024", "data.batch_size=256", "model.d_model=256", "model.d_ff=1024"]
    limited = ["prlimit", f"--as={3 * 2**30}", *command(tmp_path, *sizes)]
    done = ended(limited, tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "error: out of memory at step 0 with data.batch_size=256; try data.batch_size=128\n"
    )
