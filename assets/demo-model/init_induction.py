"""Induction circuit: initial weights that copy from a document before any training.

    layer 0  the last word ─► ONE;  line breaks of the last two tokens ─► BREAKS;  a line broke here ─► IN as after a space;  −OUT
             a dash after a line break ─► ITEM;  an earlier end of a turn ─► SAID: answers and later text are not matched, since an answer
             would match itself best
             FFN: this word × the last ─► TWO, a hash of both
    layer 1  TWO of the last word ─► TWO_K;  of the one before, for now ─► AT;  TWO of the last eight ─► BAG;  words of the last ten
             ─► NEAR, 64 ─► WIDE;  ITEM in the last ten ─► LISTED;  FFN: this word × TWO_K ─► THREE, a hash of three words;
             ONE × TWO of two words back ─► THREE_K, the THREE of the last word, in the place of RARE;
             TWO × TWO of two words back ─► FOUR, a hash of four words
    layer 2  FOUR of the last word ─► FOUR_K;  query TWO, THREE, BAG, NEAR · key TWO_K, THREE_K, BAG, WIDE ─► WIDE of the place that
             matches: AT
    layer 3  AT of the last ten ─► AT, so one wrong place among them does not matter; in a list, AT of the tokens after the same words in
             earlier items is subtracted instead: listed places are not repeated
    layers 3, 4   query TWO, THREE, FOUR, AT and NEAR, BAG · key TWO_K, THREE_K, FOUR_K, WIDE, BAG ─► the token after the same words,
             into OUT
             no match ─► the first token, whose value is zero: a sink; FOUND is the share that is not on the sink
    layer 5  nothing yet

A hash is exact: silu(x) y + silu(-x) (-y) = x y. The product of two codes of signs is a code of signs that matches if both words match
and looks random if one does not. So the longest equal passage wins, and chance matches weigh one over the square root of their
dimensions. AT and WIDE change slowly along the text: the least and greatest key of 64 tokens are close together, chunk bounds find the
place, and of equal passages the one with the same surrounding text is continued.
A word at the beginning of a line has the same pieces as after a space (`make_tokenizer`). Line breaks are skipped backwards and never
retrieved, so wrapped text is copied as if it were not wrapped. Matching uses the FORM of a word, without its case and the space before it;
copies have SPACE and CASE too. Every choice of dimensions gives every token the same norm.
"""
import math

import torch

from model import C as CHANNELS
from model import D, H, V, L

C = 448                                  # channels of the induction circuit; `init_sentence_heads.py` adds more

FAST = 10                                # pairs of a head that turn visibly within MAX_POS; the rest match content
SLOTS = dict(const=1, fill=1, breaks=1, line=1, sink=1, found=1, end=1, said=1, IN=54, OUT=54, RARE=32, ONE=28, TWO=28, TWO_K=28,
             THREE=28, FOUR=28, FOUR_K=28, BAG=28, NEAR=32, WIDE=32, AT=32, dash=1, item=1, listed=1)
MORE_SLOTS = dict(stop=1, ends=1, may_end=1, closer=1, capital=1, mark=1, before=1, broke=1, piece=1, name=1, BAGS=28,
                  listing=1, unsaid=1, over=1, around=14, spare=7, whole=1, second=1)      # from C on, for the other `init_*.py`
N_FORM, N_SPACE, N_CASE, N_HASH, N_WIDE = 48, 2, 4, 28, 32
NORM2 = 3.81                              # of a token's row without its constant: IN, OUT, RARE, LINE and the filler
BROKEN = .9                               # size of LINE in a line break
SCALE = 3.0                               # of the residual stream, so a training step is small relative to it
FIRST_TOKEN, IM_END = 1, 2               # <|im_start|> is a sink at any place; <|im_end|> is skipped like a line break
LOUD = 1.5                                # amplitude of SPACE and CASE
BREAK_LOGIT, SAID_LOGIT, OUT_GAIN = -30.0, -20.0, 1.5
SHARP = [45.] + [22.] * 8                # gains of pairs
PEAK = 20.0                               # logit at the wanted distance
BEYOND, PASSED_OVER = .3, -17.0           # wanted distance a little behind the last word, so the word before gets -9; a break -18
# logits of a full match (query slot, key slot, logit, dimensions of the key)
LOCATE = ((('ONE_Q',), 'ONE', 6, 10), (('TWO',), 'TWO_K', 20, 22), (('THREE',), 'THREE_K', 16, 22), (('BAG',), 'BAG', 22, 22),
          (('NEAR',), 'WIDE', 14, 28))
