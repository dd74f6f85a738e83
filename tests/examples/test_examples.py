"""Every example runs as it stands, offline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(name: str) -> str:
    command = [sys.executable, str(EXAMPLES / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_demo_recalls_across_processes_and_says_why() -> None:
    shown = run("demo.py")
    assert "I always book an aisle seat on flights, near the front." in shown.split("Session B")[1]
    assert "she lives in Bergen now." in shown.split("Session B")[1]
    assert "nothing: best relevance" in shown
    assert "gym: not recalled: floor: relevance" in shown
    assert "superseded  user_stated      My sister Mia lives in Oslo." in shown
