"""The command line as a whole: help, version, exit codes, and what it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

from langmem_recall import __version__
from langmem_recall.cli import main
from langmem_recall.cli.app import COMMANDS, EXAMPLES

NAMES = list(COMMANDS)


def test_help_names_every_command_and_the_exit_codes() -> None:
    shown = run("--help")
    assert shown.code == 0
    assert all(re.search(rf"\b{name}\b", shown.stdout) for name in NAMES)
    assert "Exit code 0" in shown.stdout
    assert {"demo", "eval", "tune", "doctor", "stats", "export", "import"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command_teaches_by_examples(name: str) -> None:
    examples = [line for line in EXAMPLES.splitlines() if line.split(" ")[0] == name]
    shown = run(name, "--help")
    assert shown.code == 0
    assert 2 <= len(examples) <= 3
    flat = " ".join(shown.stdout.split())
    assert all(f"langmem-recall {example}" in flat for example in examples)
    # A server speaks its protocol, and nothing else.
    assert name == "mcp" or "--json" in shown.stdout


def test_every_example_is_of_a_command() -> None:
    assert {line.split(" ")[0] for line in EXAMPLES.split("\n") if line} == set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("import", "mcp")])
def test_every_command_with_a_result_can_write_it_to_a_file(name: str) -> None:
    assert "--output" in run(name, "--help").stdout


def test_version() -> None:
    assert run("--version").stdout == f"langmem-recall {__version__}\n"


def test_wrong_usage_exits_with_2() -> None:
    assert run("nonsense").code == 2
    assert run("eval").code == 2
    assert run("doctor", "--target-rate", "1.5").code == 2


def test_an_error_of_ours_is_its_message_alone_on_stderr(tmp_path: Path) -> None:
    ended = run("stats", tmp_path / "nope.db", "--json")
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Error: ")
    assert "does not exist" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_error_of_the_system_is_a_message_too(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").mkdir()
    ended = run("demo", "-o", tmp_path / "policy.toml")
    assert ended.code == 2
    assert "is a folder" in ended.stderr


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_libraries_the_command_says_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("langmem_recall.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, str)
    assert 'pip install "langmem-recall[cli]"' in ended.value.code


def test_the_installed_script_runs_and_exits_with_the_code() -> None:
    script = shutil.which("langmem-recall", path=str(Path(sys.executable).parent))
    assert script, "the package is not installed: pip install -e ."
    shown = subprocess.run([script, "demo", "--json"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert '"why_not"' in shown.stdout
    failed = subprocess.run([script, "stats", "no.db"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")


def test_help_and_completion_load_neither_langgraph_nor_numpy() -> None:
    code = (
        "import sys; from langmem_recall.cli.app import app; "
        "print(sorted({'langgraph', 'numpy', 'langchain_core', 'wordllama'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