COPY = ((('TWO',), 'TWO_K', 20, 18), (('THREE',), 'THREE_K', 18, 20), (('FOUR',), 'FOUR_K', 18, 20),
        (('AT', 'NEAR'), 'WIDE', 18, 24), (('BAG',), 'BAG', 20, 22))
SINK = 33.0, 38.0                         # logit of the sink, by kind of layer

at, SLOT = 0, {}
for name, size in SLOTS.items():
    SLOT[name], at = slice(at, at + size), at + size
assert at <= C
at = C
for name, size in MORE_SLOTS.items():
    SLOT[name], at = slice(at, at + size), at + size
assert at <= CHANNELS
DASH, OTHER_PLACE = .5, 2.0              # size of a dash; factor of the turn away from listed places
SAID_BONUS, SAID_SINK = 128.0, 96.0       # logits of answer tokens for a list, and of sinks
GATE, FLAG, SUNK = 8.0, .3, math.sqrt(NORM2 - 1)
LOOK = math.sqrt(14.0 * math.sqrt(D))     # size of a key for one property: a query of the same size gives a logit of 14
first = lambda name: slice(SLOT[name].start, SLOT[name].start + N_HASH)      # the part of a slot that a hash uses
SLOT['THREE_K'] = first('RARE')
SLOT['space'] = slice(SLOT['IN'].start + N_FORM, SLOT['IN'].start + N_FORM + 1)
QUERY = {'ONE_Q': slice(SLOT['IN'].start + N_FORM - N_HASH, SLOT['IN'].start + N_FORM)}     # the part of FORM that ONE holds of the last word
UNIT = (N_FORM + LOUD ** 2 * (N_SPACE + N_CASE)) ** -.5                     # amplitude of FORM: codes have norm 1
HASH_OF = {'ONE_Q': 1 / (UNIT * math.sqrt(N_HASH))}
OPEN = 'OUT', 'NEAR', 'ONE', 'fill', 'found'                         # slots that training may write in layers 2 to 4


def closed():
    """Dimensions [CHANNELS] that layers after the hashes must not change.

    An update of Muon writes equally to all dimensions: after 5 M tokens the inputs of layer 4's matches were half noise.
    """
    free = torch.zeros(CHANNELS, dtype=torch.bool)
    for name in OPEN:
        free[SLOT[name]] = True
    free[SLOT['listed'].stop:C] = True
    return ~free


def forms(vocab):
    """By token id: id of the form, space before it, case (0 lower or none, 1 first letter, 2 all). `vocab`: text to id."""
    form, space, case = torch.arange(V), torch.zeros(V, dtype=torch.long), torch.zeros(V, dtype=torch.long)
    for text, i in vocab.items():
        bare = text.lstrip('Ġ')
        form[i] = vocab.get(bare.lower(), vocab.get(bare, i)) if bare else i
        space[i] = text.startswith('Ġ')
        case[i] = 2 if len(bare) > 1 and bare.isupper() else int(bare[:1].isupper())
    return form, space, case


