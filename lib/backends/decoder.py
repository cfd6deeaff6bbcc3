"""A small decoder run one row of tokens at a time, such that a row's result depends on nothing but its own past.

A row is one token of one sequence, whether it is prefilled or was just sampled. Products are made at one shape, or at
a few sizes for which a trial shows that each row comes out the same to the last bit (float32 products of different
shapes may round differently); all else is done row by row (kernels.py). So a token's keys, values and logits are the
same in any company, and prefilling a conversation gives what sampling it gave (tests/test_sampler.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib.backends import kernels
from lib.backends.prefix_cache import BLOCK, BlockPool

ROWS = 128  # of a step at most
SIZES = range(8, ROWS, 8)  # of smaller steps
MOST_PARAMETERS = 50_000_000  # larger models gain little here: their time goes into products that any code does alike


def supports(model: Any) -> bool:
    """Whether this file knows the architecture: Lfm2, and Llama and Qwen3 without biases or sliding windows."""
    c = model.config
    return (
        c.model_type in ("lfm2", "llama", "qwen3")
        and next(model.parameters()).device.type == "cpu"
        and all(p.dtype == torch.float32 for p in model.parameters())
        and sum(p.numel() for p in model.parameters()) <= MOST_PARAMETERS
        and c.rope_parameters["rope_type"] in ("default", "linear", "llama3")
        and getattr(c, "hidden_act", "silu") == "silu"
        and not any(
            getattr(c, name, False) for name in ("attention_bias", "mlp_bias", "conv_bias", "use_sliding_window")
        )
    )


def _head(config: Any) -> int:
    """The width of one attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


@cache
def agreeing_sizes(shapes: frozenset[tuple[int, int]]) -> tuple[int, ...]:
    """The sizes at which products with matrices of these shapes give every row the bits that it gets among ROWS rows.

    Tried out, because it is the processor's library that decides; which sums it makes doesn't depend on the numbers.
    """
    generator = torch.Generator().manual_seed(0)
    trials = []
    for inputs, outputs in sorted(shapes):
        rows = torch.randn(ROWS, inputs, generator=generator)
        weight = torch.randn(inputs, outputs, generator=generator)
        trials.append((rows, weight, torch.randn(ROWS, outputs, generator=generator)))

    def agrees(size: int) -> bool:
        return all(
            torch.equal(torch.mm(rows[part], weight), torch.mm(rows, weight)[part])
            and torch.equal(added[part].clone().addmm_(rows[part], weight), added.clone().addmm_(rows, weight)[part])
            for rows, weight, added in trials
            for part in (slice(0, size), slice(ROWS - size, ROWS), slice(7, 7 + size))
            if part.stop <= ROWS
        )

    return (*(size for size in SIZES if agrees(size)), ROWS)


@dataclass(frozen=True)
class Convolution:
    """Weights of a gated short convolution: `taps` [reach, hidden], the current token's last."""

    into: Tensor
    taps: np.ndarray
    out: Tensor


@dataclass(frozen=True)
class Attention:
    """Weights of an attention layer: queries, keys and values side by side; `scale` [heads + kv_heads, head]."""

    into: Tensor
    scale: np.ndarray
    normed: bool
    out: Tensor


@dataclass(frozen=True)
class Layer:
    """All weights are laid out [inputs, outputs], those of a norm multiplied into the matrix that follows it."""

    mixer: Convolution | Attention
    gate_up: Tensor
    down: Tensor


