"""Bound loss: a training penalty for attention that chunk bounds do not find.

    q of answers, rotated keys ─┬► attention ──► mass of each chunk ──────┬─► loss: the chunk is not found by its bound
                                └► min, max of 64 keys ─► bound of q · k ─┘
Only attention outside the sinks (the first chunk) and the last window counts. The first penalty takes the mass as given: when it could
lower the mass itself, every layer but one stopped retrieving within two million tokens.

Shapes: B samples, N queries of each, H query heads, G key/value heads, T tokens, P chunks.
"""
import torch
import torch.nn.functional as F

from model import D, H

CHUNK = 64
TOP, LONGER = 12, 32     # tokens that may hold the mass; length of documents in use over that of samples


def penalty(probe, at, hidden=None, begin=None):
    """Mean over queries and heads, summed over layers: (chunks not found by their bounds, mass spread thin).

    `probe`: by layer, rotated q [B, H, T, D] and k [B, G, T, D]; `at` [B, N]: query positions; `hidden` [B, N, T]: tokens that
    each does not attend to, all later ones if None; `begin` [B, N]: first token that each attends to.
    """
    (b, n), dev = at.shape, at.device
    g, t = probe[0][1].shape[1:3]
    whole = t // CHUNK * CHUNK
    first = torch.arange(0, whole, CHUNK, device=dev)
    begin = torch.zeros_like(at) if begin is None else begin
    far = (first >= begin[..., None] + CHUNK) & (first + 2 * CHUNK <= at[..., None])          # [B, N, P]
    hidden = torch.arange(t, device=dev) > at[..., None] if hidden is None else hidden
    far = far & ~hidden[..., :whole].unflatten(-1, (-1, CHUNK)).any(-1)
    far, blocked, later = far[:, None, None], (~far)[:, None, None], hidden[:, None, None]
    lost = thin = 0.0
    for q, k in probe:
        q = q.transpose(1, 2)[torch.arange(b, device=dev)[:, None], at].float()                           # [B, N, H, D]
        q = q.view(b, n, g, H // g, D).permute(0, 2, 3, 1, 4).reshape(b * g, H // g * n, D)
        k = k.float().reshape(b * g, t, D)
        scores = lambda x: x.view(b, g, H // g, n, -1) * D ** -.5
        p = scores(q @ k.mT).masked_fill(later, -1e9).softmax(-1)[..., :whole]
        chunks = k[:, :whole].unflatten(1, (-1, CHUNK))
        bound = scores(F.relu(q) @ chunks.amax(2).mT - F.relu(-q) @ chunks.amin(2).mT)
        p = p.unflatten(-1, (-1, CHUNK)) * far[..., None]
        mass = p.sum(-1)
        log_found = bound.masked_fill(blocked, -1e9).log_softmax(-1)
        lost = lost - (mass.detach() * log_found.clamp_min(-30)).sum(-1).mean()
        rest = mass.sum(-1) - p.flatten(-2).topk(TOP).values.sum(-1)
        thin = thin + torch.log1p(LONGER * rest.clamp_min(0)).mean()
    return lost, thin