class LayerInit:
    """Initializer of one layer. Input rows have norm² `norm2`; weights are relative to the row, whatever its norm."""

    def __init__(self, m, layer, norm2, ffn_norm2, seed):
        self.m, self.b, self.gen = m, m.b[layer], torch.Generator().manual_seed(100 * seed + layer)
        self.rms, self.ffn_rms = math.sqrt(norm2 / C), math.sqrt(ffn_norm2 / C)
        self.n_values, self.n_hidden = 0, 0
        for w in (self.b.q.weight, self.b.k.weight, self.b.v.weight, self.b.o.weight):
            w.zero_()

    def back(self, head, distance, gain, breaks=0.0, later=0.0):
        """Attention by distance only, logit sum_i gain_i cos(w_i (Δ - distance)), plus `breaks` on line breaks.

        Each of BREAKS adds `later` to the distance.
        """
        a, base = LOOK, 14.0
        for i, g in enumerate(gain):
            q, size, turn = head * D + 2 * i, a * g / base, self.m.inv[i].item()
            self.b.k.weight[2 * i, SLOT['const']] = a * self.rms
            vector = lambda d: torch.tensor([math.cos(turn * d), -math.sin(turn * d)]) * size * self.rms
            self.b.q.weight[q:q + 2, SLOT['const']] = vector(distance)[:, None]
            self.b.q.weight[q:q + 2, SLOT['breaks']] = (vector(distance + later) - vector(distance))[:, None] / FLAG
        # Slow pairs have the same logit near and far. It is subtracted: otherwise a key one percent longer than another, from a row of a
        # slightly different norm, would outweigh the distance.
        self.b.k.weight[D - 2, SLOT['const']] = a * self.rms
        self.b.q.weight[head * D + D - 2, SLOT['const']] = -a * (sum(gain) - PEAK) / base * self.rms
        self.b.k.weight[D - 3, SLOT['line']] = a / BROKEN * self.rms
        self.b.k.weight[D - 4, SLOT['sink']] = a / SUNK * self.rms
        self.b.q.weight[head * D + D - 4, SLOT['const']] = a * PASSED_OVER / base * self.rms
        self.b.q.weight[head * D + D - 4, SLOT['sink']] = a * 300 / base / SUNK * self.rms            # a sink attends to sinks only
        self.b.q.weight[head * D + D - 3, SLOT['const']] = a * breaks / base * self.rms

    def query_listed(self, row, logit):
        """In a query's row, `logit` times (LISTED and SAID of the query token): 1 if both are set, 0 if one is."""
        for name, share in (('listed', 1 / FLAG), ('said', 1 / FLAG), ('const', -1)):
            self.b.q.weight[row, SLOT[name]] += logit * share * self.rms

    def init_earlier_items_head(self, head, like):
        """Head of earlier items: at the beginning of an item it attends to tokens after the same words in answers, else to the sink.

        Needs `keys` and `back` first.
        The key of SAID is in a slow pair that `back` does not use.
        """
        words = sum(d for _, key, _, d in COPY if key in ('TWO_K', 'THREE_K', 'FOUR_K'))
        row, own, size = head * D, 2 * FAST - 2, LOOK
        q, alike = self.b.q.weight, slice(2 * FAST, 2 * FAST + words)
        q[row:row + D] = 0
        q[row:row + D][alike] = 1.6 * q[like * D:like * D + D][alike]
        self.b.k.weight[own, SLOT['said']] = size / FLAG * self.rms
        self.b.k.weight[own, SLOT['sink']] = -size / SUNK * self.rms
        self.query_listed(row + own, SAID_BONUS * size / 14)
        q[row + D - 4, SLOT['const']] = SAID_SINK * size / 14 * self.rms

    def attend_turn_ends(self, head):
        """Attention to the ends of turns, or to the first token if there is none. After `back`, whose key of sinks it uses."""
        a = LOOK
        self.b.k.weight[D - 5, SLOT['end']] = a * self.rms
        self.b.q.weight[head * D + D - 5, SLOT['const']] = a * 60 / 14 * self.rms
        self.b.q.weight[head * D + D - 4, SLOT['const']] = a * 30 / 14 * self.rms

    def value(self, name, n=None):
        """Allocates rows of values for a slot. Returns them."""
        s = SLOT[name]
        n = n or s.stop - s.start
        at, self.n_values = self.n_values, self.n_values + n
        assert self.n_values <= D
        self.b.v.weight[at:at + n, s.start:s.start + n] = torch.eye(n) * self.rms
        return slice(at, at + n)

    def write(self, head, values, slot, gain=1.0):
        o = self.b.o.weight[SLOT[slot] if isinstance(slot, str) else slot, head * D + values.start:head * D + values.stop]
        o += torch.eye(len(o)) * gain if isinstance(gain, float) else gain

    def keys(self, matches, heads, sink):
        """Content keys shared by all heads, and the queries of `heads`. matches: (query slots, key slot, logit, dimensions)."""
        base, at, first_rms = 9.0, 2 * FAST, math.sqrt((1 + NORM2) / C)
        for queries, key, logit, d in matches:
            n = SLOT[key].stop - SLOT[key].start
            p = torch.eye(n)[torch.randperm(n, generator=self.gen)[:d]] * math.sqrt(n / d)
            self.b.k.weight[at:at + d, SLOT[key]] = p * base * self.rms
            for head in heads:
                for q in queries:
                    size = logit / base * math.sqrt(D) * self.rms
                    self.b.q.weight[head * D + at:head * D + at + d, QUERY.get(q, SLOT.get(q))] = p * size * HASH_OF.get(q, 1.0)
            at += d
        assert at <= D - 4
        self.b.k.weight[D - 1, SLOT['sink']] = base * first_rms / SUNK
        self.b.k.weight[D - 1, SLOT['line']] = BREAK_LOGIT / sink * base / BROKEN * self.rms
        self.b.k.weight[D - 1, SLOT['said']] = SAID_LOGIT / sink * base / FLAG * self.rms
        for head in heads:
            self.b.q.weight[head * D + D - 1, SLOT['const']] = sink / base * math.sqrt(D) * self.rms

    def product(self, a, b, to, gain):
        """Writes gain · a b, dimension by dimension. a, to: slots of one size; b: a slot in rotated order, or a column."""
        n = a.stop - a.start
        eye = torch.eye(n) * self.ffn_rms
        for sign in (1, -1):
            rows = slice(self.n_hidden, self.n_hidden + n)
            self.b.g.weight[rows], self.b.u.weight[rows] = 0, 0
            self.b.g.weight[rows, a] = eye * sign * GATE
            self.b.u.weight[rows, b] = (eye.roll(1, 0) if b.stop - b.start > 1 else torch.full((n, 1), self.ffn_rms)) * sign
            self.b.d.weight[:, rows] = 0
            self.b.d.weight[to, rows] = torch.eye(n) * gain / GATE
            self.n_hidden += n

    def step(self, slot, low, high, size, to=None):
        """A slot becomes 0 below `low` and `size` above `high`, linear in between: silu(x) is about x or 0 for large |x|.

        With `to` the result is added to another slot.
        """
        steep, (i,) = 12 / (high - low), range(slot.start, slot.stop)
        for at, gain in ((low, 1), (high, -1)):
            row, self.n_hidden = self.n_hidden, self.n_hidden + 1
            for w in (self.b.g.weight[row], self.b.u.weight[row], self.b.d.weight[:, row]):
                w.zero_()
            self.b.g.weight[row, i], self.b.g.weight[row, SLOT['const']] = steep * self.ffn_rms, -steep * at * self.ffn_rms
            self.b.u.weight[row, SLOT['const']] = self.ffn_rms
            self.b.d.weight[to or slot, row] = gain * size / (high - low) / steep
        if to is None:
            self.product(slot, SLOT['const'], slot, -1)


