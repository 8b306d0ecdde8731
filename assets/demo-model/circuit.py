"""The circuit that training starts from: it copies from a document, before any training.

    layer 0     the last word ─► BACK[1];  a line broke here ─► CODE as after a space;  the token itself ─► BACK[0];  mean of the last ten ─► NEAR
    layer 1     BACK[1] of the last word, of the one before ─► BACK[2], BACK[3];  mean of the last 64 ─► WIDE
    layers 2-4  query: BACK[0..2], NEAR  ·  key: BACK[1..3], NEAR, WIDE  ─►  the token after the same words, added to CODE
                nothing alike ─► the first token, whose value is nothing: a sink
    layer 5     nothing yet

A word at a line's beginning has the same pieces as after a space (`make_tokenizer`), line breaks are passed over when looking back
and never retrieved, so that wrapped text is copied as if it were not wrapped.
A code is signs: FORM of the word, whatever its case and whether a space comes before it, SPACE and CASE. Every choice of dimensions
gives every token the same norm, and what a head matches is a count of equal words, by FORM alone.
WIDE changes slowly along the text: the least and greatest key of 64 tokens lie close together, and chunk bounds find the place.
Random embeddings of the same size, whose norms differ by choice, found the right place 7 times of 10 instead of 9.

Residual stream (C = 256): constant, filler (every row has the same norm), CODE, BREAK, SINK, RARE (a code that weighs rare words more), slots.
"""
import math

import torch

from model import C, D, H, V, L

FAST = 9                                 # pairs of a head that turn visibly within MAX_POS; the rest match content
CONST, FILL, CODE, BREAK, SINK, RARE = 0, 1, slice(2, 62), 62, 63, slice(64, 96)
N_CODE, N_FORM, N_SPACE, N_RARE, N_SLOT = 60, 54, 3, 32, 24
SPACE = slice(2 + N_FORM, 2 + N_FORM + N_SPACE)
BACK = [slice(96 + N_SLOT * i, 96 + N_SLOT * (i + 1)) for i in range(4)]
NEAR, WIDE = slice(192, 224), slice(224, 256)
KEY_BACK, KEY_NEAR, KEY_WIDE = (10, 8, 5), 10, 12       # dimensions of a key; one more for the sink
NORM2 = 1.81                              # of a row without its constant
BROKEN = .9                               # size of BREAK in a line break
SCALE = 3.0                               # of the residual stream, so that a training step is small beside it
FIRST_TOKEN = 1                           # <|im_start|>
RETRIEVING = (2, 3, 4)
LOUD = 1.5                                # amplitude of SPACE and CASE, which must outweigh those of the token before
# logits of a full match: by words back, by near words, by the wider text; two kinds of heads
MATCHES = (((16, 14, 10), 60, 20), ((14, 12, 10), 90, 40))
SINK_LOGIT, BREAK_LOGIT, WRITTEN, OUT = 20.0, -30.0, 0.4, 1.5
SHARP = [45., 30., 25., 20., 15., 15., 10., 10., 10.]       # gains of pairs; the best other place within MAX_POS is 16 below
# looked for a little behind the last word, so that the word before gets -9; a line break gets -18
BEYOND, PASSED_OVER = .3, -18.0


def forms(vocab):
    """By token id: id of the form, whether a space comes before, case (0 lower or none, 1 first letter, 2 all). `vocab`: text to id."""
    form, space, case = torch.arange(V), torch.zeros(V, dtype=torch.long), torch.zeros(V, dtype=torch.long)
    for text, i in vocab.items():
        bare = text.lstrip('Ġ')
        form[i] = vocab.get(bare.lower(), vocab.get(bare, i)) if bare else i
        space[i] = text.startswith('Ġ')
        case[i] = 2 if len(bare) > 1 and bare.isupper() else int(bare[:1].isupper())
    return form, space, case


class Maker:
    """Random choices of one seed, and the weights of a head."""

    def __init__(self, m, seed):
        self.m, self.gen = m, torch.Generator().manual_seed(seed)

    def signs(self, rows, n):
        return (torch.rand(rows, n, generator=self.gen) < .5) * 2. - 1.

    def pick(self, d, n):
        """d of n dimensions, with the norm of all. [d, n]"""
        return torch.eye(n)[torch.randperm(n, generator=self.gen)[:d]] * math.sqrt(n / d)

    def back(self, layer, head, offset, gain, rms, breaks=0.0):
        """Attention that depends on distance alone, logit sum_i gain_i cos(w_i (distance - offset)), plus `breaks` on line breaks.

        Keys of a KV head are shared.
        """
        block, base = self.m.b[layer], 14.0
        kv = head // (H // self.m.kv_heads)
        a = math.sqrt(base * math.sqrt(D)) * rms
        for i, g in enumerate(gain):
            k, q, angle = kv * D + 2 * i, head * D + 2 * i, offset * self.m.inv[i].item()
            block.k.weight[k:k + 2] = 0
            block.k.weight[k, CONST] = a
            block.q.weight[q:q + 2] = 0
            block.q.weight[q, CONST], block.q.weight[q + 1, CONST] = a * g / base * math.cos(angle), -a * g / base * math.sin(angle)
        k, q = kv * D + D - 1, head * D + D - 1
        block.k.weight[k], block.q.weight[q] = 0, 0
        block.k.weight[k, BREAK], block.q.weight[q, CONST] = a / BROKEN, a * breaks / base

    def values(self, layer, kv, rms, *parts):
        """What a KV head carries: (columns, gain) after one another."""
        v = self.m.b[layer].v.weight[kv * D:(kv + 1) * D]
        v.zero_()
        at = 0
        for columns, gain in parts:
            v[at:at + len(gain), columns] = gain * rms
            at += len(gain)

    def write(self, layer, head, at, slot, gain):
        """What a head writes: its values from dimension `at`, into a slot, and nothing else. gain [slot, values]."""
        o = self.m.b[layer].o.weight
        o[:, head * D:(head + 1) * D] = 0
        o[slot, head * D + at:head * D + at + gain.shape[1]] = gain

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
            key[-1, SINK], key[-1, BREAK] = rms * balance, rms * balance * BREAK_LOGIT / SINK_LOGIT * math.sqrt(NORM2) / BROKEN
            for head in range(kv * rep, (kv + 1) * rep):
                words, near, wide = MATCHES[head % len(MATCHES)]
                query = block.q.weight[head * D + 2 * FAST:(head + 1) * D]
                query.zero_()
                for row, columns, _, p, which in parts:
                    query[row:row + len(p), columns] += p * rms * math.sqrt(D) * (*words, near, wide)[which] / balance
                query[-1, CONST] = rms * math.sqrt(D) * SINK_LOGIT / balance / math.sqrt(NORM2)
            read = torch.linalg.qr(torch.randn(D, D, generator=self.gen))[0][:, :N_CODE]
            block.v.weight[base:base + D] = 0
            block.v.weight[base:base + D, CODE] = read * rms
            for head in range(kv * rep, (kv + 1) * rep):
                block.o.weight[:, head * D:(head + 1) * D] = 0
                block.o.weight[CODE, head * D:(head + 1) * D] = read.T * WRITTEN * 2 / H


