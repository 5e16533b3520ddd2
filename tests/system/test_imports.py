"""The imports of a run: what they leave of the garbage collector."""

import subprocess
import sys

CODE = """
import gc, sys
from posfuse.imports import import_run
run = import_run(tracked={tracked})
assert gc.isenabled() and gc.get_freeze_count() > 100_000, gc.get_freeze_count()
frozen = gc.get_freeze_count()
assert import_run(tracked=True) is run  # a sweep's next run
assert gc.get_freeze_count() <= frozen  # what an earlier run left is no import
assert ("wandb.sdk.launch" in sys.modules) == {tracked}
"""


def check(tracked: bool) -> None:
    code = CODE.format(tracked=tracked)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_is_imported_without_the_collector_and_goes_on_with_it() -> None:
    check(tracked=False)


def test_weights_and_biases_is_imported_for_a_tracked_run_alone() -> None:
    check(tracked=True)
