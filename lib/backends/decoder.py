"""A small decoder run one row of tokens at a time, such that a row's result depends on nothing but its own past.

A row is one token of one sequence, whether it is prefilled or was just sampled. Every product has the same shape
[ROWS, ...] whatever is active, since float32 products round differently at different shapes; attention looks at each
row's own blocks of 64 keys, one after the other. So a token's keys, values and logits come out the same to the last
bit in any company, and prefilling a conversation gives what sampling it gave (tests/test_sampler.py).

Attention reads the blocks in place: `embedding_bag` is a weighted sum of table rows chosen by index, which is what
both of its products are. (Gathering the blocks and multiplying takes 2.5 times as long.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib.backends.prefix_cache import BLOCK, BlockPool

ROWS = 64
ALL = np.arange(ROWS)
MOST_SCORE = 40.0  # attention scores surely below it need no maximum subtracted: exp(40) is far from overflow
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


@dataclass
class Batch:
    """One step's rows. `slots` of the pairs: a row paired with each block of keys that it looks at, rows in order."""

    tokens: Tensor  # [ROWS]
    positions: Tensor  # [ROWS]
    block: Tensor  # [ROWS] where the row's own key goes
    column: Tensor  # [ROWS] position in that block
    place: Tensor  # [ROWS] flat place of both
    before: list[Tensor]  # [ROWS] each: flat place of the 1st, 2nd ... token before, for short convolutions
    pair_row: Tensor  # [pairs]
    pair_block: Tensor  # [pairs]
    pair_rank: Tensor  # [pairs] the row's 1st, 2nd ... block
    row_start: Tensor  # [ROWS + 1] where each row's pairs begin
    hide: Tensor  # [pairs, 1, BLOCK] -inf for keys after the row's own token, else 0
    blocks: int  # of the longest row


