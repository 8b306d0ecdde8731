"""Train the built-in model on a folder of plain-text files (any English prose and documentation; 25 MB is plenty).

    python train.py --texts FOLDER --out OUT --hours 1        # 2 CPU cores with bf16 are enough; a GPU is used if present

Hidden matrices are trained with Muon (orthogonalised momentum), embeddings and norms with AdamW. Writes OUT/model.pt and
OUT/tokenizer.json; `export.py` makes the GGUF, `evaluate.py` measures retrieval on texts held out here.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import re
import time

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from circuit import fixed, start_from_a_circuit
from model import D, G, L, V, QuoteModel, plan
from samples import MORE, SPECIAL, Sampler
from sharp import penalty


MORE_TOKENS, MORE_EVERY = 4096, 16       # of each other document; batches before the next one is read
OTHERS, OTHERS_FROM = .7, 2.5e6          # of samples, beside other documents; from twice so many tokens on, as before none begins an answer
MEAN_FROM = .6                           # of the time, from when on the mean of the weights is taken, which is what is kept


def load_texts(folder, held_out):
    texts = {p.name: p.read_text(errors='ignore') for p in sorted(pathlib.Path(folder).glob('*.txt'))}
    return {k: t for k, t in texts.items() if not any(h in k for h in held_out)}


def make_tokenizer(texts, path, n_pieces=2400):
    """Byte-level BPE ('gpt-2' pre-tokenizer of GGUF) in which a word has the same pieces at a line's beginning as after a space.

    Pieces come from words without spaces, digits one by one; the last merges put a space before the pieces that begin words.
    """
    if path.exists():
        return Tokenizer.from_file(str(path))
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    trainer = trainers.BpeTrainer(vocab_size=n_pieces, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    bare.train_from_iterator((t[i:i + 100_000] for t in texts.values() for i in range(0, min(len(t), 3_000_000), 100_000)), trainer)
    begins = collections.Counter()
    for t in texts.values():
        for word, n in collections.Counter(re.findall(r' (\w+|[^\s\w]+)', t[:600_000])).items():
            begins[bare.encode(word, add_special_tokens=False).tokens[0]] += n
    bpe = json.loads(bare.to_str())['model']
    vocab, merges = bpe['vocab'], [tuple(m if isinstance(m, list) else m.split(' ')) for m in bpe['merges']]
    spaces = [('Ġ' * n, 'Ġ' * n) for n in (1, 2, 4)]
    for a, b in spaces + [('Ġ', piece) for piece, _ in begins.most_common(V - n_pieces - len(spaces))]:
        vocab[a + b] = len(vocab)
        merges.append((a, b))
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), decoders.ByteLevel()
    tok.add_special_tokens(SPECIAL)
    tok.save(str(path))
    return tok


def shares(texts, tok):
    """Of each token in the texts [V]."""
    counts = torch.ones(V)
    for t in texts.values():
        counts += torch.bincount(torch.tensor(tok.encode(t[:200_000], add_special_tokens=False).ids), minlength=V)
    return counts / counts.sum()


class Muon:
    """Momentum, orthogonalised; matrices of one shape and pace (of the learning rate) together."""

    def __init__(self, params, momentum=.95, decay=.02):
        self.momentum, self.decay = momentum, decay
        self.groups = {}
        for p, pace in params:
            self.groups.setdefault((*p.shape, pace), []).append(p)
        self.buf = {(*shape, pace): torch.zeros(len(ps), *shape) for (*shape, pace), ps in self.groups.items()}

    @torch.no_grad()
    def step(self, lr):
        for (rows, columns, pace), ps in self.groups.items():
            grad, buf = torch.stack([p.grad for p in ps]), self.buf[rows, columns, pace]
            buf.mul_(self.momentum).add_(grad)
            x = grad.add(buf, alpha=self.momentum)
            x = (x.mT if rows > columns else x)
            x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
            for _ in range(5):  # Newton-Schulz towards the nearest orthogonal matrix
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            x = (x.mT if rows > columns else x).float()
            for p, d in zip(ps, x):
                p.mul_(1 - lr * pace * self.decay).add_(d, alpha=-lr * pace * max(1, rows / columns) ** .5)
                p.grad = None


class Batches:
    """Samples made in a process of their own, a few steps ahead."""

    def __init__(self, sampler, args, seconds, rank):
        self.queue, self.done, self.n_made = mp.Queue(4), mp.Value('d', seconds / args.seconds), 0
        mp.Process(target=self.fill, args=(sampler, args.tokens, args.seed + int(seconds) + 100_003 * rank, os.getpid()), daemon=True).start()

    def another(self, sampler):
        """Now and then, at first in each batch, ids of a document that attention is to see beside later samples."""
        self.n_made += 1
        return np.array(sampler.another(MORE_TOKENS)) if self.n_made <= MORE or self.n_made % MORE_EVERY == 0 else None

    def fill(self, sampler, n_tokens, seed, parent):
        torch.set_num_threads(1), os.nice(5)
        random.seed(seed)
        while os.getppid() == parent:
            T = random.choices(*lengths(self.done.value))[0]
            batch = [np.array(x) for x in zip(*(sampler.sample(T) for _ in range(max(1, n_tokens // T))))] + [self.another(sampler)]
            while self.queue.full() and os.getppid() == parent:
                time.sleep(.05)
            self.queue.put(batch)
        self.queue.cancel_join_thread()

    def next(self, done):
        self.done.value = done
        return [x if x is None else torch.from_numpy(x) for x in self.queue.get()]


def lengths(done):
    """Sample lengths and how often."""
    return (512, 1024, 2048, 4096), (.35, .4, .2, .05)


class Others:
    """Keys and values of the last documents that were read beside the samples, as if they stood before a sample's own.

    Answers in long documents are learned so without reading long documents: only questions and answers attend to them.
    """

    def __init__(self, m, n_head, since):
        self.m, self.n_head, self.since, self.read = m, n_head, since, collections.deque(maxlen=MORE)

    @torch.no_grad()
    def add(self, ids, dev):
        ids = ids.to(dev)[None]
        cache = [{} for _ in range(L)]
        with torch.autocast(dev, dtype=torch.bfloat16):
            self.m(ids, torch.arange(-ids.shape[1], 0, device=dev)[None], cache, last=True,
                   plans=[plan(torch.zeros(ids.shape[1], dtype=torch.long), ids.shape[1])])
        self.read.append([(c['k'][:, :, self.n_head:], c['v'][:, :, self.n_head:]) for c in cache])

    def some(self, n_seen):
        """By layer, keys and values of a stretch of random length; None in the layers that look at positions only."""
        if not self.read or random.random() > OTHERS * min(1, max(0, n_seen / self.since - 1)):
            return None
        n = int(math.exp(random.uniform(math.log(1024), math.log(MORE * MORE_TOKENS))))
        docs = random.sample(list(self.read), len(self.read))
        join = lambda i, j: torch.cat([d[i][j] for d in docs], 2)[:, :, :n]
        return [None if i < 2 else (join(i, 0), join(i, 1)) for i in range(L)]


def seen_of(block):
    """Which tokens each attends to [B, T, T]: those before it in the document (block 0) and in its own block [B, T]."""
    return ((block[:, None] == 0) | (block[:, None] == block[..., None])).tril()


def loss_of(m, others, n_seen, ids, weight, pos, block, begin, another, sharp, dev):
    if another is not None:
        others.add(another, dev)
    more = others.some(n_seen)
    plans = [plan(b, int(at)) for b, at in zip(block[:, :-1], begin)]
    ids, weight, pos, block = (x.to(dev) for x in (ids, weight, pos, block))
    seen = seen_of(block[:, :-1]) if sharp and block.any() else None
    want = weight[:, 1:]
    sel = want > 0
    probe = [] if sharp else None
    with torch.autocast(dev, dtype=torch.bfloat16):
        logits = m(ids[:, :-1], pos[:, :-1], sel=sel, probe=probe, more=more, plans=plans)
    target, w = ids[:, 1:][sel], want[sel]
    nll = F.cross_entropy(logits.float(), target, reduction='none')
    total, lost, thin = (nll * w).sum() / w.sum(), nll.new_zeros(()), nll.new_zeros(())
    if sharp:
        answers = (want > .9) + 1e-9
        lost, thin = penalty(probe, torch.multinomial(answers, max(8, 160 // len(answers)), replacement=True), seen)
        total = total + sharp * (lost + .3 * thin)
    ans = w > .9
    acc = (logits.argmax(-1) == target)[ans].float().mean()
    return total, torch.stack([x.detach() for x in (nll[ans].mean(), acc, lost, thin)])


def matrices_and_rest(m, pace_of_circuit=1.0):
    """What Muon trains, each with its share of the learning rate, and the same for AdamW.

    What the hashes are made of (the embedding, layers 0 and 1) stays as it is: an update has the same size whatever the size of the matrix,
    and the values of the circuit are small ones, which after 16 M tokens were half noise. The rest of the circuit goes slowly.
    """
    paces = {'q': 1.0, 'o': 1.0, 'k': .5, 'v': .1}
    named = [(n, p) for n, p in m.named_parameters() if p.requires_grad]
    in_circuit = lambda n: n.startswith('b.') and int(n.split('.')[1]) < L - 1 and n.split('.')[2] in paces
    paced = [(p, pace_of_circuit * paces[n.split('.')[2]] if in_circuit(n) else 1.0) for n, p in named]
    return [x for x in paced if x[0].dim() == 2], [x for x in paced if x[0].dim() != 2]


def products_of_halves():
    """Products of f32 numbers that are bf16 already, scores above all, are made by the processor's bf16 unit and stay f32."""
    torch.backends.mkldnn.matmul.fp32_precision = 'bf16'


