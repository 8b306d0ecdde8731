"""Packing: samples side by side in rows of one length, for training and evaluation on a GPU. Long documents are prefilled whole.

    samples of one length, one after another ─► row [2, ROW] ─► attention mask by blocks of 128 ─► flex attention
Samples of a row do not attend to each other. Within a sample, questions attend to the document (block 0) and their own block, as in `plan`.
On a CPU the same attention runs without its own kernels, for tests.

Shapes: R rows, T tokens of a row, N = T / BLOCK.
"""
import math
import os
import random
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from torch.nn.attention.flex_attention import BlockMask

from bound_loss import penalty

ROW, ROWS, BLOCK = 32768, 2, 128
LENGTHS, HOW_OFTEN = (1024, 2048, 4096, 8192, 16384, 32768), (.2, .2, .2, .15, .15, .1)     # of tokens
QUERIES = 96                               # of a row, under the bound loss
AHEAD = 3                                  # rows that each process makes in advance


def row_of(samples):
    """Results of `Sampler.sample`, side by side [5 + N_ALTERNATIVES, T] (ids, position, block, sample, next token, alternatives), and the
    weights of next tokens [T].
    """
    parts = [(s[0][:-1], s[2][:-1], s[3][:-1], np.full(len(s[0]) - 1, i), s[0][1:], *s[4][1:].T) for i, s in enumerate(samples)]
    return np.concatenate(parts, 1).astype(np.int32), np.concatenate([s[1][1:] for s in samples]).astype(np.float32)


def nats(logits, target):
    """Loss in nats of any right token, and whether the likeliest is one. Logits [N, V]; right tokens [N, 1 + N_ALTERNATIVES], -1 for none."""
    logp = logits.float().log_softmax(-1).gather(1, target.clamp_min(0).long()).masked_fill(target < 0, -math.inf)
    return -logp.logsumexp(1), (logits.argmax(-1, keepdim=True) == target).any(1)


class SampleMask:
    """Attention mask of all rows of one shape. Only the contents of its tensors change, so kernels are compiled once."""

    def __init__(self, n_rows, n_tokens, dev):
        self.block, self.sample = (torch.zeros(n_rows, n_tokens, dtype=torch.int32, device=dev) for _ in range(2))
        block, sample = self.block, self.sample

        def seen(row, _, q, k):
            return (q >= k) & (sample[row, q] == sample[row, k]) & ((block[row, k] == 0) | (block[row, k] == block[row, q]))
        self.rule = seen

    def of(self, block, sample):
        """Mask for blocks and samples [R, T]; the length of every sample is a multiple of BLOCK."""
        self.block.copy_(block), self.sample.copy_(sample)
        cut = lambda x: x.unflatten(1, (-1, BLOCK))
        first, last, shared = cut(block).amin(2), cut(block).amax(2), cut(block) == 0
        same = cut(sample)[:, :, 0, None] == cut(sample)[:, None, :, 0]
        n = torch.arange(block.shape[1] // BLOCK, device=block.device)
        whole = same & (n[:, None] > n) & shared.all(2)[:, None]
        own = (first[:, :, None] <= last[:, None]) & (last[:, :, None] >= first[:, None])
        some = same & (n[:, None] >= n) & (shared.any(2)[:, None] | own) & ~whole
        listed = lambda x: (x.sum(2, dtype=torch.int32)[:, None], x.int().argsort(dim=2, descending=True, stable=True).int()[:, None])
        return BlockMask.from_kv_blocks(*listed(some), *listed(whole), BLOCK_SIZE=BLOCK, mask_mod=self.rule)

    def hidden(self, at):
        """Tokens hidden from each of [R, N], as [R, N, T], and the first token of their samples [R, N]."""
        rows = torch.arange(len(at), device=at.device)[:, None]
        block, sample = self.block[rows, at][..., None], self.sample[rows, at][..., None]
        mine = self.sample[:, None] == sample
        k = torch.arange(self.block.shape[1], device=at.device)
        seen = mine & (k <= at[..., None]) & ((self.block[:, None] == 0) | (self.block[:, None] == block))
        return ~seen, mine.int().argmax(-1)


class PackedSource:
    """Training source on a GPU: packed rows, made by other processes."""

    def __init__(self, m, sampler, args, before, autocast):
        self.m, self.sharp, self.first, self.autocast = m, args.sharp, args.first, autocast
        self.seen, self.queue = SampleMask(ROWS, ROW, m.e.weight.device), mp.Queue(AHEAD * max(1, os.cpu_count() - 1))
        torch.set_float32_matmul_precision('high')
        for rank in range(max(1, os.cpu_count() - 1)):
            mp.Process(target=self.fill, args=(sampler, args.seed + int(before) + 100_003 * rank, os.getpid()), daemon=True).start()

    def fill(self, sampler, seed, parent):
        torch.set_num_threads(1), os.nice(5)
        random.seed(seed)
        while os.getppid() == parent:
            T = random.choices(LENGTHS, HOW_OFTEN)[0]
            row = row_of([sampler.sample(T) for _ in range(ROW // T)])
            while self.queue.full() and os.getppid() == parent:
                time.sleep(.05)
            self.queue.put(row)
        self.queue.cancel_join_thread()

    def loss(self, _):
        """Loss, (nats of answers, share of right ones, not found, thin), and the number of tokens."""
        rows = [self.queue.get() for _ in range(ROWS)]
        dev = self.m.e.weight.device
        tokens, weight = (torch.from_numpy(np.stack(x)).to(dev) for x in zip(*rows))
        return *loss_of(self.m, self.seen, tokens, weight, self.sharp, self.first, self.autocast), weight.numel()


def loss_of(m, seen, tokens, weight, sharp, first, autocast):
    """Loss of rows [R, 5 + N_ALTERNATIVES, T] with weights [R, T]; the bound loss covers layers from `first` on."""
    ids, pos, block, sample, *target = tokens.unbind(1)
    mask, sel, probe = seen.of(block, sample), weight > 0, [] if sharp else None
    with autocast:
        logits = m(ids, pos, sel=sel, probe=probe, plans=mask)
    w = weight[sel]
    nll, is_right = nats(logits, torch.stack([x[sel] for x in target], 1))
    total, lost, thin = (nll * w).sum() / w.sum(), nll.new_zeros(()), nll.new_zeros(())
    if sharp:
        at = torch.multinomial((weight > .9) + 1e-9, QUERIES, replacement=True)
        lost, thin = penalty(probe[first:], at, *seen.hidden(at))
        total = total + sharp * (lost + .3 * thin)
    answers = w > .9
    return total, torch.stack([x.detach() for x in (nll[answers].mean(), is_right[answers].float().mean(), lost, thin)])
