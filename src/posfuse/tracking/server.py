"""The W&B server: its address, the place of a run on it, and its errors in one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import wandb
from pydantic import ValidationError

from posfuse.config import LoggerConfig
from posfuse.errors import InputError
from posfuse.tracking.places import project_of


def without_user(url: str) -> str:
    """An address without the name, password or token in front of its host."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def base_url() -> str:
    """The server's address, which may contain a token. Raises InputError if W&B refuses a
    setting."""
    try:
        return str(wandb.setup().settings.base_url)
    except ValueError as error:
        raise InputError(f"W&B: {text_of(error)}; fix or unset that WANDB_ variable") from error


def address() -> str:
    """The server's address for messages."""
    return without_user(base_url())


def connect() -> wandb.Api:
    """W&B's public API. Raises InputError without a key. In a terminal W&B asks for one."""
    url = base_url()
    with errors_in_one_line():
        return wandb.Api({"base_url": url})


def place_of(logger: LoggerConfig, api: wandb.Api) -> tuple[str, str]:
    """The user or team that owns a run, and the run's project."""
    entity = logger.entity or api.settings["entity"] or api.default_entity
    if not entity:
        raise InputError(f"{address()}: the key has no user or team; set WANDB_ENTITY")
    return str(entity), project_of(logger)


def project_url(api: wandb.Api, entity: str, project: str) -> str | None:
    """The project's web page, or None if the server has no such project."""
    pages = {each.name: str(each.url) for each in api.projects(entity)}
    return without_user(pages[project]).removesuffix("/workspace") if project in pages else None


def text_of(error: Exception) -> str:
    """The message of an error of W&B in one line, without a token in an address."""
    text = str(error)
    if isinstance(error, ValidationError):  # of its settings; the text has several lines
        first = error.errors()[0]
        text = ": ".join(map(str, (*first["loc"], first["msg"])))
    text = re.sub(r"(\w://)[^/\s@]*@", r"\1", text)
    return " ".join(text.split()).rstrip(".") or type(error).__name__


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Raise every error of W&B's API as an InputError, because some of their types are private.
    Errors of files pass unchanged."""
    try:
        yield
    except Exception as error:
        if isinstance(error, InputError) or getattr(error, "filename", None):
            raise
        line = f"{address()}: {text_of(error)}; check WANDB_API_KEY and the network, retry"
        raise InputError(line) from error
