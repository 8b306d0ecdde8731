"""Teacher forcing: number of answers right as a whole, over many documents.

An answer is right if all of its tokens are the likeliest; the greedy answer is then the same.

    python eval_teacher_forced.py make ROWS.pt --texts UNSEEN... --seed 31 --documents 1024x60 4096x20 16384x8 32768x4
    python eval_teacher_forced.py ask ROWS.pt GGUF|MODEL.pt...          # seconds on a GPU, a minute on a CPU for two documents of 16384 tokens

    documents and their questions, each in a block of its own ─► rows (`packing.py`) ─► answers right, by length and kind
In a list any mention not yet listed is right next.
"""
import argparse
import pathlib
import random

import numpy as np
import torch
from tokenizers import Tokenizer

from dataset import EOT, IM_END, N_ALTERNATIVES, Sampler, alternatives_table
from evaluate import PrefilledDocument, draw, load, questions_each
from packing import BLOCK, SampleMask, nats
from train import autocast

ROOM = 32768 + 16384         # tokens of a row


def row_of(document, asked, sampler):
    """Ids, positions, blocks, next tokens, alternatives to these [4 + N_ALTERNATIVES, T], and the question whose answer each belongs to, else -1 [T]."""
    ids, other = sampler.head + document, {}
    n = len(ids)
    pos = list(range(n))
    block, of = [0] * n, [-1] * n
    for i, (_, question, answer) in enumerate(asked):
        turn, said = sampler.turn(sampler.enc(question), True), sampler.enc(answer) + [IM_END]
        other.update((len(ids) + len(turn) - 1 + j, others) for j, others in sampler.alternatives(answer).items())
        ids, pos = ids + turn + said, pos + list(range(n, n + len(turn + said)))
        block += [i + 1] * len(turn + said)
        of += [-1] * (len(turn) - 1) + [i] * len(said) + [-1]
    more = -len(ids) % BLOCK
    fill = lambda x, last: x + [last] * more
    ids = fill(ids, EOT)
    rows = np.concatenate((np.array((ids, fill(pos, 0), fill(block, len(asked) + 1), ids[1:] + [EOT])), alternatives_table(other, len(ids)).T))
    return rows.astype(np.int32), np.array(fill(of, -1), dtype=np.int32)


def make(sampler, seed, lengths):
    """Rows: [(length, kinds of the questions, row, answers)]."""
    out = []
    for length, n in lengths:
        random.seed(seed)
        for _ in range(n):
            ids, _, asked = draw(sampler, length, questions_each(length))
            out.append((length, [kind for kind, *_ in asked], *row_of(ids, asked, sampler)))
    return out


def in_rows(documents):
    """Documents side by side, as many as fit: (documents, ids, positions, blocks, sample, next tokens [1, 5 + N_ALTERNATIVES, room], question [1, room])."""
    at = 0
    while at < len(documents):
        n, some = 0, []
        while at < len(documents) and n + documents[at][2].shape[1] <= ROOM:
            some.append(documents[at])
            n, at = n + documents[at][2].shape[1], at + 1
        assert some, f'a document and its questions have {documents[at][2].shape[1]} tokens, more than {ROOM}'
        tokens, of = np.zeros((5 + N_ALTERNATIVES, ROOM), dtype=np.int32), np.full(ROOM, -1, dtype=np.int32)
        tokens[3], n, first = len(some), 0, 0
        for i, (_, kinds, row, own) in enumerate(some):
            end = n + row.shape[1]
            tokens[:3, n:end], tokens[3, n:end], tokens[4:, n:end] = row[:3], i, row[3:]
            of[n:end] = np.where(own < 0, -1, own + first)
            n, first = end, first + len(kinds)
        yield some, torch.from_numpy(tokens)[None], torch.from_numpy(of)[None]


def answered_on_gpu(m, documents):
    """Whether each question of each document is answered right, on a GPU."""
    seen = SampleMask(1, ROOM, 'cuda')
    for some, tokens, of in in_rows(documents):
        ids, pos, block, sample, *target = tokens.cuda().unbind(1)
        of = of.cuda()
        sel = of >= 0
        with autocast('cuda'):
            logits = m(ids, pos, sel=sel, plans=seen.of(block, sample))
        wrong = ~nats(logits, torch.stack([x[sel] for x in target], 1))[1]
        kinds = [(length, kind) for length, its, *_ in some for kind in its]
        yield from zip(kinds, (torch.zeros(len(kinds), device='cuda').index_add_(0, of[sel].long(), wrong.float()) == 0).tolist())


def answered_on_cpu(m, documents):
    """Whether each question of each document is answered right, on a CPU."""
    for length, kinds, row, of in documents:
        row, of = torch.from_numpy(row), torch.from_numpy(of)
        reading = PrefilledDocument(m, row[0, row[2] == 0].tolist())
        for i, kind in enumerate(kinds):
            own = row[2] == i + 1
            likeliest, is_of = reading.likeliest(row[0, own].tolist()), of[own] == i
            yield (length, kind), bool((likeliest[:, None] == row[3:, own].T).any(1)[is_of].all())


@torch.no_grad()
def count(m, documents):
    """Scores: {(length, kind): (right, of)}."""
    score = {}
    for key, is_right in answered_on_gpu(m.cuda(), documents) if torch.cuda.is_available() else answered_on_cpu(m, documents):
        right, total = score.get(key, (0, 0))
        score[key] = right + is_right, total + 1
    return score


def table(score):
    kinds = list(dict.fromkeys(kind for _, kind in score))
    for length in sorted({length for length, _ in score}):
        yield f'{length}: ' + ', '.join(f'{kind} {score[length, kind][0]}/{score[length, kind][1]}' for kind in kinds if (length, kind) in score)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('what', choices=('make', 'ask'))
    ap.add_argument('rows', type=pathlib.Path)
    ap.add_argument('models', nargs='*')
    ap.add_argument('--tokenizer', type=pathlib.Path, default=pathlib.Path(__file__).parent / 'tokenizer.json')
    ap.add_argument('--texts', nargs='+', type=pathlib.Path)
    ap.add_argument('--seed', type=int, default=31)
    ap.add_argument('--documents', nargs='+', default=['1024x60', '4096x20', '16384x8', '32768x4'])
    a = ap.parse_args()
    if a.what == 'make':
        sampler = Sampler({p.name: p.read_text(errors='ignore') for p in a.texts}, Tokenizer.from_file(str(a.tokenizer)))
        torch.save(make(sampler, a.seed, [tuple(map(int, x.split('x'))) for x in a.documents]), a.rows)
        return
    documents = torch.load(a.rows, weights_only=False)
    torch.set_flush_denormal(True)
    for path in a.models:
        print(path, *table(count(load(path), documents)), sep='\n  ', flush=True)


if __name__ == '__main__':
    main()
