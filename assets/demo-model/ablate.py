"""Ablation of layers 2 to 5: effect of a change on answers, in a minute. Saves the inputs of each layer, asks uncertain questions again.

    python ablate.py keep GGUF|MODEL.pt FOLDER --texts FILE... --seed 74 --documents 16384x3   # once; 150 MB a document of 16384 tokens
    python ablate.py ask GGUF|MODEL.pt FOLDER [--lead 3] [--from-layer 2] [--verbose]

The embedding and layers 0 and 1 are those of the saved inputs. Document inputs up to `--from-layer` are reused as well: exact if the change acts in
questions and answers only. A question whose right tokens lead by more than `--lead` logits with the saved weights counts as still right.

Shapes: S tokens of the document, T of a question and its answer, C channels.
"""
import argparse
import collections
import pathlib
import random

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from dataset import IM_END, Sampler
from evaluate import ASKED, draw, load, questions_each
from model import L

KEPT = range(2, L)


def keys_and_values(m, i, x):
    """Keys and values of layer i for a document's rows [S, C], as a cache."""
    _, k, v = m.b[i].heads(x[None], *m.angles(torch.arange(len(x))[None]))
    return {'k': k, 'v': v}


def run_layer(m, i, before, x):
    """Rows [T, C] after layer i, which attend to a cache. The cache does not change."""
    first = before['k'].shape[2]
    return m.b[i](x[None], *m.angles(first + torch.arange(len(x))[None]), dict(before))[0]


def read(m, i, x, step=1024):
    """A document's rows [S, C] after layer i."""
    cache, at = {}, torch.arange(len(x))[None]
    return torch.cat([m.b[i](x[None, j:j + step], *m.angles(at[:, j:j + step]), cache)[0] for j in range(0, len(x), step)])


def leads(m, document, row, x):
    """Margin of each token of the answer over all others [T], given the inputs of layer 2."""
    for i in KEPT:
        x = run_layer(m, i, document[i], x)
    logits, right = F.linear(m.n(x), m.e.weight)[row['begin'] - 1:-1], torch.tensor(row['ids'][row['begin']:])[:, None]
    of_right = logits.gather(1, right)
    return (of_right - logits.scatter(1, right, -1e9).amax(1, keepdim=True))[:, 0]


def keep(m, sampler, folder, seed, spec):
    length, n = map(int, spec.split('x'))
    random.seed(seed)
    for d in range(n):
        ids, _, asked = draw(sampler, length, questions_each(length))
        asked = [a for a in asked if a[0] in ASKED]
        into = [m.e(torch.tensor(sampler.head + ids))]
        for i in range(L - 1):
            into.append(read(m, i, into[i]))
        document, rows = [keys_and_values(m, i, x) for i, x in enumerate(into)], []
        for kind, question, answer in asked:
            turn = sampler.turn(sampler.enc(question), True)
            row = {'kind': kind, 'question': question, 'begin': len(turn), 'ids': turn + sampler.enc(answer) + [IM_END]}
            x = m.e(torch.tensor(row['ids']))
            for i in range(KEPT.start):
                x = run_layer(m, i, document[i], x)
            rows.append(row | {'x': x, 'lead': leads(m, document, row, x).min().item()})
        torch.save({'rows': rows, 'document': {i: into[i] for i in KEPT}}, folder / f'{seed}-{length}-{d}.pt')
        print(f'{seed}, {length} tokens, document {d}: {sum(r["lead"] > 0 for r in rows)} of {len(rows)} right', flush=True)


def ask_uncertain(m, tok, folder, lead, first, verbose):
    score = collections.defaultdict(lambda: [0, 0, 0])
    for path in sorted(folder.glob('*.pt')):
        saved, length = torch.load(path), path.stem.split('-')[1]
        rows, x = saved['rows'], saved['document']
        for i in range(first, L - 1):
            x[i + 1] = read(m, i, x[i])
        document = {i: keys_and_values(m, i, x[i]) for i in KEPT}
        for row in rows:
            now = leads(m, document, row, row['x']) if row['lead'] < lead else torch.tensor([row['lead']])
            right, was = bool(now.min() > 0), row['lead'] > 0
            for j, one in enumerate((right, was, 1)):
                score[length, row['kind']][j] += one
            if verbose and right != was:
                said = row['ids'][row['begin']:][:int((now <= 0).int().argmax())]
                print(f'  {path.stem} {row["kind"]}: {row["question"]}\n    {"right now" if right else "wrong now, after " + tok.decode(said)!r}')
    for (length, kind), (right, was, n) in score.items():
        print(f'{length} tokens, {kind}: {right} of {n}, was {was}')


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('what', choices=('keep', 'ask'))
    ap.add_argument('model')
    ap.add_argument('folder', type=pathlib.Path)
    ap.add_argument('--texts', nargs='+', type=pathlib.Path, default=[])
    ap.add_argument('--seed', type=int, default=74)
    ap.add_argument('--documents', default='1024x8', help='LENGTHxHOW_MANY')
    ap.add_argument('--lead', type=float, default=3.0)
    ap.add_argument('--from-layer', type=int, default=L, choices=(*KEPT, L), help='first layer whose document inputs are computed again')
    ap.add_argument('--verbose', action='store_true', help='print questions that became right or wrong')
    a = ap.parse_args()
    torch.set_flush_denormal(True)
    tok = Tokenizer.from_file(str(pathlib.Path(__file__).parent / 'tokenizer.json'))
    if a.what == 'keep' and not a.texts:
        ap.error('keep needs --texts FILE... to make documents from')
    m = load(a.model)
    if a.what == 'keep':
        a.folder.mkdir(parents=True, exist_ok=True)
        keep(m, Sampler({p.name: p.read_text(errors='ignore') for p in a.texts}, tok), a.folder, a.seed, a.documents)
    else:
        ask_uncertain(m, tok, a.folder, a.lead, a.from_layer, a.verbose)


if __name__ == '__main__':
    main()
