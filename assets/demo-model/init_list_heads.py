"""What a list has said, and whether it has said all: laid into weights that have the circuit and the graft.

    layer 2  FFN: LISTED × SAID ─► LISTING: a token of a list in an answer
             head 1, which finds the place, takes the words before it from there ─► AROUND, BAG of the place
    layer 3  head 2 looks from there alike at all tokens that stand after the same two pieces. At a name's end these are what follows its
             mentions: n in the document, k in the list's earlier items; an item weighs as much as a mention, and takes away what that gives
             ─► UNSAID = FOUND_SOME - PER (n - k) / (n + k), 0 where nothing is looked at
             FFN: a negative UNSAID, and one that says that all was said ─► OVER, which the output takes for `:`, with which a list ends
             head 3 looks from there alike at the same tokens of earlier items alone: places that were said, which AROUND (AT in the circuit, to
             64 tokens) is turned away from
    layer 4  head 0 asks for BAG by AROUND: of what follows a name, what was said is the least likely

Keys say the two pieces before them, whatever a token's norm: a full match has the logit 0, as what it gives is taken away again by the key's constant,
and what does not match has less. What follows the name in the question is a full stop, or one of the words of `LIST`: neither is looked at.
So of a name that ends a sentence nothing is counted (`Sampler.ask_list`).
"""
import math

import torch

from init_induction import BROKEN, FAST, FLAG, GATE, SCALE, SLOT
from init_sentence_heads import MARK, MATCHES, Layer, first_row, last_rms, norms_of, zero_at_sink, keep_matched_dimensions
from model import C, D, H
from dataset import LIST, NO_MORE

HEAD, EARLIER_HEAD = 2, 3                 # of layer 3: the one that counts, the one that looks at what was said
WORDS, LISTING_ROW = slice(20, 38), 2 * FAST - 2          # rows of its keys: TWO_K; an item's tokens, and the document's
LOOK_ROW, SINK_ROW = 77, D - 4            # of keys: what a full match gives, and what is not looked at (the last one of FOUR_K, as none turns less); sinks
ONE_ROW, SAID_ROW = 122, 123              # of values, free ones
ALIKE, TAKEN_AWAY = 20.0, .966            # logit of a full match, and how much of it a hash has at its smallest
KEY, MARKS, EARLIER, IN_A_LIST = 9.0, 5.0, 3.0, .03   # of what may end a sentence; of answers that are no list; what an item's match lacks, of ALIKE
REST, WAKE = 9.5, 11.0                    # logit of the sink, and how much of it LISTING takes away
FOUND_SOME, PER = 2.0, 18.0
LOUD = .05                                # size of UNSAID for 1
OVER = (-6.0, -6.0), (-.3, 0.0), (.8, 0.0), (2.0, 3.0), (8.0, 0.0)      # what it is there, and on straight lines in between, of UNSAID
SIZE, GAIN, OF_COLON = .2, 2.0, .03       # of OVER for 1; logits of `:` for that; in its embedding
OF_DOCUMENT = -10.0                       # logit of tokens outside of items, for the head that looks at what was said
FINDS, GOES_ON = 1, 0                     # heads of layer 2 and 4
AROUND, AROUND_FROM = 14, 92              # dimensions of BAG that are told; the first row of values in layer 2
FREE = 119, 121, 124, 125, 126, 127       # rows of values in layer 3; more are those of WIDE that layer 4 does not ask for
OF_PLACE, TURNED_AWAY, SAID_BEFORE = .15, 4.0, 24.0   # size of AROUND; how much more what was said is turned away from; its logit in layer 4


def least_used(block, n):
    """The hidden units that write least."""
    return (block.d.weight.norm(dim=0) * block.g.weight.norm(dim=1) * block.u.weight.norm(dim=1)).argsort()[:n].tolist()


class Unit:
    """A hidden unit of a layer, made anew: silu(gate) × up, of rows of norm `norm`, over SCALE."""

    def __init__(self, block, i, norm):
        self.w, self.i, self.per = block, i, lambda slot: norm / math.sqrt(C) / block.n2.w[SLOT[slot]]
        block.g.weight[i], block.u.weight[i], block.d.weight[:, i] = 0, 0, 0

    def gate(self, slot, size):
        self.w.g.weight[self.i, SLOT[slot]] = size * GATE * self.per(slot)

    def up(self, slot, size=1.0):
        self.w.u.weight[self.i, SLOT[slot]] = size * self.per(slot)

    def write(self, slot, size):
        self.w.d.weight[SLOT[slot], self.i] = size * SCALE / GATE


