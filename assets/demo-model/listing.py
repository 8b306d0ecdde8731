"""Whether a list has said all: a head that counts, laid into weights that have the circuit and the graft.

    layer 2  FFN: LISTED × SAID ─► LISTING: a token of a list in an answer
    layer 3  head 2 looks from there alike at all tokens that stand after the same two pieces. At a name's end these are what follows its
             mentions: n in the document, k in the list's earlier items; an item weighs as much as a mention, and takes away what that gives
             ─► UNSAID = FOUND_SOME - PER (n - k) / (n + k), 0 where nothing is looked at
             FFN: a negative UNSAID, and one that says that all was said ─► OVER, which the output takes for `:`, with which a list ends

Keys say the two pieces before them, whatever a token's norm: a full match has the logit 0, as what it gives is taken away again by the key's constant,
and what does not match has less. What follows the name in the question is a full stop, or one of the words of `LIST`: neither is looked at.
So of a name that ends a sentence nothing is counted (`Sampler.ask_list`).

    python listing.py GGUF|MODEL.pt OUT.pt        # `train.py --start OUT.pt --first 5` goes on from there
"""
import argparse
import math
import pathlib

import torch
from tokenizers import Tokenizer

from circuit import BROKEN, FLAG, GATE, SCALE, SLOT
from evaluate import load
from graft import MARK, Layer, first_row, nothing_of_sink
from model import C, D, H
from samples import LIST, NO_MORE

HEAD, WORDS = 2, slice(20, 38)            # of layer 3; rows of its keys that say TWO_K
LOOK_ROW, SINK_ROW = 77, D - 4            # of keys: what a full match gives, and what is not looked at (the last one of FOUR_K, as none turns less); sinks
ONE_ROW, SAID_ROW = 122, 123              # of values, free ones
ALIKE, TAKEN_AWAY = 20.0, .966            # logit of a full match, and how much of it a hash has at its smallest
KEY, MARKS, EARLIER, IN_A_LIST = 9.0, 5.0, 3.0, .03   # of what may end a sentence; of answers that are no list; what an item's match lacks, of ALIKE
REST, WAKE = 9.5, 11.0                    # logit of the sink, and how much of it LISTING takes away
FOUND_SOME, PER = 2.0, 18.0
NORMS = 5.1 * SCALE, 5.3 * SCALE          # of rows of answers before the FFNs of layers 2 and 3
LOUD = .05                                # size of UNSAID for 1
OVER = (-6.0, -6.0), (-.3, 0.0), (.8, 0.0), (2.0, 3.0), (8.0, 0.0)      # what it is there, and on straight lines in between, of UNSAID
SIZE, GAIN, OF_COLON = .2, 2.0, .03       # of OVER for 1; logits of `:` for that; in its embedding


def least_used(block, n):
    """The hidden units that write least."""
    return (block.d.weight.norm(dim=0) * block.g.weight.norm(dim=1) * block.u.weight.norm(dim=1)).argsort()[:n].tolist()


class Unit:
    """A hidden unit of a trained layer, made anew: silu(gate) × up, of rows of norm `norm`."""

    def __init__(self, block, i, norm):
        self.w, self.i, self.per = block, i, lambda slot: norm / math.sqrt(C) / block.n2.w[SLOT[slot]] / SCALE
        block.g.weight[i], block.u.weight[i], block.d.weight[:, i] = 0, 0, 0

    def gate(self, slot, size):
        self.w.g.weight[self.i, SLOT[slot]] = size * GATE * self.per(slot)

    def up(self, slot, size=1.0):
        self.w.u.weight[self.i, SLOT[slot]] = size * self.per(slot)

    def write(self, slot, size):
        self.w.d.weight[SLOT[slot], self.i] = size * SCALE / GATE


def tell_lists(m):
    """LISTING is 1 where LISTED and SAID are."""
    for i, sign in zip(least_used(m.b[2], 2), (1, -1)):
        unit = Unit(m.b[2], i, NORMS[0])
        unit.gate('listed', sign / FLAG), unit.up('said', sign / FLAG), unit.write('listing', 1.0)