def trained(m):
    return [p for p in m.parameters() if p.requires_grad]


class Summed:
    """Gradients of all workers, in shared memory: whoever has one adds it, the first worker steps when there are enough."""

    def __init__(self, m):
        self.grads = [torch.zeros_like(p).share_memory_() for p in trained(m)]
        self.n, self.seen, self.lock = mp.Value('i', 0), mp.Value('q', 0), mp.Lock()

    def add(self, m, n_tokens):
        with self.lock:
            for g, p in zip(self.grads, trained(m)):
                g.add_(p.grad)
                p.grad = None
            self.n.value += 1
            self.seen.value += n_tokens

    def take(self, m):
        with self.lock:
            for g, p in zip(self.grads, trained(m)):
                p.grad = g / self.n.value
                g.zero_()
            self.n.value = 0


def help_out(m, summed, sampler, args, before, rank, dev):
    """A worker that only makes gradients, of weights that may change meanwhile."""
    torch.set_num_threads(1), torch.set_flush_denormal(True), products_of_halves()
    torch.manual_seed(args.seed + rank), random.seed(args.seed + rank)
    batches, others, t0, parent = Batches(sampler, args, before, rank), Others(m, len(sampler.head), args.others_from), time.time(), os.getppid()
    while os.getppid() == parent:
        done = (before + time.time() - t0) / args.seconds
        batch = batches.next(done)
        total, _ = loss_of(m, others, summed.seen.value, *batch, args.sharp, dev)
        total.backward()
        summed.add(m, batch[0].numel())


