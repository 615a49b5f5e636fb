"""Programs from Debian's packages, unpacked into a folder: that needs its archive, and no rights.

Not for servers that every run starts: a download can fail. `pytest --with ...` asks for them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.servers import ServerMissing


def unpacked(program: str, packages: Sequence[str]) -> Path:
    """A folder in which these packages are unpacked, once for all runs on this machine."""
    folder = Path(tempfile.gettempdir()) / f"standfast-{program}"
    if folder.exists():
        return folder
    made = Path(tempfile.mkdtemp(prefix=f"standfast-{program}-"))
    try:
        subprocess.run(["apt-get", "download", *packages], cwd=made, check=True, capture_output=True, timeout=120)
        for package in made.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(made)], check=True, capture_output=True)
            package.unlink()
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(made, ignore_errors=True)
        raise ServerMissing(f"{program} is not on PATH and cannot be unpacked: {error}") from error
    made.chmod(0o755)
    try:
        made.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(made)
    return folder


def command(program: str, packages: Sequence[str]) -> tuple[list[str], Path]:
    """The command that starts a program, and the folder that its files are in: on PATH, or unpacked."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found:
        return [found], Path("/")
    folder = unpacked(program, packages)
    libraries = ":".join(str(path) for path in folder.glob("usr/lib/*-linux-gnu"))
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(folder / "usr/sbin" / program)], folder
