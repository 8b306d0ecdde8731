"""python dev/by_position.py STATE LENGTH N TEXTS TOKENIZER: nats and share right by position in the answer and by kind of question, and N wrong answers."""
import torch, random, sys, collections, pathlib
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from tokenizers import Tokenizer
from train import *
from samples import *
torch.set_num_threads(1); torch.set_flush_denormal(True)
pool = load_texts(sys.argv[4], [])
tok = Tokenizer.from_file(sys.argv[5])
random.seed(5)
s = Sampler(pool, tok)
m = QuoteModel(1)
if len(sys.argv) > 1: 
    st = torch.load(sys.argv[1]); m.load_state_dict(st.get('model', st)); print(st.get('step'), st.get('seen'))
else: start_from_a_circuit(m, shares(pool, tok), tok.get_vocab())
T = int(sys.argv[2]) if len(sys.argv) > 2 else 1024
acc = collections.defaultdict(lambda: torch.zeros(12, 3))
shown = int(sys.argv[3]) if len(sys.argv) > 3 else 0
for _ in range(24 * 1024 // T):
    ids, w, pos, block, _ = s.sample(T)
    ids, pos, w, block = (torch.tensor(x)[None] for x in (ids, pos, w, block))
    with torch.no_grad(): lg = m(ids[:, :-1], pos[:, :-1], seen=seen_of(block[:, :-1]))[0].float()
    nll = F.cross_entropy(lg, ids[0, 1:], reduction='none'); ok = lg.argmax(-1) == ids[0, 1:]
    w = w[0, 1:]
    i = 0
    seq = ids[0].tolist()
    while i < len(w):
        if w[i] != 4.0: i += 1; continue
        j = i
        while j < len(w) and w[j] > .9: j += 1
        ans = tok.decode(seq[i + 1:j + 1])
        # question text
        k = i
        while seq[k] != IM_END: k -= 1
        k0 = k - 1
        while seq[k0] not in (IM_END, IM_START) and k - k0 < 50: k0 -= 1
        q = tok.decode(seq[k0:k])
        kind = 'absent' if ans.startswith(' I cannot') else 'yesno' if ' So yes' in ans or ' So no' in ans else 'other'
        if kind == 'other':
            kind = 'fact' if any(x in q.split('\n')[-1] for x in ('What is the', 'Tell me the', 'When was', 'How much', 'Who ', 'How many', 'Where is', 'When did', 'On what')) else 'quote'
        a = acc[kind]
        for z in range(i, j):
            a[min(z - i, 11)] += torch.tensor([1., nll[z].item(), float(ok[z])])
        if shown and kind != 'absent' and not bool(ok[i:j].all()):
            shown -= 1
            z = next(z for z in range(i, j) if not ok[z])
            print(kind, repr(q.split('\n')[-1]), '->', repr(ans[:70]), '| at', z - i, 'want', repr(tok.decode([seq[z + 1]])), 'got', repr(tok.decode([int(lg[z].argmax())])))
        i = j + 1
for k, a in sorted(acc.items()):
    print(k, int(a[0, 0]), 'nll', ' '.join('%.2f' % (x[1] / x[0].clamp_min(1)) for x in a), '| right', ' '.join('%.2f' % (x[2] / x[0].clamp_min(1)) for x in a))