def train(m, summed, sampler, args, state, dev):
    hidden, rest = matrices_and_rest(m, args.pace)
    muon, adam = Muon(hidden), torch.optim.AdamW([{'params': [p], 'pace': pace} for p, pace in rest], betas=(.9, .97), weight_decay=0.0)
    before, step = 0.0, 0
    if state:
        adam.load_state_dict({**state['adam'], 'param_groups': adam.state_dict()['param_groups']})
        muon.buf.update({k: b.to(dev) for k, b in state['muon'].items() if k in muon.buf})
        before, step = state['seconds'], state['step']
    kept_mean = Mean(m, state and state.get('mean'))
    kept = [(w, rows, w.data[rows].clone()) for w, rows in fixed(m)]
    batches, others = Batches(sampler, args, before, 0), Others(m, len(sampler.head), args.others_from)
    t0, mean, first = time.time(), None, summed.seen.value
    while (done := (before + time.time() - t0) / args.seconds) < 1:
        batch = batches.next(done)
        total, numbers = loss_of(m, others, summed.seen.value, *batch, args.sharp, dev)
        total.backward()
        summed.add(m, batch[0].numel())
        mean = numbers if mean is None else mean.lerp(numbers, .05)
        if summed.n.value < args.workers:
            continue
        summed.take(m)
        for w, rows, _ in kept:
            w.grad[rows] = 0
        lr = args.peak * min(1, (step + 1) / 60) * min(1, max(.2, 1.3 - 1.3 * done))
        for g in adam.param_groups:
            g['lr'] = lr * 1.2 * g['pace']
        adam.step(), muon.step(lr * 8)
        for w, rows, as_they_are in kept:
            w.data[rows] = as_they_are
        adam.zero_grad()
        step += 1
        if done > MEAN_FROM:
            kept_mean.add(m)
        if step % 20 == 0:
            ans, acc, lost, thin = mean.tolist()
            seen = summed.seen.value
            print(f'{done:5.1%} step {step} {seen / 1e6:.2f}M tokens: answers {ans:.3f} nats, {acc:.4f} right; '
                  f'not found {lost:.3f}, thin {thin:.3f}; {(seen - first) / (time.time() - t0):.0f} tokens/s', flush=True)
            torch.save({'model': m.state_dict(), 'adam': adam.state_dict(), 'muon': muon.buf, 'seconds': before + time.time() - t0,
                        'step': step, 'seen': seen, 'mean': (kept_mean.w, kept_mean.n)}, args.out / 'state.new')
            os.replace(args.out / 'state.new', args.out / 'state.pt')
    torch.save(kept_mean.w if kept_mean.n else m.state_dict(), args.out / 'model.pt')