def count(m):
    """UNSAID."""
    layer = Layer(m, 3)
    q, k, v, o = (w.weight for w in (layer.b.q, layer.b.k, layer.b.v, layer.b.o))
    for slot in ('listing', 'may_end', 'closer', 'piece'):
        layer.b.n1.w[SLOT[slot]] = layer.b.n1.w[SLOT['const']]
    own, sink = slice(HEAD * D, HEAD * D + D), first_row(m, 3)
    q[own], o[:, own] = 0, 0
    k[LOOK_ROW], q[[h * D + LOOK_ROW for h in range(H)]] = 0, 0
    said = k[WORDS, SLOT['TWO_K']] * layer.per('TWO_K') / layer.read
    k[WORDS] = 0                                                        # of what training wrote beside it, hashes have enough
    for row, (key, i) in enumerate(zip(said, said.abs().argmax(1).tolist()), WORDS.start):
        k[row, SLOT['TWO_K'].start + i] = key[i] / layer.per('TWO_K')[i] * layer.read
        q[own][row, SLOT['TWO'].start + i] = ALIKE * len(key) / len(said) * math.sqrt(D) * layer.asks / layer.per('TWO')[i] / key[i]
    for slot, logit, full in (('const', TAKEN_AWAY * ALIKE, 1.0), ('may_end', MARKS, MARK), ('closer', MARKS, MARK), ('piece', MARKS, MARK), ('line', 2 * MARKS, BROKEN),
                              ('said', EARLIER, FLAG), ('listing', -EARLIER - IN_A_LIST * ALIKE, 1.0)):
        layer.say(LOOK_ROW, slot, KEY * logit / MARKS, full)
    nothing_of_sink(k, LOOK_ROW, sink)
    layer.asked(HEAD, LOOK_ROW, -MARKS, KEY)
    for slot, logit in (('const', REST), ('listing', -WAKE)):
        layer.asked_by(HEAD, SINK_ROW, slot, logit, (k[SINK_ROW] @ sink).item())
    for row in (ONE_ROW, SAID_ROW):
        v[row], o[:, [h * D + row for h in range(H)]] = 0, 0            # training has left something there in all heads
    v[ONE_ROW, SLOT['const']] = layer.read / layer.per('const')
    v[SAID_ROW, SLOT['said']] = layer.read / layer.per('said') / FLAG
    nothing_of_sink(v, ONE_ROW, sink)
    o[SLOT['unsaid'], HEAD * D + ONE_ROW] = (FOUND_SOME - PER) * LOUD * SCALE
    o[SLOT['unsaid'], HEAD * D + SAID_ROW] = 2 * PER * LOUD * SCALE


def say_whether_over(m, colon, rms=4.0):
    """OVER, and the output."""
    block = m.b[3]
    block.n2.w[SLOT['unsaid']] = 1.0
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(OVER, OVER[1:])]
    bends = [(at, after - before) for (at, _), before, after in zip(OVER, [0.0] + slopes, slopes + [0.0])]
    for i, (at, bend) in zip(least_used(block, len(bends)), bends):
        unit, sign = Unit(block, i, NORMS[1]), -1 if at < 0 else 1      # bends to both sides of 0: where nothing is looked at UNSAID is 0, and so is OVER
        unit.gate('unsaid', sign / LOUD), unit.gate('const', -sign * at), unit.up('const'), unit.write('over', bend * SIZE)
    m.e.weight[colon, SLOT['over']] = OF_COLON * SCALE
    m.n.w[SLOT['over']] = GAIN * rms / (SIZE * SCALE * OF_COLON * SCALE)
    last = m.b[-1]
    for norm in (last.n1, last.n2):                                     # nothing yet: training may find a use
        norm.w[SLOT['unsaid']] = norm.w[SLOT['const']]


@torch.no_grad()
def lay_listing(m, tok):
    enc = lambda text: tok.encode(text, add_special_tokens=False).ids
    new = slice(SLOT['listing'].start, SLOT['spare'].stop)
    for block in m.b:                                                   # nothing is there, and nothing reads it
        for w in (block.o.weight, block.d.weight):
            w[new] = 0
        for w in (block.q.weight, block.k.weight, block.v.weight, block.g.weight, block.u.weight):
            w[:, new] = 0
    for form in LIST:
        after = form.split('{p}')[1]
        if after.startswith(' '):
            m.e.weight[enc(after)[0], SLOT['closer']] = MARK * SCALE
    tell_lists(m)
    count(m)
    say_whether_over(m, enc(NO_MORE)[0])
    return m


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('source')
    ap.add_argument('out')
    args = ap.parse_args()
    tok = Tokenizer.from_file(str(pathlib.Path(__file__).parent / 'tokenizer.json'))
    torch.save(lay_listing(load(args.source), tok).state_dict(), args.out)


if __name__ == '__main__':
    main()
