"""Random bits for all private noise: AES-256 in counter mode, keyed by the operating system.

**Privacy.** There is no seed: every thread and every process draws from a stream of its own, keyed with 256 bits from
`os.urandom`, and a forked child never repeats its parent's bits. Every refill of 64 KiB
starts at a counter of 128 new bits from `os.urandom`, so that copies of a process (a cloned or restored virtual
machine) diverge at their next refill. The one exception is `insecure`, the test mode of `understudy.testing`; receipts
and the ledger detect it with `is_insecure`.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

_BLOCK_WORDS = 1 << 13  # 64 KiB: a refill takes microseconds, and a short request rarely needs one
_ZEROS = memoryview(bytes(8 * _BLOCK_WORDS))
_REKEY_WORDS = 1 << 38  # 2^25 refills: that two of them share a counter has a probability below 2^-60


class Stream:
    """An endless stream of uniform bits, for one thread; `stream` returns that of the current thread.

    **Guarantees.** Bits are AES-256-CTR output under a key from `os.urandom`, re-keyed in a forked child and after
    2^38 words; each refill starts at a counter from `os.urandom`. No block of the cipher is used twice.
    """

    def __init__(self) -> None:
        self._rekey()

    def _key(self) -> bytes:
        return os.urandom(48)

    def _rekey(self) -> None:
        key = self._key()
        self._cipher: CipherContext = Cipher(algorithms.AES(key[:32]), modes.CTR(key[32:])).encryptor()
        self._pid = os.getpid()
        self._left = np.empty(0, dtype=np.uint64)
        self._drawn = 0

    def _renew(self) -> None:
        """Start at a fresh counter, so that a copy of this stream's state continues differently."""
        self._cipher.reset_nonce(os.urandom(16))

    def _refill(self, words: int) -> NDArray[np.uint64]:
        self._renew()
        zeros = _ZEROS if words == _BLOCK_WORDS else bytes(8 * words)
        return np.frombuffer(self._cipher.update(zeros), dtype=np.uint64)

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next `n` independent, uniform 64-bit words, as a read-only array."""
        if self._pid != os.getpid() or self._drawn > _REKEY_WORDS:
            self._rekey()
        self._drawn += n
        if n <= len(self._left):
            taken, self._left = self._left[:n], self._left[n:]
            return taken
        if n >= _BLOCK_WORDS:
            return self._refill(n)
        block = self._refill(_BLOCK_WORDS)
        taken = np.concatenate((self._left, block[: n - len(self._left)]))
        self._left = block[n - len(self._left) :]
        return taken

    def bits(self, k: int) -> int:
        """Return a uniform integer in [0, 2^k)."""
        count = -(-k // 64)
        return int.from_bytes(self.words(count).tobytes(), "little") >> (64 * count - k)


class _SeededStream(Stream):
    """The same generator with a known key: reproducible, so it protects nothing."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        super().__init__()

    def _key(self) -> bytes:
        return hashlib.sha384(b"understudy insecure test mode " + str(self._seed).encode()).digest()

    def _renew(self) -> None:
        """Continue where the last refill ended, without bits of the operating system."""


_threads = threading.local()
_seeded: ContextVar[_SeededStream | None] = ContextVar("understudy_insecure_stream", default=None)


def _forget() -> None:
    _threads.__dict__.clear()


if hasattr(os, "register_at_fork"):  # the process id in Stream.words also covers forks that bypass Python
    os.register_at_fork(after_in_child=_forget)


def stream() -> Stream:
    """Return the stream of the current thread, created at first use; inside `insecure`, the seeded one."""
    seeded = _seeded.get()
    if seeded is not None:
        return seeded
    current: Stream | None = getattr(_threads, "stream", None)
    if current is None:
        current = _threads.stream = Stream()
    return current


@contextmanager
def insecure(seed: int) -> Iterator[None]:
    """Draw reproducible noise within the block. For `understudy.testing` only.

    **Privacy.** None: anyone can recompute and subtract noise drawn here. It affects the current context only: threads
    started inside use secure streams of their own.
    """
    token = _seeded.set(_SeededStream(seed))
    try:
        yield
    finally:
        _seeded.reset(token)


def is_insecure() -> bool:
    """Return whether noise is drawn from the seeded test stream."""
    return _seeded.get() is not None
