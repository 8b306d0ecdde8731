"""Presence head: whether the question's words are in the document. Needs the heads of `init_induction.py` and `init_sentence_heads.py`.

    embedding    pieces that begin a word with a capital ─► NAME;  pieces that continue a word ─► PIECE
    layers 0, 1  NAME of the piece before, if this one is a PIECE ─► NAME: the second to fourth piece of a name;  a space before the
                 piece before, if this one is a PIECE ─► SECOND
    layer 2      head 3, idle before: as head 1, but it matches three words alike, or two pieces of one word (SECOND) ─► WHOLE, else the sink
    layer 4      head 3, unused before, attends from an answer's first two tokens to the question's last words, to pieces of names first:
                 its WHOLE share ─► KNOWN, which lowers the logits of a refusal's first two tokens

FOUND, written by head 1 of layer 2, is set for any two tokens alike, and in a long document any two tokens of a name occur somewhere. Before training
only the output's norm reads KNOWN, for these tokens. A head with so short a range has loose bounds, because a fast pair is at its best in every
chunk. So gains are small and the head attends to the sink if it can; otherwise a policy that selects chunks for all heads of a layer would
read chunks for this one.
"""
import random
import re

import torch

from dataset import NOT_FOUND
from init_induction import BROKEN, FLAG, LOOK, NORM2, SCALE, SLOT, SUNK
from init_sentence_heads import MARK, ExtraUnits, Layer, first_row, last_rms, marks, zero_at_sink
from model import D

ALIKE, ASKED = 1, 3                       # heads of layer 2: the matching head and its stricter copy
CONST_ROW, LAST_ROW = 60, 127             # rows of layer 2: the constant among values, the sink among keys
PARTS = {'ONE': (20, 30, 1), 'TWO': (30, 52, .7), 'THREE': (52, 74, 2), 'BAG': (74, 96, .5), 'NEAR': (96, 124, .5)}  # rows of keys, times head 1's
THREE_ALIKE, TWO_ALIKE = 60.7, 44.0       # thresholds in logits: two tokens alike have 50, three 68, none 37
SIZE, FOUND_IT = .15, (.2, .35)           # of WHOLE relative to FOUND. WHOLE over SCALE without a match, and its increase with one
SECOND_SIZE = .1
IDLE, TELLS = 2, 3                        # heads of layer 4
WINDOW, BACK = {1: 3, 2: 8, 3: 10, 4: 7, 5: 7, 6: 7, 7: 7}, 8  # gains of pairs, and distance of the middle: a question's last words
KEY, OF_NAMES, OF_MARKS, OF_BREAKS, OF_SAID = 9.0, 6.0, -8.0, -16.0, -24.0
OF_OTHERS, OF_TOLD, REST = 60.0, -18.0, 40.0                  # of the sink: outside answers, at an answer's first two tokens, at its others
NAME_ROW, MARK_ROW, SINK_ROW, SAME_ROW = 16, 18, 19, D - 4    # of layer 4's keys
WHOLE_VALUE = 86                          # of layer 4's values
TAKEN, GIVEN = 6.0, 2.5                   # logits that KNOWN subtracts from a refusal if all is WHOLE, and adds if nothing is
AFTER_SEMICOLON = .5                      # weight of a semicolon as a sentence end; a full stop has 1
LOUD = .2                                 # size of KNOWN for a logit
SLOT['known'] = SLOT['second']            # nothing reads that slot any more by then


def init_pieces(m, vocab):
    """NAME is MARK at the second to fourth piece of a name, SECOND is SECOND_SIZE at the second piece of any word."""
    e = m.e.weight
    for slot, test in (('piece', r'[A-Za-z].*'), ('name', r'Ġ[A-Z].*')):
        e[[i for text, i in vocab.items() if re.fullmatch(test, text)], SLOT[slot]] = MARK * SCALE
    spaced = e[vocab['Ġthe'], SLOT['space']].item() / SCALE
    for i, (norm2, ffn_norm2) in enumerate(((1 + NORM2, 2 + NORM2), (2 + NORM2, 5.75 + NORM2))):
        b = m.b[i]
        make = ExtraUnits(m, i, norm2, ffn_norm2, int(b.v.weight.abs().sum(1).nonzero().max()) + 1, int(b.d.weight.abs().sum(0).nonzero().max()) + 1)
        name = make.value('name')
        make.write(0, name, 'name')
        if i == 0:                                          # the third: a piece after a piece after NAME
            make.write(0, make.value('piece'), 'whole'), make.write(2, name, 'whole')
            told, kept = (('name', 2), ('whole', 1)), ('name', 'whole')
        else:
            for slot, size in (('space', spaced), ('const', 1.0)):          # space of the piece before: `spaced` with one, the negative without
                make.write(0, make.value(slot), 'second', SECOND_SIZE / 2 / size)
            make.product(SLOT['second'], SLOT['piece'], SLOT['second'], 1 / MARK)
            told, kept = (('name', 2),), ('name', 'second')
        for slot, of in told:
            step = slice(make.n_hidden, make.n_hidden + 2)
            make.step(SLOT[slot], 2.3 * MARK, 2.7 * MARK, MARK, SLOT['name'])
            b.g.weight[step, SLOT['piece']] = of * b.g.weight[step, SLOT[slot]]
        for slot in kept:
            make.product(SLOT[slot], SLOT['const'], SLOT[slot], -1.0)
        make.done()


