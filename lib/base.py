"""Has the base model ready before it is planned with: a small one is made and taught here, one that exists is taken as it is."""

from __future__ import annotations

import shutil
from typing import Any

import tinker
from transformers import AutoTokenizer

from lib import loop
from lib.backends.serving import serving
from lib.cold_start import cold_start, system_prompt
from lib.evaluate import SAMPLER_SEED, dev_counts, renderer_for
from lib.files import write_json, write_text
from lib.graph import server
from lib.settings import Named, Settings, found


def base_model(settings: Settings) -> dict[str, Any]:
    """Write data/runs/<run>/base, system_prompt.txt and base.json (what the model is, and how it does on dev questions);
    return the latter.

    Raises ValueError for a model that can't be loaded or whose context is shorter than model.context, and what the backend
    raises where it can't be used.
    """
    return _taken(settings, settings.model) if isinstance(settings.model, Named) else cold_start(settings)


def _taken(settings: Settings, model: Named) -> dict[str, Any]:
    """The folder holds the tokenizer, by which all later steps write and count, and model.json: who the model is."""
    shutil.rmtree(settings.base_dir, ignore_errors=True)
    AutoTokenizer.from_pretrained(found(model.tokenizer)).save_pretrained(settings.base_dir)
    renderer = renderer_for(settings)
    work = settings.data / "work" / settings.run / "base"
    with server.running(settings.graph_dir, settings.data) as uri, serving(settings, work, SAMPLER_SEED):
        who = {"name": model.name, **_weights(model, loop.run(_client(settings)))}
        facts = {**who, "vocabulary": len(renderer.tokenizer), "dev_counts": loop.run(dev_counts(settings, uri))}
    shutil.rmtree(work, ignore_errors=True)
    write_json(settings.base_dir / "model.json", who)
    write_json(settings.run_dir / "base.json", facts)
    write_text(settings.run_dir / "system_prompt.txt", system_prompt(renderer, settings))
    return facts


async def _client(settings: Settings) -> tinker.SamplingClient:
    return await tinker.ServiceClient().create_sampling_client_async(base_model=settings.base_model)


def _weights(model: Named, client: tinker.SamplingClient) -> dict[str, Any]:
    """How many there are, and their hash, so that others under the same name are noticed; a host shows neither."""
    weights = getattr(client, "weights", None)
    if weights is None:
        return {"parameters": None, "digest": None}
    if weights.context < model.context:
        raise ValueError(f"model.context = {model.context}, but {model.name} reads {weights.context} tokens at most")
    return {"parameters": weights.model.num_parameters(), "digest": weights.digest}
