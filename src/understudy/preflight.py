"""What is checked before the first charge, from the schema and settings alone: a doomed run must not cost anything."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from understudy.errors import OutputError, SettingError
from understudy.privacy.noise import NOISES


def check_output(path: Path) -> None:
    """Make sure that a file can be written at `path`, and that nothing is there yet.

    Raises:
        OutputError: naming the path and the remedy.
    """
    try:
        taken, folder = path.exists(), path.parent.is_dir()
    except (OSError, ValueError):
        raise OutputError(f"{path} cannot be written; choose another output") from None
    if taken:
        raise OutputError(f"{path} is there already and a release is never overwritten; choose another output")
    if not folder:
        raise OutputError(f"the folder {path.parent} does not exist; make it first")
    probe = path.with_name(f".{path.name}.{os.getpid()}.probe")
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except (OSError, ValueError):
        raise OutputError(f"{path} cannot be written; choose another output") from None


def check_space(folder: Path, needed_bytes: int) -> None:
    """Make sure that the folder's disk has room.

    Raises:
        OutputError: naming the folder and how much is needed.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + (1 << 20):
        raise OutputError(
            f"{folder} has {_mib(free)} MiB free and the run may need {_mib(needed_bytes)} MiB; make room"
        )


def find_compiler_cache() -> None:
    """Make sure that compiled loops can be kept somewhere: without a place they refuse to load, in the middle of a run.

    Where neither the package's folder nor the user's cache can be written (a read-only image), they go to a folder that
    only this process can use, removed when it ends.
    """
    if "NUMBA_CACHE_DIR" in os.environ or any(map(_can_write, (Path(__file__).parent, user_cache_path("numba")))):
        return
    folder = tempfile.mkdtemp(prefix="understudy-compiled-")  # never a name that others could have filled before us
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def check_memory(needed_bytes: int) -> None:
    """Make sure that the model and tables of a run fit in memory.

    Raises:
        SettingError: saying how much is needed and what would need less.
    """
    import psutil

    free = psutil.virtual_memory().available
    if free < needed_bytes:
        raise SettingError(
            f"this run may need {_mib(needed_bytes)} MiB of memory and {_mib(free)} MiB are free: use coarser bins, "
            "fewer columns, or a smaller workload or model; nothing was spent"
        )


def check_noise(noise: str) -> None:
    """Make sure that a noise sampler of that name is there.

    Raises:
        SettingError: naming the choices, or what to install.
    """
    if noise not in list(NOISES):
        raise SettingError(f"noise: {noise!r} is unknown; the choices are {', '.join(NOISES)}")
    if noise == "opendp" and find_spec("opendp") is None:
        raise SettingError("noise='opendp' needs OpenDP: pip install 'understudy[opendp]'. Nothing was spent")


def _mib(size: int) -> int:
    return -(-size // (1 << 20))
