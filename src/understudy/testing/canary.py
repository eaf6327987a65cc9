"""The canary: values that occur only in the table, and a search for them in everything that a run leaves behind.

The search covers text in several encodings, binary numbers, members of zip files and compressed lines.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from understudy.testing import expect
from understudy.testing.twin import describe_error


@dataclass(frozen=True)
class Canary:
    """A word and a number that no schema, setting or file name contains.

    Attributes:
        word: put into text cells, alone or inside longer text.
        number: put into numeric cells; fifteen digits, so that no random numbers hold it by chance.
    """

    word: str = "zqxcanary"
    number: int = 918_273_645_546_372

    def forms(self) -> tuple[bytes, ...]:
        """Return all byte strings that the search looks for."""
        words = [self.word.encode(code) for code in ("utf-8", "utf-16-le", "utf-32-le")]
        numbers = [str(self.number).encode(), f"{self.number:_}".encode(), f"{self.number:,}".encode()]
        binary = [struct.pack("<q", self.number), struct.pack("<d", self.number), struct.pack(">q", self.number)]
        return (*words, *numbers, *binary, self.word.encode().hex().encode())

    def is_in(self, content: bytes) -> bool:
        """Return whether the canary is in these bytes, or in what is packed in them."""
        return any(form.lower() in layer.lower() for layer in _layers(content) for form in self.forms())

    def check_absent(self, outputs: Iterable[tuple[str, bytes]]) -> None:
        """Check that no output holds the canary.

        Raises:
            AssertionError: naming the output, not its content.
        """
        for name, content in outputs:
            expect(not self.is_in(name.encode()), "the canary is in the name of an output")
            expect(not self.is_in(content), f"the canary is in {name}")

    def check_error(self, error: BaseException) -> None:
        """Check that neither the error nor its causes hold the canary.

        Raises:
            AssertionError: naming the kind of error.
        """
        expect(
            not self.is_in(describe_error(error).encode()), f"the canary is in a {type(error).__name__} or its context"
        )

    def check_folder(self, folder: Path) -> None:
        """Check that no file below the folder holds the canary.

        Raises:
            AssertionError: naming the file.
        """
        files = [path for path in folder.rglob("*") if path.is_file()]
        self.check_absent((str(path.relative_to(folder)), path.read_bytes()) for path in files)


def _layers(content: bytes) -> Iterator[bytes]:
    """Return the bytes and what is packed in them: members of zip files, compressed base64 in JSON lines."""
    yield content
    if zipfile.is_zipfile(BytesIO(content)):
        with zipfile.ZipFile(BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from _layers(archive.read(name))
    for packed in re.findall(rb'"([A-Za-z0-9+/]{8,}={0,2})"', content):
        try:
            yield zlib.decompress(base64.b64decode(packed))
        except (binascii.Error, zlib.error):
            continue
