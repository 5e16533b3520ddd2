"""Which folder of `src` may import which, and that no modules import each other in a cycle.

Imports inside functions count as well.
"""

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
MODULES = {
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SRC.rglob("*.py")
}
FOR_ALL = ("config", "limits", "errors", "untrusted", "seals")  # except for the model
MAY_IMPORT = {
    "posfuse": "",  # the version
    "posfuse.config": "",
    "posfuse.limits": "",
    "posfuse.errors": "",
    "posfuse.untrusted": "",
    "posfuse.seals": "",
    "posfuse.model": "",
    "posfuse.data": "",
    "posfuse.runs": "data",
    "posfuse.process": "",
    "posfuse.training": "model data runs process",
    "posfuse.sweeps": "runs process",
    "posfuse.tracking": "runs process",
    "posfuse.tracking.dashboard": "tracking runs process evidence statistics report",
    "posfuse.evidence": "runs data",
    "posfuse.statistics": "runs evidence",
    "posfuse.verdicts": "runs evidence statistics",
    "posfuse.report": "runs data evidence statistics verdicts",
    "posfuse.study": "runs process evidence statistics verdicts report",  # trains by the command
    "posfuse.cli": "process options",  # the commands' modules by name
    "posfuse.options": "evidence",
    "posfuse.train": "model data runs process training sweeps tracking",
    "posfuse.__main__": "cli",
    "hydra_plugins": "sweeps runs process",
}

EVIDENCE = [f"posfuse.{room}" for room in ("evidence", "statistics", "verdicts", "report", "study")]


def lies_in(module: str, rooms: list[str]) -> bool:
    return any(f"{module}.".startswith(f"{room}.") for room in rooms)


def imports(module: str, at_its_start: bool = False) -> set[str]:
    """The full names of the modules that a module imports, anywhere in its file or only when it is
    imported itself."""
    found = set()
    tree = ast.parse(MODULES[module].read_text())
    for node in tree.body if at_its_start else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__")
        ):
            found |= {ast.literal_eval(a) for a in node.args if isinstance(a, ast.Constant)}
    return found


def test_every_module_imports_only_from_the_rooms_that_it_may():
    wrong = []
    for module in MODULES:
        room = max((r for r in MAY_IMPORT if lies_in(module, [r])), key=len)
        wrong += [f"{module} is in no room"] * (room == "posfuse" != module)
        allowed = [room, *(f"posfuse.{name}" for name in MAY_IMPORT[room].split())]
        if room != "posfuse.model":
            allowed += [f"posfuse.{name}" for name in FOR_ALL]
        ours = {name for name in imports(module) if name in MODULES} - {"posfuse", module}
        if module != "posfuse.tracking.dashboard" and "posfuse.tracking.dashboard" in ours:
            wrong.append(f"{module} -> posfuse.tracking.dashboard, which imports report")
        wrong += [f"{module} -> {name}" for name in sorted(ours) if not lies_in(name, allowed)]
    assert not wrong, "\n".join(wrong)


def test_the_page_has_the_same_table():
    page = (SRC.parent / "CONTRIBUTING.md").read_text()
    rooms = {room.removeprefix("posfuse.") for room in MAY_IMPORT} - {"tracking.dashboard"}
    pages = {}
    for cells in re.findall(r"^\| (`src/\S+?`(?:, `src/\S+?`)*) \| .* \| (.*) \|$", page, re.M):
        for path in re.findall(r"`src/(\S+?)(?:\.py)?`", cells[0]):
            pages[path.replace("/", ".")] = set(re.findall(r"\w+", cells[1])) & rooms
    for room, allowed in MAY_IMPORT.items():
        if room.split(".")[-1] in ("posfuse", "__main__", "dashboard"):
            continue
        wanted = set(allowed.split())
        if room == "posfuse.tracking":
            wanted |= set(MAY_IMPORT["posfuse.tracking.dashboard"].split()) - {"tracking"}
        assert pages[room] == wanted, room


def test_packages_are_imported_in_their_rooms_only():
    """The model needs torch and numpy only."""
    for module in MODULES:
        packages = {name.split(".")[0] for name in imports(module)} - sys.stdlib_module_names
        is_model = lies_in(module, ["posfuse.model"])
        assert not is_model or packages <= {"posfuse", "torch", "numpy"}, module
        assert "torch" not in packages or not lies_in(module, EVIDENCE), module
        assert "wandb" not in packages or lies_in(module, ["posfuse.tracking"]), module
        assert "transformers" not in packages or module == "posfuse.training.hosts", module


def packages_of(*modules: str) -> set[str]:
    """The packages that are imported when these modules are."""
    waiting, imported = list(modules), set()
    while waiting:
        if (module := waiting.pop()) not in imported:
            imported.add(module)
            waiting += imports(module, at_its_start=True) if module in MODULES else []
    return {name.split(".")[0] for name in imported}


def test_a_command_that_trains_nothing_imports_no_torch():
    """Help, a refused option or config and the completion of a word must not take seconds."""
    plugins = [name for name in MODULES if name.startswith("hydra_plugins.")]
    commands = ["posfuse.train", "posfuse.sweeps.status", "posfuse.study.command"]
    quick = packages_of("posfuse.options", *commands, *plugins)
    slow = {"torch", "lightning", "wandb", "pandas", "scipy", "sklearn", "matplotlib", "joblib"}
    assert not quick & slow
    assert "hydra" in quick
    assert "hydra" not in packages_of("posfuse.cli")
    assert "torch" not in packages_of("posfuse.study.subcommands", "posfuse.report.entry")


def test_no_modules_import_each_other_in_a_cycle():
    graph = {name: imports(name) & MODULES.keys() for name in MODULES}
    order = list(TopologicalSorter(graph).static_order())  # CycleError names a cycle
    assert set(order) == set(MODULES)
    assert all(order.index(used) < order.index(name) for name in graph for used in graph[name])


def test_no_two_modules_of_the_evidence_have_one_name():
    names = [name.rpartition(".")[2] for name in MODULES if lies_in(name, EVIDENCE)]
    assert sorted(names) == sorted(set(names))