class Decoder:
    """The network of one snapshot; keys and values live in a pool that it shares."""

    def __init__(self, model: Any):
        c = model.config
        self.lfm2 = c.model_type == "lfm2"
        self.eps = np.float32(c.norm_eps if self.lfm2 else c.rms_norm_eps)
        self.context, self.vocabulary = c.max_position_embeddings, c.vocab_size
        self.heads, self.kv_heads, self.head = c.num_attention_heads, c.num_key_value_heads, _head(c)
        self.embedding = model.model.embed_tokens.weight.detach().numpy()
        norm = model.model.embedding_norm if self.lfm2 else model.model.norm
        self.output = _merged(norm.weight, model.lm_head)
        cos, sin = model.model.rotary_emb(norm.weight[None, None], torch.arange(self.context)[None])
        self.cos, self.sin = (x[0, :, : self.head // 2].contiguous().numpy() for x in (cos, sin))
        self.layers = [self._layer(layer) for layer in model.model.layers]
        self.blocks_of_context = -(-self.context // BLOCK)

    def _layer(self, layer: Any) -> Layer:
        if self.lfm2:
            before, after = layer.operator_norm.weight, layer.ffn_norm.weight
            gate, up, down = layer.feed_forward.w1, layer.feed_forward.w3, layer.feed_forward.w2
        else:
            before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
            gate, up, down = layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj
        mixer: Convolution | Attention
        if self.lfm2 and not layer.is_attention_layer:
            taps = layer.conv.conv.weight[:, 0].t().contiguous().numpy()
            mixer = Convolution(_merged(before, layer.conv.in_proj), taps, _merged(None, layer.conv.out_proj))
        else:
            mixer = self._attention(layer.self_attn, before)
        return Layer(mixer, _merged(after, gate, up), _merged(None, down))

    def _attention(self, a: Any, before: Tensor) -> Attention:
        q_norm = getattr(a, "q_layernorm", getattr(a, "q_norm", None))
        k_norm = getattr(a, "k_layernorm", getattr(a, "k_norm", None))
        scale = torch.ones(self.heads + self.kv_heads, self.head)
        scale[: self.heads] *= self.head**-0.5
        if q_norm is not None and k_norm is not None:
            scale[: self.heads] *= q_norm.weight
            scale[self.heads :] *= k_norm.weight
        return Attention(
            into=_merged(before, a.q_proj, a.k_proj, a.v_proj),
            scale=scale.numpy(),
            normed=q_norm is not None,
            out=_merged(None, a.out_proj if self.lfm2 else a.o_proj),
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many rows a step may have."""
        weights = [w for x in self.layers for w in (x.mixer.into, x.mixer.out, x.gate_up, x.down)]
        return agreeing_sizes(frozenset((w.shape[0], w.shape[1]) for w in [*weights, self.output]))

    def block_shapes(self) -> list[tuple[int, ...]]:
        """Of the tables that hold this network's keys, values and convolution inputs; see `BlockPool`."""
        shapes: list[tuple[int, ...]] = []
        for layer in self.layers:
            if isinstance(layer.mixer, Convolution):
                shapes.append((BLOCK, layer.mixer.taps.shape[1]))
            else:
                shapes += 2 * [(self.kv_heads, BLOCK, self.head)]
        return shapes

    def size(self, rows: int) -> int:
        """The least size of a step that holds so many rows."""
        return next(size for size in self.sizes if size >= rows)

    @torch.inference_mode()
    def run(
        self, tokens: np.ndarray, positions: np.ndarray, blocks: np.ndarray, wanted: int, pool: BlockPool
    ) -> np.ndarray:
        """Logits [a size of a step, vocabulary] of at least the first `wanted` rows.

        All [rows], a size of a step; `blocks` [rows, any] are the blocks of each row's sequence, in which its keys and
        values are afterwards. Of rows that aren't wanted, which are tokens inside a prompt, these are enough.
        """
        x = torch.empty(len(tokens), self.embedding.shape[1])
        y = torch.empty_like(x)
        kernels.embed(self.embedding, tokens, x.numpy())
        tables = iter(pool.tables)
        for layer in self.layers:
            into = torch.mm(self._unit(x, y), layer.mixer.into)
            if layer is self.layers[-1]:
                x = x[: self.size(max(1, wanted))]
                y = y[: len(x)]
            mixed = torch.empty(len(x), layer.mixer.out.shape[0])
            if isinstance(layer.mixer, Convolution):
                kernels.convolve(into.numpy(), layer.mixer.taps, positions, blocks, next(tables), mixed.numpy())
            else:
                self._attend(layer.mixer, into, positions, blocks, next(tables), next(tables), mixed)
            x.addmm_(mixed, layer.mixer.out)
            gate_up = torch.mm(self._unit(x, y), layer.gate_up)
            inner = torch.empty(len(x), layer.down.shape[0])
            kernels.swiglu(gate_up.numpy(), inner.numpy())
            x.addmm_(inner, layer.down)
        logits: np.ndarray = torch.mm(self._unit(x, y), self.output).numpy()
        return logits

    def _unit(self, x: Tensor, out: Tensor) -> Tensor:
        kernels.unit(x.numpy(), self.eps, out.numpy())
        return out

    def _attend(
        self,
        weights: Attention,
        into: Tensor,
        positions: np.ndarray,
        blocks: np.ndarray,
        keys: np.ndarray,
        values: np.ndarray,
        out: Tensor,
    ) -> None:
        """All rows' keys and values go into the tables; the first rows, as many as `out` has, look back from there."""
        qkv = into.numpy().reshape(len(into), -1, self.head)
        cos, sin, mixed = self.cos, self.sin, out.numpy().reshape(len(out), self.heads, self.head)
        kernels.rotate(qkv, weights.scale, weights.normed, self.eps, cos, sin, positions, blocks, keys, values)
        kernels.attend(qkv, self.heads, positions, blocks, keys, values, mixed)


def _merged(norm: Tensor | None, *linear: Any) -> Tensor:
    """[inputs, outputs] for `mm`, each input times the weight of the norm before it."""
    weight = torch.cat([x.weight for x in linear]).t()
    return (weight if norm is None else weight * norm[:, None]).contiguous()
