"""Where the question's words are: a head that tells answers, laid into weights that have the circuit and the graft.

    layer 3  heads 1 and 2 are copies: head 2 looks, from the tokens of answers alone, at those tokens of the question of which layer 2 has found
             the place (FOUND) ─► WHERE: the place (AT) of the question's words in the document, without what all places have in common
    layer 4  heads 0 and 1 match WHERE with WIDE, as they do AT: of two places with the same words, the one that the question is about

An answer's own first words are said in many places (`The mayor of R..`), the question's name in one. What is in AT by layer 4 does not tell: of
all places of a document the right one is 0.4 to 2 deviations above the mean by AT, 3.0 by WHERE (42 questions, 3072 tokens).
Sizes are measured with the weights themselves, on questions about a few documents.

    python where.py GGUF START.pt --texts FOLDER        # `train.py --start START.pt --first 4` goes on from there
    python where.py MODEL.pt OUT.pt --began START.pt    # once, after training: the mean of both, head 1 of layer 4 anew, WHERE half as loud
"""
import argparse
import pathlib
import random
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from circuit import BROKEN, FAST, FLAG, SCALE, SLOT
from evaluate import load
from graft import MATCHES, Layer, go_on_where_sure
from model import D, QuoteModel
from samples import IM_END, IM_START, Sampler

HEAD, COPY = 2, 1
FOUND_ROW, SAME_ROW, SAID_ROW = 2 * FAST - 3, 2 * FAST - 1, 2 * FAST - 2      # of keys; the first two are free
PLACE, CONST_ROW = slice(86, 118), 120    # of values: AT, and a free one
FOUND_LOGIT = 8.0                         # between what was found and what was not
WINDOW = 2, [6.] + [10.] * 5, 8           # first pair that tells distances, gains, tokens back at which it is widest open
KEY, OF_ANSWERS, OF_BREAKS, OF_OTHERS = 9.0, -30.0, -12.0, 20.0
WHERE_LOGITS = 6.0, 4.0                   # of heads 0 and 1 of layer 4, for the right place
QUIETER = .5                              # in the end: a document's first words have so large a WIDE that they are taken for any place near them


@dataclass
class Seen:
    """A question, of whose last words layer 2 is sure: rows `t` of the question and `place` of the document; tokens of the document,
    and before the answer; of layers 3 and 4, what comes in and what the norm makes of it [T, C]; keys of layer 4 [T, D]."""
    t: int
    place: int
    first: int
    begin: int
    rows: list
    normed: list
    keys: torch.Tensor


@torch.no_grad()
def ask_some(m, sampler, n_documents=3, n_questions=14, n_tokens=3072, seed=99):
    random.seed(seed)
    seen = []
    for _ in range(n_documents):
        ids, words, facts = sampler.document(n_tokens, 24, False)
        ids = [IM_START] + sampler.enc('user') + sampler.nl + ids
        asked = [sampler.ask_fact(facts) if facts and i % 2 else sampler.ask_phrase(words) for i in range(2 * n_questions)]
        for question, answer, _ in [a for a in asked if a][:n_questions]:
            turn = sampler.turn(sampler.enc(question), True)
            seen += look(m, ids, turn, sampler.enc(answer)[:12] + [IM_END])
    return seen


def look(m, ids, turn, answer):
    rows, normed, probe = [], [], []

    def keep(_, x, y):
        rows.append(x[0][0]), normed.append(y[0])

    hooks = [m.b[layer].n1.register_forward_hook(keep) for layer in (3, 4)]
    every = ids + turn + answer
    m(torch.tensor([every]), torch.arange(len(every))[None], probe=probe)
    for hook in hooks:
        hook.remove()
    q, k = probe[2]
    begin = len(ids) + len(turn)
    for t in range(begin - 7, len(ids) + 2, -1):
        share, place = ((q[0, COPY, t] @ k[0, 0, :t + 1].T) * D ** -.5).softmax(-1).max(0)
        if 0 < place < len(ids) and share > .95:
            return [Seen(t, int(place), len(ids), begin, rows, normed, probe[4][1][0, 0])]
    return []


def look_at_the_question(m, seen):
    """Head 2 of layer 3, which writes nothing yet."""
    layer = Layer(m, 3)
    q, k, v, o = (w.weight for w in (layer.b.q, layer.b.k, layer.b.v, layer.b.o))
    layer.merge(COPY, (HEAD,))
    k[FOUND_ROW], k[SAME_ROW], v[CONST_ROW] = 0, 0, 0
    layer.say(FOUND_ROW, 'found', KEY), layer.say(SAME_ROW, 'const', KEY)
    v[CONST_ROW, SLOT['const']] = layer.read / layer.per('const')
    sink = first_row(m, 3)
    begin, gains, back = WINDOW
    for row in [2 * (begin + i) for i in range(len(gains))] + [2 * 8, FOUND_ROW, SAME_ROW, D - 2]:
        nothing_of_sink(k, row, sink)                       # it is looked at from any distance
    nothing_of_sink(v, CONST_ROW, sink)
    found = torch.cat([s.rows[0][s.first:s.begin, SLOT['found']].flatten() for s in seen]) / SCALE
    low, high = found.quantile(.2), found.quantile(.8)
    per_found = (FOUND_LOGIT / (high - low)).item()
    layer.asked(HEAD, FOUND_ROW, per_found, KEY)
    for i, gain in enumerate(gains):
        layer.turned(HEAD, begin + i, gain, back)
    layer.asked(HEAD, SAME_ROW, -sum(gains), KEY)
    layer.asked(HEAD, D - 3, OF_BREAKS, slot='line', full=BROKEN)
    layer.asked(HEAD, SAID_ROW, OF_ANSWERS, slot='said', full=FLAG)
    said = (k[SAID_ROW] @ sink) / (k[SAID_ROW, SLOT['said']] * layer.per('said') / layer.read * FLAG)
    key = (k[D - 4] @ sink).item()
    half = per_found * ((low + high) / 2).item()
    for slot, logit, full in (('const', half + OF_OTHERS - OF_ANSWERS * said.item(), 1.0), ('said', -OF_OTHERS, FLAG)):
        layer.asked_by(HEAD, D - 4, slot, logit, key, full)
    o[:, HEAD * D:HEAD * D + D] = 0


