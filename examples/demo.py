"""The demo: what one conversation tells an agent another one recalls, and says why.

    make demo

or `python examples/demo.py`. Two processes share one file. With OPENAI_API_KEY the model is
`ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SESSIONS = Path(__file__).with_name("demo_sessions.py")


def run_session(name: str, path: Path) -> None:
    """A session in a process of its own; what it prints comes after what was printed here."""
    sys.stdout.flush()
    subprocess.run([sys.executable, str(SESSIONS), name, str(path)], check=True)


def main() -> None:
    """Tell, end, ask anew."""
    model = "ChatOpenAI" if os.environ.get("OPENAI_API_KEY") else "scripted, no key needed"
    print(f"An agent with a memory, in two processes with one file. The model: {model}.\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        run_session("a", path)
        print(f"The process has ended. What is left of it: {path.name}.\n")
        run_session("b", path)
    print("\nNext: examples/auto_injection.py and the others beside it; README.md.")


if __name__ == "__main__":
    main()
