"""The circuit that training starts from: it copies from a document, before any training, and training leaves it alone.

    layer 0  the last word ─► ONE;  line breaks of the last two tokens ─► BREAKS;  a line broke here ─► BROKE, and IN as after a space;
             −OUT;  a dash after a line break ─► ITEM;  an end of a turn earlier ─► SAID: answers, and what follows them, are not matched,
             else an answer would be like itself most
             FFN: this word × the last ─► TWO, a hash of both;  where the last word MAY_END a sentence, so may quotation marks after it
    layer 1  TWO of the last word ─► TWO_K;  of the one before, for now ─► AT;  TWO of the last sixteen ─► BAG, words of them ─► NEAR, of
             the last 64 ─► WIDE;  ITEM in the last ones ─► LISTED
             FFN: this word × TWO_K ─► THREE, a hash of three words;  ONE × TWO of two words back ─► THREE_K, the THREE of the last word, in
             the place of RARE;  TWO × TWO of two words back ─► FOUR, a hash of four words;  WIDE ─► signs, nearly: all places have one norm
             an end before and a capital here, a blank line, a list, a heading ─► ENDS: a sentence ended before this word
    layer 2  FOUR of the last word ─► FOUR_K;  query TWO, THREE, BAG, NEAR · key TWO_K, THREE_K, BAG, NEAR ─► WIDE of the place that
             matches: AT, and FOUND where two words do, and nothing less
             the last blank line ─► PARAGRAPH, a code of the words after it: those of the question have the same one
             FFN: after words that ask for a passage ─► ASKED_FROM;  after words that ask for a fact ─► FACT_FROM
    layer 3  query TWO, THREE, FOUR, BAG, AT · key TWO_K, THREE_K, FOUR_K, BAG, WIDE ─► AT, FOUND_4;  AT of what was FOUND some thirteen
             tokens back, and of the answer's last ─► AT: an answer's first words are those of many facts, the question's last ones tell
             which;  where an answer lists, AT of what followed the same words in its earlier items is taken away instead: what was said
             is not said again
    layer 4  two heads, the same query and keys ─► the token after the same words, into OUT;  ENDS of it ─► STOP, and so is a blank line
             two heads, FOUND, FOUND_4, ASKED_FROM of the last word and of the one before ─► PREV, PREV_4, SECOND; PREV2, PREV2_4, THIRD
             FFN: what is asked for is there up to its end ─► RAN_OUT, RAN_SHORT;  a word is not there after ones that are ─► BROKEN_IN a
             word, BROKEN_AT its beginning;  no OUT where an answer begins: one word alone is not matched
    layers 2 to 4  nothing alike ─► the first token, whose value is nothing: a sink
    layer 5  where an answer begins, in its question: the token at ASKED_FROM, or at FACT_FROM, with a capital, ─► OUT;  RAN_OUT and
             BROKEN_IN ─► EVIDENCE;  one and two words later, the tokens at SECOND and THIRD ─► OUT
             FFN: no evidence ─► the refusal;  the rest is learned

A hash is exact: silu(x) y + silu(-x) (-y) = x y, and the product of two codes of signs is a code of signs that matches where both words
match and is like any other where one does not. So the longest equal passage wins, and chance matches weigh one over the square root of
their dimensions. AT and WIDE change slowly along the text: the least and greatest key of 64 tokens lie close together, chunk bounds find
the place, and of alike passages the one around which the text is the same is gone on with.
A word at a line's beginning has the same pieces as after a space (`make_tokenizer`), line breaks are passed over when looking back
and never retrieved, so that wrapped text is copied as if it were not wrapped. What is matched is the FORM of a word, whatever its case
and whether a space comes before it; what is copied has SPACE and CASE too.
Every row holds a constant, BIG, that no layer reads: norms hardly vary, whatever is written later, so that a match scores the same
everywhere.
"""
import math
import re

import torch
import torch.nn.functional as F

from model import C, D, H, V, L

FAST = 10                                # pairs of a head that turn visibly within MAX_POS; the rest match content
N_FORM, N_SPACE, N_CASE, N_HASH, N_WIDE, N_PARAGRAPH = 48, 2, 4, 28, 44, 8
SLOTS = dict(const=1, fill=1, breaks=1, line=1, sink=1, found=1, end=1, said=1, IN=54, OUT=54, RARE=N_WIDE, ONE=28, TWO=28, TWO_K=28,
             THREE=28, FOUR=28, FOUR_K=28, BAG=28, NEAR=N_WIDE, WIDE=N_WIDE, AT=N_WIDE, dash=1, item=1, listed=1,
             may_end=1, closer=1, capital=1, mark=1, before=1, ends=1, stop=1, prev=1, found_4=1, broke=1, spare=1, big=1,
             prev_4=1, prev2=1, prev2_4=1, ran_short=1, broken_in=1, broken_at=1, ran_out=1)