def init_listing_flag(m):
    """LISTING is 1 where LISTED and SAID are."""
    block = m.b[2]
    norm = norms_of(block.n2, m)[1]
    for i, sign in zip(least_used(block, 2), (1, -1)):
        unit = Unit(block, i, norm)
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
    keep_matched_dimensions(layer, 'TWO_K', WORDS.start, WORDS.stop)
    full = (WORDS.stop - WORDS.start) / len(layer.per('TWO_K'))
    for row, i in enumerate(k[WORDS, SLOT['TWO_K']].abs().argmax(1).tolist(), WORDS.start):
        layer.meets(HEAD, row, SLOT['TWO'].start + i, SLOT['TWO_K'].start + i, ALIKE / full)
    for slot, logit, full in (('const', TAKEN_AWAY * ALIKE, 1.0), ('may_end', MARKS, MARK), ('closer', MARKS, MARK), ('piece', MARKS, MARK), ('line', 2 * MARKS, BROKEN),
                              ('said', EARLIER, FLAG), ('listing', -EARLIER - IN_A_LIST * ALIKE, 1.0)):
        layer.say(LOOK_ROW, slot, KEY * logit / MARKS, full)
    zero_at_sink(k, LOOK_ROW, sink)
    layer.asked(HEAD, LOOK_ROW, -MARKS, KEY)
    for slot, logit in (('const', REST), ('listing', -WAKE)):
        layer.asked_by(HEAD, SINK_ROW, slot, logit, (k[SINK_ROW] @ sink).item())
    v[ONE_ROW, SLOT['const']] = layer.read / layer.per('const')
    v[SAID_ROW, SLOT['said']] = layer.read / layer.per('said') / FLAG
    zero_at_sink(v, ONE_ROW, sink)
    o[SLOT['unsaid'], HEAD * D + ONE_ROW] = (FOUND_SOME - PER) * LOUD * SCALE
    o[SLOT['unsaid'], HEAD * D + SAID_ROW] = 2 * PER * LOUD * SCALE


def init_earlier_items_head_by_pieces(m):
    """The head that looks at what was said, anew: at what follows the same two pieces in all earlier items alike, of the document at nothing."""
    layer = Layer(m, 3)
    q, k = layer.b.q.weight, layer.b.k.weight
    row, own = LISTING_ROW, slice(EARLIER_HEAD * D, EARLIER_HEAD * D + D)
    q[own] = q[HEAD * D:HEAD * D + D]
    k[row:row + 2], q[[h * D + row + i for h in range(H) for i in range(2)]] = 0, 0
    layer.say(row, 'const', KEY), layer.say(row, 'listing', -KEY), zero_at_sink(k, row, first_row(m, 3))
    layer.asked(EARLIER_HEAD, row, OF_DOCUMENT, KEY)


def init_around(m):
    """AROUND: BAG of the place that a token's words are from, less that of what was said."""
    two, three, four = (Layer(m, i) for i in (2, 3, 4))
    key, first, last, asks, says, _ = MATCHES['BAG']
    some = four.b.k.weight[first:last, SLOT[key]].abs().argmax(1)[:AROUND]              # dimensions that layer 4 has keys of
    full = asks * says * TURNED_AWAY * OF_PLACE * AROUND / len(four.per(key))
    at, wide = SLOT['around'].start, MATCHES['AT']
    asked = set(four.b.k.weight[wide[1]:wide[2], SLOT[wide[0]]].abs().argmax(1).tolist())
    free = [*FREE, *(54 + i for i in range(32) if i not in asked)][:AROUND]
    sink = first_row(m, 2)
    for norm in (three.b.n1.w, four.b.n1.w):
        norm[SLOT['around']] = norm[SLOT['const']]
    for layer, rows in ((two, range(AROUND_FROM, AROUND_FROM + AROUND)), (three, free)):
        v, o = layer.b.v.weight, layer.b.o.weight
        v[rows], o[:, [h * D + row for h in range(H) for row in rows]] = 0, 0
    for i, (dim, found, said) in enumerate(zip(some.tolist(), range(AROUND_FROM, D), free)):
        two.b.v.weight[found, SLOT['BAG'].start + dim] = two.read / two.per('BAG')[dim]
        zero_at_sink(two.b.v.weight, found, sink)
        two.b.o.weight[at + i, FINDS * D + found] = OF_PLACE * SCALE
        three.b.v.weight[said, at + i] = three.read / three.per('around')[i]
        three.b.o.weight[at + i, EARLIER_HEAD * D + said] = -TURNED_AWAY * SCALE
        four.meets(GOES_ON, first + i, at + i, SLOT[key].start + dim, SAID_BEFORE / full)


def init_over(m, colon):
    """OVER, and the output."""
    block = m.b[3]
    block.n2.w[SLOT['unsaid']], norm = 1.0, norms_of(block.n2, m)[1]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(OVER, OVER[1:])]
    bends = [(at, after - before) for (at, _), before, after in zip(OVER, [0.0] + slopes, slopes + [0.0])]
    for i, (at, bend) in zip(least_used(block, len(bends)), bends):
        unit, sign = Unit(block, i, norm), -1 if at < 0 else 1      # bends to both sides of 0: where nothing is looked at UNSAID is 0, and so is OVER
        unit.gate('unsaid', sign / LOUD), unit.gate('const', -sign * at), unit.up('const'), unit.write('over', bend * SIZE)
    m.e.weight[colon, SLOT['over']] = OF_COLON * SCALE
    m.n.w[SLOT['over']] = GAIN * last_rms(m) / (SIZE * SCALE * OF_COLON * SCALE)
    last = m.b[-1]
    for norm in (last.n1, last.n2):                                     # nothing yet: training may find a use
        norm.w[SLOT['unsaid']] = norm.w[SLOT['const']]


@torch.no_grad()
def init_list_heads(m, tok):
    enc = lambda text: tok.encode(text, add_special_tokens=False).ids
    for form in LIST:
        after = form.split('{p}')[1]
        if after.startswith(' '):
            m.e.weight[enc(after)[0], SLOT['closer']] = MARK * SCALE
    init_listing_flag(m)
    count(m)
    init_earlier_items_head_by_pieces(m)
    init_around(m)
    init_over(m, enc(NO_MORE)[0])
    return m
