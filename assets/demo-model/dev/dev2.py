"""python dev2.py FOLDER LENGTHS SEED [-v]: quicker: no greedy; more documents, positions 1..8 one by one, errors of 4-8 and 9+ with where layers look."""
import sys; 
import dev as d
from dev import *
@torch.no_grad()
def go(m, length, docs, n, seed, show):
    random.seed(seed)
    hit = torch.zeros(9, 2); rows = {}; shown = [0, 0]
    for _ in range(docs):
        ids, words, _ = sampler.document(length - 16, 0)
        head = [IM_START] + sampler.enc('user') + sampler.nl
        full = head + ids
        rd = Reading(m, full)
        for ph, toks, at in runs(ids, words, n):
            q = sampler.turn(sampler.enc('Quote: ' + ph), True)
            every = full + q + toks
            probe.clear(); on[0] = True
            got = rd.likeliest(q + toks)[len(q) - 1:-1]
            on[0] = False
            ok = got == torch.tensor(toks)
            for z in range(len(toks)): hit[min(z, 8)] += torch.tensor([float(ok[z]), 1.])
            place = torch.tensor(at) + len(head)
            for part, (a, b) in enumerate(((3, 8), (8, 99))):
                sel = list(range(a, min(b, len(toks))))
                if not sel: continue
                for l in (2, 3, 4):
                    w = probe[l][1][0, 0]
                    w = w[:, [len(q) + z - 1 for z in sel]]
                    r = w.gather(-1, place[sel][None, :, None].expand(len(w), -1, 1))[..., 0].mean(-1)
                    dd = w[..., 1:rd.n].sum(-1).mean(-1)
                    rows.setdefault((part, l), []).append(torch.stack((r, dd, w[..., 0].mean(-1))))
                bad = [z for z in sel if not ok[z]]
                if bad and shown[part] < show:
                    shown[part] += 1; z = bad[0]
                    print(f'  [{z+1}]', repr(tok.decode(q[2:-5])), '...', repr(tok.decode(toks[:z])[-50:]), 'want', by_id[toks[z]], 'at', int(place[z]), 'got', by_id[int(got[z])], 'doc', rd.n)
                    for l in (2, 3, 4):
                        for hd in (1, 3) if l < 4 else (1,):
                            w = probe[l][1][0, 0, hd, len(q) + z - 1]; t = w.topk(3)
                            print('      ', l, hd, [(round(v, 2), j, tok.decode(every[max(0, j - 5):j]) + '|' + by_id[every[j]]) for v, j in zip(t.values.tolist(), t.indices.tolist()) if v > .04], 'right %.3f' % w[place[z]].item())
    r = (hit[:, 0] / hit[:, 1]).tolist()
    a, b = hit[3:8].sum(0).tolist(); 
    print(f'{length}: ' + ' '.join(f'{x:.2f}' for x in r[:8]) + f' | 4-8 {a / b:.4f} of {int(b)} | 9+ {r[8]:.4f} of {int(hit[8, 1])}', flush=True)
    for (p, l), v in sorted(rows.items()):
        v = torch.stack(v).mean(0)
        print(f'   {("4-8", "9+")[p]} layer {l}: right ' + ' '.join(f'{x:.2f}' for x in v[0]) + ' | doc ' + ' '.join(f'{x:.2f}' for x in v[1]) + ' | sink ' + ' '.join(f'{x:.2f}' for x in v[2]))
if __name__ == '__main__':
    m = made()
    show = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    print(sys.argv[1], sum(p.numel() for p in m.parameters()) / 1e6, 'M parameters')
    for l in map(int, sys.argv[2].split(',')):
        t0 = time.time()
        go(m, l, {1024: 16, 4096: 6}.get(l, 2), {1024: 6, 4096: 16}.get(l, 30), int(sys.argv[3]), show)
        print(f'   {time.time() - t0:.0f} s', flush=True)
