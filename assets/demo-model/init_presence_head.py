"""Whether the question's words are in the document: a head that tells, laid into weights that have the circuit and the graft.

    embedding    pieces that begin a word with a capital ─► NAME;  pieces that go on with a word ─► PIECE
    layers 0, 1  NAME of the piece before, where this one is a PIECE ─► NAME: the second to fourth piece of a name;  a space before the
                 piece before, where this one is a PIECE ─► SECOND
    layer 2      head 3, which rests: as head 1, but it asks for three words alike, or two pieces of one word (SECOND) ─► WHOLE, else the sink
    layer 4      head 3, which writes nothing, looks from an answer's first two tokens at the question's last words, at pieces of names first:
                 how much of it is WHOLE ─► KNOWN, which takes from the logits of a refusal's first two tokens

FOUND, which head 1 of layer 2 tells, is there for any two tokens alike, and in a long document any two of a name are somewhere. Before training the
output's norm reads KNOWN for these tokens alone, and no layer does. A head that looks at so short a stretch has loose bounds,
for whatever turns fast is at its best in every chunk: gains are small, and it rests as soon as it can, else a policy that chooses chunks for
all heads of a layer reads what this one might want.
"""
import random
import re

import torch

from init_induction import BROKEN, FLAG, LOOK, NORM2, SCALE, SLOT, SUNK
from init_sentence_heads import MARK, ExtraUnits, Layer, first_row, last_rms, marks, zero_at_sink
from model import D
from dataset import NOT_FOUND

ALIKE, ASKED = 1, 3                       # heads of layer 2: the one that finds, and its stricter copy
CONST_ROW, LAST_ROW = 60, 127             # of layer 2: of values, the constant; of keys, the sink
PARTS = {'ONE': (20, 30, 1), 'TWO': (30, 52, .7), 'THREE': (52, 74, 2), 'BAG': (74, 96, .5), 'NEAR': (96, 124, .5)}  # rows of keys, times head 1's
THREE_ALIKE, TWO_ALIKE = 60.7, 44.0       # logits that tell: two tokens alike have 50, three 68, nothing 37
SIZE, FOUND_IT = .15, (.2, .35)           # of WHOLE, to FOUND. Of WHOLE, over SCALE, where nothing is found, and how much more where it is
SECOND_SIZE = .1
IDLE, TELLS = 2, 3                        # heads of layer 4
WINDOW, BACK = {1: 3, 2: 8, 3: 10, 4: 7, 5: 7, 6: 7, 7: 7}, 8  # gains of pairs, and how far back the middle is: a question's last words
KEY, OF_NAMES, OF_MARKS, OF_BREAKS, OF_SAID = 9.0, 6.0, -8.0, -16.0, -24.0
OF_OTHERS, OF_TOLD, REST = 60.0, -18.0, 40.0                  # of the sink: for what is no answer, for an answer's first two tokens, and its others
NAME_ROW, MARK_ROW, SINK_ROW, SAME_ROW = 16, 18, 19, D - 4    # of layer 4's keys
WHOLE_VALUE = 86                          # of layer 4's values
TAKEN, GIVEN = 6.0, 2.5                   # logits that KNOWN takes from a refusal where all is WHOLE, and what it gives where nothing is
AFTER_SEMICOLON = .5                      # how surely a sentence ends there, to a full stop
LOUD = .2                                 # size of KNOWN for a logit
SLOT['known'] = SLOT['second']            # which nothing reads any more by then


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
        if i == 0:                                          # the third is a piece, after a piece, after NAME
            make.write(0, make.value('piece'), 'whole'), make.write(2, name, 'whole')
            told, kept = (('name', 2), ('whole', 1)), ('name', 'whole')
        else:
            for slot, size in (('space', spaced), ('const', 1.0)):          # of the piece before, a space is `spaced`, none is the negative
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
    """Of layer 2 and some questions about a document: head 1's mean query [D], the first token's key, the others' mean one."""
    random.seed(seed)
    ids, words, _ = sampler.document(n_tokens, 24, False)
    ids = sampler.head + ids
    for question, *_ in filter(None, (sampler.ask_phrase(words) for _ in range(n_questions))):
        probe, turn = [], sampler.turn(sampler.enc(question), True)
        m(torch.tensor([ids + turn]), torch.arange(len(ids + turn))[None], probe=probe)
        q, k = probe[2]
        yield q[0, ALIKE, len(ids) + 2:len(ids + turn) - 6].mean(0), k[0, 0, 0], k[0, 0, 100:len(ids)].mean(0)


def init_strict_match_head(m, sampler):
    """Layer 2: WHOLE."""
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
    """Layer 4."""
    layer = Layer(m, 4)
    q, k, v, o = (w.weight for w in (layer.b.q, layer.b.k, layer.b.v, layer.b.o))
    sink = first_row(m, 4)
    for head in (IDLE, TELLS):
        q[head * D:head * D + D], o[:, head * D:head * D + D] = 0, 0
    k[:SINK_ROW + 1], k[SAME_ROW], v[WHOLE_VALUE] = 0, 0, 0
    for pair, gain in WINDOW.items():
        layer.say(2 * pair, 'const', LOOK), zero_at_sink(k, 2 * pair, sink)      # which is at any distance
        layer.turned(TELLS, pair, gain, BACK)
    layer.say(SAME_ROW, 'const', KEY), zero_at_sink(k, SAME_ROW, sink)
    layer.asked(TELLS, SAME_ROW, -sum(WINDOW.values()), KEY)            # what is the same for near and far: tokens differ in their norm
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
    """What opens a quotation begins a sentence as surely as a capital does; after a semicolon neither does so surely."""
    e, kinds = m.e.weight, marks(vocab)
    e[kinds['opener'], SLOT['capital']] = MARK * SCALE
    e[[i for text, i in vocab.items() if ';' in text and i in set(kinds['may_end'])], SLOT['may_end']] = AFTER_SEMICOLON * MARK * SCALE


def init_refusal_output(m, sampler):
    """The output."""
    m.e.weight[sampler.enc(NOT_FOUND)[:2], SLOT['known']] = MARK * SCALE            # ` I` may begin a name as well
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
