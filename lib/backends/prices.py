"""What a hosted call costs: the table of prices, each with its date and source, and sums made with it."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("prices.yaml")
MILLION = 1_000_000
DOLLARS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,2})?")  # an amount as a person writes it


class PriceError(ValueError):
    """There is no usable price; the message names the provider, the model and the file to put it in."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What is paid for: tokens, and checkpoints kept."""

    prompt: int = 0  # tokens, once per sample
    cached: int = 0  # of these, those that the service says it found in its cache
    sampled: int = 0
    trained: int = 0
    gb_months: float = 0.0  # of checkpoints


@dataclass(frozen=True, kw_only=True)
class Price:
    """US dollars per million tokens; `storage` per GB and month. `checkpoint_gb`: size of a checkpoint at most."""

    prefill: float
    cached: float
    sample: float
    train: float
    storage: float
    checkpoint_gb: float
    date: str
    source: str

    def upper(self, used: Usage) -> float:
        """US dollars at most: as if nothing were cached, and every checkpoint kept for all the time that it may be."""
        tokens = used.prompt * self.prefill + used.sampled * self.sample + used.trained * self.train
        return tokens / MILLION + used.gb_months * self.storage

    def estimate(self, used: Usage) -> float:
        """US dollars with the caching that the service reports.

        Without storage: that is billed by the hour while a checkpoint is kept, cents in a run that cleans up.
        """
        tokens = used.sampled * self.sample + used.trained * self.train
        tokens += (used.prompt - used.cached) * self.prefill + used.cached * self.cached
        return tokens / MILLION


def find(provider: str, model: str, table: Path = TABLE) -> Price:
    """The price of a model at a provider. Raises PriceError where there is none, or one that can't be."""
    listed: dict[str, dict[str, Any]] = yaml.safe_load(table.read_text(encoding="utf-8"))
    models = listed.get(provider)
    if models is None:
        raise PriceError(f"no prices of provider {provider!r} in {table}; there are those of {', '.join(listed)}")
    if model not in models:
        raise PriceError(
            f"no price of model {model!r} at {provider} in {table} (there: {', '.join(models)}): add what the provider's "
            "page says, with its date and address; without a price nothing can keep the limit"
        )
    return _checked(models[model], f"{table}, {provider}, {model}")


def _checked(given: dict[str, Any], where: str) -> Price:
    names = [field.name for field in dataclasses.fields(Price)]
    if set(given) != set(names):
        raise PriceError(f"{where}: has the keys {', '.join(given)}; needs {', '.join(names)} and no others")
    numbers = {name: given[name] for name in names[:-2]}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise PriceError(f"{where}: {name} = {value!r} must be a number of US dollars, 0 or more")
    if numbers["cached"] > numbers["prefill"]:
        raise PriceError(f"{where}: cached = {numbers['cached']} is more than prefill = {numbers['prefill']}")
    if not isinstance(given["date"], datetime.date) or not given["source"]:
        raise PriceError(f"{where}: needs the date (like 2026-10-07) and the source of its figures")
    return Price(**numbers, date=str(given["date"]), source=given["source"])
