"""python dev.py MODEL_FOLDER LENGTHS [SEED]: the circuit before any training, on unseen documents.
By length: tokens right at places of a quotation (1-3, 4-8, 9+), given those before and the question (its own first five words);
whole rest right (greedy, first six tokens given) and by layer and head: mass on the right place, right chunk among the best tenth."""
import sys, random, pathlib, os, time
sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True
import torch, torch.nn.functional as F
torch.set_num_threads(1); torch.set_flush_denormal(True)
from tokenizers import Tokenizer
import model as M
from model import *
from circuit import start_from_a_circuit
from evaluate import Reading
from samples import Sampler, IM_START, Words
from train import shares
N = pathlib.Path('/work/notes/model')
tok = Tokenizer.from_file('/work/main/assets/demo-model/tokenizer.json')
vocab = tok.get_vocab()
sh = N / 'shares.pt'
if not sh.exists():
    torch.save(shares({p.name: p.read_text() for p in (N / 'texts').glob('*.txt')}, tok), sh)
share = torch.load(sh)
def made():
    torch.manual_seed(0)
    m = QuoteModel(); start_from_a_circuit(m, share, vocab); return m.eval()
texts = {p.name: p.read_text() for p in sorted((N / 'unseen').glob('*.txt'))}
sampler = Sampler(texts, tok)
by_id = {i: t for t, i in vocab.items()}
bid = vocab['Ċ']

def runs(ids, words, n):
    """Quotations as the samples ask them: (question words, tokens of the answer, their places)."""
    spans = tok.encode(words.doc, add_special_tokens=False).offsets
    solid = [i for i, c in enumerate(words.doc) if not c.isspace()]
    rank = {c: r for r, c in enumerate(solid)}
    token_of = {}
    for t, (x, y) in enumerate(spans):
        for c in range(x, y): token_of[c] = t
    out = []
    for _ in range(40 * n):
        if len(out) == n: break
        i = random.randrange(0, max(1, len(words.words) - 20)); k = random.randint(4, 6)
        last = words.end_of[i]
        ph = ' '.join(words.words[i:i + k])
        if last < i + k + 3 or not words.is_unique(ph): continue
        text = ' ' + words.span(i, last)
        e = tok.encode(text, add_special_tokens=False)
        if len(e.ids) > 72 or len(e.ids) < 12: continue
        r0, place, at = rank[words.at[i][0]], [], 0
        for x, y in e.offsets:
            skip = len(text[:x].replace(' ', '')); place.append(token_of[solid[min(r0 + skip, len(solid) - 1)]])
        out.append((ph, e.ids, place))
    return out

