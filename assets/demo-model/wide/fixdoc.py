"""A document with quotations, as ids, and where each token copied from the fifth on comes from: (asking position, key position)."""
import json, random, pathlib, torch
from tokenizers import Tokenizer
from samples import Sampler, IM_START, IM_END
tok = Tokenizer.from_file('out/tokenizer.json')
vocab = tok.get_vocab(); text = {i: t for t, i in vocab.items()}
import circuit
forms, _, _ = circuit.forms(vocab)
is_break = lambda i: text[i].strip('Ċ') == '' or i == IM_END
end = 0
def make(m):
    global end
    random.seed(3)
    p = pathlib.Path('/work/notes/texts/jack-sheppard-a-romance-16215.txt')
    s = Sampler({p.name: p.read_text()}, tok)
    ids, words, facts = s.document(2000, 6, False)
    seq = [IM_START] + s.enc('user') + s.nl + ids; end = len(seq)
    doc = [(i, int(forms[t])) for i, t in enumerate(seq) if not is_break(t)]
    df = [f for _, f in doc]
    places, n = [], 0
    while n < 14:
        a = s.ask_phrase(words)
        if not a: continue
        q, ans = s.turn(s.enc(a[0]), n == 0), s.enc(a[1])[:40]
        at = len(seq) + len(q)
        fs = [int(forms[t]) for t in ans]
        hit = [j for j in range(len(df) - len(fs)) if df[j:j + len(fs)] == fs]
        if len(hit) != 1 or len(fs) < 14: continue
        n += 1
        for k in range(9, len(fs) - 1): places.append((at + k, doc[hit[0] + k + 1][0]))
        seq += q + ans + [IM_END] + s.nl
    return seq, places
