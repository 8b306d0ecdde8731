"""Sentence heads, on top of the induction circuit: sentence ends, and a confident copying head.

They replace heads that training left equal, and use extra channels.

    layers 0, 1   tokens that may end a sentence, or begin one ─► ENDS: a sentence ended before this word
    layer 2       heads 2 and 3 equal head 1: head 2 ─► BAGS, TWO of the last twenty tokens
    layer 4       heads 1 to 3 equal head 0, whose keys of FOUR now hold BAGS: four words are often just a name, and of equal names the one
                  with the same twenty tokens around it is continued
                  head 1, only if three words and both bags are alike ─► the token after them, into OUT; ENDS of it ─► STOP
                  heads 2 and 3 have nearly the queries of head 0, and write nothing yet

Heads that begin equal have equal gradients and stay equal: of nine heads that match words six were copies of the others after 51 M tokens.
"""
import math
import re

import torch

from init_induction import C as INDUCTION_CHANNELS
from init_induction import BROKEN, FIRST_TOKEN, FLAG, IM_END, LOOK, NORM2, PASSED_OVER, PEAK, SCALE, SLOT, SUNK, LayerInit
from model import C, D, V, QuoteModel

MARK, STOP, STOP_GAIN = .1, .2, 4.0       # size of a mark; of STOP in <|im_end|>; gain of STOP: an end comes before the token after it
TWENTY = 9, [0, 0, 4, 8] + [4.] * 5, 3.6  # distance in tokens, gains of pairs, output gain: 2 to 6 % of the attention on each of the last twenty
# Layer 4. Slot of a query: slot of the key, its rows, measured norms of both, logit of a full match for head 1. Two places differ by 20 in the
# mean, by 9 through chance, times 2.5: with logits as small as these, uncertain attention is split.
MATCHES = {'TWO': ('TWO_K', 20, 38, 1, 1, 5.6), 'THREE': ('THREE_K', 38, 58, 1, 1.05, 8), 'BAGS': ('BAGS', 58, 78, .85, .85, 8),
           'AT': ('WIDE', 78, 102, 2.3, .58, 6), 'BAG': ('BAG', 102, 124, .86, .86, 8)}
BAGS_LOGIT, KEY = 5.0, 9.0                # of a full match for head 0; size of a key
SURE, IN_A_BREAK, SAID_LOGIT = 24.0, -12.0, -24.0          # head 1: logits of the sink, of a line break, of answers
AWAY, AWAY_FROM = (0, 0, -.28, -.72, -.72, -.28), 15       # logits by pair at that distance: -2 in all
SPOKEN = .7                               # output gain of head 1


def marks(vocab):
    """Ids of tokens by their role at the end of a sentence. `vocab`: text to id.

    may_end: may end a sentence; closer: quotation marks and brackets that may follow; capital: may begin a sentence, after a space;
    mark: begins a list, table, heading, code or an indented line, after a line break.
    """
    tests = {'opener': r'Ġ*["\'(\[_*]+|Ġ+', 'may_end': r'.*[.!?;]["\')\]_*]*', 'closer': r'["\')\]_*]+|Ġ+', 'capital': r'Ġ*["\'(\[_*]*[A-Z].*|Ġ*["\'(\[_*]+|Ġ+',
             'mark': r'[-*+|#`>].*|Ġ+|ĉ+'}
    return {name: [i for text, i in vocab.items() if re.fullmatch(test, text)] for name, test in tests.items()}


def widened(m):
    """The same function with more channels, still zero. Their norm weights are those of the other channels."""
    wide, ratio = QuoteModel(m.kv_heads), math.sqrt(INDUCTION_CHANNELS / C)
    old = m.state_dict()
    for name, w in wide.state_dict().items():
        w.zero_()
        part = old[name]
        w[tuple(slice(n) for n in part.shape)] = part * ratio if w.dim() == 1 else part
        if w.dim() == 1 and name.startswith('b.'):
            w[INDUCTION_CHANNELS:] = part.mean() * ratio
    return wide


