"""A checkpoint that was taken out is the one that was trained: to the last bit whole, within rounding merged, by its names."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import END, lfm2, qwen3
from tinker import types

from lib import export
from lib.backends import local
from lib.backends.meter import ALLOWED, SpendRefused
from lib.backends.models import load_base
from lib.export import ExportError
from lib.files import write_json, write_jsonl, write_text
from lib.settings import SETS, Local, Named, Settings, load

ROOT = Path(__file__).resolve().parents[1]
ANSWER = types.SamplingParams(max_tokens=12, temperature=0.0, stop=[END])
PROMPT = types.ModelInput.from_ints([3, 8, 21, 13, 2, 40])


def trained(folder: Path, training: Any, dtype: Any = "float32") -> Settings:
    """A run whose only seed took three large steps, with what an export reads of it."""
    chosen = load(ROOT / "profiles" / "miniature.yaml", folder)
    how = Local(device="cpu", dtype=dtype, checkpointing=False, tokens_trained_at_once=512, tokens_sampled_at_once=4096)
    if training == "full":
        model = lfm2(folder / "runs" / "small" / "base")
        settings = dataclasses.replace(chosen, run="small", local=how)
    else:
        model = qwen3(folder / "elsewhere" / "qwen")
        shutil.copytree(model, folder / "runs" / "small" / "base")
        named = Named(name=str(model), tokenizer=str(model), context=256)
        settings = dataclasses.replace(chosen, run="small", local=how, model=named, cold_start=None)
    train = dataclasses.replace(chosen.train, training=training, lora_rank=4, seeds=(0,))
    out = settings.train_dir(0)
    with local.serving(out / "checkpoint", 0, training, how=how) as service:
        client: Any = service.create_lora_training_client(str(model), rank=4).result()
        text = [5 + i % 60 for i in range(40)]
        inputs: Any = {"target_tokens": text[1:], "weights": [1.0] * 39}
        datum = types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs=inputs)
        for _ in range(3):
            client.forward_backward([datum], "cross_entropy").result()
            client.optim_step(types.AdamParams(learning_rate=2e-2)).result()
        paths = {"state": client.save_state("final").result().path,
                 "sampler": client.save_weights_for_sampler("final").result().path}  # fmt: skip
    write_json(out / "checkpoint.json", paths)
    write_text(out / "plan.sha256", "a" * 64 + "\n")
    write_jsonl(settings.questions_dir / f"{SETS[0]}.jsonl", [{"question": f"w{i} w{i + 1}"} for i in range(6, 80, 2)])
    return dataclasses.replace(settings, train=train)


def answers(settings: Settings, out: Path) -> tuple[Any, Any, Any]:
    """(tokens, log-probabilities of the prompt) by the base model, by the checkpoint, and by what was taken out."""
    found = []
    root = settings.train_dir(0) / "checkpoint"
    path = json.loads(root.with_suffix(".json").read_text())["sampler"]
    with local.serving(root, 0) as service:
        asked = {"base_model": settings.base_model}, {"model_path": path}, {"base_model": str(out)}
        for which in asked:
            client = service.create_sampling_client(**which).result()
            said = client.sample(PROMPT, 1, ANSWER).result().sequences[0].tokens
            found.append((list(said), client.compute_logprobs(PROMPT).result()[1:]))
    return found[0], found[1], found[2]


def test_all_weights_come_out_to_the_last_bit(tmp_path: Path) -> None:
    settings = trained(tmp_path, "full")
    out = tmp_path / "out"
    assert export.export(settings, 0, out) == {"logprobs_apart": 0.0}
    base, own, taken = answers(settings, out)
    assert taken == own and own[1] != base[1]
    card = (out / "README.md").read_text()
    assert "**not measured**" in card and "a" * 64 in card and "isn't compared yet" in card
    assert not (out / "adapter").exists() and str(tmp_path) not in card
    with pytest.raises(ExportError, match="is there already"):
        export.export(settings, 0, out)
    with pytest.raises(ExportError, match="train seed 7"):
        export.export(settings, 7, tmp_path / "other")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_comes_out_as_pefts_files_and_merged(tmp_path: Path, dtype: str) -> None:
    from peft import PeftModel

    settings = trained(tmp_path, "lora", dtype)
    out = tmp_path / "out"
    assert export.export(settings, 0, out)["logprobs_apart"] < 1e-4
    if dtype == "float32":
        base, own, taken = answers(settings, out)
        assert taken[0] == own[0] and taken[1] == pytest.approx(own[1], abs=1e-5)
        assert own[1] != pytest.approx(base[1], abs=1e-2)
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and config["r"] == 4
    assert config["base_model_name_or_path"] == settings.base_model
    card = (out / "README.md").read_text()
    assert "A model that exists, qwen, practised" in card and str(tmp_path) not in card
    bare = load_base(settings.base_model, dtype=dtype).model.float()
    with torch.no_grad():
        text = torch.tensor([PROMPT.to_ints()])
        whole = load_base(str(out)).model(input_ids=text).logits
        plain = bare(input_ids=text).logits.clone()
        adapted = PeftModel.from_pretrained(bare, out / "adapter")(input_ids=text).logits
    assert torch.allclose(adapted, whole, atol=1e-4) and not torch.allclose(plain, whole, atol=1e-2)


def test_names_that_the_base_model_lacks_are_refused(tmp_path: Path) -> None:
    settings = trained(tmp_path, "lora")
    out = tmp_path / "out"
    export.export(settings, 0, out)
    file = out / "adapter" / "adapter_model.safetensors"
    whole = load_file(file)
    renamed = {name.replace("layers.0.", "blocks.0."): tensor for name, tensor in whole.items()}
    save_file(renamed, file)
    with pytest.raises(ExportError, match=r"of layers that .* doesn't have, like base_model\.model\.model\.blocks\.0"):
        export.check_names(out / "adapter", out)
    save_file({}, file)
    with pytest.raises(ExportError, match="no weights at all"):
        export.check_names(out / "adapter", out)


def test_a_model_that_isnt_the_trained_one_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = trained(tmp_path, "full")
    monkeypatch.setattr(export, "merged", lambda model: load_base(settings.base_model).model)
    with pytest.raises(ExportError, match="it isn't the trained model"):
        export.export(settings, 0, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_host_is_asked_only_with_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the cookbook's functions, which tests of its own cover; here, that they are called as they are."""
    settings = trained(tmp_path, "lora")
    hosted = dataclasses.replace(
        settings, local=None, train=dataclasses.replace(settings.train, backend="tinker", base_url="http://localhost:1")
    )
    monkeypatch.delenv(ALLOWED, raising=False)
    with pytest.raises(SpendRefused, match="starts a training session"):
        export.export(hosted, 0, tmp_path / "out")
    fireworks = dataclasses.replace(hosted, train=dataclasses.replace(hosted.train, backend="fireworks"))
    with pytest.raises(ExportError, match="promote"):
        export.export(fireworks, 0, tmp_path / "out")
    asked: list[dict[str, Any]] = []

    def writes(key: str) -> Any:
        def function(**given: Any) -> str:
            asked.append(given)
            write_text(Path(given[key]) / "written", "x")
            return str(given[key])

        return function

    for name, key in (
        ("download", "output_dir"),
        ("build_lora_adapter", "output_path"),
        ("build_hf_model", "output_path"),
    ):
        import inspect

        real = inspect.signature(getattr(export.weights, name))
        fake = writes(key)
        monkeypatch.setattr(export.weights, name, lambda real=real, fake=fake, **g: (real.bind(**g), fake(**g))[1])
    monkeypatch.setenv(ALLOWED, "1")
    left = tmp_path / "out.part.whole" / "of a killed try"  # the cookbook writes over nothing
    write_text(left, "x")
    assert export.export(hosted, 0, tmp_path / "out") == {}
    assert asked[0]["tinker_path"].endswith("/weights/final") and asked[0]["base_url"] == "http://localhost:1"
    assert (tmp_path / "out" / "adapter" / "written").exists() and (tmp_path / "out" / "written").exists()
    assert "**not measured**" in (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out" / left.name).exists()


def test_a_number_of_questions_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        export.main(["tiny", "out", "--measure", "-3"])
    assert "--measure -3: how many questions" in capsys.readouterr().err
