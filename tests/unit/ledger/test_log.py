"""The Merkle tree against RFC 6962, and checkpoints against the signed-note format."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import LedgerError
from understudy.ledger.log import Checkpoint, leaf_hash, tree_root, verifier_line

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))

# Leaves and roots of the reference implementation of certificate transparency (RFC 6962 test vectors).
LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


@pytest.mark.parametrize("size", ROOTS)
def test_roots_are_those_of_certificate_transparency(size):
    assert tree_root([leaf_hash(leaf) for leaf in LEAVES[:size]]).hex() == ROOTS[size]


def recursive_root(leaves):
    """The definition in RFC 6962, word for word."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    left, right = recursive_root(leaves[:split]), recursive_root(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=70))
def test_the_root_is_the_recursive_definition(leaves):
    assert tree_root(leaves) == recursive_root(leaves)


def test_a_checkpoint_is_a_signed_note():
    point = Checkpoint.of("understudy/abc", 3, bytes(32)).sign("understudy/abc", KEY)
    lines = point.note.split("\n")
    assert lines[:3] == ["understudy/abc", "3", base64.b64encode(bytes(32)).decode()]
    assert lines[3] == ""
    assert lines[4].startswith("— understudy/abc ")
    blob = base64.b64decode(lines[4].split(" ")[2])
    raw = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert blob[:4] == hashlib.sha256(b"understudy/abc\n\x01" + raw).digest()[:4]
    KEY.public_key().verify(blob[4:], ("\n".join(lines[:3]) + "\n").encode())
    assert Checkpoint.parse(point.note) == point


def test_a_second_party_cosigns_with_its_time():
    point = Checkpoint.of("ledger", 9, bytes(32)).sign("ledger", KEY).cosign("auditor", OTHER)
    again = Checkpoint.parse(point.note)
    assert again.is_signed_by(verifier_line("ledger", KEY.public_key()))
    assert again.is_signed_by(verifier_line("auditor", OTHER.public_key(), cosigner=True))
    assert not again.is_signed_by(verifier_line("auditor", KEY.public_key(), cosigner=True))
    assert not again.is_signed_by(verifier_line("somebody", OTHER.public_key(), cosigner=True))


def test_a_changed_checkpoint_is_signed_by_nobody():
    point = Checkpoint.of("ledger", 9, bytes(32)).sign("ledger", KEY).cosign("auditor", OTHER)
    forged = Checkpoint.parse(point.note.replace("\n9\n", "\n8\n", 1))
    assert not forged.is_signed_by(verifier_line("ledger", KEY.public_key()))
    assert not forged.is_signed_by(verifier_line("auditor", OTHER.public_key(), cosigner=True))


@pytest.mark.parametrize("note", ["", "x", "a\n1\n", "a\nb\nc\n\n", "a\n1\n!!\n\n", "a\n1\nAAAA\n\nx y z\n", "\n\n\n"])
def test_anything_but_a_checkpoint_is_refused(note):
    with pytest.raises(LedgerError, match="not a checkpoint"):
        Checkpoint.parse(note)


@pytest.mark.parametrize("line", ["", "a", "a+b+c", "a+00000000+AQ==", "a+zz+AAAA"])
def test_anything_but_a_verifier_key_is_refused(line):
    with pytest.raises(LedgerError, match="not a verifier key"):
        Checkpoint.of("a", 0, bytes(32)).is_signed_by(line)