class ExtraUnits(LayerInit):
    """Extra values and hidden units of a layer that the circuit uses, from given indices on."""

    def __init__(self, m, layer, norm2, ffn_norm2, n_values, n_hidden):
        self.m, self.b, self.n_values, self.n_hidden = m, m.b[layer], n_values, n_hidden
        self.rms, self.ffn_rms = math.sqrt(norm2 / INDUCTION_CHANNELS), math.sqrt(ffn_norm2 / INDUCTION_CHANNELS)
        self.had = [(w, w.clone()) for w in (self.b.o.weight, self.b.d.weight)]
        for w, _ in self.had:
            w.zero_()

    def done(self):
        for w, had in self.had:
            w.mul_(SCALE).add_(had)


def init_sentence_ends(m, vocab):
    """ENDS: MARK at the first word of a sentence, list item or heading, and after a blank line."""
    e, kinds = m.e.weight, marks(vocab)
    for name in ('may_end', 'closer', 'capital', 'mark'):
        e[kinds[name], SLOT[name]] = MARK * SCALE
    e[kinds['opener'], SLOT['capital']] = .6 * MARK * SCALE
    e[IM_END, SLOT['stop']] = STOP * SCALE
    spaced = e[vocab['Ġthe'], SLOT['space']].item() / SCALE
    make = ExtraUnits(m, 0, 1 + NORM2, 2 + NORM2, 50, 166)
    make.write(0, slice(0, 1), 'broke', FLAG / BROKEN)                      # head 0 attends to the last token; LINE is its first value
    make.write(1, make.value('may_end'), 'before')
    make.product(SLOT['closer'], SLOT['before'], SLOT['may_end'], 1 / MARK)
    make.product(SLOT['before'], SLOT['const'], SLOT['before'], -1.0)
    make.product(SLOT['capital'], SLOT['const'], SLOT['capital'], -.5)
    make.product(SLOT['capital'], SLOT['space'], SLOT['capital'], .5 / spaced)
    make.step(SLOT['breaks'], 1.3 * FLAG, 1.7 * FLAG, MARK, SLOT['ends'])
    make.product(SLOT['mark'], SLOT['broke'], SLOT['ends'], 1 / FLAG)
    make.done()
    make = ExtraUnits(m, 1, 2 + NORM2, 5.75 + NORM2, 61, 300)
    make.write(0, make.value('may_end'), 'before')
    make.product(SLOT['capital'], SLOT['before'], SLOT['ends'], 1 / MARK)
    make.done()


def rows_into(norm, m, ids):
    """Inputs of a norm of the model, over SCALE [tokens, C]."""
    got = []
    hook = norm.register_forward_hook(lambda _, x, y: got.append(x[0][0] / SCALE))      # append returns None, so the hook changes nothing
    m(torch.tensor([ids]), torch.arange(len(ids))[None])
    hook.remove()
    return got[0]


