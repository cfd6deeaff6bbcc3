"""Every call on a hosted service, recorded while the training loop runs over the adapter and the stand-in, and held against
the installed packages.

    python -m tests.contracts   # in the environment of `make fireworks`; writes docs/contracts.md
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, get_args

import tinker
from fireworks.training import sdk
from fireworks.training.sdk._core._client import AsyncTrainingHTTPClient
from fireworks.training.sdk._core.lib.public_interfaces.service_client import ServiceClient as FireworksService
from pydantic import BaseModel
from tinker import types
from tinker.lib.public_interfaces.rest_client import RestClient
from tinker.lib.public_interfaces.sampling_client import SamplingClient
from tinker.lib.public_interfaces.service_client import ServiceClient
from tinker.lib.public_interfaces.training_client import TrainingClient

from lib import updates
from lib.backends import fireworks, fireworks_sampling, fireworks_training
from lib.backends.fireworks_types import Checkpoint
from lib.backends.remote import Thing
from lib.backends.tokenizer import lock_tokenizer
from tests import fireworks_service, small_models, toy_training

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "contracts.md"
UPDATES, ENDED_AT = 5, 3
# The SDKs' classes, and those whose calls stand for theirs.
TINKER = {
    ServiceClient: fireworks.ServiceClient,
    TrainingClient: fireworks_training.TrainingClient,
    SamplingClient: fireworks_sampling.SamplingClient,
    RestClient: fireworks.RestClient,
}
FIREWORKS = {
    sdk.FiretitanServiceClient: fireworks_service.FiretitanServiceClient,
    sdk.FiretitanTrainingClient: fireworks_service.FiretitanTrainingClient,
    sdk.FiretitanSamplingClient: fireworks_service.FiretitanSamplingClient,
    sdk.FireworksClient: fireworks_service.FireworksClient,
}
# Methods that hand their arguments on: to these.
HANDED_ON: dict[Any, list[Callable[..., Any]]] = {
    sdk.FiretitanServiceClient.__init__: [FireworksService.__init__, AsyncTrainingHTTPClient.__init__],
    sdk.FiretitanServiceClient.create_sampling_client: [sdk.FiretitanServiceClient._create_sampling_client],
}
READ = [
    (sdk.FiretitanServiceClient, "training_session_id"),
    (sdk.FiretitanServiceClient, "training_session_name"),
    (sdk.FiretitanTrainingClient, "run_id"),
]
SOURCES = sorted((ROOT / "lib" / "backends").glob("fireworks*.py"))


class Call(NamedTuple):
    """A method of an SDK's class, and the arguments that it was given."""

    owner: type
    method: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.owner.__name__}.{self.method}"


@dataclass
class Run:
    """What `record` leaves: the calls, the stand-in's account, and what the loop kept in the end."""

    calls: list[Call]
    account: fireworks_service.Account
    kept: updates.Kept
    model: str


def record(folder: Path) -> Run:
    """The training loop, ended and gone on with; the control's route; promotion; the end of a session."""
    model = str(small_models.lfm2(folder / "model"))
    lock_tokenizer(model)
    seen: set[Call] = set()
    with fireworks_service.serving(folder / "remote", seed=5) as account, watched(seen):
        settings, practice = toy_training.settings_for(model, UPDATES), toy_training.Practice()
        with contextlib.suppress(Ended):
            asyncio.run(updates.run(settings, folder, practice, toy_training.no_look, guards=[_ends]))
        kept = asyncio.run(updates.run(settings, folder, practice, toy_training.no_look))
        path = asyncio.run(_control(model))
        with environment("FIREWORKS_API_KEY", "a key"):
            fireworks.promote(path, "graph-study")
            account_of, _, promoted = Checkpoint.parse(path, "sampler_weights").session_name.rpartition("/")
            other = min(set(account.sessions_of.values()) - {promoted})
            fireworks.Host("").delete(Thing("session", "session", "", "fireworks", "", f"{account_of}/{other}"))
    return Run(sorted(seen, key=_order), account, kept, model)


class Ended(Exception):
    """Stands for whatever ends a process in the middle of a run."""


def _ends(update: updates.Update) -> None:
    if update.number == ENDED_AT:
        raise Ended


async def _control(model: str) -> str:
    """As `lib.evaluate.arm_client`: saved state into a fresh session, weights saved for sampling, and a sample."""
    with tinker.ServiceClient() as service:
        await service.create_sampling_client_async(base_model=model)
        fresh = await service.create_lora_training_client_async(model, rank=32)
        state = (await (await fresh.save_state_async("control")).result_async()).path
    loaded = await tinker.ServiceClient().create_training_client_from_state_async(state)
    text = list(range(1, 9))
    inputs: Any = {"target_tokens": text[1:], "weights": [1.0] * 7}
    datum = types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs=inputs)
    await (await loaded.forward_async([datum], "cross_entropy")).result_async()
    saved = await (await loaded.save_weights_for_sampler_async("control")).result_async()
    client = await tinker.ServiceClient().create_sampling_client_async(model_path=saved.path)
    await client.sample_async(
        prompt=types.ModelInput.from_ints(text),
        num_samples=1,
        sampling_params=types.SamplingParams(max_tokens=4, temperature=0.0, stop=[small_models.END]),
    )
    return saved.path


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    import os

    old = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if old is None:
            del os.environ[name]
        else:
            os.environ[name] = old


