import sys,os,random,pathlib; sys.path.insert(0,os.environ.get('CODE','/work/notes/run'))
import torch; torch.set_flush_denormal(True); torch.set_num_threads(2)
from tokenizers import Tokenizer
import evaluate as E
from samples import *
from model import *
import torch.nn.functional as F
def get(p):
    if p.endswith('.gguf'): return E.load(p)
    sd=torch.load(p,map_location='cpu'); sd=sd['mean'][0] if 'mean' in sd else sd.get('model',sd); m=QuoteModel(); m.load_state_dict(sd); return m.eval()
m=get(sys.argv[1])
tok=Tokenizer.from_file('/work/notes/run/out/tokenizer.json')
which=sys.argv[4] if len(sys.argv)>4 else 'train'
names={'train':['jack-sheppard-a-romance-16215.txt','american-adventuresa-second-trip-abroad-.txt','sherlock-holmes.txt','how-to-listen-to-music-7th-ed-hints-and-.txt'],'test':['katrine-a-novel-14263.txt','the-log-school-house-on-the-columbia-148.txt']}[which]
root=pathlib.Path('/work/notes/texts' if which=='train' else '/work/notes/unseen')
s=Sampler({n:(root/n).read_text() for n in names},tok)
I=s.enc(NOT_FOUND)[0]; cannot=s.enc(NOT_FOUND)[1]
@torch.no_grad()
def main():
    out={}
    for part in sys.argv[2].split(','):
        L,N=map(int,part.split('x')); random.seed(int(sys.argv[3])); out={}
        for _ in range(N):
            n=min(70,max(6,L//128)); ids,words,facts=s.document(L-16,int(n*1.25),False)
            r=E.Reading(m,[IM_START]+s.enc('user')+s.nl+ids); r.measure=lambda *a:None
            for kind,q,want in E.ask(s,words,facts,n):
                if kind not in ('facts','quotations','absent'): continue
                turn=s.turn(s.enc(q),True); a=s.enc(want)
                if kind!='absent' and a[0]==I: continue
                later=[(torch.zeros(1,r.g,0,D),torch.zeros(1,r.g,0,D)) for _ in range(6)]
                lg=r.step(torch.tensor([turn]),r.n+torch.arange(len(turn))[None],later,torch.ones(1,len(turn),dtype=torch.bool))[0,-1]
                ref=lg[I].item(); lg[I]=-1e9; out.setdefault(kind,[]).append((ref-lg.max().item(), lg.argmax().item()==a[0]))
        for k,v in out.items():
            xs=sorted(x for x,_ in v); 
            print(part,k,len(v),'margins',[round(x,1) for x in (xs[-6:] if k!='absent' else xs[:8])])
        for d in (0,.5,1,1.5,2,3,4,5): print('  shift',d,{k:(sum((x-d<0)==(k!='absent') for x,_ in v),len(v)) for k,v in out.items()})
main()
