"""The fix for a name that does not exist: the nearest ones that do."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches


def nearest(name: str, own: Sequence[str], known: Mapping[str, str] | None = None) -> str:
    """The fix for an unknown name: a key of `known` that ends in it, a similar name of `own`, or a
    key with a similar word or whose meaning begins with the name."""
    known = known or {}
    last = name.rpartition(".")[2]
    near = [key for key in known if key.endswith(f".{last}")]
    near = near or [name.removesuffix(last) + n for n in get_close_matches(last, own, cutoff=0.75)]
    parts = {key: [*key.split("."), *key.split("_")] for key in known}
    meant = [key for key, text in known.items() if text.startswith(last.replace("_", " "))]
    near = near or [k for k in known if k in meant or get_close_matches(last, parts[k], cutoff=0.8)]
    near.sort(key=lambda key: key.startswith(("pretrain.", "seeds.")))  # rarely meant
    return f"use {' or '.join(near)}" if near else f"use one of {', '.join(own)}"
