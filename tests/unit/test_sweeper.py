"""The sweeper gives the jobs of Hydra's basic sweeper, for all syntax of a sweep."""

import os
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext
from omegaconf import OmegaConf, read_write

from posfuse.config import CONF_DIR
from posfuse.runs import multirun
from posfuse.runs.multirun import MULTIRUN, read_multirun, sweep_of
from posfuse.sweeps.failures import Ending
from refusals import refusal


@pytest.fixture(scope="module")
def composed():
    """A config, and what has composed it."""
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        config = compose("train", return_hydra_config=True)
        OmegaConf.set_readonly(config.hydra, False)
        yield config, GlobalHydra.instance().config_loader()


def sweepers():
    """The sweepers by name, as Hydra imports them."""
    return {kind.__name__: kind for kind in Plugins.instance().discover(Sweeper)}


def swept(composed, folder, name, task, hydra=(), params=None, size=None, **arms):
    """The jobs of a sweeper in a folder, with the overrides of a command and its config's."""
    config, loader = composed[0].copy(), composed[1]
    config.output_dir, config.sweep_id = str(folder.parent), folder.name
    config.hydra.overrides.task, config.hydra.overrides.hydra = list(task), list(hydra)
    config.hydra.sweeper.update(params=params, **arms)
    OmegaConf.set_readonly(config.hydra, True)
    sweeper = sweepers()[name](size, params, **arms)
    context = HydraContext(config_loader=loader, callbacks=Callbacks())
    sweeper.setup(hydra_context=context, task_function=lambda config: None, config=config)
    jobs = []

    def launch(batch, initial_job_idx):
        jobs.extend(map(list, batch))
        return [SimpleNamespace(return_value=0.5) for _ in batch]

    sweeper.launcher = SimpleNamespace(launch=launch)
    random.seed(0)
    sweeper.sweep(list(task))
    return jobs


@pytest.fixture
def jobs(composed, tmp_path, monkeypatch):
    """Call with a sweeper's name, which its folder has too, and overrides to get its jobs."""
    for kind in sweepers().values():
        monkeypatch.setattr(kind, "validate_batch_is_legal", lambda *_: None)
    return lambda name, task, params=None, **more: swept(
        composed, tmp_path / name, name, task, params=params, **more
    )


SYNTAX = {
    "no sweep": ["seed=1"],
    "commas": ["fusion=add,concat", "seed=0,1"],
    "quoted commas": ["data.vocabulary.ending='a,b','c d'", 'optim.name="adam","adamw"'],
    "lists": ["data.test_lengths=[80,160],[80]", "host.path=[],[x]"],
    "null": ["data.limit=null,2"],
    "choice": ["fusion=choice(add, concat)"],
    "range": ["seed=range(3)"],
    "range of fractions": ["optim.lr=range(0,1,0.25)"],
    "glob": ["fusion=glob(gate_*)"],
    "glob with exclude": ["fusion=glob(*, exclude=[gate_*, mlp])", "seed=0,1"],
    "glob of a dotted group": ["hydra/launcher=glob(par*)"],
    "sort": ["seed=sort(3,1,2)", "fusion=sort(concat, add, reverse=true)"],
    "tag": ["seed=tag(t, choice(1,2))", "fusion=tag(a, b, choice(add, mlp))"],
    "added and removed": ["+model.depth=1,2", "++seed=1,2", "~logger.tags"],
    "package": ["fusion@fusion=add,concat"],
    "one experiment": ["experiment=table1", "seed=0,1"],
}


@pytest.mark.parametrize("name", SYNTAX)
def test_jobs_equal_the_basic_sweepers(name, jobs):
    expected = jobs("BasicSweeper", SYNTAX[name])
    assert expected
    assert jobs("PosfuseSweeper", SYNTAX[name]) == expected


@pytest.mark.parametrize("values", ["0,1,2,3", "range(4)"])
def test_shuffled_jobs_are_all_jobs(values, jobs):
    found = jobs("PosfuseSweeper", [f"seed=shuffle({values})"])
    assert sorted(found) == [[f"seed={n}"] for n in range(4)]


