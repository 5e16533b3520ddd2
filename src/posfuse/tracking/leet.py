"""posfuse-leet DIR: a sweep's runs in W&B's own terminal viewer, which wants them in one folder."""

import argparse
import subprocess
import sys
from pathlib import Path

from posfuse.errors import with_streams
from posfuse.tracking.logs import keep_files_in, segments


def gather(sweep: Path) -> Path | None:
    """A folder with a link to each of the sweep's W&B runs; None where there are none."""
    logs = [*segments(sweep), *segments(sweep, online=True)]
    if not logs:
        return None
    links = sweep / ".wandb" / "leet"
    links.mkdir(parents=True, exist_ok=True)
    for link in links.iterdir():
        link.unlink()
    for log in logs:
        (links / log.parent.name).symlink_to(log.parent.resolve())
    return links


@with_streams
def main() -> None:
    parser = argparse.ArgumentParser(prog="posfuse-leet", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a sweep's, as multirun/quickstart")
    sweep = parser.parse_args().folder
    try:
        links = gather(sweep)
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}; mend that and do it again")
    if links is None:
        sys.exit(f"error: {sweep}: no W&B runs here; run posfuse-train -m first")
    keep_files_in(sweep)
    command = [sys.executable, "-m", "wandb", "leet", str(links)]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