class Mean:
    """Of the weights after each step from `MEAN_FROM` on: closer to what many more steps would find than the last ones are (SWA, section 3)."""

    def __init__(self, m, saved):
        self.w, self.n = saved or ({n: p.detach().clone() for n, p in m.named_parameters()}, 0)

    @torch.no_grad()
    def add(self, m):
        self.n += 1
        for n, p in m.named_parameters():
            self.w[n].lerp_(p, 1 / self.n)


def with_heads(sd, kv_heads):
    """Weights whose key/value heads are repeated to make so many: the same function, from which each can go its own way."""
    sd = sd.get('model', sd)
    split = lambda w: w.view(-1, D, w.shape[1])
    return {n: split(w).repeat_interleave(kv_heads * D // len(w), 0).reshape(-1, w.shape[1]) if n.endswith(('.k.weight', '.v.weight')) else w
            for n, w in sd.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--texts', required=True)
    ap.add_argument('--out', required=True, type=pathlib.Path)
    ap.add_argument('--hours', type=float, default=1.0)
    ap.add_argument('--hold-out', nargs='*', default=[])
    ap.add_argument('--seed', type=int, default=0)
    ap.add_argument('--workers', type=int, default=os.cpu_count(), help='processes with one thread each; 1 on a GPU')
    ap.add_argument('--tokens', type=int, default=2048, help='of a worker and step')
    ap.add_argument('--peak', type=float, default=1e-3, help='learning rate')
    ap.add_argument('--pace', type=float, default=.1, help='share of the learning rate for queries and keys of the circuit')
    ap.add_argument('--sharp', type=float, default=.03, help='weight of the penalty on attention that chunk bounds do not find')
    ap.add_argument('--kv-heads', type=int, default=G, help='key/value heads; 4 makes the multi-head variant')
    ap.add_argument('--start', type=pathlib.Path, help='weights to start from, instead of the circuit; key/value heads are repeated as needed')
    ap.add_argument('--resume', action='store_true', help='go on from OUT/state.pt')
    args = ap.parse_args()
    args.seconds, args.others_from = args.hours * 3600, 1.0 if args.start else OTHERS_FROM
    dev = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.manual_seed(args.seed), random.seed(args.seed), torch.set_flush_denormal(True), torch.set_num_threads(1)
    products_of_halves()
    args.out.mkdir(parents=True, exist_ok=True)
    pool = load_texts(args.texts, args.hold_out)
    tok = make_tokenizer(pool, args.out / 'tokenizer.json')
    sampler = Sampler(pool, tok)
    m = QuoteModel(args.kv_heads)
    start_from_a_circuit(m, shares(pool, tok), tok.get_vocab())
    if args.start:
        m.load_state_dict(with_heads(torch.load(args.start), args.kv_heads))
    state = torch.load(args.out / 'state.pt') if args.resume else None
    if state:
        m.load_state_dict(state['model'])
    m.e.requires_grad_(False), m.b[:2].requires_grad_(False)
    m.to(dev).share_memory()
    summed = Summed(m)
    summed.seen.value = state['seen'] if state else 0
    for rank in range(1, args.workers):
        mp.Process(target=help_out, args=(m, summed, sampler, args, state['seconds'] if state else 0.0, rank, dev)).start()
    train(m, summed, sampler, args, state, dev)
    for child in mp.active_children():
        child.terminate()


if __name__ == '__main__':
    main()