@contextlib.contextmanager
def watched(seen: set[Call]) -> Iterator[None]:
    """Notes the calls of public methods from outside."""
    with contextlib.ExitStack() as patched:
        for real, ours in (TINKER | FIREWORKS).items():
            for name, method in list(vars(ours).items()):
                if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__"):
                    if name == "__init__" and ours not in (fireworks.ServiceClient, *_made_by_callers()):
                        continue
                    setattr(ours, name, _noting(seen, real, method))
                    patched.callback(setattr, ours, name, method)
        yield


def _made_by_callers() -> tuple[type, ...]:
    """Of Fireworks' classes, those that are made directly, not by another's method."""
    return fireworks_service.FiretitanServiceClient, fireworks_service.FireworksClient


def _noting(seen: set[Call], owner: type, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def noting(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options).arguments
        names = [name for name in given if name != "self"]
        if "kwargs" in names:
            names = [*names[: names.index("kwargs")], *given["kwargs"]]
        seen.add(Call(owner, method.__name__, tuple(names)))
        return method(*args, **options)

    return noting


def _order(call: Call) -> tuple[int, str, tuple[str, ...]]:
    return list(TINKER | FIREWORKS).index(call.owner), call.method, call.arguments


def real_signatures(call: Call) -> list[inspect.Signature]:
    """Of the SDK's method, or of those that it hands its arguments on to."""
    method = getattr(call.owner, call.method)
    return [inspect.signature(function) for function in HANDED_ON.get(method, [method])]


def problems(calls: list[Call]) -> list[str]:
    """What the installed packages don't take: a method that is gone, an argument unknown, one that is needed and missing."""
    found = []
    for call in calls:
        if not hasattr(call.owner, call.method):
            found.append(f"{call.name} is gone")
            continue
        known = [p for s in real_signatures(call) for p in s.parameters.values() if p.name != "self"]
        open_ended = {p.kind for p in known} & {inspect.Parameter.VAR_KEYWORD} and len(real_signatures(call)) == 1
        names = {p.name for p in known}
        needed = {
            p.name
            for p in known
            if p.default is p.empty
            and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
            and len(real_signatures(call)) == 1
        }
        if unknown := set(call.arguments) - names - (set(call.arguments) if open_ended else set()):
            found.append(f"{call.name} doesn't take {', '.join(sorted(unknown))}")
        if missing := needed - set(call.arguments):
            found.append(f"{call.name} needs {', '.join(sorted(missing))}")
    return found + [f"{owner.__name__}.{name} is gone" for owner, name in READ if not hasattr(owner, name)]


def page(calls: list[Call]) -> str:
    """docs/contracts.md: calls and types, as the installed packages have them."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("tinker", "tinker-cookbook", "fireworks-ai"))
    ours = [call for call in calls if call.owner in TINKER]
    theirs = [call for call in calls if call.owner in FIREWORKS]
    return "\n".join(
        [
            "# Every call on a hosted service",
            "",
            f"Written by `python -m tests.contracts` with {versions}: the calls were recorded while the training",
            "loop ran over the Fireworks adapter and a stand-in for the service (ended in between, gone on with, the",
            "control's route, promotion, the end of a session). `make contracts` fails when a call or a package is no longer what stands here.",
            "",
            "## On Tinker's clients, by the training loop and the study",
            "",
            *_calls(ours),
            "",
            "## On Fireworks' clients, by the adapter",
            "",
            *_calls(theirs),
            "",
            "Read besides: " + ", ".join(f"`{owner.__name__}.{name}`" for owner, name in READ) + ".",
            "",
            "## Types of Tinker's that the adapter reads and makes",
            "",
            *_types("types", types),
            "",
            "## Types and functions of Fireworks'",
            "",
            *_types("sdk", sdk),
            "",
        ]
    )


def _calls(calls: list[Call]) -> list[str]:
    lines = ["| call | with | the package's signature |", "|---|---|---|"]
    for call in calls:
        signatures = "<br>".join(_code(_plain(str(s))) for s in real_signatures(call))
        lines.append(f"| `{call.name}` | {', '.join(call.arguments) or 'nothing'} | {signatures} |")
    return lines


def _types(prefix: str, module: Any) -> list[str]:
    """The names that the adapter's source takes from a module."""
    source = "".join(path.read_text() for path in SOURCES)
    names = sorted(set(re.findall(rf"(?<![\w.]){prefix}\.((?:types\.)?\w+)", source)) - {"types"})
    lines = ["| name | what it is |", "|---|---|"]
    for name in names:
        thing = functools.reduce(getattr, name.split("."), module)
        if thing not in FIREWORKS:
            lines.append(f"| `{name}` | {_code(described(thing))} |")
    return lines


def described(thing: Any) -> str:
    """A type's fields, a choice's values, a function's signature."""
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        return ", ".join(repr(member.value) for member in thing)
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        return ", ".join(
            f"{name}: {_annotation(f.annotation)} = {f.default!r}" for name, f in thing.model_fields.items()
        )
    if dataclasses.is_dataclass(thing):
        return ", ".join(f"{f.name}: {f.type}" for f in dataclasses.fields(thing))
    if inspect.isclass(thing):
        return _plain(str(inspect.signature(thing.__init__)))
    if inspect.isfunction(thing):
        return _plain(str(inspect.signature(thing)))
    return ", ".join(map(_annotation, get_args(thing)))


def _annotation(annotation: Any) -> str:
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation).replace("typing.", "")


def _plain(signature: str) -> str:
    return signature.replace("(self, ", "(").replace("(self)", "()").replace("'", "")


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(record(Path(folder)).calls))
    sys.exit()
