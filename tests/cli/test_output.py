"""Files written whole or not at all, JSON that nothing breaks, progress only on terminals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from langmem_recall.cli.output import Result, deliver, progress, replaced
from langmem_recall.errors import InputError


def test_a_file_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "policy.toml"
    target.write_text("old")
    target.chmod(0o640)
    with replaced(target) as fresh:
        assert fresh.suffix == ".toml"
        fresh.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "x.txt"
    target.write_text("old")

    def stop_half_way() -> None:
        with replaced(target) as fresh:
            fresh.write_text("half")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        stop_half_way()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    with replaced(link) as fresh:
        fresh.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_written_to_directly() -> None:
    with replaced(Path(os.devnull)) as fresh:
        fresh.write_text("gone")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("place", [".", "no/such/folder/x.txt"])
def test_what_cannot_be_a_file_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError), replaced(tmp_path / place):
        raise AssertionError("not reached")


def test_json_is_ascii_so_that_no_locale_can_break_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deliver(Result({"text": "日本\ud800"}, ""), as_json=True)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {"text": "日本\ud800"}


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working") as tick:
        tick(1, None)
        tick(2, 2)
    assert capsys.readouterr() == ("", "")
