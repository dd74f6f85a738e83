"""What is shipped: one version, true extras and floors, names that are lazy and typed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import langmem_recall

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "langmem_recall"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
]


def texts() -> list[Path]:
    """What a user may read: the package, the README and the documents."""
    return [
        *PACKAGE.rglob("*.py"),
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]


def test_the_version_is_a_valid_one_in_its_usual_form() -> None:
    assert str(Version(langmem_recall.__version__)) == langmem_recall.__version__


def test_the_version_is_set_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    assigned = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^__version__\s*=", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert assigned == ["__init__.py"]


def test_every_extra_that_a_user_is_told_to_install_exists() -> None:
    told = {
        extra.strip()
        for path in texts()
        for found in re.findall(r"langmem-recall\[([^\]]+)\]", path.read_text("utf-8"))
        for extra in found.split(",")
    }
    assert {"cli", "local", "postgres"} <= told
    assert told <= set(EXTRAS)


@pytest.mark.parametrize(
    "declared", [*PROJECT["dependencies"], *(item for extra in EXTRAS.values() for item in extra)]
)
def test_every_dependency_has_a_floor_and_no_ceiling(declared: str) -> None:
    wanted = Requirement(declared)
    # The package's own extras stand for what they hold.
    if wanted.name != PROJECT["name"]:
        assert [part.operator for part in wanted.specifier] == [">="]


def imported() -> set[str]:
    """The packages that the code imports anywhere, at its top or when first used."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names.add(str(node.module))
            elif isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
                names.update(one.value for one in node.args if isinstance(one, ast.Constant))
    ours = {*sys.stdlib_module_names, PACKAGE.name}
    return {name for name in names if name.partition(".")[0] not in ours}


BY_NAME = {"langchain_openai"}
"""Loaded by LangChain when `openai:...` is named: `tests/test_models.py` sees it happen."""
SHARED = {
    "langgraph.store.postgres": "langgraph-checkpoint-postgres",
    "langgraph.store": "langgraph-checkpoint",
    "langgraph": "langgraph",
    "opentelemetry": "opentelemetry-api",
}
"""One namespace of modules, several distributions: whose it is in ours."""


def owners() -> set[str]:
    """The distributions that what is imported belongs to."""
    known = packages_distributions()
    found = set()
    for module in imported() | BY_NAME:
        part = next((SHARED[one] for one in SHARED if module.startswith(one)), None)
        found.add(part or known[module.partition(".")[0]][0])
    return {canonicalize_name(name) for name in found}


def test_every_hard_dependency_is_imported_somewhere() -> None:
    declared = {canonicalize_name(Requirement(one).name) for one in PROJECT["dependencies"]}
    assert declared - owners() == set()


def test_everything_imported_is_declared() -> None:
    extras = [item for name, extra in EXTRAS.items() if name != "dev" for item in extra]
    declared = {
        canonicalize_name(Requirement(one).name) for one in [*PROJECT["dependencies"], *extras]
    }
    assert owners() - declared == set()


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_type_checkers_see_every_lazy_name_where_it_is_loaded_from() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    seen = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == langmem_recall._HOMES
    assert sorted(seen) == langmem_recall.__all__


def test_a_star_import_brings_every_public_name() -> None:
    names: dict[str, Any] = {}
    exec("from langmem_recall import *", names)
    assert set(langmem_recall.__all__) <= set(names)


def test_all_but_the_command_line_is_imported_where_no_extra_is_installed() -> None:
    # CitusStore is a PostgresStore: who imports it has that.
    needing = ("langmem_recall.cli.", "langmem_recall.stores.postgres.")
    modules = [name for name in MODULES if not name.startswith(needing)]
    code = (
        "import sys\n"
        "from importlib import import_module\n"
        "absent = ('typer', 'rich', 'wordllama', 'fastembed', 'opentelemetry', 'psycopg',"
        " 'psycopg_pool', 'langgraph.store.postgres')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        f"for name in {modules!r}: import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
