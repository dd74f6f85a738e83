"""Every Python block of README and docs runs and prints what the text block behind it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(#[^)]+)?\)")
EXAMPLES = [
    pytest.param(code, printed, id=f"{page.name}-{place}")
    for page in PAGES
    for place, (code, printed) in enumerate(BLOCK.findall(page.read_text()), start=1)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_says_what_it_prints(page: Path) -> None:
    text = page.read_text()
    assert len(BLOCK.findall(text)) == text.count("```python")


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_an_example_prints_what_the_page_says(
    code: str, printed: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    needed = {}
    if "POSTGRES_URI" in code:
        needed = {"POSTGRES_URI": request.getfixturevalue("postgres")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **needed},
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        linked = (page.parent / target).resolve()
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor[1:] in anchors(linked), f"{target}{anchor}"


def test_the_reference_says_what_the_docstrings_say() -> None:
    script = str(ROOT / "docs" / "reference.py")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings are reached."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