@torch.no_grad()
def init_induction(m, share, vocab, seed=1):
    """Initializes the model. `share` [V]: share of each token in text; `vocab`: token text to id."""
    e, gen = m.e.weight, torch.Generator().manual_seed(seed)
    signs = lambda rows, n: (torch.rand(rows, n, generator=gen) < .5) * 2. - 1.
    form, space, case = forms(vocab)
    weight = ((-share.clamp_min(1e-6).log() - 5) / 5).clamp(0, .9)
    breaks = torch.zeros(V)
    breaks[[i for text, i in vocab.items() if text.strip('Ċ') == '']] = BROKEN
    breaks[IM_END] = BROKEN
    weight[breaks > 0] = 0
    after_space = LOUD * UNIT * signs(1, N_SPACE)
    cases = LOUD * UNIT * torch.tensor([[1., 1, 1, 1], [-1, -1, 1, -1], [1, -1, -1, -1]])
    code = torch.cat((UNIT * signs(V, N_FORM)[form], after_space * (space * 2 - 1)[:, None], cases[case]), 1)
    e.zero_()
    e[:, SLOT['const']], e[:, SLOT['line']] = 1, breaks[:, None]
    e[IM_END, SLOT['end']] = 1
    e[[vocab[text] for text in ('-', 'Ġ-')], SLOT['dash']] = DASH
    e[:, SLOT['IN']], e[:, SLOT['OUT']] = code, code
    e[:, SLOT['RARE']] = signs(V, N_WIDE)[form] / math.sqrt(N_WIDE) * weight[:, None]
    e[:, SLOT['fill']] = (1 + NORM2 - e.pow(2).sum(1, keepdim=True)).clamp_min(0).sqrt()
    for name in ('fill', 'RARE', 'IN'):
        e[FIRST_TOKEN, SLOT[name]] = 0
    e[FIRST_TOKEN, SLOT['sink']] = SUNK
    space_in = slice(SLOT['IN'].start + N_FORM, SLOT['IN'].start + N_FORM + N_SPACE)
    word = slice(SLOT['IN'].start, SLOT['IN'].start + N_HASH)              # the hashed part of FORM

    root, norm2 = math.sqrt(N_HASH), 1 + NORM2
    make = LayerInit(m, 0, norm2, norm2 + 1, seed)
    line, forms_ = make.value('line'), make.value('IN', N_FORM)
    make.b.v.weight[forms_, SLOT['sink']] = code[FIRST_TOKEN, :N_FORM, None] / SUNK * make.rms      # as the word before the next one
    make.back(0, 1, SHARP)
    make.write(0, line, space_in, 2 * after_space.T / BROKEN)
    make.write(0, line, 'breaks', FLAG / BROKEN)
    make.back(1, 1 + BEYOND, SHARP, PASSED_OVER)
    make.write(1, slice(forms_.stop - N_HASH, forms_.stop), 'ONE', 1 / (UNIT * root))
    make.back(2, 2, SHARP)
    make.write(2, line, 'breaks', FLAG / BROKEN)
    make.attend_turn_ends(3)
    make.write(3, make.value('end'), 'said', FLAG)
    make.product(word, SLOT['ONE'], SLOT['TWO'], 1 / UNIT)
    make.product(SLOT['dash'], SLOT['breaks'], SLOT['item'], 1 / DASH)
    make.product(SLOT['OUT'], SLOT['const'], SLOT['OUT'], -1)

    unused = [(make.b, make.n_hidden)]
    norm2 += 1 + 1 - 1                                                      # ONE, TWO, and no OUT
    make = LayerInit(m, 1, norm2, norm2 + 3.75, seed)                           # TWO_K, AT for now, BAG, NEAR, WIDE
    two, rare = make.value('TWO'), make.value('RARE')
    make.back(0, 1 + BEYOND, SHARP, PASSED_OVER)
    make.write(0, two, 'TWO_K')
    make.back(1, 2, SHARP, later=1.0)
    make.write(1, two, first('AT'))
    make.back(2, 4, [0, 1.5] + [12.] * 7, PASSED_OVER)
    make.write(2, two, 'BAG', 2.5), make.write(2, rare, 'NEAR', 2.5), make.write(2, make.value('item'), 'listed', 16.0)
    make.back(3, 32, [0, 0, .5, 8, 6] + [4.] * 4, PASSED_OVER)
    make.write(3, rare, 'WIDE', 8.0)
    make.product(SLOT['RARE'], SLOT['const'], SLOT['RARE'], -1)
    make.product(QUERY['ONE_Q'], SLOT['TWO_K'], SLOT['THREE'], 1 / UNIT)
    make.product(SLOT['ONE'], first('AT'), SLOT['THREE_K'], root)
    make.product(SLOT['TWO'], first('AT'), SLOT['FOUR'], root)
    make.product(SLOT['AT'], SLOT['const'], SLOT['AT'], -1)
    make.step(SLOT['listed'], .1, .16, FLAG)

    unused.append((make.b, make.n_hidden))
    norm2 += 5.6                                                            # TWO_K, FOUR, THREE, THREE_K for RARE, means
    make = LayerInit(m, 2, norm2, norm2 + 1, seed)
    four, wide, const = make.value('FOUR'), make.value('WIDE'), make.value('const')
    # the first token has a constant, too; its sink cancels it
    make.b.v.weight[const, SLOT['sink']] = -make.rms / SUNK
    make.back(0, 1 + BEYOND, SHARP, PASSED_OVER)
    make.write(0, four, 'FOUR_K')
    make.keys(LOCATE, (1, 2, 3), SINK[0])
    for head in (1, 2, 3):
        make.write(head, wide, 'AT', .6 / 3), make.write(head, const, 'found', 1 / 3)
    norm2 += 1.45                                                           # FOUR_K, AT, FOUND
    for layer in (3, 4):
        make = LayerInit(m, layer, norm2, norm2 + 1, seed)
        token, wide = make.value('IN'), make.value('WIDE')
        heads = (1, 2) if layer == 3 else range(H)
        make.keys(COPY, heads, SINK[1])
        for head in heads:
            make.write(head, token, 'OUT', (.8 if layer == 3 else 1.6) / len(heads))
            make.write(head, wide, 'AT', .7 / len(heads))
        if layer == 3:
            place = make.value('AT')
            make.back(0, 5, [0, 1.5] + [12.] * 7, PASSED_OVER)
            make.write(0, place, 'AT', 2.5)
            make.query_listed(D - 4, 120 * LOOK / 14)         # of head 0
            make.init_earlier_items_head(3, 1)
            make.write(3, place, 'AT', -OTHER_PLACE)
        norm2 += 2.9
    for block, used in unused:
        block.d.weight[:, used:] = 0
    m.n.w.fill_(.1 / SCALE)
    m.n.w[SLOT['OUT']] = OUT_GAIN / SCALE
    for name in ('dash', 'item', 'listed'):
        m.n.w[SLOT[name]] = 0
    e.mul_(SCALE)
    for block in m.b:
        block.o.weight.mul_(SCALE), block.d.weight.mul_(SCALE)
    for block in m.b[2:L - 1]:
        block.d.weight[closed()[:C]] = 0
    for block in m.b[2:]:
        block.d.weight.mul_(.1)                                            # nearly zero at first
