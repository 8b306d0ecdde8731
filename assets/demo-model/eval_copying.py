"""Copying errors: next token not the likeliest given all before it, in the asked words and after them; and answers right as a whole.

An answer is right as a whole if and only if the greedy answer is. Runs before training and after it.

    python eval_copying.py circuit|WEIGHTS.pt|GGUF --texts FILE... --length 16384 --documents 2

Takes minutes; `evaluate.py`, which generates answers, takes a quarter of an hour. Shows the effect of a change of the circuit before any
training, and the wear of training.
"""
import argparse
import pathlib
import random

import torch
from tokenizers import Tokenizer

from dataset import IM_END, IM_START, MOST, Sampler
from evaluate import PrefilledDocument, asked_words, in_case, load
from train import untrained


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('weights')
    ap.add_argument('--tokenizer', type=pathlib.Path, default=pathlib.Path(__file__).parent / 'tokenizer.json')
    ap.add_argument('--texts', nargs='+', type=pathlib.Path, required=True)
    ap.add_argument('--length', type=int, default=16384)
    ap.add_argument('--documents', type=int, default=2)
    ap.add_argument('--questions', type=int, default=100, help='of each document')
    a = ap.parse_args()
    torch.set_flush_denormal(True), random.seed(5)
    tok = Tokenizer.from_file(str(a.tokenizer))
    sampler = Sampler({p.name: p.read_text(errors='ignore') for p in a.texts}, tok)
    m = untrained(sampler.pool, tok).eval() if a.weights == 'circuit' else load(a.weights)
    score, whole = {}, {}

    def tally(scores, key, n_more, of_more):
        n, of = scores.get(key, (0, 0))
        scores[key] = n + n_more, of + of_more

    def count(reading, kind, question, said):
        turn, answer = sampler.turn(sampler.enc(question), True), sampler.enc(said) + [IM_END]
        wrong = reading.likeliest(turn + answer)[len(turn) - 1:-1] != torch.tensor(answer)
        asked = len(sampler.enc(' ' + ' '.join(said.split()[:asked_words(question, said) or 3])))
        for place, part in (('the asked words', slice(0, asked)), ('after them', slice(asked, None))):
            of_answer = wrong[:-1][part]                             # the end of turn is no token of the text
            if len(of_answer):
                tally(score, (kind, place), int(of_answer.sum()), len(of_answer))
        tally(whole, kind, int(not wrong.any()), 1)

    for _ in range(a.documents):
        ids, words, facts = sampler.document(a.length - 16, 40, False)
        reading, asked = PrefilledDocument(m, [IM_START] + sampler.enc('user') + sampler.nl + ids), set()
        for _ in range(20 * a.questions):
            if len(asked) == a.questions:
                break
            made = in_case(sampler.ask_phrase(words), True)
            if made and made[1] not in asked and len(sampler.enc(made[1])) <= MOST:
                asked.add(made[1])
                count(reading, 'quotations', *made[:2])
        for fact, said in facts:
            count(reading, 'facts', fact.question, ' ' + said)
        for made in filter(None, (sampler.ask_absent(words, facts) for _ in range(a.questions // 2))):
            count(reading, 'absent', *made[:2])
    for (kind, place), (n, of) in score.items():
        print(f'{kind}, {place}: {n}/{of} wrong ({100 * n / of:.2f} %)')
    print('right as a whole: ' + ', '.join(f'{kind} {n}/{of} ({100 * n / of:.1f} %)' for kind, (n, of) in whole.items()))


if __name__ == '__main__':
    main()
