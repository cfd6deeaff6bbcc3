"""The small tokenizer loses nothing and spells a name alike in a question and in a query."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from lib import tiny
from lib.settings import load

SYSTEM = "You answer questions.\nThe graph:\n(User {displayName})"
QUERY = "MATCH (u:User)-[:OWNS]->(q:Question) WHERE u.displayName = '' RETURN count(DISTINCT q.postId)"


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.build_tokenizer(
        SYSTEM, ["How many questions did  ask?"], [QUERY], ["no rows", "done"], ["Tomar Velin", "Kasarin"]
    )


@given(st.text(max_size=60))
def test_any_text_survives(text):
    encoder = tiny.build_tokenizer(SYSTEM, ["How many"], [QUERY], ["no rows"], ["Tomar"])
    assert encoder.decode(encoder.encode(text, add_special_tokens=False)) == text


def test_fixed_strings_are_one_token_each(tokenizer):
    for text in (SYSTEM, tiny.CALL, tiny.CALL_END, tiny.SHOWN, tiny.SHOWN_END, *tiny.CHAT):
        assert len(tokenizer.encode(text, add_special_tokens=False)) == 1, text


@given(st.text("abcdefghijklmnopqrstuvwxyzABCDEFG", min_size=1, max_size=12))
def test_a_name_is_spelled_alike_everywhere(name):
    encoder = tiny.build_tokenizer(SYSTEM, ["did ask"], [QUERY], ["no rows"], ["Tomar Velin", "Kasarin"])
    if name in ("did", "ask", "a"):
        return
    inside = encoder.tokenize(f"'{name}'")[1:-1]
    asked = encoder.tokenize(f"did {name} ask")
    assert "".join(inside) == name
    assert [t for t in asked if t not in ("did", " did", " ask", " ")] == inside


def test_the_folder_loads_with_transformers(tokenizer, tmp_path):
    model = tiny.build_model(len(tokenizer), load().model)
    tiny.save(tmp_path, tokenizer, model)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    ids = again.encode(QUERY, add_special_tokens=False, return_tensors="pt")
    assert again.decode(ids[0]) == QUERY
    with torch.inference_mode():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert 0.5e6 < sum(p.numel() for p in loaded.parameters()) < 2e6
