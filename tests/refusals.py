"""The messages of users' mistakes."""

from collections.abc import Callable
from typing import Any

import pytest

from posfuse.errors import InputError


def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The message of the InputError that the call raises; it is one line."""
    with pytest.raises(InputError) as raised:
        call(*arguments, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message
