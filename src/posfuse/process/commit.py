"""The commit of this copy of posfuse: from the checkout, or from a file that the build of a wheel
or an image wrote into the package."""

import subprocess
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
BAKED = "commit.txt"  # in the package, by hatch_build.py


@cache
def commit(*paths: str) -> str | None:
    """The commit, with "+changes" if files of the checkout differ (or files of these paths, in
    git's notation); None if it is unknown. It is that of the first call in this process, because a
    later checkout does not change the code that the process has loaded."""
    root, baked = PACKAGE.parents[1], PACKAGE / BAKED
    if not (root / ".git").exists():
        return baked.read_text(encoding="utf-8").strip() if baked.exists() else None
    git = ["git", "--no-optional-locks", "-C", str(root)]  # a killed run must not leave a lock
    try:
        head, changes = (
            subprocess.check_output([*git, *command], text=True, stderr=subprocess.DEVNULL).strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", *paths])
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, or a checkout without a commit
    return f"{head}+changes" if changes else head