@torch.no_grad()
def start_from_a_circuit(m, share, vocab, seed=1):
    """`share` [V]: of each token in text; `vocab`: token text to id."""
    make, e, n_kv = Maker(m, seed), m.e.weight, m.kv_heads
    form, space, case = forms(vocab)
    weight = ((-share.clamp_min(1e-6).log() - 5) / 5).clamp(0, .9)
    breaks = torch.zeros(V)
    breaks[[i for text, i in vocab.items() if text.strip('Ċ') == '']] = BROKEN
    weight[breaks > 0] = 0
    unit = (N_FORM + LOUD ** 2 * (N_CODE - N_FORM)) ** -.5                # codes have norm 1
    after_space, cases = LOUD * unit * make.signs(1, N_SPACE), LOUD * unit * make.signs(3, N_CODE - N_FORM - N_SPACE)
    code = torch.cat((unit * make.signs(V, N_FORM)[form], after_space * (space * 2 - 1)[:, None], cases[case]), 1)
    e.zero_()
    e[:, CONST], e[:, FILL], e[:, BREAK] = 1, (NORM2 - 1 - weight ** 2 - breaks ** 2).clamp_min(0).sqrt(), breaks
    e[:, CODE] = code
    e[:, RARE] = make.signs(V, N_RARE)[form] / math.sqrt(N_RARE) * weight[:, None]
    e[FIRST_TOKEN] = 0
    e[FIRST_TOKEN, CONST], e[FIRST_TOKEN, SINK] = 1, math.sqrt(NORM2)

    for i in (0, 1, *RETRIEVING):
        m.b[i].q.weight.mul_(.1), m.b[i].k.weight.mul_(.1)
    slot, rare = (CODE, torch.eye(N_CODE)[:N_SLOT] / (unit * math.sqrt(N_SLOT))), (RARE, torch.eye(N_RARE))
    broken = (BREAK, torch.ones(1, 1) / BROKEN)
    keep = torch.eye(N_SLOT)

    rms = math.sqrt((1 + NORM2) / C)
    for kv in range(n_kv):
        make.values(0, kv, rms, slot, rare, broken)
    make.back(0, 0, 1 + BEYOND, SHARP, rms, PASSED_OVER)
    make.write(0, 0, 0, BACK[1], keep)
    make.back(0, 1, 1, SHARP, rms)
    make.write(0, 1, N_SLOT + N_RARE, SPACE, 2 * after_space.T)
    make.back(0, 2, 0, SHARP, rms)
    make.write(0, 2, 0, BACK[0], keep)
    make.back(0, 3, 5, [0, 1.5] + [16.] * (FAST - 2), rms)
    make.write(0, 3, N_SLOT, NEAR, 2.5 * torch.eye(N_RARE))

    rms = math.sqrt((1 + NORM2 + 2 + .2) / C)
    for kv in range(n_kv):
        make.values(1, kv, rms, (BACK[1], keep), rare)
    make.back(1, 0, 32, [0, 0, .5, 8, 6] + [4.] * (FAST - 5), rms)
    make.write(1, 0, N_SLOT, WIDE, 8 * torch.eye(N_RARE))
    make.back(1, 1, 1 + BEYOND, SHARP, rms, PASSED_OVER)
    make.write(1, 1, 0, BACK[2], keep)
    make.back(1, 2, 2 + BEYOND, SHARP, rms, PASSED_OVER)
    make.write(1, 2, 0, BACK[3], keep)

    for n, layer in enumerate(RETRIEVING):
        make.retrieve(layer, math.sqrt((1 + NORM2 + 4 + 1 + n * WRITTEN ** 2) / C))
    m.n.w.fill_(.1 / SCALE)
    m.n.w[CODE] = OUT / SCALE
    e.mul_(SCALE)
    for block in m.b[:L - 1]:                                   # values larger and outputs smaller, so that both train alike
        block.v.weight.mul_(3)
        block.o.weight.mul_(SCALE / 3)
    m.b[L - 1].o.weight.mul_(SCALE)
