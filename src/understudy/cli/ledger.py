"""`ledger`: what was granted, spent and answered, and the evidence that nobody changed it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import Json, LedgerAddress, print_result
from understudy.errors import LedgerError, OutputError, SettingError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from understudy.ledger import Ledger

app = typer.Typer(
    help="Show, grant and audit privacy budgets.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Key = Annotated[Path | None, typer.Option(help="File of the signing key; created if it does not exist.")]


@app.command()
def show(
    dataset: Annotated[str | None, typer.Argument(help="One dataset; default: all.")] = None,
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Show what was spent on each dataset, and its grants."""
    book = _open(ledger)
    known = book.datasets()
    if dataset is not None and dataset not in known:
        raise SettingError(f"dataset {dataset!r} is not in the ledger; it has {', '.join(known) or 'none yet'}")
    pages = [book.describe(name) for name in ([dataset] if dataset is not None else sorted(known))]
    words = "\n".join(_format_dataset(page) for page in pages) or "The ledger is empty."
    print_result(words, pages[0] if dataset is not None else {"datasets": pages}, as_json=as_json)


@app.command()
def grant(
    dataset: Annotated[str, typer.Argument(help="The dataset.")],
    epsilon: Annotated[float | None, typer.Option(help="The most epsilon that may be spent.")] = None,
    delta: Annotated[float, typer.Option(help="The delta of that epsilon.")] = 1e-6,
    rho: Annotated[float | None, typer.Option(help="The most rho that may be spent, instead of epsilon.")] = None,
    per: Annotated[str, typer.Option(help="all: in total; year: in any 365 days.")] = "all",
    to: Annotated[str, typer.Option(help="anyone, user:NAME, group:NAME, or token for a new token.")] = "anyone",
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Grant budget for a dataset. Once it has a grant, runs beyond its grants are refused before anything is read.

    understudy ledger grant people --epsilon 4 --per year
    """
    from understudy.ledger import Grant
    from understudy.ledger.ledger import token_holder

    token = secrets.token_urlsafe(24) if to == "token" else None
    given = Grant(dataset, epsilon, delta, rho, per, to if token is None else token_holder(token))  # type: ignore[arg-type]
    entered = _open(ledger).grant(given)
    words = f"Grant {entered.number} for {dataset}: {entered}"
    words += "" if token is None else f"\nToken (shown once; its holder sets UNDERSTUDY_TOKEN): {token}"
    print_result(
        words, {"grant": entered.number, "dataset": dataset, "text": str(entered), "token": token}, as_json=as_json
    )


@app.command()
def revoke(
    number: Annotated[int, typer.Argument(help="The grant's number; see `understudy ledger show`.")],
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Revoke a grant: nothing more can be drawn on it. What was spent stays spent."""
    _open(ledger).revoke(number)
    print_result(f"Grant {number} is revoked.", {"grant": number}, as_json=as_json)


@app.command("token")
def add_token(
    name: Annotated[str, typer.Option(help="Whom the token is for.")],
    role: Annotated[str, typer.Option(help="custodian (may spend) or analyst (sees what is shared).")] = "analyst",
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Make a token with which its holder signs in to the studio.

    It is shown once: the ledger keeps only a digest of it.
    """
    made, secret = _open(ledger).add_token(role, name)  # type: ignore[arg-type]
    words = f"Token {made.number} for {made.name} ({made.role}), shown once: {secret}"
    print_result(words, {"token": secret, "number": made.number, "role": made.role, "name": made.name}, as_json=as_json)


@app.command("revoke-token")
def revoke_token(
    number: Annotated[int, typer.Argument(help="The token's number.")],
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Revoke a token of the studio."""
    _open(ledger).revoke_token(number)
    print_result(f"Token {number} is revoked.", {"token": number}, as_json=as_json)


@app.command("add")
def add_dataset(
    dataset: Annotated[str, typer.Argument(help="The dataset's name.")],
    parent: Annotated[
        list[str] | None,
        typer.Option(help="A dataset about the same people; runs count towards it as well; repeatable."),
    ] = None,
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Add a dataset, and name others about the same people."""
    _open(ledger).add_dataset(dataset, parents=parent or [])
    print_result(f"Dataset {dataset} was added.", {"dataset": dataset, "parents": parent or []}, as_json=as_json)


@app.command()
def cancel(
    run: Annotated[str, typer.Argument(help="The run; see `understudy runs`.")],
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Cancel a run that measured nothing and return its budget. A run with any measurement stays charged."""
    _open(ledger).cancel(run)
    print_result(f"Run {run} is cancelled; nothing was spent.", {"run": run}, as_json=as_json)


@app.command()
def checkpoint(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file for the checkpoint.")] = None,
    key: Key = None,
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Sign the current state of the ledger. Keep the checkpoint elsewhere: it proves that no earlier entry changed."""
    from understudy.ledger.log import verifier_line

    signing, book = _load_key(key), _open(ledger)
    made = book.checkpoint(signing)
    verifier = verifier_line(made.origin, signing.public_key())
    _write_output(made.note, output)
    words = f"{made.note}\nVerifier key: {verifier}" if output is None else f"{output}\nVerifier key: {verifier}"
    print_result(words, {"size": made.size, "checkpoint": made.note, "verifier": verifier}, as_json=as_json)


@app.command()
def cosign(
    file: Annotated[Path, typer.Argument(help="The checkpoint's file; the signature is added to it.")],
    name: Annotated[str, typer.Option(help="Name of the cosigner, without blanks, such as auditor.example.org.")],
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Add a second party's signature to a checkpoint."""
    from understudy.ledger.log import Checkpoint, verifier_line

    if not name or any(sign.isspace() or sign == "+" for sign in name):
        raise SettingError("--name: give a name without blanks and plus signs, such as auditor.example.org")
    signing = _load_key(key)
    made = Checkpoint.parse(_read_file(file)).cosign(name, signing)
    _write_output(made.note, file)
    verifier = verifier_line(name, signing.public_key(), cosigner=True)
    print_result(f"{file}\nVerifier key: {verifier}", {"checkpoint": made.note, "verifier": verifier}, as_json=as_json)


@app.command()
def verify(
    file: Annotated[list[Path] | None, typer.Argument(help="Checkpoints that were kept elsewhere.")] = None,
    verifier: Annotated[
        list[str] | None, typer.Option(help="A verifier key; one of them must have signed each checkpoint; repeatable.")
    ] = None,
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Verify that no entry was changed, or list what was.

    Checks that no entry before a checkpoint was altered, removed or reordered.
    """
    from understudy.ledger.log import Checkpoint

    book, given = _open(ledger), [Checkpoint.parse(_read_file(path)) for path in file or []]
    wrong = book.verify(given, verifiers=verifier or [])
    kept = book.checkpoints()
    newest = max([*(point.size for point in [*given, *kept]), 0])
    if wrong:
        raise LedgerError(f"the ledger {book.address} was changed: {'; '.join(wrong)}")
    words = f"Every entry is intact; checkpoints cover the first {newest}." if newest else "Every entry is intact; no "
    words += "" if newest else "checkpoint covers them yet (`understudy ledger checkpoint`)."
    print_result(words, {"intact": True, "covered": newest}, as_json=as_json)


@app.command()
def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="A file of JSON lines.")],
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """Write every entry as a line of JSON. Measurements appear by their digest."""
    lines = list(_open(ledger).export())
    _write_output("".join(f"{line}\n" for line in lines), output)
    print_result(f"{len(lines)} entries: {output}", {"entries": len(lines), "file": str(output)}, as_json=as_json)


def _open(address: str | None) -> Ledger:
    from understudy.ledger import Ledger

    return Ledger(address)


def _format_dataset(page: dict[str, Any]) -> str:
    lines = [f"{page['dataset']}: {page['text']}"]
    for grant in page["grants"]:
        used = "more than can be stated" if grant["used"] is None else f"{grant['used']:.4g}"
        state = "revoked; " if grant["revoked"] else ""
        lines.append(f"    grant {grant['grant']}: {grant['text']}; {state}{used} used")
    return "\n".join(lines)


def _load_key(path: Path | None) -> Ed25519PrivateKey:
    """Load the signing key from a file that only its owner can read; create it if it does not exist."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from platformdirs import user_config_path

    from understudy.files import NEW_FILE, OWNER_ONLY

    file = path or user_config_path("understudy") / "ledger.key"
    try:
        if file.exists():
            key = form.load_pem_private_key(file.read_bytes(), None)
            if not isinstance(key, Ed25519PrivateKey):
                raise ValueError
            return key
        made = Ed25519PrivateKey.generate()
        file.parent.mkdir(parents=True, exist_ok=True)
        secret = made.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        with os.fdopen(os.open(file, NEW_FILE, OWNER_ONLY), "wb") as handle:
            handle.write(secret)
        return made
    except OSError as error:
        raise OutputError(
            f"the key {file} cannot be read or created ({error.strerror}); give another with --key"
        ) from None
    except (ValueError, TypeError):
        raise SettingError(f"{file} is not an Ed25519 key without a password; give another with --key") from None


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        raise LedgerError(f"{path}: the checkpoint does not exist or cannot be read; check the path") from None


def _write_output(text: str, path: Path | None) -> None:
    from understudy.files import write_text

    if path is not None:
        write_text(text, path)
