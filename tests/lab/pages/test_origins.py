"""Every page of measured figures says which engine they are of, and whether the engine has changed since."""

import json
import shutil
import subprocess

import pytest

from rasp_lab import REPOSITORY
from rasp_lab.pages import __main__ as command
from rasp_lab.pages import csv_tables, origin
from rasp_lab.pages.origin import Origin
from rasp_tuner import InvalidValue, __version__

DOCS = REPOSITORY / "docs"


def test_every_page_says_which_engine_its_figures_are_of():
    """Fails after a change of the engine, until `python -m rasp_lab.pages --write` has said so on the pages."""
    assert command.wrong_heads() == []


def test_every_page_is_one_with_figures_or_one_without():
    pages = {file.name for file in DOCS.glob("*.md")}
    assert pages == {*origin.load(), *origin.WITHOUT_FIGURES}


def test_every_table_is_square_and_some_page_links_or_prints_it():
    pages = "".join(file.read_text() for file in DOCS.glob("*.md"))
    for file in (*DOCS.glob("results/**/*.csv"), *DOCS.glob("tables/*.csv")):
        printed = file.parent.name == "ablations"  # the short ones of that page
        assert printed or f"({file.relative_to(DOCS).as_posix()})" in pages, file
        head, rows = csv_tables.read(file)
        assert rows
        assert {len(row) for row in rows} == {len(head)}, file


@pytest.fixture
def repository(tmp_path):
    """A copy of the engine, with one page and its origin."""
    shutil.copytree(REPOSITORY / origin.ENGINE, tmp_path / origin.ENGINE, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "PAGE.md").write_text("# A page\n\nText.\n")
    origin.record("PAGE.md", origin.origin_of(root=tmp_path), tmp_path)
    return tmp_path


def test_one_constant_of_the_engine_makes_a_page_older(repository):
    before = origin.head("PAGE.md", repository)
    assert before.startswith(f"*Figures: rasp-tuner {__version__}, commit unknown, ")
    assert before.endswith(f", engine {origin.engine_hash()}.*")
    file = repository / origin.ENGINE / "budget.py"
    file.write_text(file.read_text().replace("START_STEPS = 300", "START_STEPS = 301"))
    assert origin.head("PAGE.md", repository) == f"{before} {origin.OLDER}"


def test_what_was_compiled_does_not_count(repository):
    (repository / origin.ENGINE / "kernel" / "libother.so").write_bytes(b"compiled")
    assert origin.engine_hash(repository) == origin.engine_hash()


def test_the_hash_of_a_commit_is_that_of_its_files():
    asked = ["git", "-C", str(REPOSITORY), "status", "--porcelain", "--", str(origin.ENGINE)]
    clean = not subprocess.run(asked, capture_output=True, check=True).stdout
    assert (origin.engine_hash_at("HEAD") == origin.engine_hash()) == clean


def test_the_head_takes_the_place_of_the_one_before():
    page = "# A page\n\nText.\n\n## More\n"
    first = origin.with_head(page, f"{origin.START}: one.*")
    assert first == "# A page\n\n*Figures: one.*\n\nText.\n\n## More\n"
    assert origin.with_head(first, f"{origin.START}: two.*") == first.replace("one", "two")


def test_figures_of_several_times_are_kept_apart(repository):
    old = Origin("0.1", "abc", "2026-01-01", "0" * 12, "worlds")
    origin.record("OTHER.md", old, repository)
    origin.record("OTHER.md", Origin("0.2", "def", "2026-02-01", origin.engine_hash(), "domains"), repository)
    said = origin.head("OTHER.md", repository)
    assert said.startswith(
        "*Figures of worlds: rasp-tuner 0.1, commit abc, 2026-01-01, engine 000000000000; of domains:"
    )
    assert said.endswith(origin.OLDER)  # one of them is
    origin.record("OTHER.md", Origin("0.2", "ghi", "2026-03-01", origin.engine_hash(), "worlds"), repository)
    assert len(origin.load(repository)["OTHER.md"]) == 2
    assert origin.OLDER not in origin.head("OTHER.md", repository)


def test_figures_that_no_engine_moves_never_become_older(repository):
    origin.record("OTHER.md", Origin("0.2", "abc", "2026-01-01", origin.WITHOUT_ENGINE), repository)
    said = origin.head("OTHER.md", repository)
    assert said == "*Figures: rasp-tuner 0.2, commit abc, 2026-01-01, without the engine.*"
    assert origin.head_of(origin.load(repository)["OTHER.md"], "f" * 12) == said


def test_a_page_without_an_origin_is_named(repository):
    with pytest.raises(InvalidValue, match=r"has no entry for NEW.md: python -m rasp_lab.pages --record NEW.md"):
        origin.head("NEW.md", repository)
    assert origin.head_of([], "x") == f"*Figures: of an engine that was not noted.* {origin.OLDER}"


def test_the_command_lists_pages_and_puts_heads_right(repository, monkeypatch, capsys):
    docs = repository / "docs"
    for module in (origin.load, origin.head, origin.engine_hash, origin.record, origin.origin_of):
        defaults = tuple(repository if value == REPOSITORY else value for value in module.__defaults__)
        monkeypatch.setattr(module, "__defaults__", defaults)
    monkeypatch.setattr(command, "DOCS", docs)
    assert command.main([]) == 1
    told = capsys.readouterr()
    assert "today's PAGE.md" in told.out
    assert told.err == "PAGE.md lacks the line of its figures: python -m rasp_lab.pages --write\n"
    assert command.main(["--write"]) == 0
    assert command.main([]) == 0
    assert (docs / "PAGE.md").read_text() == f"# A page\n\n{origin.head('PAGE.md')}\n\nText.\n"
    (repository / origin.ENGINE / "new.py").write_text("X = 1\n")
    assert command.main([]) == 1  # the page does not say yet that it is of an older engine
    assert "older   PAGE.md" in capsys.readouterr().out
    assert command.main(["--record", "PAGE.md"]) == 0
    assert command.main([]) == 0
    assert json.loads((docs / "results" / "origins.json").read_text())["PAGE.md"][0]["engine"] == origin.engine_hash()
    assert command.main(["--record", "PAGE.md", "--apart"]) == 0
    assert command.main([]) == 0
    assert "apart   PAGE.md" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--record", "NOWHERE.md"])
    assert "must be a page" in capsys.readouterr().err
