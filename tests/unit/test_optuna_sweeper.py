"""hydra/sweeper=optuna against Optuna's own loop; its runs take no time here."""

import math
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext
from omegaconf import OmegaConf

from posfuse.config import CONF_DIR
from posfuse.errors import AlreadyRunning
from posfuse.process import signals
from posfuse.runs import records
from posfuse.runs.composing import Composer
from posfuse.runs.folders import folders_of
from posfuse.runs.multirun import read_multirun
from posfuse.sweeps.failures import record_failure
from posfuse.sweeps.status import runs_of
from refusals import refusal

optuna = pytest.importorskip("optuna")
LR = "optim.lr=tag(log, interval(1e-4, 1e-1))"


def quality(job):
    """Best at a learning rate of 0.01, with concat, and with seed 1."""
    values = dict(override.split("=") for override in job)
    gain = (values.get("fusion") == "concat") + 0.1 * int(values.get("seed", 0))
    return gain - abs(math.log10(float(values.get("optim.lr", 0.01))) + 2)


class Launcher:
    """Each run gives its quality; one with dropout above 0.4 fails."""

    def __init__(self):
        self.batches = []

    def launch(self, jobs, initial_job_idx):
        assert initial_job_idx == sum(map(len, self.batches))
        self.batches.append([list(job) for job in jobs])
        return [SimpleNamespace(return_value=self.value(job)) for job in jobs]

    def value(self, job):
        dropout = dict(override.split("=") for override in job).get("model.dropout", 0)
        return math.nan if float(dropout) > 0.4 else quality(job)


@pytest.fixture(scope="module")
def composed():
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        config = compose("train", ["hydra/sweeper=optuna"], return_hydra_config=True)
        yield config, Composer(GlobalHydra.instance().config_loader())


@pytest.fixture
def search(composed, tmp_path, monkeypatch):
    """The batches of jobs of a sweep in the folder tmp_path/mine."""
    monkeypatch.chdir(tmp_path)
    kind = {kind.__name__: kind for kind in Plugins.instance().discover(Sweeper)}["OptunaSweeper"]

    def call(*arguments, launcher=None, params=None, arms=None, check=False, **numbers):
        config = composed[0].copy()
        OmegaConf.set_readonly(config.hydra, True)
        config.merge_with({"output_dir": str(tmp_path), "sweep_id": "mine"})
        numbers = {"n_trials": 3, "n_jobs": 1, "seed": 0, "max_batch_size": None, **numbers}
        if not check:  # composes a config for each value
            monkeypatch.setattr(kind, "validate_batch_is_legal", lambda *_: None)
        sweeper = kind(**numbers, params=params, arms=arms)
        sweeper.config, sweeper.launcher = config, launcher or Launcher()
        sweeper.hydra_context = HydraContext(config_loader=composed[1], callbacks=Callbacks())
        sweeper.sweep(list(arguments))
        assert sweeper.asked.folders == read_multirun(tmp_path / "mine").folders
        return sweeper.launcher.batches

    return call


def theirs(n, direction="maximize", **suggested):
    """The values that Optuna's own loop tries."""
    tried = []

    def objective(trial):
        lr = trial.suggest_float("optim.lr", 1e-4, 1e-1, log=True)
        fusion = trial.suggest_categorical("fusion", ["add", "concat", "mul"])
        tried.append([f"optim.lr={float(f'{lr:.4g}')}", f"fusion={fusion}"])
        return quality(tried[-1])

    sampler = optuna.samplers.TPESampler(seed=3)
    optuna.create_study(direction=direction, sampler=sampler).optimize(objective, n)
    return tried


