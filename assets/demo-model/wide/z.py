import sys,torch
# IN OUT h1scale h3wide h3sinkadd
sd=torch.load(sys.argv[1]); sd={k:v.clone() for k,v in sd.items()}; D=128
q=sd['b.4.q.weight']
s=float(sys.argv[3])
if s>0: q[D:2*D]=q[0:D]*s
q[3*D+78:3*D+102]*=float(sys.argv[4])
torch.save(sd,sys.argv[2])
