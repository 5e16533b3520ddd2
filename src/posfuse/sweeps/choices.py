"""Checks of what a composed config chooses."""

from omegaconf import DictConfig

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.process.arguments import check_protocol


def check_chosen_protocol(config: DictConfig) -> None:
    """Raise InputError for a protocol that does not exist, in the file of an experiment. Protocols
    on the command line have been checked before."""
    runtime = config.hydra.runtime
    name, data = (str(runtime.choices.get(group) or "null") for group in ("protocol", "data"))
    if data in name:  # ${data}: the protocol of the corpus, if there is one
        return
    folders = [
        source.path if source.schema == "file" else f"{source.schema}://{source.path}"
        for source in runtime.config_sources
        if source.provider not in ("hydra", "schema") and source.path != str(CONF_DIR)
    ]
    try:
        check_protocol(name, folders)
    except InputError as error:
        experiment = runtime.choices.get("experiment")
        place = f"experiment={experiment}: " if experiment else ""
        raise InputError(f"{place}{error}") from error