def test_the_trials_are_those_of_optunas_own_loop(search, capsys, tmp_path):
    n = 13  # Optuna's first ten trials are random draws
    batches = search(LR, "fusion=add,concat,mul", "data.limit=9", n_trials=n, seed=3)
    own = theirs(n)
    assert batches == [[["data.limit=9", *trial]] for trial in own]
    sweep = tmp_path / "mine"
    asked = read_multirun(sweep).folders
    assert len(set(asked)) == n
    lr, fusion = own[5]
    place = f"bbc_lead_paragraph/sinusoidal/{fusion.partition('=')[2]}/data.limit=9__{lr}/seed=0"
    assert asked[5] == place
    assert read_multirun(sweep).common == {"data.limit=9"}
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{n} trials in {sweep}; Ctrl-C stops, the same command resumes"
    scores = [quality(trial) for trial in own]
    assert out[1:-1] == [
        f"trial {i + 1} of {n}: {' '.join(trial)}: validation accuracy {scores[i]:.4f}"
        for i, trial in enumerate(own)
    ]
    best = scores.index(max(scores))
    settings = " ".join(own[best])
    start = f"best trial: {settings}, validation accuracy {scores[best]:.4f}, in {sweep}/"
    assert out[-1] == start + asked[best]
    assert search(LR, "fusion=add,concat,mul", "data.limit=9", n_trials=n, seed=3) == batches


def test_shuffled_choices_are_proposed_in_one_order(search):
    values = "1,2,3,4,5,6,7,8"
    shuffled = search(f"optim.lr=shuffle({values})", n_trials=6)
    assert shuffled == search(f"optim.lr={values}", n_trials=6)


def test_the_lowest_loss_is_best(search):
    batches = search(LR, "fusion=add,concat,mul", "trainer.monitor=loss", n_trials=12, seed=3)
    own = [[o for o in job if "monitor" not in o] for ((job),) in batches]
    assert own == theirs(12, "minimize") != theirs(12)


def test_each_trial_trains_every_seed_and_batches_hold_several_trials(search, tmp_path, capsys):
    batches = search(LR, "seed=range(2)", n_trials=5, n_jobs=2)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    jobs = [job for batch in batches for job in batch]
    assert [job[1] for job in jobs] == ["seed=0", "seed=1"] * 5
    assert len({job[0] for job in jobs}) == 5
    assert len(set(read_multirun(tmp_path / "mine").folders)) == 10
    *trials, best = capsys.readouterr().out.splitlines()[1:]
    means = [(quality(a) + quality(b)) / 2 for a, b in zip(jobs[::2], jobs[1::2], strict=True)]
    for line, mean in zip(trials, means, strict=True):
        assert line.endswith(f"validation accuracy {mean:.4f}")
    assert best.endswith(f"/sinusoidal/add/{jobs[2 * means.index(max(means))][0]}")


def test_a_batch_has_at_most_the_runs_of_an_experiment(search):
    batches = search(LR, "seed=0,1", n_jobs=3, max_batch_size=4, seed=2**32 - 1)  # the largest seed
    assert [len(batch) for batch in batches] == [4, 2]


def test_readers_know_how_many_runs_a_search_has_and_what_it_varies(search, tmp_path):
    class Reader(Launcher):
        def launch(self, jobs, initial_job_idx):
            asked = read_multirun(sweep)
            seen.append((asked.common, len(asked.folders), asked.to_come, len(runs_of(sweep))))
            return super().launch(jobs, initial_job_idx)

    sweep, seen = tmp_path / "mine", []
    arms = {name: [f"fusion={name}", "optim.lr=0.1"] for name in ("add", "concat")}
    given = ["arm=add,concat", "data.limit=9", "seed=0,1", "model.dropout=interval(0.1,0.2)"]
    search(*given, n_jobs=2, launcher=Reader(), arms=arms)
    assert seen == [({"data.limit=9"}, 4, 2, 6), ({"data.limit=9"}, 6, 0, 6)]


def test_the_runs_of_a_search_have_the_folders_that_its_multirun_yaml_asks_for(search, tmp_path):
    given = ["optim.lr=1e-3", "trainer.compile=True", "logger.notes='a b'", "fusion=add,concat"]
    batches = search(*given, "encoding=relative", "~encoding.attention.clip")
    asked = read_multirun(tmp_path / "mine")
    ran = folders_of([job for batch in batches for job in batch], asked.config)
    assert {*ran} == {*map(str, asked.folders)}


def test_a_failed_trial_is_told_as_failed(search, capsys, monkeypatch):
    states = []
    tell = optuna.study.Study.tell

    def telling(study, trial, **result):
        states.append(result.get("state"))
        tell(study, trial, **result)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.study.Study, "tell", telling)
        batches = search("model.dropout=interval(0.3,0.5)", n_trials=6)
    has_failed = [math.isnan(Launcher().value(job)) for ((job),) in batches]
    assert {*has_failed} == {True, False}
    fail = optuna.trial.TrialState.FAIL
    assert states == [fail if failed else None for failed in has_failed]
    lines = capsys.readouterr().out.splitlines()[1:-1]
    assert [line.endswith("failed") for line in lines] == has_failed
    search("model.dropout=interval(0.5,0.6)")
    assert "best trial" not in capsys.readouterr().out