class Decoder:
    """The network of one snapshot, its weights laid out for `mm`; keys and values live in a pool that it shares."""

    def __init__(self, model: Any):
        c = model.config
        self.lfm2 = c.model_type == "lfm2"
        self.eps = c.norm_eps if self.lfm2 else c.rms_norm_eps
        self.context, self.vocabulary = c.max_position_embeddings, c.vocab_size
        self.heads, self.kv_heads = c.num_attention_heads, c.num_key_value_heads
        self.head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        self.embedding = model.model.embed_tokens.weight
        self.output = _merged((model.model.embedding_norm if self.lfm2 else model.model.norm).weight, model.lm_head)
        self.hide = torch.full((BLOCK, BLOCK), -torch.inf).triu(1)  # by the last visible key
        cos, sin = model.model.rotary_emb(self.embedding[:1, None], torch.arange(self.context)[None])
        half = self.head // 2
        self.cos, self.sin = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)
        self.layers = [self._layer(layer) for layer in model.model.layers]
        self.blocks_of_context = -(-self.context // BLOCK)
        self.reach = max((layer["taps"].shape[0] for layer in self.layers if "taps" in layer), default=1)
        kv = torch.arange(self.heads) // (self.heads // self.kv_heads)
        self.key_rows = (kv[:, None] * self.head + torch.arange(self.head)).view(-1).int()
        self.value_rows = (torch.arange(BLOCK) * self.kv_heads + kv[:, None]).view(-1).int()

    def _layer(self, layer: Any) -> dict[str, Any]:
        """Weights of one layer, merged where they multiply the same input, each norm's weight into what follows it."""
        if self.lfm2:
            before, after = layer.operator_norm.weight, layer.ffn_norm.weight
            gate, up, down = (layer.feed_forward.w1, layer.feed_forward.w3, layer.feed_forward.w2)
        else:
            before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
            gate, up, down = layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj
        out = {"gate_up": _merged(after, gate, up), "down": _merged(None, down)}
        if self.lfm2 and not layer.is_attention_layer:
            taps = layer.conv.conv.weight[:, 0].t().contiguous()  # [reach, hidden], the current token's last
            return out | {
                "in": _merged(before, layer.conv.in_proj),
                "taps": taps,
                "out": _merged(None, layer.conv.out_proj),
            }
        a = layer.self_attn
        q_norm = getattr(a, "q_layernorm", getattr(a, "q_norm", None))
        k_norm = getattr(a, "k_layernorm", getattr(a, "k_norm", None))
        scale = torch.ones(self.heads + self.kv_heads, self.head)
        scale[: self.heads] *= self.head**-0.5
        bound = torch.inf
        if q_norm is not None and k_norm is not None:
            scale[: self.heads] *= q_norm.weight
            scale[self.heads :] *= k_norm.weight
            # normed vectors of length sqrt(head), scaled element by element
            bound = float(self.head * scale[: self.heads].abs().max() * scale[self.heads :].abs().max())
        return out | {
            "qkv": _merged(before, a.q_proj, a.k_proj, a.v_proj),
            "out": _merged(None, a.out_proj if self.lfm2 else a.o_proj),
            "qk_scale": scale,
            "normed": q_norm is not None,
            "bounded": bound < MOST_SCORE,
        }

    def block_shapes(self) -> list[tuple[int, ...]]:
        """Of the tables that hold this network's keys, values and convolution inputs; see `BlockPool`."""
        shapes: list[tuple[int, ...]] = []
        for layer in self.layers:
            if "taps" in layer:
                shapes.append((BLOCK, layer["taps"].shape[1]))
            else:
                shapes += [(self.kv_heads * self.head, BLOCK), (BLOCK, self.kv_heads, self.head)]
        return shapes

    def batch(self, tokens: np.ndarray, positions: np.ndarray, blocks: np.ndarray) -> Batch:
        """Lay out one step. All [ROWS]; `blocks` [ROWS, any] are the blocks of each row's sequence in order."""
        counts = positions // BLOCK + 1
        start = np.zeros(ROWS + 1, np.int32)
        np.cumsum(counts, out=start[1:])
        row = np.repeat(ALL, counts)
        rank = np.arange(len(row)) - start[row]
        last = positions[row] - rank * BLOCK
        block = blocks[ALL, positions // BLOCK]
        before = []
        for back in range(1, self.reach):
            earlier = np.maximum(positions - back, 0)
            place = blocks[ALL, earlier // BLOCK] * BLOCK + earlier % BLOCK
            before.append(torch.from_numpy(np.where(positions >= back, place, BLOCK - 1)))  # scratch block: always 0
        t = torch.from_numpy
        return Batch(
            tokens=t(tokens),
            positions=t(positions),
            block=t(block),
            column=t(positions % BLOCK),
            place=t(block * BLOCK + positions % BLOCK),
            before=before,
            pair_row=t(row),
            pair_block=t(blocks[row, rank].astype(np.int32)),
            pair_rank=t(rank),
            row_start=t(start),
            hide=self.hide.index_select(0, t(np.minimum(last, BLOCK - 1)))[:, None],
            blocks=int(counts.max()),
        )

    @torch.inference_mode()
    def run(self, batch: Batch, pool: BlockPool) -> Tensor:
        """Final hidden states [ROWS, hidden], normed; the rows' keys and values are in the pool afterwards."""
        x = self.embedding.index_select(0, batch.tokens)
        attention = _Attention(self, batch)
        tables = iter(pool.tables)
        for w in self.layers:
            y = self._norm(x)
            if "taps" in w:
                mixed = self._convolve(w, y, batch, next(tables))
            else:
                mixed = attention.run(w, y, next(tables), next(tables))
            x = torch.addmm(x, mixed, w["out"])
            gate, up = torch.mm(self._norm(x), w["gate_up"]).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate).mul_(up), w["down"])
        return self._norm(x)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """[ROWS, vocabulary]"""
        return torch.mm(hidden, self.output)

    def _norm(self, x: Tensor) -> Tensor:
        """To root mean square 1 along the last dimension; the weights are in the matrices that follow."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * length.square_().mul_(1 / x.shape[-1]).add_(self.eps).rsqrt_()

    def _convolve(self, w: dict[str, Any], y: Tensor, batch: Batch, table: Tensor) -> Tensor:
        """Gated short convolution over the last tokens, whose gated inputs lie in the table by position."""
        gate_in, gate_out, value = torch.mm(y, w["in"]).chunk(3, -1)
        current = gate_in * value
        flat = table.view(-1, table.shape[-1])
        flat.index_copy_(0, batch.place, current)
        mixed = current * w["taps"][-1]
        for back, place in enumerate(batch.before[: len(w["taps"]) - 1], 2):
            mixed.addcmul_(flat.index_select(0, place), w["taps"][-back])
        return mixed.mul_(gate_out)


class _Attention:
    """Attention of one step's rows, each over its own sequence; what all layers need is made once."""

    def __init__(self, decoder: Decoder, batch: Batch):
        self.d, self.batch = decoder, batch
        self.cos = decoder.cos.index_select(0, batch.positions)[:, None]
        self.sin = decoder.sin.index_select(0, batch.positions)[:, None]
        blocks = batch.pair_block[:, None]  # int32 throughout: four times as fast as int64
        self.key_rows = (blocks * (decoder.kv_heads * decoder.head) + decoder.key_rows).view(-1)
        self.value_rows = (blocks * (decoder.kv_heads * BLOCK) + decoder.value_rows).view(-1)
        bags = len(blocks) * decoder.heads + 1
        self.key_bags = torch.arange(0, bags * decoder.head, decoder.head, dtype=torch.int32)
        self.value_bags = torch.arange(0, bags * BLOCK, BLOCK, dtype=torch.int32)
        self.order = torch.arange(len(blocks), dtype=torch.int32)

    def run(self, w: dict[str, Any], y: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """`keys` [blocks, kv_heads * head, BLOCK], `values` [blocks, BLOCK, kv_heads, head]."""
        d, batch = self.d, self.batch
        qkv = torch.mm(y, w["qkv"]).view(ROWS, d.heads + 2 * d.kv_heads, d.head)
        qk = qkv[:, : d.heads + d.kv_heads]
        qk = (d._norm(qk) if w["normed"] else qk) * w["qk_scale"]
        qk = (qk * self.cos).addcmul_(qk.roll(d.head // 2, -1), self.sin)
        keys[batch.block, :, batch.column] = qk[:, d.heads :].reshape(ROWS, -1)
        values.view(-1, d.kv_heads * d.head).index_copy_(
            0, batch.place, qkv[:, d.heads + d.kv_heads :].reshape(ROWS, -1)
        )
        queries = qk[:, : d.heads].reshape(ROWS, -1).index_select(0, batch.pair_row)
        scores = _bags(keys.view(-1, BLOCK), self.key_rows, self.key_bags, queries.view(-1)).view(-1, d.heads, BLOCK)
        scores.add_(batch.hide)
        if not w["bounded"]:
            scores.sub_(self._row_maximum(scores.amax(-1))[:, :, None])
        scores.exp_()
        mixed = _bags(values.view(-1, d.head), self.value_rows, self.value_bags, scores.view(-1))
        mixed = _bags(mixed.view(-1, d.heads * d.head), self.order, batch.row_start, None)
        total = _bags(scores.sum(-1), self.order, batch.row_start, None)
        return mixed.view(ROWS, d.heads, d.head).div_(total[:, :, None]).view(ROWS, -1)

    def _row_maximum(self, maxima: Tensor) -> Tensor:
        """The greatest score of each pair's row, [pairs, heads]."""
        batch, blocks = self.batch, self.batch.blocks
        if blocks == 1:
            return maxima
        table = torch.full((ROWS * blocks, self.d.heads), -torch.inf)
        table[batch.pair_row * blocks + batch.pair_rank] = maxima
        return table.view(ROWS, blocks, self.d.heads).amax(1).index_select(0, batch.pair_row)


def _merged(norm: Tensor | None, *linear: Any) -> Tensor:
    """[inputs, outputs] for `mm`, with the weight of the norm before it."""
    weight = torch.cat([x.weight for x in linear]).t()
    return (weight if norm is None else weight * norm[:, None]).contiguous()


def _bags(table: Tensor, rows: Tensor, bags: Tensor, weights: Tensor | None) -> Tensor:
    """Weighted sums of table rows: bag i takes rows[bags[i]:bags[i + 1]], added in that order."""
    return torch._embedding_bag_forward_only(table, rows, bags, False, 0, False, weights, True)[0]
