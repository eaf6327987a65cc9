"""The random stream: uniform, never repeated, never seeded except in the marked test mode.

True random bits are drawn. The test that most likely fails by chance compares 100,000 words: two of them are equal with
probability below 3e-10.
"""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from understudy.gate import randomness
from understudy.gate.randomness import Stream, insecure, is_insecure, stream

pytestmark = pytest.mark.law
FORK = """
import os
from understudy.gate.randomness import stream
stream().words(1)
kept = stream()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, (kept.words(2).tobytes() + stream().words(2).tobytes()))
    os._exit(0)
os.wait()
child = os.read(read, 32)
print(len({child[:16], child[16:], kept.words(2).tobytes(), stream().words(2).tobytes()}))
"""


@pytest.mark.parametrize("sizes", [(1, 1, 1), (8191, 3), (8192, 8192), (100_000, 5), (0, 4)])
def test_no_word_is_handed_out_twice(sizes: tuple[int, ...]) -> None:
    source = Stream()
    words = np.concatenate([source.words(n) for n in sizes])
    assert words.dtype == np.uint64
    assert len(words) == sum(sizes)
    assert len(np.unique(words)) == len(words)


def test_bits_are_in_range_and_each_is_fair() -> None:
    source = Stream()
    for k in (1, 5, 63, 64, 65, 200):
        draws = [source.bits(k) for _ in range(2000)]
        assert min(draws) >= 0
        assert max(draws) < 1 << k
        for place in {0, k // 2, k - 1}:
            # 2000 fair bits: standard deviation 22.4; nine of them are exceeded with probability 2e-19
            assert abs(sum(draw >> place & 1 for draw in draws) - 1000) < 200


def test_streams_differ_and_threads_have_their_own() -> None:
    found: list[Stream] = []
    thread = threading.Thread(target=lambda: found.append(stream()))
    thread.start()
    thread.join()
    assert stream() is stream()
    assert found[0] is not stream()
    assert not np.array_equal(found[0].words(4), stream().words(4))
    assert not np.array_equal(Stream().words(4), Stream().words(4))


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_does_not_repeat_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4"


@pytest.mark.parametrize("request_words", [1, 100, 8192, 20_000])
def test_clones_of_a_process_go_apart_at_the_next_refill(request_words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored snapshot has the key, the counter and the words left over; nothing of its own makes it differ."""
    key = bytes(range(48))

    def snapshot() -> Stream:
        with monkeypatch.context() as patch:
            patch.setattr(Stream, "_key", lambda self: key)
            return Stream()

    clones = [snapshot(), snapshot(), snapshot()]
    for clone in clones:
        clone._left = np.arange(3, dtype=np.uint64)  # drawn before the snapshot was taken: shared
        assert clone.words(3).tolist() == [0, 1, 2]
    later = {clone.words(request_words).tobytes() for clone in clones}
    assert len(later) == 3
    assert len(later | {clone.words(request_words).tobytes() for clone in clones}) == 6


def test_rekeys_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "_REKEY_WORDS", 10)
    with insecure(1):
        source = stream()
        first = source.words(11).copy()
        assert np.array_equal(source.words(11), first)  # a seeded key starts over, which shows that it was renewed


def test_insecure_is_reproducible_marked_and_ends() -> None:
    assert not is_insecure()
    with insecure(7):
        assert is_insecure()
        first = stream().words(100)
        with insecure(8):
            assert not np.array_equal(stream().words(100), first)
    with insecure(7):
        assert np.array_equal(stream().words(100), first)
    assert not is_insecure()
    assert not np.array_equal(stream().words(100), first)


def test_insecure_does_not_reach_other_threads() -> None:
    seen: list[bool] = []
    with insecure(7):
        thread = threading.Thread(target=lambda: seen.append(is_insecure()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_a_stream_cannot_be_seeded() -> None:
    with pytest.raises(TypeError):
        Stream(1)  # type: ignore[call-arg]
