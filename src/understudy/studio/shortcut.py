"""Write an icon that starts the studio by a double click, for people who do not use a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from platformdirs import user_data_path, user_desktop_path

from understudy.errors import OutputError
from understudy.files import describe_os_error

NAME = "Understudy Studio"


def write_shortcut() -> tuple[Path, str]:
    """Write a file that starts the studio with this Python: on the desktop, or on Linux in the menu of applications.

    Returns:
        Its path, and how to use it.

    Raises:
        OutputError: if it cannot be written.
    """
    path, text, words = make_shortcut(sys.platform, sys.executable)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        path.chmod(0o755)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({describe_os_error(error)}); start the studio from a terminal"
        ) from None
    return path, words


def make_shortcut(platform: str, python: str) -> tuple[Path, str, str]:
    """Return where the file belongs on a platform, its content, and how to use it.

    Args:
        platform: as `sys.platform`.
        python: the path of the interpreter.
    """
    if platform == "win32":
        line = f'@"{python.replace("%", "%%")}" -m understudy studio\r\n'
        return user_desktop_path() / f"{NAME}.cmd", line, "Double-click it on your desktop to start the studio."
    if platform == "darwin":
        quoted = python.replace("'", "'\\''")
        text = f"#!/bin/sh\nexec '{quoted}' -m understudy studio\n"
        return user_desktop_path() / f"{NAME}.command", text, "Double-click it on your desktop to start the studio."
    escaped = "".join(f"\\\\{sign}" if sign in '"`$\\' else sign for sign in python).replace("%", "%%")
    lines = [
        "[Desktop Entry]",
        "Type=Application",
        f"Name={NAME}",
        "Comment=Make a private stand-in for a sensitive table",
        f'Exec="{escaped}" -m understudy studio',
        f"Icon={Path(__file__).parent / 'static' / 'mark.svg'}",
        "Terminal=true",
        "Categories=Office;",
    ]
    folder = user_data_path() / "applications"
    return (
        folder / "understudy-studio.desktop",
        "\n".join(lines) + "\n",
        f"“{NAME}” is in the menu of applications now.",
    )