@pytest.mark.parametrize("size", [None, 1, 3])
def test_params_of_a_config_are_swept_as_by_the_basic_sweeper(size, jobs):
    params = {"fusion": "glob(gate_*)", "seed": "range(2)", "encoding": "none,rope"}
    expected = jobs("BasicSweeper", ["encoding=sinusoidal"], params, size=size)
    assert len(expected) > 2
    assert jobs("PosfuseSweeper", ["encoding=sinusoidal"], params, size=size) == expected


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("optim.lr=interval(0,1)", "optim.lr=interval(0,1): an interval has no list of values; use "
         "range() or choice(), or search it with hydra/sweeper=optuna"),
        ("seed=interval(0,1)", "seed=interval(0,1): an interval has no list of values; use range() "
         "or choice()"),
        ("seed=range(0,0)", "seed=range(0,0): no values, so no runs; give at least one"),
        ("seed=range(0,5,0)", "seed=range(0,5,0): the step must not be 0; give another step"),
        ("fusion=glob(x*)", "fusion=glob(x*): no values, so no runs; give at least one"),
        ("sweep_id=a,b", "sweep_id: a sweep has one folder; run one command for each"),
        ("experiment=glob(t*)", "experiment: a sweep has one experiment; run one command for each"),
    ],
)  # fmt: skip
def test_a_sweep_without_jobs_is_refused_before_anything_is_written(
    argument, message, jobs, tmp_path
):
    params = dict([argument.split("=", 1)])
    for given in (([argument], None), ([], params)):
        assert refusal(jobs, "PosfuseSweeper", *given) == message
    assert not list(tmp_path.iterdir())


def test_more_runs_than_a_reader_accepts_are_refused(jobs, monkeypatch):
    monkeypatch.setattr(multirun, "MOST_RUNS", 3)
    for grid in (["seed=0,1", "fusion=add,mul"], ["seed=range(0,1000000000000)"]):
        line = refusal(jobs, "PosfuseSweeper", grid)
        assert line == "more than 3 runs; divide the sweep"


def test_a_batch_has_at_least_one_run(jobs):
    for size in (0, -2, 1.5, "x", True):
        message = f"hydra.sweeper.max_batch_size: must be 1 or more (got {size!r})"
        assert refusal(jobs, "PosfuseSweeper", ["seed=0,1"], size=size) == message


@pytest.mark.parametrize(
    ("task", "params"),
    [
        (["fusion=[add,concat]", "seed=0,1"], None),
        (["seed=0,1"], {"fusion": ["add", "concat"]}),
        (["arm=a", "seed=0,1"], None),
        (["encoding=none,rope"], {"fusion": "[add, concat]"}),
    ],
)
def test_a_list_of_config_files_is_refused_before_anything_is_written(task, params, jobs, tmp_path):
    """Hydra would merge the files."""
    arms = {"a": ["fusion=[add,concat]"]}
    message = "fusion=[add,concat]: write fusion=add,concat; in a file, fusion: add,concat"
    assert refusal(jobs, "PosfuseSweeper", task, params, arms=arms) == message
    one = refusal(jobs, "PosfuseSweeper", ["experiment=[table1,table2]"])
    assert one == "experiment=[table1,table2]: a sweep has one experiment; run one command for each"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("own", [None, "fusion=add", [1]])
def test_an_arm_is_a_list_of_overrides(own, jobs):
    line = refusal(jobs, "PosfuseSweeper", ["arm=a"], arms={"a": own})
    assert line.startswith("hydra.sweeper.arms.a: must be a list of overrides, such as [fusion=")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.name=ab", "data.path=a,b"], "data.path=a and data.path=b: two runs of this sweep "
         "would have one folder, ab/sinusoidal/add/seed=0; run one command for each, with a data."),
        (["logger.project=a,b", "seed=0,1"], "logger.project=a and logger.project=b: two runs of "
         "this sweep would have one folder, bbc_lead_paragraph/sinusoidal/add/seed=0; run one "
         "command for each, with a sweep_id of its own"),
        (["host.path=x/bert,y/bert"], "host.path=x/bert and host.path=y/bert: two runs"),
        (["fusion=add,concat", "fusion.name=x"], "fusion=add and fusion=concat: two runs"),
        (["seed=0,1,0"], "seed=0: occurs twice in this sweep; give each value once"),
        (["fusion=add,mul", "arm=a,b"], "fusion: given twice (fusion=add and fusion=concat)"),
        (["arm=b,c"], "optim.lr: given twice (optim.lr=1 and optim.lr=2)"),
        (["arm=d,e"], "data.path=1: two runs of this sweep would have one folder, "),
        (["arm=tiny"], "arm: no arm 'tiny' in hydra.sweeper.arms; use one of a, b"),
        (["seed=${model.d_ff}"], "seed: must be a whole number in a sweep (invalid literal"),
    ],
)  # fmt: skip
def test_runs_that_would_share_a_folder_are_refused_before_anything_is_written(
    arguments, message, jobs, tmp_path
):
    arms = {
        "a": ["fusion=concat"], "b": ["encoding=none"], "c": ["optim.lr=1", "optim.lr=2"],
        "d": ["seed=1"], "e": ["seed=1", "data.path=1"],
    }  # fmt: skip
    assert refusal(jobs, "PosfuseSweeper", arguments, arms=arms).startswith(message)
    assert not list(tmp_path.iterdir())