def first_row(m, layer):
    """What the norm of a layer makes of the first token [C]: the same in every document."""
    got = []
    hook = m.b[layer].n1.register_forward_hook(lambda _, x, y: got.append(y[0, 0]))     # append gives None, and the hook changes nothing
    m(torch.tensor([[1]]), torch.tensor([[0]]))
    hook.remove()
    return got[0]


def nothing_of_sink(w, row, sink):
    """A row of keys or values says nothing of the first token. `sink`: what `first_row` gives for the layer."""
    w[row, SLOT['sink']] -= (w[row] @ sink) / sink[SLOT['sink']]


def tell_where(m, seen, size=.5):
    """WHERE: AT of those tokens, less what it has in common. Of norm `size` in the mean."""
    v, o, wide = m.b[3].v.weight, m.b[3].o.weight, MATCHES['AT']
    of_wide = m.b[4].k.weight[wide[1]:wide[2], SLOT['WIDE']].abs().argmax(1)          # the dimensions that keys of layer 4 say
    h = torch.stack([s.normed[0][s.t] for s in seen])
    said, const = h @ v[PLACE].T, (h @ v[CONST_ROW]).mean()
    place = torch.stack([s.rows[0][s.place, SLOT['WIDE']] for s in seen])
    everywhere = torch.stack([s.rows[0][100:s.first, SLOT['WIDE']].mean(0) for s in seen]).mean(0)
    off = place - place.mean(0)
    common = said.mean(0) - ((said - said.mean(0)) * off).sum() / off.pow(2).sum() * (place.mean(0) - everywhere)
    gain = SCALE * size / (said - common)[:, of_wide].norm(dim=1).mean()
    for to, i in enumerate(of_wide.tolist(), SLOT['WHERE'].start):
        o[to, HEAD * D + PLACE.start + i] = gain
        o[to, HEAD * D + CONST_ROW] = -gain * common[i] / const


def match_where(m, seen):
    """Heads 0 and 1 of layer 4. `seen` with WHERE told."""
    _, first, last, *_ = MATCHES['AT']
    q, k = m.b[4].q.weight, m.b[4].k.weight[first:last, SLOT['WIDE']]
    sign = k.gather(1, k.abs().argmax(1, keepdim=True))[:, 0].sign()
    logit = torch.stack([s.keys[s.place, first:last] @ (s.normed[1][s.begin - 1, SLOT['WHERE']] * sign) for s in seen]).mean() * D ** -.5
    for head, wanted in enumerate(WHERE_LOGITS):
        q[head * D + first:head * D + last, SLOT['WHERE']] = torch.diag(sign * wanted / logit)


@torch.no_grad()
def lay_where(m, sampler):
    """`m`: weights with the circuit and the graft, trained or not."""
    seen = ask_some(m, sampler)
    look_at_the_question(m, seen)
    tell_where(m, seen)                                     # what comes into layer 3 is as it was
    match_where(m, ask_some(m, sampler))
    return m


@torch.no_grad()
def after_training(trained, began):
    """Training alone refuses more of what is there: 110 of 118 facts at 16384 tokens, 113 of 118 before it, 112 with the mean."""
    m = QuoteModel()
    trained, began = (w.get('model', w) for w in (torch.load(trained), torch.load(began)))
    m.load_state_dict({name: (trained[name] + w) / 2 for name, w in began.items()})
    layer = Layer(m, 4)
    go_on_where_sure(layer, 1)
    layer.b.q.weight[:, SLOT['WHERE']] *= QUIETER
    return m


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('source')
    ap.add_argument('out')
    ap.add_argument('--texts', help='folder of what training reads')
    ap.add_argument('--began', help='what training began with')
    args = ap.parse_args()
    if args.began:
        m = after_training(args.source, args.began)
    elif args.texts:
        from train import load_texts
        tok = Tokenizer.from_file(str(pathlib.Path(__file__).parent / 'tokenizer.json'))
        m = lay_where(load(args.source), Sampler(load_texts(args.texts, []), tok))
    else:
        ap.error('give --texts FOLDER to lay it, or --began START.pt after training')
    torch.save(m.state_dict(), args.out)


if __name__ == '__main__':
    main()
