"""The compiled parts of the sampler, each against torch, and each row against itself in other company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker import types

from lib.backends import kernels, requests
from lib.backends.prefix_cache import BLOCK

EPS = np.float32(1e-5)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def empty(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def close(got: np.ndarray, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(got, expected.numpy(), rtol=tolerance, atol=tolerance)


@given(st.lists(st.floats(-200, 85, width=32), min_size=1, max_size=40))
def test_swiglu_and_with_it_exp(gates: list[float]) -> None:
    """silu(x) / x is 1 / (1 + exp(-x)): to the last digits of float32 over the whole range."""
    x = np.array([[*gates, *([1.0] * len(gates))]], np.float32)
    out = empty(1, len(gates))
    kernels.swiglu(x, out)
    gate = torch.tensor(gates, dtype=torch.float64)
    np.testing.assert_allclose(out[0], F.silu(gate).numpy(), rtol=1e-6, atol=1e-35)


def test_unit_and_embed() -> None:
    x = normal(5, 96)
    out = empty(5, 96)
    kernels.unit(x, EPS, out)
    close(out, F.rms_norm(torch.from_numpy(x), (96,), eps=float(EPS)))
    picked = empty(3, 96)
    kernels.embed(x, np.array([4, 0, 4]), picked)
    assert (picked == x[[4, 0, 4]]).all()


def tables(rows: int, tokens: int) -> tuple[np.ndarray, int]:
    """Blocks for as many sequences, scattered as a pool's are, and how many there are."""
    per_row = -(-tokens // BLOCK)
    order = np.random.default_rng(1).permutation(rows * per_row) + 1
    return order.reshape(rows, per_row), rows * per_row + 1


def test_convolve() -> None:
    """Three sequences of 40 tokens, fed one after the other, against torch's convolution over each as a whole."""
    width, reach, tokens = 24, 3, 40
    x, taps = normal(3, tokens, 3 * width), normal(reach, width)
    blocks, count = tables(3, tokens)
    table = np.zeros((count, BLOCK, width), np.float32)
    got = np.stack([_step(kernels.convolve, x[:, t], (taps,), t, blocks, (table,), width) for t in range(tokens)], 1)
    gate_in, gate_out, value = torch.from_numpy(x).chunk(3, -1)
    padded = F.pad((gate_in * value).transpose(1, 2), (reach - 1, 0))
    expected = F.conv1d(padded, torch.from_numpy(taps.T.copy())[:, None], groups=width).transpose(1, 2) * gate_out
    close(got, expected)


def _step(kernel: Any, x: np.ndarray, before: Any, t: int, blocks: np.ndarray, after: Any, width: int) -> np.ndarray:
    out = empty(len(x), width)
    kernel(np.ascontiguousarray(x), *before, np.full(len(x), t), blocks, *after, out)
    return out


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head", "normed"), [(4, 4, 32, True), (4, 2, 8, False), (6, 1, 20, True)]
)
def test_rotate_and_attend(heads: int, kv_heads: int, head: int, normed: bool) -> None:
    """Sequences of several lengths, whose tokens are fed in one step, against torch's attention."""
    lengths = [1, BLOCK - 1, BLOCK, 2 * BLOCK + 3]
    rows = sum(lengths)
    qkv, scale = normal(rows, heads + 2 * kv_heads, head), normal(heads + kv_heads, head, seed=2)
    angles = np.outer(np.arange(max(lengths)), 0.5 ** np.arange(head // 2)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    positions = np.concatenate([np.arange(n) for n in lengths])
    sequence_blocks, count = tables(len(lengths), max(lengths))
    blocks = np.repeat(sequence_blocks, lengths, axis=0)
    keys, values = (np.zeros((count, kv_heads, BLOCK, head), np.float32) for _ in range(2))
    mine, out = qkv.copy(), empty(rows, heads, head)
    kernels.rotate(mine, scale, normed, EPS, cos, sin, positions, blocks, keys, values)
    kernels.attend(mine, heads, positions, blocks, keys, values, out)
    start = 0
    for length in lengths:
        part = torch.from_numpy(qkv[start : start + length]).transpose(0, 1)
        qk, v = part[: heads + kv_heads], part[heads + kv_heads :]
        qk = (F.rms_norm(qk, (head,), eps=float(EPS)) if normed else qk) * torch.from_numpy(scale)[:, None]
        a, b = qk.chunk(2, -1)
        c, s = torch.from_numpy(cos[:length]), torch.from_numpy(sin[:length])
        qk = torch.cat([a * c - b * s, b * c + a * s], -1)
        k, v = (x.repeat_interleave(heads // kv_heads, 0) for x in (qk[heads:], v))
        expected = F.scaled_dot_product_attention(qk[:heads], k, v, is_causal=True, scale=1.0)
        close(out[start : start + length], expected.transpose(0, 1), 1e-4)
        start += length


@settings(max_examples=30)
@given(
    st.integers(1, 300),
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    st.sampled_from([1.0, 30.0]),
)
def test_draws_are_those_of_torch(vocabulary: int, seed: int, temperature: float, spread: float) -> None:
    """The same token for the same number, but where it falls within rounding of a border between two."""
    logits = spread * normal(50, vocabulary, seed=seed)
    uniforms = np.random.default_rng(seed).random(50, dtype=np.float32).clip(max=1 - 2**-22)
    tokens, logprobs = np.zeros(50, np.int64), empty(50)
    kernels.draw(logits, uniforms, np.full(50, temperature, np.float32), tokens, logprobs)
    params = types.SamplingParams(temperature=temperature)
    expected, _ = requests.draw(torch.from_numpy(logits), torch.from_numpy(uniforms), params)
    assert (tokens != expected.numpy()).sum() <= 1
    own = torch.from_numpy(logits).log_softmax(-1).gather(-1, torch.from_numpy(tokens)[:, None])[:, 0]
    close(logprobs, own, 1e-4)


def test_draws_at_the_borders() -> None:
    logits = np.array([[-np.inf, 2, 2, -np.inf]] * 4 + [[0, np.nan, 0, 0]], np.float32)
    uniforms = np.array([0, 0.4999, 0.5001, 1 - 2**-22, 0.5], np.float32)
    tokens, logprobs = np.zeros(5, np.int64), empty(5)
    kernels.draw(logits, uniforms, np.ones(5, np.float32), tokens, logprobs)
    assert tokens.tolist() == [1, 1, 2, 2, -1]  # no token of weight 0, and no answer where a logit is no number
    np.testing.assert_allclose(logprobs[:4], np.log(0.5), rtol=1e-6)
    kernels.draw(logits, uniforms, np.zeros(5, np.float32), tokens, logprobs)
    assert tokens.tolist() == [1, 1, 1, 1, -1]


def test_company_changes_no_bit() -> None:
    """Rows of several sequences, in another order and fewer of them."""
    rows, heads, head, width = 24, 4, 32, 128
    rng = np.random.default_rng(3)
    positions = rng.integers(0, 100, rows)
    blocks, count = tables(rows, 100)
    keys, values = normal(count, heads, BLOCK, head), normal(count, heads, BLOCK, head, seed=1)
    qkv, logits, x = normal(rows, 3 * heads, head), normal(rows, 1000), normal(rows, 2 * width)
    uniforms = rng.random(rows, dtype=np.float32)

    def everything(which: np.ndarray) -> list[bytes]:
        n = len(which)
        attended, inner, normed = empty(n, heads, head), empty(n, width), empty(n, 2 * width)
        tokens, logprobs = np.zeros(n, np.int64), empty(n)
        kernels.attend(qkv[which], heads, positions[which], blocks[which], keys, values, attended)
        kernels.swiglu(x[which], inner)
        kernels.unit(x[which], EPS, normed)
        kernels.draw(logits[which], uniforms[which], np.ones(n, np.float32), tokens, logprobs)
        return [b"".join(a[i].tobytes() for a in (attended, inner, normed, tokens, logprobs)) for i in range(n)]

    together = everything(np.arange(rows))
    order = rng.permutation(rows)
    assert everything(order) == [together[i] for i in order]
    for i in (0, 7, 23):
        assert everything(np.array([i])) == [together[i]]
