"""The built-in model: a small llama-architecture transformer.

Shapes: B batch, T tokens, C hidden, H query heads, G key/value heads (1; as many as query heads in the multi-head variant), D head dimension, V vocabulary.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

V, C, L, H, G, D, FFN = 4096, 512, 6, 4, 1, 128, 512
ROPE_BASE, MAX_POS, EPS = 1e38, 131072, 1e-5
ROWS = 128                # that attend at once
# A rope base this large leaves 108 of 128 dimensions nearly still over 131072 positions, so that a head can match
# content at any distance; the fast dimensions still tell "one token back" from "two".


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(C))

    def forward(self, x):
        return F.rms_norm(x, (C,), self.w, EPS)


def rotate(x, cos, sin):
    """Rotary embedding on adjacent pairs (the GGUF 'llama' convention). x [B, H, T, D]; cos, sin [B, 1, T, D/2]."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def plan(block, begin, rows=ROWS):
    """Which tokens attend to which, some rows at a time: (first row, last, n shared, own first, hidden [rows, own], beside others).

    `block` [T]: questions see the document (block 0) and their own block; `begin`: where questions begin, which see other documents, too.
    A row sees tokens [0, n shared), and of those from `own first` on the ones that are not hidden.
    """
    t, at, parts = len(block), 0, []
    while at < t:
        end = min(at + rows, t, begin if at < begin else t)
        apart = int(block[at]) > 0
        own = int(torch.searchsorted(block, block[at])) if apart else at
        later = torch.arange(own, end) > torch.arange(at, end)[:, None]
        hidden = later | (block[own:end] != block[at:end, None]) if apart else later
        parts.append((at, end, begin if apart else at, own, hidden, at >= begin))
        at = end
    return parts


class Attend(torch.autograd.Function):
    """Attention of one sample: q [G, H/G, T, D], k, v [G, T, D], more keys and values [G, N, D] or None. Shares of attention are kept.

    On a CPU three times as fast as `scaled_dot_product_attention` with a mask: the products are large, and hidden pairs are left out.
    """

    @staticmethod
    def forward(ctx, q, k, v, parts, more_k, more_v):
        ctx.kept, ctx.parts, ctx.more = [], parts, (more_k, more_v)
        ctx.save_for_backward(q, k, v)
        out = torch.empty_like(q)
        with torch.autocast(q.device.type, enabled=False):
            for g in range(len(q)):
                for part in parts:
                    (first, last, *_, hidden, _), n = part, part[4].shape[1]
                    keys, values = Attend.seen(k[g], part, more_k, g), Attend.seen(v[g], part, more_v, g)
                    rows = q[g, :, first:last].flatten(0, 1)
                    s = (rows.float() @ keys.float().T).mul_(D ** -.5)
                    s.view(-1, last - first, s.shape[1])[..., -n:].masked_fill_(hidden, -1e9)
                    p = s.softmax(-1).to(q.dtype)
                    out[g, :, first:last] = (p @ values).view(-1, last - first, D)
                    ctx.kept.append(p)
        return out

    @staticmethod
    def seen(x, part, more, g):
        first, last, shared, own, _, beside = part
        x = x[:last] if own == shared else torch.cat((x[:shared], x[own:last]))
        return torch.cat((more[g], x)) if beside and more is not None else x

    @staticmethod
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        (more_k, more_v), kept = ctx.more, iter(ctx.kept)
        gq, gk, gv = torch.zeros_like(q), torch.zeros_like(k, dtype=torch.float), torch.zeros_like(v, dtype=torch.float)
        with torch.autocast(q.device.type, enabled=False):
            for g in range(len(q)):
                for part in ctx.parts:
                    first, last, shared, own, _, _ = part
                    p, keys, values = next(kept), Attend.seen(k[g], part, more_k, g), Attend.seen(v[g], part, more_v, g)
                    rows, go = q[g, :, first:last].flatten(0, 1), grad[g, :, first:last].flatten(0, 1)
                    ds = torch.ops.aten._softmax_backward_data(go @ values.T, p, -1, p.dtype)
                    gq[g, :, first:last] = (ds @ keys).view(-1, last - first, D) * D ** -.5
                    here = p.shape[1] - (shared + last - own)                    # what comes before is of other documents
                    for total, some in ((gk, ds[:, here:].T @ rows * D ** -.5), (gv, p[:, here:].T @ go)):
                        total[g, :shared] += some[:shared]
                        total[g, own:last] += some[shared:]
        return gq, gk.to(k.dtype), gv.to(v.dtype), None, None, None


