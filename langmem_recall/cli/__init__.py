"""The command line `langmem-recall`."""

from __future__ import annotations

import sys

from langmem_recall.errors import MissingExtraError

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; without its libraries, say what to install and exit with 1."""
    try:
        from langmem_recall.cli.app import app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.exit(str(_missing(package)))
    app(prog_name="langmem-recall")


def _missing(package: str) -> MissingExtraError:
    return MissingExtraError(
        f"The command line needs the package {package}, which is not installed. Run "
        'pip install "langmem-recall[cli]".'
    )
