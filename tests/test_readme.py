"""Every Python block of the README runs and prints what the text block behind it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_readme_has_examples_and_each_says_what_it_prints() -> None:
    assert len(EXAMPLES) == README.read_text().count("```python") >= 3


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_a_readme_example_prints_what_the_readme_says(
    code: str, printed: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stderr == ""
    assert done.stdout == printed
