import sys; sys.path[:0]=['/work/notes/run','/tmp']
import torch, math, os
os.chdir('/work/notes/run')
import fixdoc, circuit as c
from model import *
import train
m=QuoteModel(); 

sd=torch.load("/work/notes/run/"+sys.argv[1]); m.load_state_dict(sd.get("model",sd))
ids,places=fixdoc.make(m); S=c.SLOT
src=open('/work/notes/run/graft.py').read(); i=src.index('@torch.no_grad()\ndef trace'); j=src.index('@torch.no_grad()\ndef main')
import torch.nn.functional as F
exec(src[i:j])
x,qk=trace(m,ids)
pq=torch.tensor([a for a,_ in places]); pk=torch.tensor([b for _,b in places])
cs=lambda a,b: torch.cosine_similarity(a,b,-1)
for a,b in (('EIGHT','EIGHT_K'),('FOUR','FOUR_K'),('TWO','TWO_K'),('THREE','THREE_K')):
    v=cs(x[6][:,S[a]][pq],x[6][:,S[b]][pk]); print(a,v.mean().item(),v.min().item(), x[6][pq][:,S[a]].norm(dim=-1).mean().item()/3, x[6][pk][:,S[b]].norm(dim=-1).mean().item()/3)
print([round((y/3).pow(2).sum(-1).mean().item(),2) for y in x])
for h in range(4):
    Q,K=qk[4][0][h],qk[4][1]; sc=(Q[pq]@K.T/math.sqrt(D)).masked_fill(torch.arange(len(ids))>pq[:,None],-1e9)
    right=sc[torch.arange(len(pq)),pk]; print(h,'right',right.mean().item(),right.min().item(),'sink',sc[:,0].mean().item(),'best', (sc.argmax(-1)==pk).float().mean().item())
b=m.b[4]
print('n1.w', {k: round(b.n1.w[S[k]].mean().item(),3) for k in ('EIGHT','EIGHT_K','TWO','FOUR','const')}, 'L2 n2', {k: round(m.b[2].n2.w[S[k]].mean().item(),3) for k in ('EIGHT','EIGHT_K','FOUR','FOUR_K')})
Q,K=qk[4][0][3],qk[4][1]
rows={'EIGHT':[18,19,38,39,125,126]+list(range(102,124)),'TWO':list(range(20,38))+list(range(40,50)),'THREE':list(range(50,58)),'FOUR':list(range(58,78)),'WIDE':list(range(78,102)),'own':[124],'127':[127]}
for h in (0,1,3):
  for n,r in rows.items():
    r=torch.tensor(r); g=(qk[4][0][h][pq][:,r]*K[pk][:,r]).sum(-1)/math.sqrt(D); z=(qk[4][0][h][pq][:,r]*K[0][r]).sum(-1)/math.sqrt(D)
    g2=(qk[4][0][h][pq][:,r]*K[pk.roll(9)][:,r]).sum(-1)/math.sqrt(D)
    print(h,n,'right',round(g.mean().item(),1),'elsewhere',round(g2.mean().item(),1),round(g2.std().item(),1),'sink',round(z.mean().item(),1))
