"""Digests and checksums, which detect damaged files.

SHA256SUMS of a run has the digests of its results; `sha256sum -c` checks them.
"""

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

from posfuse import untrusted

SUMS = "SHA256SUMS"


def digest(path: Path) -> str:
    """The SHA-256 of a file in 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: Any) -> str:
    """The SHA-256 of plain values, in any order of their keys, in 64 hex digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def short_digest(text: str) -> str:
    """The first 8 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def checksum(path: Path) -> int:
    """The CRC-32 of a file. It is faster than a digest and detects damage."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def read_sums(folder: Path) -> str:
    """The text of SHA256SUMS; empty if the file is not in posfuse's form. Raises
    FileNotFoundError."""
    try:
        return untrusted.read_bytes(folder / SUMS, untrusted.MEBIBYTE).decode(errors="replace")
    except ValueError:
        return ""


def is_whole(path: Path) -> bool:
    """True if a file exists and has the digest in its run's SHA256SUMS, if there is one."""
    folder = path.parents[path.parent.name == "checkpoints"]
    try:
        lines = read_sums(folder).splitlines()
        name = path.relative_to(folder).as_posix()
        return path.is_file() and f"{digest(path)}  {name}" in lines
    except FileNotFoundError:
        return path.exists()


def check_whole(path: Path) -> None:
    """Raise ValueError if a file differs from its digest. Ignores a missing file."""
    if path.exists() and not is_whole(path):
        raise ValueError(f"differs from its digest in {SUMS}")
