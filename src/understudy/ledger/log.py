"""A Merkle tree over the ledger's entries (RFC 6962) and signed checkpoints of it (C2SP tlog-checkpoint, signed-note).

A checkpoint is the number of entries and the root of the tree over them, signed with Ed25519. Anyone who keeps a
checkpoint can prove later that no entry before it was altered, removed or reordered.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from understudy.errors import LedgerError

_SIGNATURE, _COSIGNATURE = b"\x01", b"\x04"  # algorithm bytes of signed-note and tlog-cosignature


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of one entry."""
    return hashlib.sha256(b"\x00" + data).digest()


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of the tree over these leaf hashes.

    >>> tree_root([]).hex()[:8]
    'e3b0c442'
    """
    if not leaves:
        return hashlib.sha256(b"").digest()
    level = list(leaves)
    while len(level) > 1:  # pairing neighbours, and lifting an odd last node, is the tree of RFC 6962
        paired = [hashlib.sha256(b"\x01" + a + b).digest() for a, b in zip(level[::2], level[1::2], strict=False)]
        level = paired + ([level[-1]] if len(level) % 2 else [])
    return level[0]


@dataclass(frozen=True)
class Checkpoint:
    """A statement about the first `size` entries.

    Attributes:
        origin: the name of the ledger.
        size: the number of entries.
        root: the root of the tree over them.
        text: the signed part of the note.
        signatures: (name, key identifier and signature) of each signature line.
    """

    origin: str
    size: int
    root: bytes
    text: str
    signatures: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, origin: str, size: int, root: bytes) -> Checkpoint:
        """Return an unsigned checkpoint."""
        return cls(origin, size, root, f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n")

    @classmethod
    def parse(cls, note: str) -> Checkpoint:
        """Read a signed note.

        Raises:
            LedgerError: if it is not a checkpoint.
        """
        text, blank, rest = note.partition("\n\n")
        try:
            origin, size, root = (text + "\n").splitlines()[:3]
            lines = [re.fullmatch("\u2014 (\\S+) (\\S+)", line) for line in rest.splitlines()]
            signatures = tuple((m[1], base64.b64decode(m[2], validate=True)) for m in lines if m)
            if not blank or not origin or not size.isascii() or len(signatures) != len(lines):
                raise ValueError
            return cls(origin, int(size), base64.b64decode(root, validate=True), text + "\n", signatures)
        except (ValueError, IndexError):
            raise LedgerError("this is not a checkpoint; give what `understudy ledger checkpoint` wrote") from None

    @property
    def note(self) -> str:
        """The checkpoint with its signatures, as a file holds it."""
        lines = (f"\u2014 {name} {base64.b64encode(signature).decode()}\n" for name, signature in self.signatures)
        return self.text + "\n" + "".join(lines)

    def sign(self, name: str, key: Ed25519PrivateKey) -> Checkpoint:
        """Return the checkpoint with the ledger's own signature added."""
        signature = _key_id(name, _SIGNATURE, key.public_key()) + key.sign(self.text.encode())
        return self._add_signature(name, signature)

    def cosign(self, name: str, key: Ed25519PrivateKey) -> Checkpoint:
        """Return the checkpoint with a second party's signature and its time added (C2SP tlog-cosignature)."""
        seconds = int(time.time())
        signed = key.sign(f"cosignature/v1\ntime {seconds}\n{self.text}".encode())
        return self._add_signature(
            name, _key_id(name, _COSIGNATURE, key.public_key()) + seconds.to_bytes(8, "big") + signed
        )

    def _add_signature(self, name: str, signature: bytes) -> Checkpoint:
        return Checkpoint(self.origin, self.size, self.root, self.text, (*self.signatures, (name, signature)))

    def is_signed_by(self, verifier: str) -> bool:
        """Return whether the key of this verifier line signed or cosigned the checkpoint.

        Raises:
            LedgerError: if the verifier line cannot be read.
        """
        name, key_id, algorithm, key = _parse_verifier(verifier)
        for signer, blob in self.signatures:
            if signer != name or blob[:4] != key_id:
                continue
            message, signature = self.text.encode(), blob[4:]
            if algorithm == _COSIGNATURE:
                seconds = int.from_bytes(blob[4:12], "big")
                message, signature = f"cosignature/v1\ntime {seconds}\n{self.text}".encode(), blob[12:]
            try:
                key.verify(signature, message)
            except InvalidSignature:
                return False
            return True
        return False


def verifier_line(name: str, key: Ed25519PublicKey, *, cosigner: bool = False) -> str:
    """Format the public key as one line for the verifying party: name, key identifier and key."""
    algorithm = _COSIGNATURE if cosigner else _SIGNATURE
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return f"{name}+{_key_id(name, algorithm, key).hex()}+{base64.b64encode(algorithm + raw).decode()}"


def _parse_verifier(line: str) -> tuple[str, bytes, bytes, Ed25519PublicKey]:
    try:
        name, key_id, encoded = line.strip().split("+", 2)
        raw = base64.b64decode(encoded, validate=True)
        key = Ed25519PublicKey.from_public_bytes(raw[1:])
        if bytes.fromhex(key_id) != _key_id(name, raw[:1], key) or raw[:1] not in (_SIGNATURE, _COSIGNATURE):
            raise ValueError
        return name, bytes.fromhex(key_id), raw[:1], key
    except ValueError:
        raise LedgerError(
            "this is not a verifier key; give the line that `understudy ledger checkpoint` or `cosign` prints"
        ) from None


def _key_id(name: str, algorithm: bytes, key: Ed25519PublicKey) -> bytes:
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return hashlib.sha256(name.encode() + b"\n" + algorithm + raw).digest()[:4]
