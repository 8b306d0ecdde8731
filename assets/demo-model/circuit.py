"""The circuit that training starts from: it copies from a document, before any training, nine tokens of ten right at 4096 tokens.

    layer 0     "1, 2, 3 tokens back" ─► slots BACK;  mean of the last ten ─► NEAR
    layer 1     the token itself ─► BACK[0];  mean of the last 64 ─► WIDE
    layers 2-4  query: BACK[0..2], NEAR  ·  key: BACK[1..3], NEAR, WIDE  ─►  the token after the same words, added to CODE
                nothing alike ─► the first token, whose value is nothing: a sink
    layer 5     nothing yet

Codes are signs, so that every choice of dimensions gives every token the same norm: what a head matches is a count of equal words.
WIDE changes slowly along the text: the least and greatest key of 64 tokens lie close together, and chunk bounds find the place.
Random embeddings of the same size, whose norms differ by choice, found the right place 7 times of 10 instead of 9.

Residual stream (C = 256): constant, filler (every row has the same norm), CODE, sink, RARE (a code that weighs rare words more), slots.
"""
import math

import torch

from model import C, D, H, V, L

FAST = 9                                  # pairs of a head that turn visibly within MAX_POS; the rest match content
CONST, FILL, SINK, CODE, RARE = 0, 1, 63, slice(2, 63), slice(64, 96)
N_CODE, N_RARE, N_SLOT = 61, 32, 24
BACK = [slice(96 + N_SLOT * i, 96 + N_SLOT * (i + 1)) for i in range(4)]
NEAR, WIDE = slice(192, 224), slice(224, 256)
KEY_BACK, KEY_NEAR, KEY_WIDE = (10, 8, 5), 10, 12       # dimensions of a key; one more for the sink
NORM2 = 1.81                              # of a row without its constant
SCALE = 3.0                               # of the residual stream, so that a training step is small beside it
FIRST_TOKEN = 1                           # <|im_start|>
RETRIEVING = (2, 3, 4)
# logits of a full match: by words back, by near words, by the wider text; two kinds of heads
MATCHES = (((16, 14, 10), 60, 20), ((14, 12, 10), 90, 40))
SINK_LOGIT, WRITTEN, OUT = 20.0, 0.4, 1.5


def caseless(vocab):
    """By token id, the id of its lower-case form, with a space before it where there is one. `vocab`: text to id."""
    form = torch.arange(V)
    for text, i in vocab.items():
        bare = text.lstrip('Ġ').lower()
        form[i] = next((vocab[t] for t in ('Ġ' + bare, bare) if t in vocab), i)
    return form


class Maker:
    """Random choices of one seed, and the weights of a head."""

    def __init__(self, m, seed):
        self.m, self.gen = m, torch.Generator().manual_seed(seed)

    def signs(self, rows, n):
        return (torch.rand(rows, n, generator=self.gen) < .5) * 2. - 1.

    def pick(self, d, n):
        """d of n dimensions, with the norm of all. [d, n]"""
        return torch.eye(n)[torch.randperm(n, generator=self.gen)[:d]] * math.sqrt(n / d)

    def back(self, layer, head, offset, gain, rms):
        """Attention that depends on distance alone: logit sum_i gain_i cos(w_i (distance - offset)). Keys of a KV head are shared."""
        block, base = self.m.b[layer], 14.0
        kv = head // (H // self.m.kv_heads)
        a = math.sqrt(base * 8) * rms
        for i, g in enumerate(gain):
            k, q, angle = kv * D + 2 * i, head * D + 2 * i, offset * self.m.inv[i].item()
            block.k.weight[k:k + 2] = 0
            block.k.weight[k, CONST] = a
            block.q.weight[q:q + 2] = 0
            block.q.weight[q, CONST], block.q.weight[q + 1, CONST] = a * g / base * math.cos(angle), -a * g / base * math.sin(angle)

    def write(self, layer, head, at, width, slot, gain):
        """What a head writes: `width` of its values from dimension `at`, into a slot, and nothing else."""
        o = self.m.b[layer].o.weight
        o[:, head * D:(head + 1) * D] = 0
        o[slot, head * D + at:head * D + at + width] = gain * torch.eye(width)

    def retrieve(self, layer, rms, balance=9.0):
        block, n_kv = self.m.b[layer], self.m.kv_heads
        rep = H // n_kv
        for kv in range(n_kv):
            key, base = block.k.weight[kv * D + 2 * FAST:(kv + 1) * D], kv * D
            key.zero_()
            parts, at = [], 0                                   # (rows, query columns, projection, which match)
            for j, d in enumerate(KEY_BACK):
                parts.append((at, BACK[j], BACK[j + 1], self.pick(d, N_SLOT), j))
                at += d
            parts.append((at, NEAR, NEAR, self.pick(KEY_NEAR, N_RARE), 3))
            parts.append((at + KEY_NEAR, NEAR, WIDE, self.pick(KEY_WIDE, N_RARE), 4))
            for row, _, columns, p, _ in parts:
                key[row:row + len(p), columns] = p * rms * balance
            key[-1, SINK] = rms * balance
            for head in range(kv * rep, (kv + 1) * rep):
                words, near, wide = MATCHES[head % len(MATCHES)]
                query = block.q.weight[head * D + 2 * FAST:(head + 1) * D]
                query.zero_()
                for row, columns, _, p, which in parts:
                    query[row:row + len(p), columns] += p * rms * 8 * (*words, near, wide)[which] / balance
                query[-1, CONST] = rms * 8 * SINK_LOGIT / balance / math.sqrt(NORM2)
            read = torch.linalg.qr(torch.randn(D, D, generator=self.gen))[0][:, :N_CODE]
            block.v.weight[base:base + D] = 0
            block.v.weight[base:base + D, CODE] = read * rms
            for head in range(kv * rep, (kv + 1) * rep):
                block.o.weight[:, head * D:(head + 1) * D] = 0
                block.o.weight[CODE, head * D:(head + 1) * D] = read.T * WRITTEN * 2 / H