def attend(q, k, v, plans, more):
    """q [B, H, T, D], k and v [B, G, T, D], by sample what `plan` gives; more: keys and values [1, G, N, D] of other documents, or None."""
    g = k.shape[1]
    more = (None, None) if more is None else (more[0][0], more[1][0])
    return torch.stack([Attend.apply(q[i].unflatten(0, (g, -1)), k[i], v[i], parts, *more).flatten(0, 1) for i, parts in enumerate(plans)])


class Block(nn.Module):
    def __init__(self, kv_heads):
        super().__init__()
        self.kv_heads = kv_heads
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        self.n1, self.n2 = RmsNorm(), RmsNorm()
        self.q, self.k, self.v, self.o = lin(C, H * D), lin(C, kv_heads * D), lin(C, kv_heads * D), lin(H * D, C)
        self.g, self.u, self.d = lin(C, FFN), lin(C, FFN), lin(FFN, C)

    def forward(self, x, cos, sin, cache=None, probe=None, sel=None, more=None, plans=None):
        b, t, _ = x.shape
        h = self.n1(x)
        split = lambda y, n: y.view(b, t, n, D).transpose(1, 2)
        q, k, v = split(self.q(h), H), split(self.k(h), self.kv_heads), split(self.v(h), self.kv_heads)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        if cache is not None:
            if 'k' in cache:
                k, v = torch.cat((cache['k'], k), 2), torch.cat((cache['v'], v), 2)
            cache['k'], cache['v'] = k, v
        if probe is not None:
            probe.append((q, k))
        s = k.shape[2]
        if plans is not None:
            a = attend(q, k, v, plans, more)
        else:
            kk, vv = (x.repeat_interleave(H // self.kv_heads, 1) for x in (k, v))
            mask = None if s == t else torch.ones(t, s, dtype=torch.bool, device=q.device).tril(s - t)
            a = F.scaled_dot_product_attention(q, kk, vv, attn_mask=mask, is_causal=mask is None)
        a = a.transpose(1, 2).flatten(2)
        if sel is not None:
            x, a = x[sel], a[sel]
        x = x + self.o(a)
        h = self.n2(x)
        return x + self.d(F.silu(self.g(h)) * self.u(h))


class QuoteModel(nn.Module):
    """Token ids [B, T] and positions [B, T] to logits [B, T, V]; output embedding tied to the input one."""

    def __init__(self, kv_heads=G, rope_base=ROPE_BASE):
        super().__init__()
        self.kv_heads = kv_heads
        self.e = nn.Embedding(V, C)
        self.b = nn.ModuleList(Block(kv_heads) for _ in range(L))
        self.n = RmsNorm()
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
        for blk in self.b:
            for w in (blk.o.weight, blk.d.weight):
                nn.init.normal_(w, 0, 0.02 / math.sqrt(2 * L))
        self.register_buffer('inv', rope_base ** (-torch.arange(0, D, 2).float() / D), persistent=False)

    def forward(self, ids, pos, cache=None, last=False, sel=None, probe=None, more=None, plans=None):
        """`cache`: by layer, earlier keys and values; `last`: logits of the last token alone; `sel`: of these positions; `probe` takes (q, k).

        `plans`: by sample, which tokens each attends to; without them, all before. `more`: by layer, keys and values of other documents,
        or None.
        """
        ang = pos[:, None, :, None].float() * self.inv
        cos, sin = ang.cos(), ang.sin()
        x = self.e(ids)
        for i, blk in enumerate(self.b):
            x = blk(x, cos, sin, None if cache is None else cache[i], probe, sel if i == L - 1 else None, more and more[i], plans)
        if last:
            x = x[:, -1:]
        return F.linear(self.n(x), self.e.weight)
