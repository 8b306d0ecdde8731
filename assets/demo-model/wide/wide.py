import sys,torch
# IN OUT l2 l3 l4 h3 h1add
sd=torch.load(sys.argv[1]); sd=sd.get('model',sd); sd={k:v.clone() for k,v in sd.items()}; D=128
a,b,c,f3,f1=map(float,sys.argv[3:8])
q=sd['b.2.q.weight']; q[D+96:D+124]*=a
q=sd['b.3.q.weight']
for h in (1,2): q[h*D+78:h*D+102]*=b
q=sd['b.4.q.weight']; base=q[78:102].clone()
for h in (0,2): q[h*D+78:h*D+102]*=c
q[3*D+78:3*D+102]*=f3; q[D+78:D+102]+=base*f1
torch.save(sd,sys.argv[2])
