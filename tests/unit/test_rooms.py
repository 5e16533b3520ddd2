"""The table of allowed imports in CONTRIBUTING.md is true, and no modules import each other in a
cycle. Imports inside functions count as well."""

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
EVIDENCE = [f"posfuse.{room}" for room in ("evidence", "statistics", "verdicts", "report", "study")]
DASHBOARD = "posfuse.tracking.dashboard"


def read_table() -> tuple[dict[str, set[str]], set[str]]:
    """Package or module -> those that it may import, and those that all but the model may import:
    the table of CONTRIBUTING.md."""
    page = (SRC.parent / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`src/.*?) \| (.*) \| (.*) \|$", page, re.M)
    rooms_of_rows = [
        [path.replace("/", ".") for path in re.findall(r"`src/(\S+?)(?:\.py)?`", first)]
        for first, _, _ in rows
    ]
    by_name = {room.rpartition(".")[2]: room for rooms in rooms_of_rows for room in rooms}

    def named(text: str) -> set[str]:
        return {by_name[word] for word in re.findall(r"\w+", text) if word in by_name}

    may_import, for_all = {"posfuse": set(), "posfuse.__main__": {"posfuse.cli"}}, set()
    for rooms, (_, contents, allowed) in zip(rooms_of_rows, rows, strict=True):
        usual, _, from_dashboard_only = allowed.partition(";")
        may_import |= {room: named(usual) for room in rooms}
        if from_dashboard_only:
            may_import[DASHBOARD] = {*rooms} | named(allowed)
        if "may import them" in contents:
            for_all = {*rooms}
    return may_import, for_all


MAY_IMPORT, FOR_ALL = read_table()


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
        allowed = [room, *MAY_IMPORT[room], *(FOR_ALL if room != "posfuse.model" else ())]
        ours = {name for name in imports(module) if name in MODULES} - {"posfuse", module}
        if module != DASHBOARD and DASHBOARD in ours:
            wrong.append(f"{module} -> {DASHBOARD}, which imports report")
        wrong += [f"{module} -> {name}" for name in sorted(ours) if not lies_in(name, allowed)]
    assert not wrong, "\n".join(wrong)


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
