"""python absent.py FOLDER LENGTHS SEED: mass on the sink at a question's last words, phrase in the document or not."""
from dev import *
@torch.no_grad()
def go(m, length, docs, n, seed):
    random.seed(seed); out = {0: [], 1: []}
    for _ in range(docs):
        ids, words, _ = sampler.document(length - 16, 0)
        rd = Reading(m, [IM_START] + sampler.enc('user') + sampler.nl + ids)
        for present in (1, 0):
            w = words if present else Words(sampler.document(1000, 0)[1].doc)
            for _ in range(n):
                for _ in range(50):
                    i = random.randrange(0, len(w.words) - 12); ph = w.span(i, i + 4)
                    if len(ph) > 12 and (present or not words.flat.count(w.span(i + 1, i + 4).lower())): break
                q = sampler.turn(sampler.enc('Quote: ' + ph), True)
                probe.clear(); on[0] = True; rd.likeliest(q); on[0] = False
                e = q.index(2)
                out[present].append(torch.stack([probe[l][1][0, 0, 1, e - 3:e, 0].mean() for l in (2, 3, 4)]))
    for p in (1, 0): print(length, ('absent', 'present')[p], 'sink in layers 2 3 4', [round(v, 3) for v in torch.stack(out[p]).mean(0).tolist()], flush=True)
m = made(); print(sys.argv[1])
for l in map(int, sys.argv[2].split(',')): go(m, l, {1024: 8, 4096: 4}.get(l, 1), 12, int(sys.argv[3]))