def test_a_signal_ends_the_search(search, monkeypatch):
    def stop():
        if launcher.batches:
            raise signals.Interrupted("interrupted")

    launcher = Launcher()
    monkeypatch.setattr(signals, "check", stop)
    with pytest.raises(signals.Interrupted):
        search(LR, launcher=launcher)
    assert len(launcher.batches) == 1


of = optuna.distributions
DISTRIBUTIONS = {
    "model.n_layers=range(1,4)": of.IntDistribution(1, 3),
    "optim.warmup=range(9,0,-3)": of.IntDistribution(3, 9, step=3),
    "model.n_layers=int(interval(1,3))": of.IntDistribution(1, 3),
    "model.dropout=range(0,0.75,0.25)": of.FloatDistribution(0, 0.5, step=0.25),
    "model.dropout=interval(0,1)": of.FloatDistribution(0, 1),
    "optim.lr=tag(log,interval(1e-4,1))": of.FloatDistribution(1e-4, 1, log=True),
    "data.limit=null,7": of.CategoricalDistribution(["null", "7"]),
    "fusion=glob(gate_m*)": of.CategoricalDistribution(["gate_mlp", "gate_mlp_linear_start"]),
}


@pytest.mark.parametrize("text", DISTRIBUTIONS)
def test_values_are_read_as_by_hydras_plugin(composed, text):
    (override,) = OverridesParser.create(composed[1]).parse_overrides([text])
    found = import_module("hydra_plugins.posfuse_optuna").distribution(optuna, override)
    assert found == DISTRIBUTIONS[text]


def test_an_arm_is_a_choice_and_the_search_ends_when_every_value_is_tried(search, capsys, tmp_path):
    arms = {"a": ["fusion=add", "optim.lr=0.1"], "b": ["fusion=concat"]}
    batches = search("arm=a,b", n_trials=9, arms=arms)
    assert sorted(job for (job,) in batches) == sorted(arms.values())
    out = capsys.readouterr().out
    assert "Optuna proposes no new values; the search ends after 2 trials" in out
    assert read_multirun(tmp_path / "mine").to_come == 0


def test_a_search_may_have_one_arm_which_is_a_list(search):
    params, arms = {"arm": "a,b"}, {"a": ["fusion=add", "optim.warmup=3"], "b": ["fusion=concat"]}
    batches = search("arm=a", LR, n_trials=1, params=params, arms=arms)
    assert [job[:-1] for (job,) in batches] == [arms["a"]]
    line = refusal(search, "arm=a,b", params=params, arms={**arms, "b": "fusion=concat"})
    assert line.startswith("hydra.sweeper.arms.b: must be a list of overrides")


