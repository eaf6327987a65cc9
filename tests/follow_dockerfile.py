"""Follow the Dockerfile without Docker: `python3 tests/follow_dockerfile.py ROOT`, as root, where no daemon is.

ROOT is the folder of a Debian system with python3 and python3-venv, such as `tests/clean_machine.sh` makes. It stands
for the base image: each FROM gets a copy of it, with an environment of Python in /opt/python. The instructions of the
Dockerfile are then executed in it, and at last its entry point, as its user and without a network.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1]


class Stage:
    """A copy of the base system, and what the Dockerfile has set in it so far."""

    def __init__(self, base: Path, root: Path) -> None:
        subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
        self.root, self.place, self.user = root, "/", "root"
        self.variables = {"PATH": "/opt/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.variables |= {"PIP_CERT": "/etc/ssl/certs/ca-certificates.crt"}
        self.run("python3 -m venv /opt/python")

    def run(self, command: str, *, network: bool = True) -> None:
        """Run a shell command in the stage."""
        setting = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.variables.items())
        inside = f"cd {self.place} && exec env {setting} sh -c {shlex.quote(command)}"
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
        become = f"exec /usr/sbin/chroot --userspec={self.user} {self.root} /bin/sh -c {shlex.quote(inside)}"
        mounts = f"mount -t proc proc {self.root}/proc; mount -t tmpfs tmpfs {self.root}/dev/shm"
        subprocess.run([*apart, "sh", "-ec", f"{mounts}; {become}"], check=True)

    def copy(self, sources: list[str], target: str, origin: Path) -> None:
        """Copy files into the stage."""
        for source in sources:
            to = self.root / self.place.lstrip("/") / target.removeprefix("./")
            to = self.root / target.lstrip("/") if target.startswith("/") else to
            found = origin / source.lstrip("/")
            if found.is_dir():
                shutil.copytree(found, to, dirs_exist_ok=True)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, to)


def main(base: Path) -> None:
    """Follow the Dockerfile, then ask the image for its version and list of mechanisms."""
    text = re.sub(r"\\\n\s*", "", (SOURCE / "Dockerfile").read_text(encoding="utf-8"))
    stages: dict[str, Stage] = {}
    stage, entry = None, []
    for line in filter(lambda line: line and not line.startswith("#"), text.splitlines()):
        print(f"--- {line}", flush=True)
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "image"
            stage = stages[name] = Stage(base, base.with_name(f"docker-{name}"))
        elif stage is None:
            raise SystemExit("the first instruction is not FROM")
        elif word == "COPY":
            parts = rest.split()
            origin = stages[parts.pop(0).partition("=")[2]].root if parts[0].startswith("--from=") else SOURCE
            stage.copy(parts[:-1], parts[-1], origin)
        elif word == "RUN":
            stage.run(rest)
        elif word == "WORKDIR":
            stage.place = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            stage.user = rest
        elif word == "ENV":
            stage.variables |= dict(part.split("=", 1) for part in rest.split())
        elif word == "ENTRYPOINT":
            entry = json.loads(rest)
        elif word not in ("CMD", "VOLUME"):
            raise SystemExit(f"{word} is not understood")
    if stage is None:
        raise SystemExit("the Dockerfile is empty")
    command = shlex.join(entry)
    stage.run(f"{command} --version && {command} mechanisms | head -n 3 && touch /ledger/writable", network=False)
    print("followed: the Dockerfile")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
