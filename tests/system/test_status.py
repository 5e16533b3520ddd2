"""posfuse-status as a command in a terminal, on a sweep of posfuse-train."""

import os
import subprocess
import sys
import threading

from processes import HANG, wait_for
from small_runs import small_overrides, write_corpus


def test_in_a_terminal_it_updates_until_all_is_done(tmp_path):
    """A pseudo-terminal: the page is updated, and the command ends when all runs are done."""
    import pty

    corpus = write_corpus(tmp_path / "corpus")
    small = small_overrides(corpus, "trainer.max_epochs=1")
    argv = [sys.executable, "-m", "posfuse.train", "-m", *small, "seed=0,1"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    (result,) = tmp_path.glob("multirun/*/*/*/*/*/seed=1/result.json")
    kept = result.rename(result.with_name("away"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "posfuse.sweeps.status", "multirun/default"],
        cwd=tmp_path, stdout=theirs, stderr=subprocess.STDOUT,
    )  # fmt: skip
    os.close(theirs)
    said = []

    def listen():
        try:
            while part := os.read(ours, 4096):
                said.append(part)
        except OSError:  # the other end has gone
            return

    listener = threading.Thread(target=listen)
    listener.start()
    wait_for(lambda: b"".join(said).count(b"1 of 2 runs are done") > 1)
    kept.rename(result)
    assert process.wait(timeout=HANG) == 0
    listener.join(timeout=HANG)
    os.close(ours)
    text = b"".join(said).decode()
    assert "1 of 2 runs are done" in text
    assert "2 of 2 runs are done" in text