BIG = 20.0                                # of every token's row: norms hardly vary any more, whatever later layers write
NORM2 = 3.81                              # of a token's row without its constant: IN, OUT, RARE, LINE and what fills them up
BROKEN = .9                               # size of LINE in a line break
SCALE = 3.0                               # of the residual stream, so that a training step is small beside it
FIRST_TOKEN, IM_END = 1, 2               # <|im_start|>, wherever it stands, is a sink; <|im_end|> is passed over as a line break is
LOUD = 1.5                                # amplitude of SPACE and CASE
STOP_GAIN = 2.5                           # an end goes before what stands after it in the document
BREAK_LOGIT, SAID_LOGIT, OUT_GAIN = -30.0, -20.0, .9
END_LOGIT = -14.0                         # of a line break in layer 4: after one the next word matches and wins, after two nothing does
SHARP = [45.] + [22.] * 8                # gains of pairs
PEAK = 20.0                               # logit at the distance that is looked for
BEYOND, PASSED_OVER = .3, -17.0           # looked for a little behind the last word, so that the word before gets -9; a break -18
# (query slot, key slot, logit of a full match, dimensions of the key), in layers 2 to 4
MATCHES = {2: (('TWO', 'TWO_K', 36, 26), ('THREE', 'THREE_K', 14, 20), ('BAG', 'BAG', 18, 28), ('NEAR', 'NEAR', 30, 30)),
           3: (('TWO', 'TWO_K', 14, 18), ('THREE', 'THREE_K', 13, 20), ('FOUR', 'FOUR_K', 13, 20), ('AT', 'WIDE', 70, 26),
               ('BAG', 'BAG', 14, 20)),
           4: (('TWO', 'TWO_K', 14, 12), ('THREE', 'THREE_K', 13, 14), ('FOUR', 'FOUR_K', 13, 18), ('AT', 'WIDE', 30, 34),
               ('BAG', 'BAG', 14, 26))}
SINK = {2: 33.0, 3: 38.0, 4: 21.0}        # logit of what matches nothing
AWAY, AWAY_FROM = (0, 0, -.7, -1.8, -1.8, -.7), 15                         # logits, by pair, of what is so far back: -5 in all
PLACE = .7                                # norm of WIDE, which tells places
COPIED = 7.0                              # how loud what is copied is
KEPT = 8.0, 4.0, .4                       # how much of the places of the question's end, of the answer, and of what matches now
QUESTION_END = 13, [0, 1, 6] + [8.] * 6   # tokens back from an answer's first ones, and gains of pairs
KEPT_FOUND = 4.0                          # logit of what was found, beside what was not
# Layer 5, where an answer begins: tokens back, and gains of pairs, of a question and of its last tokens
QUESTION, QUESTION_CLOSES = (15, [0, 0, 7, 14, 16, 12] + [8.] * 3), (9, [0, 4, 20, 16, 24, 16] + [8.] * 3)
SAME = 40.0                               # logit of a question's own tokens, beside the document's last ones
LOOKED_AT, NOTHING, ELSEWHERE = 20.0, 6.0, 60.0        # logits of the words to begin with; of the first token there, and elsewhere
FOR, AGAINST = (dict(ran_out=14, ran_short=15), 12.5), (dict(broken_in=23, broken_at=23), 43.0)       # logits of evidence, and of none
EVIDENCE = *FOR[0], *AGAINST[0]
FIRST, NEXT, REFUSE = 9.0, 7.5, 26.0      # how loud the first word is, the next ones, the refusal
N_REFUSE = 18                             # hidden units of layer 5 that are laid

at, SLOT = 0, {}
for name, size in SLOTS.items():
    SLOT[name], at = slice(at, at + size), at + size
assert at <= C
DASH, OTHER_PLACE = .5, 10.0              # size of a dash; how much places that were said are turned away from
SAID_BONUS, SAID_SINK = 128.0, 96.0       # logits of what was said where a list looks for it, and of sinks
GATE, FLAG, SUNK = 8.0, .3, math.sqrt(NORM2 - 1)
LOOK = math.sqrt(14.0 * math.sqrt(D))     # of a key that is looked at by distance, or as what it is: a query of as much is a logit of 14
first = lambda name: slice(SLOT[name].start, SLOT[name].start + N_HASH)      # of a slot, what a hash takes up
SLOT['THREE_K'] = first('RARE')
at = SLOT['THREE_K'].stop
for name, size in dict(evidence=len(EVIDENCE), asked_from=1, fact_from=1, second=1, third=1, paragraph=N_PARAGRAPH).items():       # in the rest of RARE
    SLOT[name], at = slice(at, at + size), at + size
assert at <= SLOT['RARE'].stop
SLOT['space'] = slice(SLOT['IN'].start + N_FORM, SLOT['IN'].start + N_FORM + 1)
# Pieces of the tokenizer. Words that ask: before a passage; up to "the", with which a fact begins; before a name with which one begins,
# and how much more than others. What stands after a name in a question for a fact.
pieces = lambda text: [some.split() for some in text.split('|')]
REFUSAL = 'ĠI Ġcannot Ġfind Ġthat Ġin Ġthe Ġdocument . <|im_end|>'.split()
PASSAGE_AFTER = pieces('thing Ġon|Ġme Ġabout|Ġit Ġsay|Ġpart Ġabout|Ġsay s|ote :|ind :|Ġcomes Ġafter|ind Ġ"|ok Ġfor|ion Ġ"|: Ġ"|ue :|'
                       'Read Ġfrom|Ġsay Ġabout|Ġpart Ġon|ence Ġwith')