def test_a_sweep_states_its_runs_before_it_starts(jobs, tmp_path, capsys) -> None:
    """An experiment may be a sweep without -m."""
    for params, n in (({"fusion": "add,mul", "seed": "1,2"}, "4 runs"), (None, "1 run")):
        jobs("PosfuseSweeper", ["optim.lr=1"], params)
        line = f"{n} in {tmp_path}/PosfuseSweeper; Ctrl-C stops, the same command resumes\n"
        assert capsys.readouterr().out == line


def test_a_parameter_of_a_config_is_not_given_twice_under_another_prefix(jobs):
    line = refusal(jobs, "PosfuseSweeper", ["++seed=5"], {"seed": "0,1"})
    assert line.startswith("seed: given twice (seed=0 and ++seed=5)")


@pytest.fixture
def sweep(composed, tmp_path):
    """Sweep with config files of one's own, without running anything; returns the folders that
    the readers of multirun.yaml expect."""
    for file, text in (
        ("fusion/mod.yaml", "name: mod"),
        ("encoding/e.yaml", "name: wave"),
        ("speed/p.yaml", "# @package _global_\nfusion: {name: other}"),
    ):
        (tmp_path / "conf" / file).parent.mkdir(parents=True)
        (tmp_path / "conf" / file).write_text(text)

    def call(*overrides):
        hydra = [o for o in overrides if o.startswith("hydra.")]
        task = [o for o in overrides if o not in hydra]
        task += [f"output_dir={tmp_path}", "sweep_id=mine"]
        hydra.append(f"hydra.searchpath=['file://{tmp_path}/conf']")
        swept(composed, tmp_path / "mine", "PosfuseSweeper", task, hydra)
        return read_multirun(tmp_path / "mine").folders

    return call


def test_readers_know_the_folders_of_ones_own_files(sweep):
    assert sweep("encoding='none'", "fusion=add,mod", "++seed=1") == [
        "bbc_lead_paragraph/none/add/seed=1",
        "bbc_lead_paragraph/none/mod/seed=1",
    ]


def test_readers_know_the_last_of_two_commands_within_a_tick_of_the_clock(sweep, tmp_path):
    for seed in (1, 2):
        (folder,) = sweep(f"seed={seed}")
        os.utime(tmp_path / "mine" / MULTIRUN, (0, 0))
        asked, place = sweep_of(tmp_path / "mine" / folder)
        assert asked.folders == [place] == [folder]
        assert asked.overrides[0][0] == f"seed={seed}"


def test_readers_know_the_folder_of_a_value_that_refers_to_another_key(sweep):
    (folder,) = sweep("model.d_ff=${model.d_model}", "logger.notes=${hydra:job.name}")
    assert re.fullmatch(
        r"bbc_lead_paragraph/sinusoidal/add/model.d_ff=-model.d_model-\w+/seed=0", folder
    )


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("hydra.sweep.subdir=x/${hydra.job.num}", "subdir: a run's folder is x/0, but"),
        ("hydra.sweep.dir=x", "dir: must be .*/mine .got x.; set output_dir"),
        ("encoding=e", "subdir: a run's folder is .*/wave/.*, but must be .*/e/"),
        ("speed=p", "subdir: a run's folder is .*/other/speed=p/seed=0, but must be "),
        ("task=language_model,classification", "subdir: a run's folder is bbc_bytes/.* data=NAME"),
    ],
)
def test_another_scheme_of_folders_is_refused_before_anything_is_written(
    argument, message, sweep, tmp_path
):
    assert re.match(rf"hydra\.sweep\.{message}", refusal(sweep, argument))
    assert {path.name for path in tmp_path.iterdir()} == {"conf"}


