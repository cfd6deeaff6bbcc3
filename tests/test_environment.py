"""pyproject.toml, requirements.lock and environment.yml say the same, and the lock can be trusted."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {  # with the extras that each holds
    "requirements.lock": ["dev"],
    "requirements-fireworks.lock": ["dev", "fireworks"],
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(name: str) -> dict[str, str]:
    found = re.finditer(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / name).read_text(), re.M)
    return {canonical(m[1]): m[2] for m in found}


@pytest.mark.parametrize("name", LOCKS)
def test_every_dependency_is_in_the_lock_at_a_version_that_fits(name: str):
    lock = pinned(name)
    extras = [text for extra in LOCKS[name] for text in PROJECT["optional-dependencies"][extra]]
    for text in [*PROJECT["dependencies"], *extras]:
        wanted = Requirement(text)
        assert canonical(wanted.name) in lock, f"{text} isn't in the lock: run `make lock`"
        assert wanted.specifier.contains(lock[canonical(wanted.name)]), f"{text}, but the lock has another: `make lock`"


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash_and_the_lock_names_no_address(name: str):
    lock = (ROOT / name).read_text()
    blocks = re.split(r"\n(?=[\w.-]+==)", "\n" + lock.split("\n", 2)[2])
    pins = [block for block in blocks if re.match(r"[\w.-]+==", block)]
    assert len(pins) == len(re.findall(r"^[\w.-]+==", lock, re.M))
    assert all("--hash=sha256:" in block for block in pins)
    assert "://" not in lock and not re.search(r"^(-i|--(extra-)?index-url|--find-links)", lock, re.M)


def test_the_extra_changes_few_versions():
    main, extra = (pinned(name) for name in LOCKS)
    assert main.keys() <= extra.keys()
    assert {name for name in main if main[name] != extra[name]} == {"pydantic", "pydantic-core", "pyqwest"}


def test_environment_yml_installs_the_lock_and_a_python_that_fits():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    assert environment["channels"] == ["conda-forge"]
    assert {"pip", "quarto"} <= set(plain)
    python = next(d for d in plain if d.startswith("python=")).removeprefix("python=")
    assert SpecifierSet(PROJECT["requires-python"]).contains(f"{python}.0")
    assert {"pip": ["-r requirements.lock"]} in environment["dependencies"]


def test_tools_are_set_for_the_oldest_python_that_the_project_allows():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert PROJECT["requires-python"].startswith(f">={tools['mypy']['python_version']},")
    assert tools["ruff"]["target-version"] == "py" + tools["mypy"]["python_version"].replace(".", "")