FACT_AT = [(1.0, 'THREE', [some + ['Ġthe'] for some in pieces('When Ġis|ere Ġis|What Ġdid|ro te|Ġday Ġis|Ġare Ġin|Ġwhom Ġis|D id|W as|When Ġdoes|'
                                                              'What Ġis|Ġmuch Ġdid|ll Ġme|s Ġdoes|Ġlarge Ġis|o Ġis|Do es|ĠI Ġfind|When Ġwas|Ġold Ġis')]),
           (1.5, 'THREE', pieces('or Ġof Ġthe|Ġname Ġof Ġthe|id Ġfor Ġthe')),
           (1.3, 'TWO_K', pieces('Ġyear Ġwas|W as|Ġmuch Ġwas|Ġmuch Ġdid|What Ġdid|Ġplace Ġdoes|Do es|o Ġdid|om Ġdid|D id|When Ġdid|Ġday Ġdid|When Ġwas')),
           (.8, 'TWO_K', pieces('ere Ġdoes')),
           (2.8, 'TWO_K', pieces('th Ġof|Ġhome Ġof|band Ġof|Ġdeath Ġof'))]
AFTER_A_NAME = dict(broken_at='Ġfound Ġd Ġear Ġget Ġco Ġmar Ġli Ġlive Ġpa Ġke Ġkept Ġb Ġborn Ġop Ġopen Ġhold Ġwritten', broken_in='ie')
LAST_OF_FORM = slice(SLOT['IN'].start + N_FORM - N_HASH, SLOT['IN'].start + N_FORM)          # what ONE is of the last word
UNIT = (N_FORM + LOUD ** 2 * (N_SPACE + N_CASE)) ** -.5                     # amplitude of FORM: codes have norm 1


def forms(vocab):
    """By token id: id of the form, whether a space comes before, case (0 lower or none, 1 first letter, 2 all). `vocab`: text to id."""
    form, space, case = torch.arange(V), torch.zeros(V, dtype=torch.long), torch.zeros(V, dtype=torch.long)
    for text, i in vocab.items():
        bare = text.lstrip('Ġ')
        form[i] = vocab.get(bare.lower(), vocab.get(bare, i)) if bare else i
        space[i] = text.startswith('Ġ')
        case[i] = 2 if len(bare) > 1 and bare.isupper() else int(bare[:1].isupper())
    return form, space, case


def marks(vocab):
    """Ids of tokens by what they say of a sentence's end. `vocab`: text to id.

    may_end: it ends as a sentence may; closer: quotation marks and brackets that may follow; capital: a sentence may begin so, after a
    space; mark: it begins a list, table, heading, code or an indented line, after a line break.
    """
    tests = {'opener': r'Ġ*["\'(\[_*]+|Ġ+', 'may_end': r'.*[.!?;]["\')\]_*]*', 'closer': r'["\')\]_*]+|Ġ+', 'capital': r'Ġ*["\'(\[_*]*[A-Z].*|Ġ*["\'(\[_*]+|Ġ+',
             'mark': r'[-*+|#`>].*|Ġ+|ĉ+'}
    return {name: [i for text, i in vocab.items() if re.fullmatch(test, text)] for name, test in tests.items()}


def along(values, slot, at=0):
    """Dimension: value, from the `at`-th one of a slot on."""
    return dict(enumerate(values.tolist(), SLOT[slot].start + at))


def matches_case(code):
    """Weights of CASE whose sum is 1 where it is `code` [N_CASE]."""
    return along(code / code.norm() ** 2, 'IN', N_FORM + N_SPACE)


def without_big(norm, norm2):
    """Rows of norm² `norm2`, and BIG beside it, come out as they would without it."""
    norm.w.fill_(math.sqrt(1 + BIG ** 2 / norm2))
    norm.w[SLOT['big']] = 0