def questions(m, sampler, n_questions=8, n_tokens=3072, seed=99):
    """For layer 2 and some questions about a document: head 1's mean query [D], the first token's key, the mean key of the others."""
    random.seed(seed)
    ids, words, _ = sampler.document(n_tokens, 24, False)
    ids = sampler.head + ids
    for question, *_ in filter(None, (sampler.ask_phrase(words) for _ in range(n_questions))):
        probe, turn = [], sampler.turn(sampler.enc(question), True)
        m(torch.tensor([ids + turn]), torch.arange(len(ids + turn))[None], probe=probe)
        q, k = probe[2]
        yield q[0, ALIKE, len(ids) + 2:len(ids + turn) - 6].mean(0), k[0, 0, 0], k[0, 0, 100:len(ids)].mean(0)


def init_strict_match_head(m, sampler):
    """WHOLE, in layer 2."""
    layer = m.b[2]
    q, o, n = layer.q.weight, layer.o.weight, layer.n1.w
    one, two = ALIKE * D, ASKED * D
    q[two:two + D], o[:, two:two + D] = 0, 0
    times = torch.zeros(D)
    for first, last, share in PARTS.values():
        times[first:last] = share
        q[two + first:two + last] = q[one + first:one + last] * share
    said = list(questions(m, sampler))
    now = sum(a[LAST_ROW] * (first - mean)[LAST_ROW] for a, first, mean in said) / len(said) * D ** -.5
    rest = sum(a * times @ first for a, first, _ in said) / len(said) * D ** -.5
    sink = q[one + LAST_ROW, SLOT['const']] * (THREE_ALIKE - rest) / now
    q[two + LAST_ROW, SLOT['const']] = sink
    q[two + LAST_ROW, SLOT['second']] = -sink / SECOND_SIZE * n[SLOT['const']] / n[SLOT['second']] * (THREE_ALIKE - TWO_ALIKE) / (THREE_ALIKE - rest)
    o[SLOT['whole'], two + CONST_ROW] = o[SLOT['found'], one + CONST_ROW].sum() * SIZE


def init_question_head(m):
    """KNOWN, in layer 4."""
    layer = Layer(m, 4)
    q, k, v, o = (w.weight for w in (layer.b.q, layer.b.k, layer.b.v, layer.b.o))
    sink = first_row(m, 4)
    for head in (IDLE, TELLS):
        q[head * D:head * D + D], o[:, head * D:head * D + D] = 0, 0
    k[:SINK_ROW + 1], k[SAME_ROW], v[WHOLE_VALUE] = 0, 0, 0
    for pair, gain in WINDOW.items():
        layer.say(2 * pair, 'const', LOOK), zero_at_sink(k, 2 * pair, sink)      # the sink is at any distance
        layer.turned(TELLS, pair, gain, BACK)
    layer.say(SAME_ROW, 'const', KEY), zero_at_sink(k, SAME_ROW, sink)
    layer.asked(TELLS, SAME_ROW, -sum(WINDOW.values()), KEY)            # subtracts the part that near and far share: tokens differ in their norm
    layer.say(NAME_ROW, 'name', KEY, MARK)
    layer.asked(TELLS, NAME_ROW, OF_NAMES, KEY)
    for slot, logit, full in (('may_end', OF_MARKS, MARK), ('closer', OF_MARKS, MARK), ('said', OF_SAID, FLAG), ('line', OF_BREAKS, BROKEN)):
        layer.say(MARK_ROW, slot, KEY * logit / OF_MARKS, full)
    layer.asked(TELLS, MARK_ROW, OF_MARKS, KEY)
    layer.say(SINK_ROW, 'sink', KEY, SUNK * layer.read / layer.first)    # the first row is short
    for slot, logit, full in (('const', OF_OTHERS, 1.0), ('said', OF_TOLD + REST - OF_OTHERS, FLAG), ('line', -REST, BROKEN), ('broke', -REST, FLAG)):
        layer.asked_by(TELLS, SINK_ROW, slot, logit, KEY, full)
    layer.asked(IDLE, SINK_ROW, OF_OTHERS, KEY)
    v[WHOLE_VALUE, SLOT['whole']] = layer.read / layer.per('whole') / FOUND_IT[1]
    v[WHOLE_VALUE, SLOT['const']] = -layer.read / layer.per('const') * (FOUND_IT[0] / FOUND_IT[1] + GIVEN / TAKEN)
    zero_at_sink(v, WHOLE_VALUE, sink)
    o[SLOT['known'], TELLS * D + WHOLE_VALUE] = -LOUD * SCALE * TAKEN


def adjust_sentence_marks(m, vocab):
    """A token that opens a quotation begins a sentence as surely as a capital does; after a semicolon both count less."""
    e, kinds = m.e.weight, marks(vocab)
    e[kinds['opener'], SLOT['capital']] = MARK * SCALE
    e[[i for text, i in vocab.items() if ';' in text and i in set(kinds['may_end'])], SLOT['may_end']] = AFTER_SEMICOLON * MARK * SCALE


def init_refusal_output(m, sampler):
    """Output weights of KNOWN."""
    m.e.weight[sampler.enc(NOT_FOUND)[:2], SLOT['known']] = MARK * SCALE            # ` I` may also begin a name
    for slot in ('piece', 'name', 'whole'):
        m.n.w[SLOT[slot]] = 0
    m.n.w[SLOT['known']] = last_rms(m) / (LOUD * SCALE * MARK * SCALE)


@torch.no_grad()
def init_presence_head(m, sampler):
    vocab = sampler.tok.get_vocab()
    init_pieces(m, vocab)
    init_strict_match_head(m, sampler)
    init_question_head(m)
    init_refusal_output(m, sampler)
    adjust_sentence_marks(m, vocab)
    return m
