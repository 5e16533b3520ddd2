"""Writes the commit into a wheel or a source distribution, so that its runs record it.

The commit is that of the checkout, or POSFUSE_COMMIT where the build has no .git.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))
from posfuse.process.commit import BAKED, PACKAGE, commit


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        head = os.environ.get("POSFUSE_COMMIT") or commit()
        # An editable install has the checkout; a source distribution already has the file.
        if version == "editable" or head is None or (PACKAGE / BAKED).exists():
            return
        file = Path(tempfile.mkdtemp()) / BAKED
        file.write_text(head + "\n", encoding="utf-8")
        place = "src/posfuse" if self.target_name == "sdist" else "posfuse"
        build_data["force_include"][str(file)] = f"{place}/{BAKED}"
