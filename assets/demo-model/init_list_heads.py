"""List heads: earlier items of a list, and its completeness. Need the heads of `init_induction.py` and `init_sentence_heads.py`.

    layer 2  FFN: LISTED × SAID ─► LISTING: a token of a list in an answer
             head 1, which finds the place, copies the words before it ─► AROUND, BAG of the place
    layer 3  head 2 attends evenly to all tokens after the same two pieces. At a name's end these follow its mentions: n in the document, k in
             the list's earlier items. An item has the weight of a mention, with the opposite sign
             ─► UNSAID = FOUND_SOME - PER (n - k) / (n + k), 0 if it attends to nothing
             FFN: a negative UNSAID, and one of a complete list ─► OVER, which raises `:` in the output: a list ends with it
             head 3 attends evenly to the same tokens of earlier items only: places already listed, from which AROUND (AT in the circuit, to
             64 tokens) is turned away
    layer 4  head 0 matches BAG by AROUND: among tokens after a name, those already listed are the least likely

Keys hold the two pieces before them, whatever a token's norm: the key's constant cancels the logit of a full match, which is 0; partial matches have
less. In the question the name is followed by a full stop or one of the words of `LIST`: neither gets attention. So nothing is counted for a name
that ends a sentence (`Sampler.ask_list`).
"""
import math

import torch

from dataset import LIST, NO_MORE
from init_induction import BROKEN, FAST, FLAG, GATE, SCALE, SLOT
from init_sentence_heads import MARK, MATCHES, Layer, first_row, last_rms, norms_of, zero_at_sink, keep_matched_dimensions
from model import C, D, H

HEAD, EARLIER_HEAD = 2, 3                 # of layer 3: the counting head, the head of earlier items
WORDS, LISTING_ROW = slice(20, 38), 2 * FAST - 2          # rows of its keys: TWO_K; tokens of items and of the document
LOOK_ROW, SINK_ROW = 77, D - 4            # of keys: the constant that cancels a full match, and excluded tokens (last one of FOUR_K: none turns less); sinks
ONE_ROW, SAID_ROW = 122, 123              # free rows of values
ALIKE, TAKEN_AWAY = 20.0, .966            # logit of a full match, and the least share of it for a hash
KEY, MARKS, EARLIER, IN_A_LIST = 9.0, 5.0, 3.0, .03   # of tokens that may end a sentence; of answers without a list; deficit of an item's match, of ALIKE
REST, WAKE = 9.5, 11.0                    # logit of the sink, and the part that LISTING subtracts
FOUND_SOME, PER = 2.0, 18.0
LOUD = .05                                # size of UNSAID for 1
OVER = (-6.0, -6.0), (-.3, 0.0), (.8, 0.0), (2.0, 3.0), (8.0, 0.0)      # points (UNSAID, OVER) of a piecewise linear function
SIZE, GAIN, OF_COLON = .2, 2.0, .03       # of OVER for 1; logits of `:` for that; in its embedding
OF_DOCUMENT = -10.0                       # logit of tokens outside items, for the head of earlier items
FINDS, GOES_ON = 1, 0                     # heads of layer 2 and 4
AROUND, AROUND_FROM = 14, 92              # dimensions of BAG to write; first row of values in layer 2
FREE = 119, 121, 124, 125, 126, 127       # rows of values in layer 3; more are rows of WIDE that layer 4 does not match
OF_PLACE, TURNED_AWAY, SAID_BEFORE = .15, 4.0, 24.0   # size of AROUND; factor of the turn away from listed places; its logit in layer 4


def least_used(block, n):
    """Hidden units with the smallest output."""
    return (block.d.weight.norm(dim=0) * block.g.weight.norm(dim=1) * block.u.weight.norm(dim=1)).argsort()[:n].tolist()


class Unit:
    """A hidden unit of a layer, initialized again: silu(gate) × up, for rows of norm `norm` over SCALE."""

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
    """LISTING, 1 if LISTED and SAID are."""
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
    """Head of earlier items, initialized again: attends evenly to tokens after the same two pieces in all items, to none in the document."""
    layer = Layer(m, 3)
    q, k = layer.b.q.weight, layer.b.k.weight
    row, own = LISTING_ROW, slice(EARLIER_HEAD * D, EARLIER_HEAD * D + D)
    q[own] = q[HEAD * D:HEAD * D + D]
    k[row:row + 2], q[[h * D + row + i for h in range(H) for i in range(2)]] = 0, 0
    layer.say(row, 'const', KEY), layer.say(row, 'listing', -KEY), zero_at_sink(k, row, first_row(m, 3))
    layer.asked(EARLIER_HEAD, row, OF_DOCUMENT, KEY)


def init_around(m):
    """AROUND: BAG of the place of a token's words, minus that of listed places."""
    two, three, four = (Layer(m, i) for i in (2, 3, 4))
    key, first, last, asks, says, _ = MATCHES['BAG']
    some = four.b.k.weight[first:last, SLOT[key]].abs().argmax(1)[:AROUND]              # dimensions with keys in layer 4
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
    """OVER, and its output weights."""
    block = m.b[3]
    block.n2.w[SLOT['unsaid']], norm = 1.0, norms_of(block.n2, m)[1]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(OVER, OVER[1:])]
    bends = [(at, after - before) for (at, _), before, after in zip(OVER, [0.0] + slopes, slopes + [0.0])]
    for i, (at, bend) in zip(least_used(block, len(bends)), bends):
        unit, sign = Unit(block, i, norm), -1 if at < 0 else 1      # bends on both sides of 0: without attention UNSAID is 0, and so is OVER
        unit.gate('unsaid', sign / LOUD), unit.gate('const', -sign * at), unit.up('const'), unit.write('over', bend * SIZE)
    m.e.weight[colon, SLOT['over']] = OF_COLON * SCALE
    m.n.w[SLOT['over']] = GAIN * last_rms(m) / (SIZE * SCALE * OF_COLON * SCALE)
    last = m.b[-1]
    for norm in (last.n1, last.n2):                                     # nothing yet; training may use it
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
