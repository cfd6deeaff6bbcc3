"""What a result hangs on beside settings and data: the loop, the agent, the environment, the scorer and the prompt, each as a
digest.

The plan holds them, so that a change after training began can't pass unseen. They are the same on every machine that has
the same commit and the same lock: contents of files and versions count, no paths, platforms or builds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

from lib.settings import ROOT

# The cookbook's files that lib/updates.py and lib/agent.py call, and what those call in turn within these parts.
LOOP = ("rl", "tool_use", "renderers", "eval/evaluators.py", "completers.py", "checkpoint_utils.py")
PACKAGES = ("neo4j", "numba", "numpy", "scipy", "tinker", "tinker-cookbook", "tokenizers", "torch", "transformers")
LOCK = "requirements.lock"
DATABASE = "lib/graph/jars.sha256"  # the server's program files
# What acts, is trained and is asked, with its tool.
AGENT = (
    "lib/agent.py", "lib/backends", "lib/evaluate.py", "lib/faults.py", "lib/graph/errors.py", "lib/graph/literals.py",
    "lib/graph/query.py", "lib/graph/results.py", "lib/graph/vet.py", "lib/graph/wire.py", "lib/loop.py", "lib/practice",
    "lib/train.py", "lib/updates.py",
)  # fmt: skip
SCORER = ("lib/pairing.py", "lib/reward.py", "lib/values.py")
PROMPT = ("lib/graph/prompt.py", "lib/graph/world.py")  # they make the text; world.py also describes the tool


def of(system_prompt: Path) -> dict[str, Any]:
    """The fingerprints by name: `loop`, `agent`, `scorer` and `prompt` as sha256 in hex, `environment` by package.

    system_prompt: the file with the prompt's text and the tool's description. Raises FileNotFoundError where it is missing.
    """
    return {
        "loop": digest(loop()),
        "agent": digest(_own(file) for part in AGENT for file in files(part)),
        "environment": {**environment(), "database": digest([_own(DATABASE)])},
        "scorer": digest(map(_own, SCORER)),
        "prompt": digest([*map(_own, PROMPT), ("system_prompt.txt", system_prompt.read_bytes())]),
    }


def files(part: str) -> list[str]:
    """A file's own name, or the names of the modules in a folder, below the project's root."""
    if (ROOT / part).is_dir():
        return sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / part).rglob("*.py"))
    return [part]


def digest(contents: Iterable[tuple[str, bytes]]) -> str:
    """One sha256 over names and contents, in the order of the names."""
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(contents)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def loop() -> list[tuple[str, bytes]]:
    """Names and contents of the installed cookbook's files in LOOP; found without importing it, which takes seconds."""
    cookbook = Path(str(distribution("tinker-cookbook").locate_file("tinker_cookbook")))
    found = [
        file
        for part in LOOP
        for file in ([cookbook / part] if part.endswith(".py") else (cookbook / part).rglob("*.py"))
    ]
    return [(file.relative_to(cookbook).as_posix(), file.read_bytes()) for file in found]


def environment() -> dict[str, str]:
    """By package the versions that the lock pins (numpy has one for old Pythons, one for new), or the installed one where
    that is another: so it is the same wherever the lock was followed, and shows where it wasn't."""
    lock = (ROOT / LOCK).read_text(encoding="utf-8")
    found = {}
    for package in PACKAGES:
        pinned = re.findall(rf"^{re.escape(package)}==([^\s;\\]+)", lock, re.M)
        installed = version(package).split("+")[0]  # without the build's name: 2.13.0+cpu is 2.13.0
        found[package] = " or ".join(pinned) if installed in pinned else f"{installed}, not as locked"
    return found


def _own(name: str) -> tuple[str, bytes]:
    return name, (ROOT / name).read_bytes()