class Maker:
    """Weights of one layer. A row that comes in has norm² `norm2`; weights are of the row itself, whatever its norm."""

    def __init__(self, m, layer, norm2, ffn_norm2, seed, vocab=None):
        self.m, self.vocab, self.b, self.seed = m, vocab, m.b[layer], 100 * seed + layer
        self.rms, self.ffn_rms = math.sqrt(norm2 / C), math.sqrt(ffn_norm2 / C)
        without_big(self.b.n1, norm2), without_big(self.b.n2, ffn_norm2)
        self.n_values, self.n_hidden = 0, 0
        self.at_random = [w.clone() for w in (self.b.k.weight, self.b.v.weight, self.b.d.weight)]
        for w in (self.b.q.weight, self.b.k.weight, self.b.v.weight, self.b.o.weight, self.b.d.weight):
            w.zero_()

    def back(self, head, distance, gain, breaks=0.0, later=0.0, sinks=PASSED_OVER, apart=True):
        """Attention that depends on distance alone, logit sum_i gain_i cos(w_i (Δ - distance)), plus `breaks` on line breaks.

        The distance is `later` more for each of BREAKS. A sink sees sinks alone, where they are `apart`.
        """
        for i, g in enumerate(gain):
            q = head * D + 2 * i
            self.b.k.weight[2 * i, SLOT['const']] = LOOK * self.rms
            self.b.q.weight[q:q + 2, SLOT['const']] = self.turned(i, distance) * LOOK * g / 14 * self.rms
            self.b.q.weight[q:q + 2, SLOT['breaks']] = (self.turned(i, distance + later) - self.turned(i, distance)) * LOOK * g / 14 / FLAG * self.rms
        # All that turns so slowly says the same of near and far. It is taken away again: else what makes one key a hundredth longer
        # than another, as its row's norm is not quite like others', would outweigh the distance.
        self.b.k.weight[D - 2, SLOT['const']] = LOOK * self.rms
        self.b.q.weight[head * D + D - 2, SLOT['const']] = -LOOK * (sum(gain) - PEAK) / 14 * self.rms
        self.b.k.weight[D - 3, SLOT['line']] = LOOK / BROKEN * self.rms
        self.b.k.weight[D - 4, SLOT['sink']] = LOOK / SUNK * self.rms
        self.b.q.weight[head * D + D - 4, SLOT['const']] = LOOK * sinks / 14 * self.rms
        self.b.q.weight[head * D + D - 4, SLOT['sink']] = LOOK * 300 / 14 / SUNK * self.rms * apart
        self.b.q.weight[head * D + D - 3, SLOT['const']] = LOOK * breaks / 14 * self.rms

    def where_listed(self, row, logit):
        """In a query's row, `logit` times LISTED and SAID of the token that asks: 1 where both are, 0 where one is."""
        for name, share in (('listed', 1 / FLAG), ('said', 1 / FLAG), ('const', -1)):
            self.b.q.weight[row, SLOT[name]] += logit * share * self.rms

    def look_at_what_was_said(self, head, like):
        """After `keys` and `back`: where an item of a list begins, attention to what followed the same words in answers, else to the sink.

        The key of what was said is in a pair that turns little and that `back` leaves free.
        """
        words = sum(d for query, _, _, d in MATCHES[3] if query in ('TWO', 'THREE', 'FOUR'))
        row, own = head * D, 2 * FAST - 2
        q, alike = self.b.q.weight, slice(2 * FAST, 2 * FAST + words)
        q[row:row + D] = 0
        q[row:row + D][alike] = 1.6 * q[like * D:like * D + D][alike]
        self.b.k.weight[own, SLOT['said']] = LOOK / FLAG * self.rms
        self.b.k.weight[own, SLOT['sink']] = -LOOK / SUNK * self.rms
        self.where_listed(row + own, SAID_BONUS * LOOK / 14)
        q[row + D - 4, SLOT['const']] = SAID_SINK * LOOK / 14 * self.rms

    def keep_to_what_was_said(self, head, bonus=60., sink=45.):
        """After `back` and `look_at_what_was_said`, whose keys it uses: of tokens near by, those of answers, else the sink."""
        self.b.q.weight[head * D + 2 * FAST - 2, SLOT['const']] = bonus * LOOK / 14 * self.rms
        self.b.q.weight[head * D + D - 4, SLOT['const']] = (sink + bonus) * LOOK / 14 * self.rms

    def look_for_end(self, head):
        """Attention to the ends of turns, or to the first token where there is none. After `back`, whose key of sinks it looks at."""
        self.b.k.weight[D - 5, SLOT['end']] = LOOK * self.rms
        self.b.q.weight[head * D + D - 5, SLOT['const']] = LOOK * 60 / 14 * self.rms
        self.b.q.weight[head * D + D - 4, SLOT['const']] = LOOK * 30 / 14 * self.rms

    def value(self, name, n=None):
        """Takes up a slot among the values; where it lies there."""
        s = SLOT[name]
        n = n or s.stop - s.start
        at, self.n_values = self.n_values, self.n_values + n
        assert self.n_values <= D
        self.b.v.weight[at:at + n, s.start:s.start + n] = torch.eye(n) * self.rms
        return slice(at, at + n)

    def write(self, head, values, slot, gain=1.0):
        o = self.b.o.weight[SLOT[slot] if isinstance(slot, str) else slot, head * D + values.start:head * D + values.stop]
        o += torch.eye(len(o)) * gain if isinstance(gain, float) else gain

    def keys(self, layer, heads):
        """Content keys shared by all heads, and the queries of `heads`; less attention to what is near.

        A question has the words that it asks for, too, and would be gone on with instead of the document.
        """
        base, at, gen, sink = 9.0, 2 * FAST, torch.Generator().manual_seed(self.seed), SINK[layer]
        for query, key, logit, d in MATCHES[layer]:
            n = SLOT[key].stop - SLOT[key].start
            p = torch.eye(n)[torch.randperm(n, generator=gen)[:d]] * math.sqrt(n / d)
            self.b.k.weight[at:at + d, SLOT[key]] = p * base * self.rms
            for head in heads:
                self.b.q.weight[head * D + at:head * D + at + d, SLOT[query]] = p * logit / base * math.sqrt(D) * self.rms
            at += d
        assert at <= D - 4
        for name, logit, full in (('sink', sink, SUNK), ('line', END_LOGIT if layer == 4 else BREAK_LOGIT, BROKEN), ('said', SAID_LOGIT, FLAG)):
            self.b.k.weight[D - 1, SLOT[name]] = logit / sink * base / full * self.rms
        for head in heads:
            self.b.q.weight[head * D + D - 1, SLOT['const']] = sink / base * math.sqrt(D) * self.rms
        for i, logit in enumerate(AWAY):
            self.b.k.weight[2 * i, SLOT['const']] = LOOK * self.rms
            for head in heads:
                self.b.q.weight[head * D + 2 * i:head * D + 2 * i + 2, SLOT['const']] = self.turned(i, AWAY_FROM) * LOOK * logit / 14 * self.rms

    def find_blank_line(self, head):
        """Attention to the first token after the last blank line. A turn's first token stands after <|im_end|> and a line break, but is a sink."""
        self.back(head, 0, [0, 0, 8, 14, 12] + [8.] * 4, apart=False)
        self.b.k.weight[2 * FAST - 1, SLOT['breaks']] = LOOK / FLAG * self.rms
        self.b.k.weight[2 * FAST - 1, SLOT['sink']] = -4 * LOOK / SUNK * self.rms
        self.b.q.weight[head * D + 2 * FAST - 1, SLOT['const']] = 30 * LOOK / 14 * self.rms

    def turned(self, pair, distance):
        turn = self.m.inv[pair].item() * distance
        return torch.tensor([[math.cos(turn)], [-math.sin(turn)]])

    def product(self, a, b, to, gain):
        """Writes gain · a b, dimension by dimension. a, to: slots of one size; b: another, taken in another order, or a column."""
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

    def rise(self, weights, into, low, high, size, steep):
        """Adds to dimension `into` 0 where the sum of `weights` (dimension: weight) is below `low`, `size` above `high`: silu(x) is x, or nothing, where x is large."""
        for at, gain in ((low, 1), (high, -1)):
            row, self.n_hidden = self.n_hidden, self.n_hidden + 1
            for w in (self.b.g.weight[row], self.b.u.weight[row], self.b.d.weight[:, row]):
                w.zero_()
            for i, weight in weights.items():
                self.b.g.weight[row, i] = steep * weight * self.ffn_rms
            self.b.g.weight[row, SLOT['const']] = -steep * at * self.ffn_rms
            self.b.u.weight[row, SLOT['const']] = self.ffn_rms
            self.b.d.weight[into, row] = gain * size / (high - low) / steep

    def tell(self, name, low, high, more=None, **weights):
        """A slot is 1 where the sum of slots by weight, and of `more` (dimension: weight), is above `high`, 0 where it is below `low`."""
        self.rise({**(more or {}), **{SLOT[slot].start: w for slot, w in weights.items()}}, SLOT[name].start, low, high, 1, 12 / (high - low))

    def clip(self, slot, mean, spread, size):
        """Dimension by dimension `size` times how many `spread` it is above or below `mean`, one at most: places are told apart by direction."""
        self.product(slot, SLOT['const'], slot, -1)
        for i, m, s in zip(range(slot.start, slot.stop), mean.tolist(), spread.tolist()):
            self.rise({i: 1}, i, m - s, m + s, 2 * size, 12 / s)
        row, self.n_hidden = self.n_hidden, self.n_hidden + 1                       # it ran from 0 to 2
        self.b.g.weight[row], self.b.u.weight[row], self.b.d.weight[:, row] = 0, 0, 0
        self.b.g.weight[row, SLOT['const']] = self.b.u.weight[row, SLOT['const']] = GATE * self.ffn_rms
        self.b.d.weight[slot, row] = -size / GATE ** 2

    def step(self, slot, low, high, size, to=None):
        """A slot becomes 0 below `low` and `size` above `high`, in between it rises. With `to` that is added to another slot."""
        self.rise({slot.start: 1}, (to or slot).start, low, high, size, 12 / (high - low))
        if to is None:
            self.product(slot, SLOT['const'], slot, -1)

    def tell_what_is_there(self, spaced, capital):
        """Layer 4's FFN. `spaced`: what makes SPACE half of 1; `capital`: CASE of what begins with one."""
        capital = matches_case(capital)
        no_end = dict(may_end=-1.5, closer=-1.5, line=-1.5 / BROKEN)
        end = dict(may_end=1, closer=1, end=2)
        self.tell('broken_in', .75, 1.1, prev_4=1, found=-1, space=-spaced, **no_end)
        self.tell('broken_at', 1.5, 1.8, {d: .6 * w for d, w in capital.items()}, prev_4=1, found=-1, space=spaced, **no_end)
        self.tell('ran_out', 3.15, 3.5, prev_4=3, found=-1, **end)
        self.tell('ran_short', 4.3, 4.7, prev=2, prev2=2, found=-1, **end)
        for name, words in AFTER_A_NAME.items():
            for w in (w for w in words.split() if w in self.vocab):
                after = {**along(4 * self.m.e.weight[self.vocab[w], SLOT['IN']], 'IN'), SLOT['prev'].start: .55, SLOT['prev2'].start: .55, SLOT['found'].start: -1}
                self.rise(after, [SLOT['ran_out'].start, SLOT[name].start], 4.45, 4.65, torch.tensor([1.7, -1.]), 120)
        for slot in (SLOT['OUT'], SLOT['stop']):                              # where an answer begins nothing is gone on with
            self.product(slot, SLOT['line'], slot, -1 / BROKEN), self.product(slot, SLOT['breaks'], slot, -1 / FLAG)

    def tell_what_is_asked(self, lower):
        """Layer 2's FFN. `lower`: CASE of what is no capital."""
        # a question that begins as none does asks for a passage
        self.rise({SLOT['breaks'].start: 1 / FLAG, **matches_case(lower)}, SLOT['asked_from'].start, 2.4, 2.6, 1, 60)
        for name, size, key, some in [('asked_from', 1, 'TWO_K', PASSAGE_AFTER)] + [('fact_from', *how) for how in FACT_AT]:
            self.tell_words(name, size, key, [[self.vocab[w] for w in words] for words in some if all(w in self.vocab for w in words)])

    def tell_words(self, name, size, key, words):
        """A slot is `size` after pairs of token ids, or at the last of three: where `key`, TWO_K or THREE, is their hash."""
        for code in self.hashes(key.removesuffix('_K'), words):
            self.rise(along(code, key), SLOT[name].start, .8, .92, size, 12 / .12)

    def hashes(self, name, words):
        """TWO or THREE [N, N_HASH] at the last of some token ids, their norm 1."""
        ids = torch.tensor([[FIRST_TOKEN, *some] for some in words])
        angle = torch.arange(ids.shape[1])[None, None, :, None] * self.m.inv
        x = self.m.e(ids)
        for block in self.m.b[:2]:
            x = block(x, angle.cos(), angle.sin())
        return F.normalize(x[:, -1, SLOT[name]], dim=1)

    def how_answers_begin(self, after_space, capital, code):
        """Layer 5's attention. `after_space`: code of SPACE of an answer's first word; `capital`: how a capital's CASE differs."""
        begin, there, following, broken = range(H)
        q, k, o = self.b.q.weight, self.b.k.weight, self.b.o.weight
        token, const = self.value('IN'), self.value('const')
        told = {name: self.value(name) for name in EVIDENCE}
        self.b.v.weight[const, SLOT['sink']] = -self.rms / SUNK
        self.b.v.weight[token.stop - N_CASE:token.stop, SLOT['fact_from']] = capital.T * self.rms
        row = 2 * FAST
        rows = {begin: row, there: row + 1, broken: row + 2}                  # of keys
        for head, logits in ((begin, dict(fact_from=LOOKED_AT, asked_from=LOOKED_AT)), (there, FOR[0]), (broken, AGAINST[0])):
            for name, logit in logits.items():
                k[rows[head], SLOT[name]] = logit * LOOK * self.rms
        k[rows[broken], SLOT['said']] = -30 / FLAG * LOOK * self.rms          # of the question, not of the answer's first word
        for head, where, nothing in ((begin, QUESTION, NOTHING), (there, QUESTION_CLOSES, FOR[1]), (broken, QUESTION, AGAINST[1])):
            self.back(head, *where, sinks=0.0, apart=False)
            self.only_after_a_line_break(head, nothing)
            q[head * D + rows[head], SLOT['line']] = LOOK / 14 / BROKEN * self.rms
        for head in (there, broken):                                         # and one word later
            q[head * D:head * D + D, SLOT['breaks']] += q[head * D:head * D + D, SLOT['line']] * BROKEN / FLAG
        self.back(following, *QUESTION, sinks=0.0, apart=False)
        for row_, name in ((row + 3, 'second'), (row + 4, 'third')):
            k[row_, SLOT[name]] = LOOKED_AT * LOOK * self.rms
        q[following * D + row + 3, SLOT['broke']] = LOOK / 14 / FLAG * self.rms               # as BREAKS, but of the last word alone
        q[following * D + row + 4, SLOT['breaks']] = LOOK / 14 / FLAG * self.rms
        q[following * D + row + 4, SLOT['broke']] = -LOOK / 14 / FLAG * self.rms
        q[following * D + D - 4, SLOT['const']] = ELSEWHERE * LOOK / 14 * self.rms
        q[following * D + D - 4, SLOT['breaks']] = (NOTHING - ELSEWHERE) / FLAG * LOOK / 14 * self.rms
        same = slice(row + 5, row + 5 + N_PARAGRAPH)                         # the question is what stands after the last blank line
        k[same, SLOT['paragraph']] = LOOK * self.rms * torch.eye(N_PARAGRAPH)
        for head in range(H):
            q[head * D + same.start:head * D + same.stop, SLOT['paragraph']] = SAME * LOOK / 14 * self.rms * torch.eye(N_PARAGRAPH)
        self.write(begin, token, 'OUT', FIRST), self.write(following, token, 'OUT', NEXT)
        for i, name in enumerate(EVIDENCE, SLOT['evidence'].start):
            self.write(there if name in FOR[0] else broken, told[name], slice(i, i + 1))
        space = slice(SLOT['OUT'].start + N_FORM, SLOT['OUT'].start + N_FORM + N_SPACE)          # an answer begins after one
        o[space, begin * D:begin * D + D] = 0
        self.write(begin, const, space, FIRST * after_space.T)
        k_0, v_0, _ = self.at_random                                         # what is not laid is left to be learned
        k[same.stop:D - 5] = k_0[same.stop:D - 5]
        self.b.v.weight[self.n_values:] = v_0[self.n_values:]
        self.refuse(code)

    def refuse(self, code):
        """Layer 5's FFN: where an answer begins without evidence, the refusal, one token after the other. `code` [V, 54]: of tokens."""
        said = [self.vocab[w] for w in REFUSAL]
        evidence = along(torch.tensor([-1.5, -1.5, 2.5, 2.5]), 'evidence')
        self.b.d.weight[:, N_REFUSE:] = .1 * self.at_random[2][:, N_REFUSE:]  # as good as nothing, at first
        self.say(said[0], code, {SLOT['line'].start: 4 / BROKEN, **evidence}, 3.0, 3.2, 60)
        form = F.normalize(code[said[0], :N_FORM], dim=0) * 6 / UNIT / math.sqrt(N_FORM)
        self.say(said[1], code, {**along(form, 'IN'), SLOT['breaks'].start: 1 / FLAG, **evidence}, 6.05, 6.35, 40)
        for n in range(2, len(said)):
            key, size = ('TWO', 2) if n == 2 else ('THREE', 3)
            self.say(said[n], code, along(self.hashes(key, [said[n - size:n]])[0], key), .75, .9, 60)
        assert self.n_hidden == N_REFUSE

    def say(self, token, code, weights, low, high, steep):
        """A token's code, into OUT, where a sum is above `high`; an answer ends where it is <|im_end|>, and nowhere else."""
        units = slice(self.n_hidden, self.n_hidden + 2)
        self.rise(weights, SLOT['OUT'], low, high, REFUSE * code[token], steep)
        stop = 1.0 if token == IM_END else -.5
        self.b.d.weight[SLOT['stop'], units] = stop * self.b.d.weight[SLOT['OUT'], units].norm(dim=0) * torch.tensor([1., -1.])

    def only_after_a_line_break(self, head, nothing):
        """After `back`: there a head looks as it does, with a logit of `nothing` for the first tokens; elsewhere at nothing else."""
        q, rows, first = self.b.q.weight, slice(head * D, head * D + D), head * D + D - 4
        q[rows, SLOT['line']], q[rows, SLOT['const']] = q[rows, SLOT['const']] / BROKEN, 0
        q[first, SLOT['const']] = ELSEWHERE * LOOK / 14 * self.rms
        q[first, SLOT['line']] = (nothing - ELSEWHERE) * LOOK / 14 / BROKEN * self.rms


