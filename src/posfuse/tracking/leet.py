"""posfuse-leet DIR: a sweep's runs in W&B's terminal viewer, which reads one folder of runs."""

import argparse
import subprocess
import sys
from pathlib import Path

from posfuse.errors import checked_streams
from posfuse.tracking.places import logs, prepare


def gather(sweep: Path) -> Path | None:
    """A folder with a link to each of the sweep's W&B runs; None without any."""
    found = logs(sweep)
    if not found:
        return None
    links = sweep / ".wandb" / "leet"
    links.mkdir(parents=True, exist_ok=True)
    for link in links.iterdir():
        link.unlink()
    for log in found:
        (links / log.name).symlink_to(log.resolve())
    return links


@checked_streams()
def main() -> None:
    parser = argparse.ArgumentParser(prog="posfuse-leet", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the sweep's folder, such as multirun/quickstart")
    sweep = parser.parse_args().folder
    try:
        links = gather(sweep)
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}; fix this and retry")
    if links is None:
        sys.exit(f"error: {sweep}: no W&B runs; run posfuse-train -m logger=wandb first")
    prepare(sweep)
    command = [sys.executable, "-m", "wandb", "leet", str(links)]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
