import sys,math,os; sys.argv=[sys.argv[0]]+sys.argv[1:]
import torch, torch.nn.functional as F
import fixdoc, circuit as c
from model import *
from circuit import SHARP, PASSED_OVER, Maker
src=open('graft.py').read(); i=src.index('@torch.no_grad()\ndef trace'); j=src.index('@torch.no_grad()\ndef main'); exec(src[i:j])
S=c.SLOT; SCALE=3.0
st=torch.load(sys.argv[1]); m=QuoteModel(); m.load_state_dict(st['model'])
@torch.no_grad()
def main():
    ids,places=fixdoc.make(m); pq=torch.tensor([a for a,_ in places]); pk=torch.tensor([b for _,b in places])
    brk=[fixdoc.is_break(i) for i in ids]; real=[i for i,r in enumerate(brk) if not r]
    want={d:torch.zeros(len(ids),dtype=torch.long) for d in (4,5)}
    for d in want:
        for j,i in enumerate(real): want[d][i]=real[max(0,j-d)]
    sel=torch.tensor(real[12:])
    cs=lambda a,b: torch.cosine_similarity(a,b,-1)
    def look():
        x,qk=trace(m,ids)
        for name,d in (('EIGHT',4),('EIGHT_K',5)):
            v=cs(x[5][sel][:,S[name]], x[4][want[d][sel]][:,S['FOUR']].roll(1,-1)); print(name,'cos',v.mean().item(),(v>.9).float().mean().item())
        return x,qk
    look()
    b=m.b[2]; hd=lambda h: slice(h*D,h*D+D)
    for h,d0,d1 in ((2,4.0,4.3),(3,5.0,5.3)):
        for i in range(9):
            turn=m.inv[i].item()*(d1-d0); R=torch.tensor([[math.cos(turn),math.sin(turn)],[-math.sin(turn),math.cos(turn)]])
            r=h*D+2*i; b.q.weight[r:r+2]=R@b.q.weight[r:r+2]
    x,qk=look()
    at=448
    for slot,where,gate in (('EIGHT',pq,'FOUR'),('EIGHT_K',pk,'FOUR_K')):
        a,b_,f=x[5][where][:,S[slot]],x[6][where][:,S[slot]],x[5][where][:,S[gate]]<0
        r=(b_[f]/a[f]).median().item(); print(slot,'flipped',r); b.d.weight[S[slot],at:at+28]*=-2/(r-1); at+=28
    x,qk=look()
    v=cs(x[6][pq][:,S['EIGHT']],x[6][pk][:,S['EIGHT_K']]); print('EIGHT q-k',v.mean().item(),v.min().item())
    b=m.b[4]; rows={'EIGHT':[18,19,38,39,125,126]+list(range(102,124)),'TWO':list(range(20,38))+list(range(40,50)),'THREE':list(range(50,58)),'FOUR':list(range(58,78)),'WIDE':list(range(78,102))}
    T={'EIGHT':80.,'FOUR':30.,'THREE':8.,'TWO':11.,'WIDE':12.}
    for n,r in rows.items():
        r=torch.tensor(r); g=(qk[4][0][3][pq][:,r]*qk[4][1][pk][:,r]).sum(-1)/math.sqrt(D); print(n,g.mean().item()); b.q.weight[3*D+r]*=T[n]/g.median()
    z=(qk[4][0][3][pq,124]*(qk[4][1][0,124]-qk[4][1][pk,124])).mean()/math.sqrt(D); print('sink over',z.item()); b.q.weight[3*D+124]*=110/z
    o=b.o.weight
    o[S['OUT'],hd(0)]*=.6; o[S['OUT'],hd(2)]*=.6; o[S['OUT'],hd(3)]*=2.0
    x,qk=trace(m,ids); Q,K=qk[4][0][3],qk[4][1]; sc=(Q[pq]@K.T/math.sqrt(D)).masked_fill(torch.arange(len(ids))>pq[:,None],-1e9)
    right=sc[torch.arange(len(pq)),pk]; print('right',right.mean().item(),right.min().item(),'sink',sc[:,0].mean().item(),'best',(sc.argmax(-1)==pk).float().mean().item())
    st['model']=m.state_dict(); st['mean']=None
    torch.save(st,sys.argv[2])
main()