def test_an_unknown_protocol_in_an_experiments_file_is_refused(sweep, tmp_path):
    """Hydra would ignore it, because the protocol is optional."""
    conf = tmp_path / "conf"
    for group in ("protocol", "experiment"):
        (conf / group).mkdir()
    for own in ("mine", "imdb_mine"):
        (conf / "protocol" / f"{own}.yaml").write_text("# @package _global_")

    def experiment(protocol):
        text = f"# @package _global_\ndefaults: [override /protocol: '{protocol}']"
        (conf / "experiment" / "own.yaml").write_text(text)
        return ["experiment=own", "seed=0,1"]

    for protocol in ("mine", "${data}", "quickstart/${data}", "${data}_mine"):
        assert len(sweep(*experiment(protocol))) == 2
    unknown = "protocol: no 'imbd'; use one of agnews, arxiv, imdb, imdb_mine, mine"
    assert refusal(sweep, *experiment("imbd")) == f"experiment=own: {unknown}"
    assert refusal(sweep, "protocol=imdb,imbd") == unknown
    for protocol in ("imdbb", "quikstart/${data}", "${data}_fast", "quikstart/imdb"):
        name = protocol.replace("${data}", "imdb")
        line = refusal(sweep, *experiment(protocol), "data=imdb")
        assert line.startswith(f"experiment=own: protocol: no {name!r}; ")
    for corpus, name in (("listops", "listops"), ("imdb", "imdb_fast")):
        line = refusal(sweep, f"data={corpus}", f"protocol={name},imdb")
        assert line.startswith(f"protocol: no {name!r}; ")


@pytest.mark.slow
def test_an_own_class_that_python_cannot_find_is_refused_with_its_file(
    sweep, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "posfuse.model.fusion", None)  # would import torch
    file = tmp_path / "conf" / "fusion" / "mod.yaml"
    file.write_text("{name: mod, _target_: own_sweep.Own}")
    grid = ["fusion=add,mod", "seed=0,1"]
    line = f"{file}: fusion._target_: cannot import 'own_sweep.Own' (ModuleNotFoundError: "
    assert refusal(sweep, *grid).startswith(line)
    absent = refusal(sweep, "fusion=add", "+encoding.attention._target_=own_sweep.Other")
    assert absent.startswith("encoding.attention._target_: cannot import 'own_sweep.Other' (")
    experiment = tmp_path / "conf" / "experiment" / "own.yaml"
    experiment.parent.mkdir()
    experiment.write_text("# @package _global_\nfusion: {_target_: own_sweep.Other}")
    named = refusal(sweep, "experiment=own", "seed=0,1")
    assert named.startswith(f"{experiment}: fusion._target_: cannot import 'own_sweep.Other' (")
    assert not (tmp_path / "mine").exists()
    monkeypatch.syspath_prepend(tmp_path)
    code = tmp_path / "own_sweep.py"
    for line in (
        "raise RuntimeError('no GPU')", "import absent_on_this_machine", "import sweep",
        "import os; os.absent_on_this_machine()",
    ):  # fmt: skip
        code.write_text(line)
        assert len(sweep(*grid)) == 4  # only the run knows its machine
    code.write_text("class Other: ...")
    assert "AttributeError" in refusal(sweep, *grid)
    del sys.modules["own_sweep"]
    code.write_text("class Own: ...  # now it is there")
    assert len(sweep(*grid)) == 4
    assert "Empty module name" in refusal(sweep, "fusion=add", "fusion._target_=Own")


def test_a_single_run_with_an_unknown_protocol_is_refused(composed):
    config = composed[0].copy()
    Ending("").on_run_start(config)
    config.hydra.runtime.choices.update(experiment="mine", protocol="imbd")
    with pytest.raises(SystemExit, match="error: experiment=mine: protocol: no 'imbd'; use one of"):
        Ending("").on_run_start(config)