@torch.no_grad()
def start_from_a_circuit(m, share, form, seed=1):
    """`share` [V]: of each token in text; `form` [V]: the id of its caseless form."""
    make, e, n_kv = Maker(m, seed), m.e.weight, m.kv_heads
    kv_of = lambda head: head // (H // n_kv)
    code = make.signs(V, N_CODE)
    shared = torch.arange(N_CODE) % 3 != 0                      # two dimensions of three are of the caseless form
    code[:, shared] = code[form][:, shared]
    weight = ((-share.clamp_min(1e-6).log() - 5) / 5).clamp(0, .9)
    e.zero_()
    e[:, CONST], e[:, FILL] = 1, (NORM2 - 1 - weight ** 2).sqrt()
    e[:, CODE] = code / math.sqrt(N_CODE)
    e[:, RARE] = make.signs(V, N_RARE)[form] / math.sqrt(N_RARE) * weight[:, None]
    e[FIRST_TOKEN] = 0
    e[FIRST_TOKEN, CONST], e[FIRST_TOKEN, SINK] = 1, math.sqrt(NORM2)

    for i in (0, 1, *RETRIEVING):
        m.b[i].q.weight.mul_(.1), m.b[i].k.weight.mul_(.1)
    sharp = [45., 20.] + [10.] * (FAST - 2)
    to_slot = torch.eye(N_CODE)[:N_SLOT] * math.sqrt(N_CODE / N_SLOT)

    def values(layer, kv, rms):
        v = m.b[layer].v.weight[kv * D:(kv + 1) * D]
        v.zero_()
        v[:N_SLOT, CODE], v[32:32 + N_RARE, RARE] = to_slot * rms, torch.eye(N_RARE) * rms

    rms = math.sqrt((1 + NORM2) / C)
    for kv in range(n_kv):
        values(0, kv, rms)
    for head in range(3):
        make.back(0, head, head + 1, sharp, rms)
        make.write(0, head, 0, N_SLOT, BACK[head + 1], 1)
    make.back(0, 3, 5, [0, 1.5] + [16.] * (FAST - 2), rms)
    make.write(0, 3, 32, N_RARE, NEAR, 2.5)

    rms = math.sqrt((1 + NORM2 + 3 + .2) / C)
    for kv in {kv_of(0), kv_of(1)}:
        values(1, kv, rms)
    make.back(1, 0, 32, [0, 0, .5, 8, 6, 4, 4, 4, 4], rms)
    make.write(1, 0, 32, N_RARE, WIDE, 8)
    make.back(1, 1, 0, sharp, rms)
    make.write(1, 1, 0, N_SLOT, BACK[0], 1)

    for n, layer in enumerate(RETRIEVING):
        make.retrieve(layer, math.sqrt((1 + NORM2 + 4 + 1 + n * WRITTEN ** 2) / C))
    m.n.w.fill_(.1 / SCALE)
    m.n.w[CODE] = OUT / SCALE
    e.mul_(SCALE)
    for block in m.b[:L - 1]:                                   # values larger and outputs smaller, so that both train alike
        block.v.weight.mul_(3)
        block.o.weight.mul_(SCALE / 3)
    m.b[L - 1].o.weight.mul_(SCALE)