@torch.no_grad()
def measure(m, length, docs, n, seed, greedy=True):
    random.seed(seed)
    hit = torch.zeros(3, 2); whole = [0, 0]; by_layer = {}; wrong = []
    for _ in range(docs):
        ids, words, _ = sampler.document(length - 16, 0)
        head = [IM_START] + sampler.enc('user') + sampler.nl
        rd = Reading(m, head + ids)
        for ph, toks, at in runs(ids, words, n):
            q = sampler.turn(sampler.enc('Quote: ' + ph), True)
            probe.clear(); on[0] = True
            got = rd.likeliest(q + toks)[len(q) - 1:-1]
            on[0] = False
            ok = got == torch.tensor(toks)
            for z, s in enumerate((slice(0, 3), slice(3, 8), slice(8, 99))):
                hit[z] += torch.tensor([ok[s].sum(), len(ok[s])])
            if len(wrong) < 12 and not ok[8:].all():
                b = 8 + int((~ok[8:]).nonzero()[0]); wrong.append((tok.decode(toks[:b]), by_id[toks[b]], by_id[int(got[b])]))
            place = torch.tensor(at) + len(head)
            if '-vv' in sys.argv and not ok[8:].all() and len(wrong) < 9:
                b = 8 + int((~ok[8:]).nonzero()[0]); every = head + ids + q + toks
                print(repr(tok.decode(toks[:b])[-60:]), 'want', by_id[toks[b]], 'at', int(place[b]), 'got', by_id[int(got[b])], 'doc ends', rd.n)
                for l in (2, 3, 4):
                    w = probe[l][1][0, 0, 1, len(q) + b - 1]; t = w.topk(3)
                    print('     ', l, [(round(v, 2), j, tok.decode(every[max(0, j - 4):j]) + '|' + by_id[every[j]]) for v, j in zip(t.values.tolist(), t.indices.tolist())], 'right', round(w[place[b]].item(), 3))
            for layer, (qg, w) in enumerate(probe):     # qg [1,G,r,T,D], w [1,G,r,T,S+own]
                sel = slice(len(q) + 8 - 1, len(q) + len(toks) - 1)
                p = place[8:]
                mass = w[0, :, :, sel].flatten(0, 1)
                right = mass.gather(-1, p[None, :, None].expand(mass.shape[0], -1, 1)).mean((1, 2))
                doc = mass[..., 1:rd.n].sum(-1).mean(-1); sink = mass[..., 0].mean(-1)
                hi, lo = rd.bounds[layer]
                qq = qg[0, :, :, sel]
                bound = torch.einsum('grtd,gcd->grtc', F.relu(qq), hi) - torch.einsum('grtd,gcd->grtc', F.relu(-qq), lo)
                bound = bound[..., 1:-1].flatten(0, 1); c = p // 64 - 1
                okc = (c >= 0) & (c < bound.shape[-1])
                mine = bound.gather(-1, c.clamp(0, bound.shape[-1] - 1)[None, :, None].expand(len(bound), -1, 1))
                rank = (bound > mine).sum(-1).float()
                found = ((rank < max(1, bound.shape[-1] * .1)).float() * okc).sum(-1) / okc.sum().clamp_min(1)
                by_layer.setdefault(layer, []).append(torch.stack((right, doc, sink, found)))
            if greedy:
                later = rd.answers([q + toks[:6]])[0][:len(toks) - 6]
                whole[0] += later == toks[6:]; whole[1] += 1
    r = (hit[:, 0] / hit[:, 1]).tolist()
    print(f'{length}: tokens 1-3 {r[0]:.3f}, 4-8 {r[1]:.4f}, 9+ {r[2]:.4f} of {int(hit[2,1])}; whole rest {whole[0]}/{whole[1]}', flush=True)
    for l, v in by_layer.items():
        v = torch.stack(v).mean(0)
        if v[1].max() > .05:
            print(f'   layer {l}: right place ' + ' '.join(f'{x:.2f}' for x in v[0]) + ' | document ' + ' '.join(f'{x:.2f}' for x in v[1])
                  + ' | sink ' + ' '.join(f'{x:.2f}' for x in v[2]) + ' | chunk in best tenth ' + ' '.join(f'{x:.2f}' for x in v[3]))
    if '-v' in sys.argv:
        for w in wrong: print('     ', repr(w[0][-70:]), '-> want', w[1], 'got', w[2])

probe, on = [], [False]
attend = Reading.attend
def spied(self, layer, q, later, seen, live=None):
    if on[0]:
        n, _, t, _ = q.shape; g = self.g
        own = later[0].shape[2]
        qg = (q * D ** -.5).view(n, g, H // g, t, D)
        s = torch.cat((torch.einsum('ngrtd,gsd->ngrts', qg, self.k[layer]),
                       torch.einsum('ngrtd,ngjd->ngrtj', qg, later[0]).masked_fill(~torch.ones(t, own, dtype=torch.bool).tril(own - t), -1e9)), -1)
        probe.append((qg, s.softmax(-1)))
    return attend(self, layer, q, later, seen, live)
Reading.attend = spied

if __name__ == '__main__':
    m = made()
    print(sys.argv[1], sum(p.numel() for p in m.parameters()) / 1e6, 'M parameters')
    for l in map(int, sys.argv[2].split(',')):
        t0 = time.time()
        measure(m, l, {1024: 4, 4096: 2}.get(l, 1), {1024: 8}.get(l, 20), int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3].isdigit() else 5)
        print(f'   {time.time() - t0:.0f} s', flush=True)
