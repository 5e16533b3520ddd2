"""posfuse study: refuses a wrong command line, then imports what its subcommands need."""

from argparse import Namespace
from pathlib import Path

from posfuse.process import signals
from posfuse.process.arguments import refuse_twice
from posfuse.process.config_folders import config_folder, split_searchpath
from posfuse.study.given import check_extra, study_file


def main(arguments: Namespace) -> None:
    """Run one of the commands of a study. Raises Interrupted after a signal."""
    signals.install()
    refuse_twice(arguments.extra)
    folders, extra = split_searchpath(arguments.extra)
    check_extra(extra)
    places = {"--config-dir": arguments.config_dir, "hydra.searchpath": folders}
    searchpath = [config_folder(k, Path(), f) for k, own in places.items() for f in own]
    study_file(arguments.study, searchpath)
    from posfuse.study import subcommands  # imports scipy, which takes a second

    subcommands.execute(arguments, searchpath, extra)
