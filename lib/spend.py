"""What a run has cost: by the meter, and by the provider's bill. The two are compared and never mixed.

    python -m lib.spend RUN                       what the meter says, stage by stage, beside the bills
    python -m lib.spend RUN --bill 12.34          enter a bill by hand, in US dollars
    python -m lib.spend RUN --bill 3.10 --note "the two-update trial"

The meter's figures stand in data/runs/RUN/spend/ledger.jsonl, the bills in bills.jsonl beside it; a bill that was entered
wrongly is put right by editing that file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lib.backends import ledger
from lib.backends.ledger import Account
from lib.backends.prices import DOLLARS
from lib.files import read_jsonl, write_jsonl
from lib.settings import ROOT


class SpendError(ValueError):
    """A question that can't be answered or an amount that is none; the message says why."""


def bills_path(run: Path) -> Path:
    return ledger.path(run).with_name("bills.jsonl")


def bills(run: Path) -> list[dict[str, str | float]]:
    """The bills of a run's folder, {usd, note}, as they were entered."""
    return read_jsonl(bills_path(run)) if bills_path(run).exists() else []


def enter_bill(run: Path, amount: str, note: str = "") -> None:
    """Add a bill of `amount` US dollars. Raises SpendError for what is no amount."""
    if not DOLLARS.fullmatch(amount):
        raise SpendError(f"{amount!r} is no bill: write US dollars like 12.34")
    write_jsonl(bills_path(run), [*bills(run), {"usd": float(amount), "note": note}])


def described(run: Path) -> str:
    """The meter's figures and the bills, as a table. Raises SpendError where the run has neither."""
    file, billed = ledger.path(run), bills(run)
    if not file.exists() and not billed:
        raise SpendError(f"{run} has no spend folder: nothing that costs money was run under this name")
    account = ledger.read(file) if file.exists() else Account()
    lines = [
        f"{'stage':<20} {'calls':>7} {'failed':>6} {'prompt':>11} {'cached':>7} {'sampled':>10} {'trained':>10} "
        f"{'estimate':>9} {'at most':>9}"
    ]
    for name, stage in account.stages.items():
        cached = f"{stage.cached / stage.prompt:.0%}" if stage.prompt else ""
        lines.append(
            f"{name:<20} {stage.calls:7} {stage.failed:6} {stage.prompt:11} {cached:>7} {stage.sampled:10} "
            f"{stage.trained:10} {stage.estimate:9.4f} {stage.upper:9.4f}"
        )
    if account.unknown:
        lines.append(f"{'in flight or cut off':<20} {len(account.unknown):7} {'':66} {account.in_flight:9.4f}")
    lines.append(
        f"by the meter, in US dollars: {account.estimate:.2f} with the caching that the service reported, at most {account.upper:.2f}"
    )
    lines += [f"billed: {bill['usd']:.2f} {bill['note']}".rstrip() for bill in billed]
    if billed:
        lines.append(_compared(sum(float(bill["usd"]) for bill in billed), account))
    return "\n".join(lines)


def _compared(total: float, account: Account) -> str:
    if total > account.upper + 0.005:  # bills are rounded to cents
        return (
            f"billed in all: {total:.2f}, MORE than the meter's upper bound: look for calls outside of this run, checkpoints "
            "kept for more than a month, or prices that have changed (lib/backends/prices.yaml)"
        )
    share = f", {total / account.estimate - 1:+.1%} of the estimate" if account.estimate else ""
    return f"billed in all: {total:.2f}{share}; within the upper bound"


def main(arguments: list[str] | None = None) -> None:
    """Command line: show what a run has cost, or enter a bill first; exit status 1 where that can't be done."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.spend", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="its name, as in params.yaml")
    parser.add_argument("--bill", metavar="USD", help="what the provider billed, in US dollars")
    parser.add_argument("--note", default="", help="what the bill is for")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="another data folder than the project's")
    given = parser.parse_args(arguments)
    run = given.data / "runs" / given.run
    try:
        if not run.is_dir():
            raise SpendError(f"there is no run {given.run!r} in {run.parent}")
        if given.bill is not None:
            enter_bill(run, given.bill, given.note)
        print(described(run))
    except (SpendError, OSError, ValueError) as e:
        sys.exit(f"spend: {e}")


if __name__ == "__main__":
    main()