@torch.no_grad()
def start_from_a_circuit(m, share, vocab, seed=1):
    """`share` [V]: of each token in text; `vocab`: token text to id."""
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
    kinds = marks(vocab)
    for name in ('may_end', 'closer', 'capital', 'mark'):
        e[kinds[name], SLOT[name]] = 1
    e[kinds['opener'], SLOT['capital']] = .6
    e[IM_END, SLOT['stop']] = 1
    e[:, SLOT['RARE']] = signs(V, N_WIDE)[form] / math.sqrt(N_WIDE) * weight[:, None]
    e[:, SLOT['fill']] = (1 + NORM2 - e.pow(2).sum(1, keepdim=True)).clamp_min(0).sqrt()
    for name in ('fill', 'RARE', 'IN'):
        e[FIRST_TOKEN, SLOT[name]] = 0
    e[FIRST_TOKEN, SLOT['sink']] = SUNK
    e[:, SLOT['big']] = BIG
    space_in = slice(SLOT['space'].start, SLOT['space'].start + N_SPACE)
    word = slice(SLOT['IN'].start, SLOT['IN'].start + N_HASH)              # of FORM, what is hashed

    root, norm2 = math.sqrt(N_HASH), 1 + NORM2
    make = Maker(m, 0, norm2, norm2 + 1, seed)
    line, forms_, may_end = make.value('line'), make.value('IN', N_FORM), make.value('may_end')
    make.b.v.weight[forms_, SLOT['sink']] = code[FIRST_TOKEN, :N_FORM, None] / SUNK * make.rms      # as a word before the next
    make.back(0, 1, SHARP)
    make.write(0, line, space_in, 2 * after_space.T / BROKEN)
    make.write(0, line, 'breaks', FLAG / BROKEN), make.write(0, line, 'broke', FLAG / BROKEN)
    make.back(1, 1 + BEYOND, SHARP, PASSED_OVER)
    make.write(1, slice(forms_.stop - N_HASH, forms_.stop), 'ONE', 1 / (UNIT * root))
    make.write(1, may_end, 'before')
    make.back(2, 2, SHARP)
    make.write(2, line, 'breaks', FLAG / BROKEN)
    make.look_for_end(3)
    make.write(3, make.value('end'), 'said', FLAG)
    make.product(word, SLOT['ONE'], SLOT['TWO'], 1 / UNIT)
    make.product(SLOT['dash'], SLOT['broke'], SLOT['item'], 1 / DASH)
    make.product(SLOT['OUT'], SLOT['const'], SLOT['OUT'], -1)
    make.product(SLOT['closer'], SLOT['before'], SLOT['may_end'], 1)
    make.product(SLOT['before'], SLOT['const'], SLOT['before'], -1)
    make.product(SLOT['capital'], SLOT['const'], SLOT['capital'], -.5)
    make.product(SLOT['capital'], SLOT['space'], SLOT['capital'], .5 / after_space[0, 0].item())
    make.step(SLOT['breaks'], 1.3 * FLAG, 1.7 * FLAG, 1, SLOT['ends'])
    make.product(SLOT['mark'], SLOT['broke'], SLOT['ends'], 1 / FLAG)

    norm2 += 1 + 1 - 1                                                      # ONE, TWO, and no OUT
    make = Maker(m, 1, norm2, norm2 + 3.75, seed)                           # TWO_K, AT for now, BAG, NEAR, WIDE
    two, rare, may_end = make.value('TWO'), make.value('RARE'), make.value('may_end')
    make.back(0, 1 + BEYOND, SHARP, PASSED_OVER)
    make.write(0, two, 'TWO_K'), make.write(0, may_end, 'before')
    make.back(1, 2, SHARP, later=1.0)
    make.write(1, two, first('AT'))
    make.back(2, 6, [0, 1, 6] + [12.] * 6, PASSED_OVER)
    make.write(2, two, 'BAG', 2.5), make.write(2, rare, 'NEAR', 2.5), make.write(2, make.value('item'), 'listed', 16.0)
    make.back(3, 32, [0, 0, .5, 8, 6] + [4.] * 4, PASSED_OVER, sinks=3.0)       # as good as 20 tokens: else first tokens outshine all
    make.write(3, rare, 'WIDE', 8.0)
    make.product(SLOT['RARE'], SLOT['const'], SLOT['RARE'], -1)
    make.product(LAST_OF_FORM, SLOT['TWO_K'], SLOT['THREE'], 1 / UNIT)
    make.product(SLOT['ONE'], first('AT'), SLOT['THREE_K'], root)
    make.product(SLOT['TWO'], first('AT'), SLOT['FOUR'], root)
    make.product(first('AT'), SLOT['const'], first('AT'), -1)
    make.product(SLOT['capital'], SLOT['before'], SLOT['ends'], 1)
    make.step(SLOT['listed'], .1, .16, FLAG)
    mean = 8 * share @ e[:, SLOT['RARE']]
    spread = 8 * (share @ e[:, SLOT['RARE']].pow(2) / 40).sqrt()
    make.clip(SLOT['WIDE'], mean, spread, PLACE / math.sqrt(N_WIDE))

    norm2 += 5.6                                                            # TWO_K, FOUR, THREE, THREE_K for RARE, means
    make = Maker(m, 2, norm2, norm2 + 1, seed, vocab)
    four, wide, const = make.value('FOUR'), make.value('WIDE'), make.value('const')
    # the first token has a constant, too: its sink takes it away
    make.b.v.weight[const, SLOT['sink']] = -make.rms / SUNK
    make.back(0, 1 + BEYOND, SHARP, PASSED_OVER)
    make.write(0, four, 'FOUR_K')
    make.keys(2, (1, 2))
    for head in (1, 2):
        make.write(head, wide, 'AT', .6 / 2), make.write(head, const, 'found', 1 / 2)
    make.find_blank_line(3)
    make.write(3, make.value('TWO', N_PARAGRAPH), 'paragraph', math.sqrt(N_HASH / N_PARAGRAPH))
    make.tell_what_is_asked(cases[0])
    norm2 += 2.45                                                           # FOUR_K, AT, FOUND, PARAGRAPH
    make = Maker(m, 3, norm2, norm2 + 1, seed)
    wide, place, const = make.value('WIDE'), make.value('AT'), make.value('const')
    make.b.v.weight[const, SLOT['sink']] = -make.rms / SUNK
    make.keys(3, (1,))
    make.write(1, wide, 'AT', KEPT[2]), make.write(1, const, 'found_4')
    make.back(0, *QUESTION_END, PASSED_OVER)
    make.b.k.weight[2 * FAST - 1, SLOT['found']] = LOOK * make.rms
    make.b.q.weight[2 * FAST - 1, SLOT['const']] = KEPT_FOUND * LOOK / 14 * make.rms
    make.write(0, place, 'AT', KEPT[0])
    make.where_listed(D - 4, 120 * LOOK / 14)                                        # of head 0
    make.look_at_what_was_said(3, 1)
    make.write(3, place, 'AT', -OTHER_PLACE)
    make.back(2, 4, [0, 1.5] + [12.] * 7, PASSED_OVER)
    make.keep_to_what_was_said(2)
    make.write(2, place, 'AT', KEPT[1])
    norm2 += 2.9                                                            # places
    make = Maker(m, 4, norm2, norm2 + 1, seed, vocab)
    token, ends = make.value('IN'), make.value('ends')
    # a line break is retrieved where nothing else follows: that is an end, too, and no word
    make.b.v.weight[token, SLOT['line']] = -code[vocab['Ċ']][:, None] / BROKEN * make.rms
    make.b.v.weight[ends, SLOT['line']] = 1 / BROKEN * make.rms
    found, found_4, asked = make.value('found'), make.value('found_4'), make.value('asked_from')
    make.b.v.weight[asked, SLOT['fact_from']] = make.rms
    make.keys(4, (0, 1))
    for head in (0, 1):
        make.write(head, token, 'OUT', COPIED / 2), make.write(head, ends, 'stop', COPIED / 2)
    for head, distance, names in ((2, 2 + BEYOND, ('prev2', 'prev2_4')), (3, 1 + BEYOND, ('prev', 'prev_4'))):
        make.back(head, distance, SHARP, PASSED_OVER)
        for value, name in zip((found, found_4), names):
            make.write(head, value, name)
    make.write(3, asked, 'second'), make.write(2, asked, 'third')
    make.tell_what_is_there(.5 / after_space[0, 0].item(), cases[1])
    norm2 += 2.9 + 3                                                        # OUT, what is told
    make = Maker(m, L - 1, norm2, norm2 + 4, seed, vocab)
    make.how_answers_begin(after_space, cases[1:2] - cases[:1], code)
    without_big(m.n, norm2 + 4)
    m.n.w.mul_(.1 / SCALE)
    for name in ('OUT', 'stop'):
        m.n.w[SLOT[name]] *= 10 * OUT_GAIN
    m.n.w[SLOT['stop']] *= STOP_GAIN
    for name in ('dash', 'item', 'listed', 'may_end', 'closer', 'capital', 'mark', 'broke', 'before', 'ends'):
        m.n.w[SLOT[name]] = 0
    e.mul_(SCALE)
    for block in m.b:
        block.o.weight.mul_(SCALE), block.d.weight.mul_(SCALE)
    for block in m.b:
        block.o.weight[SLOT['big']], block.d.weight[SLOT['big']] = 0, 0