def test_a_key_of_the_command_replaces_that_of_an_experiment(search):
    params = {"optim.lr": "interval(0.1,0.2)", "fusion": "add,mul", "seed": "0,1"}
    batches = search("optim.lr=0.5", "fusion=add,concat", "seed=7", n_trials=2, params=params)
    own = [["optim.lr=0.5", "seed=7", f"fusion={fusion}"] for fusion in ("add", "concat")]
    assert sorted(job for (job,) in batches) == own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=0,1"], "hydra/sweeper=optuna: nothing to search; give a key several values"),
        ([LR, "seed=interval(0,3)"], "seed=interval(0,3): list the seeds, as seed=range(0,4)"),
        (["seed=0", "optim.lr=tag(log,range(1,9))"], "optim.lr=tag(log,range(1,9)): the only allo"),
        (["optim.lr=tag(lgo,interval(1,2))"], "optim.lr=tag(lgo,interval(1,2)): the only allowed "),
        (["model.d_model=interval(32,64)"], "model.d_model: takes whole numbers; use int(interval"),
        (["data=imdb,agnews"], "data.name: a search has one corpus, not imdb and agnews"),
        (["data=folder", "data.name=x", "data.path=a,b"], "data.path: a search has one corpus"),
        (["task.name=classification,language_model"], "task.name: a search has one kind of task"),
        (["arm=a,b"], "trainer.monitor: a search has one objective, not max accuracy and min loss"),
        ([LR, "data=folder"], "data.path: no corpus given; name a folder"),
        ([LR, "seed=0,-1"], "seed: must be between 0 and 4294967295 (got -1)"),
        (["model.n_heads=3,5"], "model.n_heads: "),
        (["sweep_id=a,b"], "sweep_id: a search has one folder; run one command for each"),
        (["optim.lr=interval(2,1)"], "optim.lr=interval(2,1): an interval needs"),
        (["optim.lr=tag(log,interval(0,1))"], "optim.lr=tag(log,interval(0,1)): an interval needs"),
        (["optim.lr=interval(0,inf)"], "optim.lr=interval(0,inf): an interval needs"),
        (["model.n_layers=range(0)"], "model.n_layers=range(0): no values, so no runs"),
        (["logger.project=a,b"], "logger.project=a and logger.project=b: two runs of this sweep"),
        ([LR, "++optim.lr=1"], "optim.lr: given twice"),
    ],
)
def test_what_cannot_be_searched_is_one_line_before_anything_runs(
    search, tmp_path, arguments, message
):
    launcher = Launcher()
    arms = {"a": ["fusion=add"], "b": ["trainer.monitor=loss"]}
    assert refusal(search, *arguments, launcher=launcher, arms=arms).startswith(message)
    assert not launcher.batches
    assert not [*tmp_path.iterdir()]


def test_values_may_be_refused_with_some_values_of_other_keys(search):
    heads = "model.n_heads=3,4"  # 3 heads need 33 features, 4 need 32
    assert len(search(heads, "model.d_model=32,33", n_trials=4, launcher=Launcher())) == 4
    assert len(search("arm=a,b", arms={"a": ["fusion=add"], "b": ["model.n_heads=3"]})) == 2


def test_values_may_name_what_only_a_job_knows(search):
    notes = "logger.notes='${hydra:job.name} in ${hydra:runtime.output_dir}'"
    assert len(search(LR, notes, check=True, seed=2**32 - 1)) == 3  # the largest seed


def test_each_choice_is_composed_before_anything_runs(search, tmp_path):
    launcher = Launcher()
    with pytest.raises(HydraException, match="fusion/nothing"):
        search(LR, "fusion=add,nothing", launcher=launcher, check=True)
    assert not launcher.batches
    assert not [*tmp_path.iterdir()]


def test_a_number_out_of_its_range_is_one_line(search):
    counts, seeds = (0, -1, 1.5, "x", True), (-1, 2**32, 0.5)  # as Optuna's sampler needs them
    for name, values, allowed in (
        ("n_trials", counts, "1 or more"), ("n_jobs", counts, "1 or more"),
        ("max_batch_size", (0,), "1 or more"), ("seed", seeds, f"between 0 and {2**32 - 1}"),
    ):  # fmt: skip
        for value in values:
            line = f"hydra.sweeper.{name}: must be {allowed} (got {value!r})"
            assert refusal(search, LR, **{name: value}) == line


@pytest.mark.parametrize("is_over", [False, True])
def test_a_search_ends_at_a_run_of_another_process(search, tmp_path, capsys, is_over):
    class Busy(Launcher):
        def value(self, job):
            if len(self.batches) < 3:
                return quality(job)
            run = tmp_path / "mine" / read_multirun(tmp_path / "mine").folders[-1]
            run.mkdir(parents=True)
            if is_over:  # the other process has removed the failure
                (run / records.RESULT).touch()
            else:
                record_failure("busy", run, job, AlreadyRunning.kind)
            return math.nan

    assert len(search(LR, n_trials=9, launcher=Busy())) == 3
    *trials, line, best = capsys.readouterr().out.splitlines()[1:]
    assert line == "another process runs a trial of this search; run the same command later"
    assert len(trials) == 2
    assert best.startswith("best trial: ")


def test_without_optuna_it_is_one_line(search, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    message = "hydra/sweeper=optuna needs Optuna; run pip install 'posfuse[optuna]'"
    assert refusal(search, LR) == message