def test_runs_of_one_sweep_in_several_folders_are_refused(composed, tmp_path):
    for grid, key, values in (
        ("fusion=add,concat", "fusion.name", ("add", "concat")), ("seed=range(9)", "seed", (0, 1)),
    ):  # fmt: skip
        one, other = (tmp_path / f"s_{value}" for value in values)
        own = [grid, f"sweep_id=s_${{{key}}}", f"output_dir={tmp_path}"]
        line = "sweep_id: a sweep has one folder, but runs of this one are in "
        found = refusal(swept, composed, one, "PosfuseSweeper", own)
        assert found.startswith(f"{line}{one} and {other}; give")
    assert not list(tmp_path.iterdir())


def test_a_further_seed_is_not_composed_before_the_sweep(composed, tmp_path, monkeypatch):
    module, places = sweepers()["PosfuseSweeper"].check.__globals__, []
    monkeypatch.setitem(module, "check_place", lambda job, folder: places.append(folder))
    own = [f"output_dir={tmp_path}", "sweep_id=mine", "fusion=add,concat", "seed=range(50)"]
    assert len(swept(composed, tmp_path / "mine", "PosfuseSweeper", own)) == 100
    cells = [f"bbc_lead_paragraph/sinusoidal/{name}/seed=" for name in ("add", "concat")]
    assert places == [f"{cells[0]}0", f"{cells[0]}1", f"{cells[1]}0"]


def test_a_command_that_ends_while_it_writes_multirun_yaml_leaves_the_file_of_the_last_one(
    sweep, tmp_path, monkeypatch
):
    def killed(config, part):
        Path(part).write_text("hydra: {")
        raise KeyboardInterrupt

    sweep("seed=1")
    before = (tmp_path / "mine" / MULTIRUN).read_text()
    monkeypatch.setattr(OmegaConf, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep("seed=2")
    assert (tmp_path / "mine" / MULTIRUN).read_text() == before


def test_a_long_text_or_one_with_many_references_does_not_break_multirun_yaml(sweep):
    many = "${data.name} ${seed} " * 4
    assert len(sweep(f"logger.notes='{many}'", "seed=1,2")) == 2
    assert len(sweep(f"logger.notes={'x' * 350_000}", "seed=1,2")) == 2


def test_values_of_the_environment_are_written_and_not_read(composed, tmp_path, monkeypatch):
    """The reader of the report need not have the variables of the sweep."""
    monkeypatch.setenv("MINE", "mine")
    config = composed[0].copy()
    config.data.name, config.sweep.primary = "${oc.env:MINE}", ["${oc.env:MINE}"]
    with read_write(config.hydra):
        config.hydra.sweep.dir = str(tmp_path)
        arm = ["fusion.name=${oc.env:MINE}", r"logger.notes=\${seed}"]  # that of the run
        config.hydra.sweeper.arms = {"a": arm}
        config.hydra.overrides.task = ["arm=a"]
    multirun.write_multirun(config)
    monkeypatch.delenv("MINE")
    asked = read_multirun(tmp_path)
    assert asked.folders == ["mine/sinusoidal/mine/seed=0"]
    assert asked.primary == ("mine",)
    assert asked.overrides == [["fusion.name=mine", "logger.notes=${seed}"]]


def test_an_arm_stands_for_its_overrides(jobs, tmp_path):
    """Labels of runs leave out what all arms have, but not an arm's own overrides."""
    arms = {"a": ["fusion=add", "data.limit=9"], "b": ["data.limit=9", "encoding=none"]}
    found = jobs("PosfuseSweeper", ["optim.lr=1", "seed=0,1"], {"arm": "a,b"}, arms=arms)
    assert found == [[*own, "optim.lr=1", f"seed={n}"] for own in arms.values() for n in (0, 1)]
    asked = read_multirun(tmp_path / "PosfuseSweeper")
    cells = [f"{cell}/data.limit=9__optim.lr=1" for cell in ("sinusoidal/add", "none/add")]
    assert asked.folders == [f"bbc_lead_paragraph/{c}/seed={n}" for c in cells for n in (0, 1)]
    assert (asked.common, asked.to_come) == ({"optim.lr=1"}, 0)
