"""What a small decoder does to each row of a step besides matrix products, compiled: in torch, most of the time would
go into calling many small operations.

Each row is computed on its own, by the same instructions in the same order wherever it stands, so its bits don't depend
on the company. All arrays are float32 and C-contiguous unless a kernel says otherwise.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from lib.backends.prefix_cache import BLOCK

# Sums may be regrouped into vectors, which the compiler decides once, for every row alike. Compiled code is kept beside
# this file, so only the first process waits for it (some seconds).
_kernel = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz", "reassoc"})
_inline = njit(nogil=True, inline="always", error_model="numpy", fastmath={"contract", "nsz", "reassoc"})

LEAST = np.float32(-87.0)  # exp of less isn't a normal number; of MOST and more it could overflow
MOST = np.float32(88.0)
LOW = np.float32(-3e38)
LOG2_E, HALF, ONE, ZERO = np.float32(1.44269504), np.float32(0.5), np.float32(1), np.float32(0)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
C = tuple(np.float32(c) for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1))
CHUNK = 64  # tokens of the vocabulary whose weights are summed before a draw looks at single ones


@intrinsic
def _two_to(typing_context, n):
    """2 ** n for a whole number n in [-126, 127], by writing the exponent of a float32."""

    def make(context, builder, signature, arguments):
        exponent = builder.add(builder.fptosi(arguments[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(exponent, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return types.float32(types.float32), make


@_inline
def _exp(x):
    """exp to two units in the last place, without branches, so that the compiler makes vectors of it.

    Range reduction and polynomial are those of expf in the Cephes library (S. Moshier).
    """
    x = min(max(x, LEAST), MOST)
    n = np.floor(x * LOG2_E + HALF)
    f = x - n * LN2_HIGH - n * LN2_LOW
    p = ((((C[0] * f + C[1]) * f + C[2]) * f + C[3]) * f + C[4]) * f + HALF
    return (p * f * f + f + ONE) * _two_to(n)  # type: ignore[call-arg]  # the compiler passes the context


@_kernel
def embed(table, tokens, out):
    """Rows of `table` [vocabulary, width] by number, into `out` [rows, width]."""
    for r in range(len(tokens)):
        for i in range(out.shape[1]):
            out[r, i] = table[tokens[r], i]


@_kernel
def unit(x, eps, out):
    """Each row of `x` [rows, width] over its root mean square (RMSNorm without weights), into `out`."""
    rows, width = x.shape
    for r in range(rows):
        squares = ZERO
        for i in range(width):
            squares += x[r, i] * x[r, i]
        factor = ONE / np.sqrt(squares / np.float32(width) + eps)
        for i in range(width):
            out[r, i] = x[r, i] * factor


@_kernel
def swiglu(x, out):
    """silu(gate) * up, where `x` [rows, 2 * width] holds gate and up side by side; into `out` [rows, width]."""
    rows, width = out.shape
    for r in range(rows):
        for i in range(width):
            out[r, i] = x[r, i] * x[r, width + i] / (ONE + _exp(-x[r, i]))


@_kernel
def convolve(x, taps, positions, blocks, table, out):
    """Gated short convolution over each row's last tokens.

    `x` [rows, 3 * width] holds the gate of the input, the gate of the output and the value; `taps` [reach, width], the
    current token's last; `table` [blocks, BLOCK, width] keeps the gated inputs of all tokens. `out` [as many of the first
    rows as are wanted, width].
    """
    width = out.shape[1]
    for r in range(len(x)):
        block, column = blocks[r, positions[r] // BLOCK], positions[r] % BLOCK
        for i in range(width):
            table[block, column, i] = x[r, i] * x[r, 2 * width + i]
    for r in range(len(out)):
        for i in range(width):
            out[r, i] = ZERO
        for tap in range(max(0, len(taps) - 1 - positions[r]), len(taps)):
            at = positions[r] - (len(taps) - 1 - tap)
            block, column = blocks[r, at // BLOCK], at % BLOCK
            for i in range(width):
                out[r, i] += table[block, column, i] * taps[tap, i]
        for i in range(width):
            out[r, i] *= x[r, width + i]


@_kernel
def rotate(qkv, scale, normed, eps, cos, sin, positions, blocks, keys, values):
    """Norm and turn queries and keys in place, and put keys and values where later tokens will look for them.

    `qkv` [rows, heads + 2 * kv_heads, head]; `scale` [heads + kv_heads, head]; `cos`, `sin` [context, head / 2];
    `keys`, `values` [blocks, kv_heads, BLOCK, head].
    """
    head, turned, kv_heads = qkv.shape[2], len(scale), keys.shape[1]
    half = head // 2
    for r in range(len(qkv)):
        at, block, column = positions[r], blocks[r, positions[r] // BLOCK], positions[r] % BLOCK
        for h in range(turned):
            x, s = qkv[r, h], scale[h]
            factor = ONE
            if normed:
                squares = ZERO
                for d in range(head):
                    squares += x[d] * x[d]
                factor = ONE / np.sqrt(squares / np.float32(head) + eps)
            for d in range(half):
                a, b = x[d] * s[d] * factor, x[half + d] * s[half + d] * factor
                x[d] = a * cos[at, d] - b * sin[at, d]
                x[half + d] = b * cos[at, d] + a * sin[at, d]
        for h in range(kv_heads):
            for d in range(head):
                keys[block, h, column, d] = qkv[r, turned - kv_heads + h, d]
            for d in range(head):
                values[block, h, column, d] = qkv[r, turned + h, d]


@_kernel
def attend(qkv, heads, positions, blocks, keys, values, out):
    """Softmax attention of each row over its own sequence, into `out` [as many of the first rows as are wanted, heads,
    head]; the other arrays as in `rotate`."""
    head, share = qkv.shape[2], heads // keys.shape[1]
    weights = np.empty(blocks.shape[1] * BLOCK, np.float32)
    lanes = np.empty(BLOCK, np.float32)
    for r in range(len(out)):
        seen = positions[r] + 1
        used = (seen + BLOCK - 1) // BLOCK
        for h in range(heads):
            for b in range(used):
                _scores(qkv[r, h], keys[blocks[r, b], h // share], weights[b * BLOCK : (b + 1) * BLOCK])
            for t in range(seen, used * BLOCK):
                weights[t] = LOW
            highest = _highest(weights[: used * BLOCK], lanes)
            for t in range(used * BLOCK):
                weights[t] = _exp(weights[t] - highest)
            total = ZERO
            for t in range(seen):
                total += weights[t]
            o = out[r, h]
            for d in range(head):
                o[d] = ZERO
            for t in range(seen, used * BLOCK):
                weights[t] = ZERO
            for b in range(used):
                _add_weighted(weights[b * BLOCK : (b + 1) * BLOCK], values[blocks[r, b], h // share], o)
            for d in range(head):
                o[d] /= total


@_inline
def _scores(query, keys, out):
    for t in range(BLOCK):
        product = ZERO
        for d in range(len(query)):
            product += query[d] * keys[t, d]
        out[t] = product


@_inline
def _add_weighted(weights, values, out):
    """Eight terms at a time: a sum that is written back after each single one waits for memory."""
    for t in range(0, BLOCK, 8):
        w0, w1, w2, w3, w4, w5, w6, w7 = (
            weights[t],
            weights[t + 1],
            weights[t + 2],
            weights[t + 3],
            weights[t + 4],
            weights[t + 5],
            weights[t + 6],
            weights[t + 7],
        )
        for d in range(len(out)):
            out[d] += (
                (w0 * values[t, d] + w1 * values[t + 1, d])
                + (w2 * values[t + 2, d] + w3 * values[t + 3, d])
                + (w4 * values[t + 4, d] + w5 * values[t + 5, d])
                + (w6 * values[t + 6, d] + w7 * values[t + 7, d])
            )


@_inline
def _highest(values, lanes):
    """The greatest of `values`; in vectors, for which the compiler alone would have to assume that nothing is NaN."""
    for j in range(len(lanes)):
        lanes[j] = LOW
    whole = len(values) - len(values) % len(lanes)
    for start in range(0, whole, len(lanes)):
        for j in range(len(lanes)):
            lanes[j] = values[start + j] if values[start + j] > lanes[j] else lanes[j]
    highest = LOW
    for j in range(len(lanes)):
        highest = lanes[j] if lanes[j] > highest else highest
    for i in range(whole, len(values)):
        highest = values[i] if values[i] > highest else highest
    return highest


@_kernel
def draw(logits, uniforms, temperatures, tokens, logprobs):
    """A token per row and its log-probability at temperature 1, into `tokens` and `logprobs`; -1 where logits are NaN.

    `logits` [rows, vocabulary]; a temperature of 0 takes the likeliest token, the first of several. The draw inverts
    the cumulative distribution, as `lib.backends.requests.draw` does.
    """
    vocabulary = logits.shape[1]
    weights = np.empty(vocabulary, np.float32)
    sums = np.empty((vocabulary + CHUNK - 1) // CHUNK, np.float32)
    lanes = np.empty(BLOCK, np.float32)
    for r in range(len(tokens)):
        highest = _highest(logits[r], lanes)
        for i in range(vocabulary):
            weights[i] = _weight(logits[r, i] - highest)
        total = _chunk_sums(weights, sums)
        check = ZERO
        for i in range(vocabulary):
            check += logits[r, i]  # NaN if one of them is
        log_total = np.log(total)
        if temperatures[r] <= 0:
            token = 0
            while token < vocabulary - 1 and logits[r, token] < highest:
                token += 1
        else:
            if temperatures[r] != 1:
                for i in range(vocabulary):
                    weights[i] = _weight((logits[r, i] - highest) / temperatures[r])
                total = _chunk_sums(weights, sums)
            token = _invert(weights, sums, uniforms[r] * total)
        tokens[r] = token if check == check else -1
        logprobs[r] = logits[r, token] - highest - log_total


@_inline
def _weight(x):
    return _exp(x) if x > LEAST else ZERO  # what is impossible stays so


@_kernel
def _chunk_sums(weights, sums):
    total = ZERO
    for c in range(len(sums)):
        part = ZERO
        for i in range(c * CHUNK, min((c + 1) * CHUNK, len(weights))):
            part += weights[i]
        sums[c] = part
        total += part
    return total


@_kernel
def _invert(weights, sums, target):
    """The first token at which the running sum exceeds `target`, which is less than the whole sum."""
    below, c = ZERO, 0
    while c < len(sums) - 1 and below + sums[c] <= target:
        below += sums[c]
        c += 1
    token = c * CHUNK
    for i in range(c * CHUNK, min((c + 1) * CHUNK, len(weights))):
        if weights[i] > 0:
            token = i
        below += weights[i]
        if below > target:
            break
    return token