def norms_of(norm, m, n_tokens=400, seed=5):
    """Median norms of the input rows of a norm, over SCALE: in documents, in answers that repeat them."""
    text = (torch.randperm(V - 64, generator=torch.Generator().manual_seed(seed))[:n_tokens] + 64).tolist()
    rows = rows_into(norm, m, [FIRST_TOKEN, *text, IM_END, FIRST_TOKEN, *text[n_tokens // 4:n_tokens // 2]]).norm(dim=1)
    return rows[20:n_tokens].median().item(), rows[n_tokens + 10:].median().item()


def last_rms(m):
    """Twice the root mean square of the output norm's input in answers: its value at the beginning of an answer."""
    return 2 * norms_of(m.n, m)[1] * SCALE / math.sqrt(C)


class Layer:
    """Weights of a layer in units of logits: slots in rows of keys, and queries for them. Rows have their current norms."""

    def __init__(self, m, layer):
        self.m, self.b = m, m.b[layer]
        self.read, self.asks = norms_of(self.b.n1, m)
        self.first = rows_into(self.b.n1, m, [FIRST_TOKEN]).norm().item()

    def per(self, slot):
        """Output of the norm for a slot of 1, for rows of norm 1 [size of the slot]."""
        return self.b.n1.w[SLOT[slot]] * math.sqrt(C)

    def asked(self, head, row, logit, key=None, slot='const', full=1.0):
        """Query for `logit` with a key of size `key`; without it, with the key's `row` of `slot` at its value `full`."""
        key = (self.b.k.weight[row, SLOT[slot]] * self.per(slot) / self.read * full).item() if key is None else key
        self.asked_by(head, row, 'const', logit, key)

    def asked_by(self, head, row, slot, logit, key, full=1.0):
        """Query through a slot, for `logit` with a key of that size if the slot is full."""
        self.b.q.weight[head * D + row, SLOT[slot]] = logit * math.sqrt(D) * self.asks / (self.per(slot) * key * full)

    def say(self, row, slot, size, full=1.0):
        """Sets a key's row to that size if a slot is full."""
        self.b.k.weight[row, SLOT[slot]] = size / full * self.read / self.per(slot)

    def meets(self, head, row, asks, says, logit):
        """Query of one dimension for `logit` with a key's row of another, if both are 1."""
        weight, root = self.b.n1.w, math.sqrt(C)
        key = self.b.k.weight[row, says] * weight[says] * root / self.read
        self.b.q.weight[head * D + row, asks] = logit * math.sqrt(D) * self.asks / (weight[asks] * root * key)

    def turned(self, head, pair, logit, distance):
        """Query of logit · cos(rotation of a pair from a distance on); its key is constant."""
        self.asked(head, 2 * pair, logit)
        angle, size = self.m.inv[pair].item() * distance, self.b.q.weight[head * D + 2 * pair, SLOT['const']].clone()
        for i, part in enumerate((math.cos(angle), -math.sin(angle))):
            self.b.q.weight[head * D + 2 * pair + i, SLOT['const']] = size * part

    def merge(self, head, copies):
        """Merges heads with the same queries: their outputs add up."""
        o = self.b.o.weight
        for copy in copies:
            o[:, head * D:head * D + D] += o[:, copy * D:copy * D + D]
            o[:, copy * D:copy * D + D] = 0
            self.b.q.weight[copy * D:copy * D + D] = 0


def first_row(m, layer):
    """Output of a layer's norm for the first token [C]: the same in every document."""
    norm = m.b[layer].n1
    return norm(SCALE * rows_into(norm, m, [FIRST_TOKEN]))[0]


def zero_at_sink(w, row, sink):
    """Makes a row of keys or values zero at the first token. `sink`: `first_row` of the layer."""
    w[row, SLOT['sink']] -= (w[row] @ sink) / sink[SLOT['sink']]


def rest(layer, head):
    """Idle head: attends to the first token."""
    layer.b.q.weight[head * D:head * D + D] = 0
    layer.asked(head, D - 4, 60, slot='sink', full=SUNK)


def init_bag_of_twenty(layer, head, value=64):
    """BAGS head. `value`: the first of 28 free rows of values."""
    distance, gains, size = TWENTY
    rows = slice(value, value + 28)
    for pair, gain in enumerate(gains):
        layer.turned(head, pair, gain, distance)
    layer.asked(head, D - 2, PEAK - sum(gains))
    layer.asked(head, D - 3, PASSED_OVER, slot='line', full=BROKEN)
    layer.asked(head, D - 4, PASSED_OVER, slot='sink', full=SUNK)
    layer.b.v.weight[rows, SLOT['TWO']] = torch.diag(layer.read / layer.per('TWO'))
    layer.b.o.weight[SLOT['BAGS'], head * D + value:head * D + value + 28] = torch.eye(28) * SCALE * size


def keep_matched_dimensions(layer, key, first, last):
    """Reduces each row of keys to one dimension of its slot."""
    k = layer.b.k.weight
    own = k[first:last, SLOT[key]].clone()
    k[first:last] = 0
    k[first:last, SLOT[key]] = own * (own.abs() == own.abs().amax(1, keepdim=True))


def match_bags(layer, head):
    """Replaces the keys of FOUR by BAGS, and sets a head's query for it."""
    q, k = layer.b.q.weight, layer.b.k.weight
    key, first, last, asks, says, _ = MATCHES['BAGS']
    k[first:last] = 0
    some = torch.randperm(28, generator=torch.Generator().manual_seed(7))[:last - first]
    spread = math.sqrt(28 / len(some))
    for row, i in enumerate(some.tolist(), first):
        k[row, SLOT[key].start + i] = KEY * spread * layer.read / layer.per(key)[i] / says
        q[head * D + row] = 0
        q[head * D + row, SLOT[key].start + i] = BAGS_LOGIT / KEY * spread * math.sqrt(D) * layer.asks / layer.per(key)[i] / asks


def init_confident_copy(layer, head, ends=127):
    """Confident copying head: copies if much is alike. `ends`: a free row of values."""
    for key, first, last, *_ in MATCHES.values():
        keep_matched_dimensions(layer, key, first, last)
    q, k, v, o = layer.b.q.weight, layer.b.k.weight, layer.b.v.weight, layer.b.o.weight
    q[head * D:head * D + D], o[:, head * D:head * D + D], k[D - 2] = 0, 0, 0
    for query, (key, first, last, asks, says, logit) in MATCHES.items():
        full = asks * says * (last - first) / len(layer.per(key))
        for row, i in enumerate(k[first:last, SLOT[key]].abs().argmax(1).tolist(), first):
            layer.meets(head, row, SLOT[query].start + i, SLOT[key].start + i, logit / full)
    row = D - 2
    for slot, logit, full in (('sink', SURE, SUNK * layer.read / layer.first), ('line', IN_A_BREAK, BROKEN), ('said', SAID_LOGIT, FLAG)):       # the first row has a small norm
        layer.say(row, slot, logit / SURE * KEY, full)
    layer.asked(head, row, SURE, KEY)
    for pair, logit in enumerate(AWAY):
        layer.say(2 * pair, 'const', LOOK)
        layer.turned(head, pair, logit, AWAY_FROM)
    v[ends, SLOT['ends']] = layer.read / MARK / layer.per('ends')
    token = slice(SLOT['IN'].stop - SLOT['IN'].start)
    gain = v[token, SLOT['IN']].diagonal() * layer.per('IN') / layer.read
    o[SLOT['OUT'], head * D:head * D + token.stop] = torch.diag(SPOKEN * SCALE / gain)
    o[SLOT['stop'], head * D + ends] = SPOKEN * SCALE
    n = layer.m.n.w
    n[SLOT['stop']] = n[SLOT['OUT']].mean() / STOP * STOP_GAIN


@torch.no_grad()
def init_sentence_heads(m, vocab, seed=3):
    """Returns a model of C channels with the heads above. `m`: the induction circuit, trained or not, INDUCTION_CHANNELS channels."""
    m = widened(m)
    init_sentence_ends(m, vocab)
    two, four = Layer(m, 2), Layer(m, 4)
    two.merge(1, (2, 3)), four.merge(0, (1, 2, 3))
    init_bag_of_twenty(two, 2), rest(two, 3)
    match_bags(four, 0)
    init_confident_copy(four, 1)
    q, gen = four.b.q.weight, torch.Generator().manual_seed(seed)
    for head in (2, 3):
        q[head * D:head * D + D] = q[:D] * (1 + .3 * torch.randn(D, 1, generator=gen))
    return m
