"""The command line `langmem-recall`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without its libraries, say what to install and exit with 1."""
    try:
        from langmem_recall.cli.app import app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(
            f"The command line needs the package {package}, which is not installed. Run "
            'pip install "langmem-recall[cli]".'
        )
    app(prog_name="langmem-recall")
