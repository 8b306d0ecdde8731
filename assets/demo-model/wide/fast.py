"""fast.py MODEL LENxN[,..] SEED [show]: teacher-forced exact match."""
import os, sys, random, pathlib
CODE=os.environ.get('CODE','/work/main/assets/demo-model'); sys.path.insert(0,CODE)
import torch; torch.set_flush_denormal(True); torch.set_num_threads(int(os.environ.get('TH','2')))
from tokenizers import Tokenizer
import evaluate as E
from samples import IM_START, IM_END, MOST, Sampler
from model import QuoteModel
def get(path):
    if path.endswith('.gguf'): return E.load(path)
    sd=torch.load(path,map_location='cpu'); 
    if 'mean' in sd and os.environ.get('MEAN'): sd=sd['mean'][0]
    sd=sd.get('model',sd)
    m=QuoteModel(); m.load_state_dict(sd); return m.eval()
@torch.no_grad()
def main():
    m=get(sys.argv[1]); show=len(sys.argv)>4
    tok=Tokenizer.from_file('/work/main/assets/demo-model/tokenizer.json')
    names=[p for p in pathlib.Path('/work/notes/unseen').glob('*.txt') if 'katrine' in p.name or 'log-school' in p.name]
    s=Sampler({p.name:p.read_text() for p in sorted(names)},tok)
    for part in sys.argv[2].split(','):
        L,N=map(int,part.split('x')); random.seed(int(sys.argv[3])); sc={}
        for _ in range(N):
            n=min(70,max(6,L//128))
            ids,words,facts=s.document(L-16,int(n*1.25),False)
            r=E.Reading(m,[IM_START]+s.enc('user')+s.nl+ids)
            r.measure=lambda *a:None
            for kind,q,want in E.ask(s,words,facts,n):
                if kind not in ('facts','quotations','absent','quotations asked for in another case','yes or no, two facts'): continue
                turn,a=s.turn(s.enc(q),True),s.enc(want)+[IM_END]
                got=r.likeliest(turn+a)[len(turn)-1:-1].tolist()
                ok=got==a; x,y=sc.get(kind,(0,0)); sc[kind]=(x+ok,y+1)
                if show and not ok:
                    i=next(j for j in range(len(a)) if got[j]!=a[j])
                    print(f'  {kind}: {q!r}\n     {s.tok.decode(a[:i])!r} WANT {s.tok.decode(a[i:i+4],skip_special_tokens=False)!r} GOT {s.tok.decode(got[i:i+1],skip_special_tokens=False)!r} (at {i} of {len(a)})')
        print(part,', '.join(f'{k} {x}/{y}' for k,(x,y) in sc.items()),flush=True)
main()
