"""What a check found, in one form for all that is checked before, during and after a run that is paid for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Outcome = Literal["ok", "refused", "check yourself"]
OK: Final = "ok"
REFUSED: Final = "refused"
LOOK: Final = "check yourself"


@dataclass(frozen=True)
class Finding:
    """One check's outcome. `said`: what was found, and for one that is refused the cause or the way out; `figures`: what it
    was judged by. A check that can't be made is for a person to make."""

    check: str
    outcome: Outcome
    said: str
    figures: dict[str, Any] = field(default_factory=dict)


def passed(findings: Iterable[Finding]) -> bool:
    """Whether none is refused."""
    return all(finding.outcome != REFUSED for finding in findings)


def described(findings: Iterable[Finding]) -> str:
    """A line each."""
    return "\n".join(f"  {finding.outcome:<14} {finding.check}: {finding.said}" for finding in findings)
