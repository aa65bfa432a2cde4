"""Makes the shaders that a wheel carries, when one is built. An editable install has none: its kernels change."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Shaders(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory()
        made = Path(self.folder.name)
        path = os.pathsep.join([self.root, *filter(None, [os.environ.get("PYTHONPATH")])])  # pip's build environment is there
        command = [sys.executable, "-m", "fuelnumba.testing.shaders", str(made)]
        subprocess.run(command, check=True, cwd=self.root, env={**os.environ, "PYTHONPATH": path})
        for file in made.iterdir():
            build_data["force_include"][str(file)] = f"fuelnumba/vk/shaders/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self.folder.cleanup()
