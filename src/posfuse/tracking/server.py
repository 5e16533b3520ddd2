"""The W&B server that this machine has a key for."""

import os
from urllib.parse import urlsplit

import wandb
from wandb.sdk.lib.service.service_connection import WandbApiFailedError
from wandb.sdk.lib.wbauth import read_netrc_auth

from posfuse.errors import InputError
from posfuse.runs.hydra_errors import one_line

FAILED = (wandb.Error, WandbApiFailedError, OSError)  # what its API raises, and the disk


def without_user(url: str) -> str:
    """An address without the name, password or token that may be in front of its host."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def base_url() -> str:
    if os.environ.get("WANDB_MODE") == "":
        del os.environ["WANDB_MODE"]  # W&B refuses an empty one
    try:
        return str(wandb.setup().settings.base_url)
    except ValueError as error:  # of its settings' types
        reason = one_line(error)
        raise InputError(
            f"W&B: {reason}; mend or unset the WANDB_ variable of that name"
        ) from error


def address() -> str:
    """The server's, to be shown."""
    return without_user(base_url())


def connect() -> wandb.Api | None:
    """W&B's public API; None without a key. Never asks for one."""
    url = base_url()  # its settings are looked at first
    if os.environ.get("WANDB_API_KEY") or read_netrc_auth(host=url):
        return wandb.Api()
    return None


def entity_of(api: wandb.Api) -> str:
    """Whose runs and views those without an owner are."""
    entity = api.settings["entity"] or api.default_entity
    if not entity:
        raise InputError(f"{address()}: its key has no user or team of its own; set WANDB_ENTITY")
    return str(entity)


def said(error: BaseException) -> str:
    """One of FAILED in one line, with its cure."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; mend that and do it again"
    reason = " ".join(str(error).replace(base_url(), address()).split()) or type(error).__name__
    to = "the network" if isinstance(error, OSError) else "WANDB_API_KEY and the network"
    return f"{address()}: {reason}; see to {to}, then do it again"
