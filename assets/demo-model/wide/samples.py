"""Training samples: a document, then questions whose answers are passages or facts in it.

    window of a text ─► facts and decoys planted ─► document ─┬─► questions (quote.., fact.., list..) ─► turns of one conversation
                                                              └─► positions that skip ahead
A sample is (ids, weight, position, block), each of length T + 1, and where its document ends: block 0 is the document, and what all
questions see; others do not see each other. Answers weigh 1, their first tokens more, documents and questions
nothing: the model copies, it need not write.
Answers are the document's own words with one space between them, whatever its line breaks: up to where the question's words end, it
and the document say the same; they begin at the first asked word that the document has and run to the end of its sentence. A list says
that of each mention. Positions skip ahead inside the document: short samples train positions up to MAX_POS (after PoSE).
"""
import collections
import functools
import math
import random
import re

import numpy as np

from facts import akin, fact, name, other_name
from model import MAX_POS

EOT, IM_START, IM_END = 0, 1, 2
SPECIAL = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
ASK = ['Find: {p}', 'Quote: {p}', 'Quote the passage that says {p}', 'Where does it say {p}', 'Find the sentence with {p}',
       'Complete this quote: {p}', 'What comes after {p}', 'What does the document say about {p}', 'Look for {p}', '{p}', 'Find "{p}"',
       'Where does the document mention "{p}"?', 'Find the passage: "{p}"', 'Continue: {p}', 'Read from {p}', 'Show me the part about {p}']
ABOUT = ['What does it say about {p}?', 'What does the document say about {p}?', 'Tell me about {p}.', 'Is there anything on {p}?', 'Find the part on {p}']
LIST = ['List all mentions of {p}.', 'Where is {p} mentioned?', 'List everything about {p}.', 'Find all sentences about {p}.']
OPENING = ['Summarise the opening.', 'Summarize the opening.', 'How does the document begin?', 'How does it start?', 'Quote the opening.']
HELLO = ['Hello', 'Hi', 'Hello!', 'Hi there', 'Good morning', 'Who are you?', 'What are you?', 'What can you do?', 'Help', 'hey']
NO_MORE = ': no more mentions.'       # ends a list
I_AM = " I am the small model built into Strata. Open a document, then ask me for a fact or a quotation, and I look for it there."
NOT_FOUND = ' I cannot find that in the document.'
ENDS, CAPITAL = re.compile(r'[.!?;]["”’\')\]_*]*$'), re.compile(r'["“‘\'(\[_*]*[A-Z]')
NEW_BLOCK = re.compile(r'[ \t]*\n(\s*\n|  |\t|[-*+|#`>])')     # a blank line, an indented one, or one of a list, table, heading or code
FIRST = [4.0, 2.0, 2.0]     # what the first tokens of an answer weigh: there it is decided what is copied, or refused
MAY_BE_LAST = re.compile(r'[.!?;]["”’\')\]_*]*$|^["”’\')\]_*]+$')         # token of a sentence
REFUSED = 4.0       # what the first token of a refusal weighs: long documents resemble what is absent from them more than short ones
MAY_END = 2.5       # what a token weighs that stands after one that may end a sentence
APART = .75         # of the samples, those whose questions are each the first one: they do not see each other
MORE = 4            # documents that attention sees beside a sample's own, at most
# What is hard in long documents is made more of than chance does (`hard`); evaluation asks by chance.
NEAR = .6           # of the absent phrases, and of the documents that attention sees beside a sample's own, those of the sample's own text
AT_END = .25        # of the quotations, those that come by something that may end a sentence, and seldom is a plain one
BY_NAME = .2        # of the quotations, those that come by a name that the text has often
AKIN = .4           # of the facts, those about a name that begins as another one
HALF = .3           # of the absent phrases, those that begin or end with words of the document
ODD_END = re.compile(r'[!?;]["”’\')\]_*]*$|\.["”’\')\]_*]+$|\w\.\w*\.$|^[A-Z]\w{0,3}\.$')
MOST = 72           # tokens of an answer, at most; longer sentences train no end


class Words:
    """The words of a document, where they stand, and where sentences end."""

    def __init__(self, doc, elsewhere=()):
        self.elsewhere, self.doc, self.at = elsewhere, doc, [m.span() for m in re.finditer(r'\S+', doc)]
        self.words = [doc[a:b] for a, b in self.at]
        self.flat = ' ' + ' '.join(self.words).lower() + ' '
        last = len(self.at) - 1
        ends = [i == last or bool(NEW_BLOCK.match(doc, self.at[i][1]))
                or bool(ENDS.search(w)) and bool(CAPITAL.match(self.words[i + 1])) for i, w in enumerate(self.words)]
        self.end = [i for i, e in enumerate(ends) if e]                     # last words of sentences
        self.end_of, j = [], 0
        for i in range(len(self.words)):
            self.end_of.append(self.end[j])
            j += ends[i]

    @functools.cached_property
    def odd(self):
        return [i for i, w in enumerate(self.words) if ODD_END.search(w)]

    @functools.cached_property
    def often(self):
        """Names that are here, or in the documents beside it, four times or more."""
        bare = lambda w: w.strip('.,;:!?"\'()_-')
        counts = collections.Counter(bare(w) for flat in (self.flat, *self.elsewhere) for w in flat.split())
        return [i for i, w in enumerate(self.words) if bare(w)[:1].isupper() and len(bare(w)) > 3 and counts[bare(w).lower()] > 3]

    def count(self, phrase):
        """How often it is in the document and in those that attention sees beside it."""
        return self.flat.count(phrase.lower()) + sum(flat.count(phrase.lower()) for flat in self.elsewhere)

    def span(self, first, last):
        return ' '.join(self.words[first:last + 1])

    def sentences(self):
        return [(a + 1, b) for a, b in zip([-1] + self.end, self.end)]


def any_text(pool):
    """Name of a random text; longer ones are likelier, by the square root of their length."""
    return random.choices(list(pool), [math.sqrt(len(t)) for t in pool.values()])[0]


def window(text, n_chars):
    """A random window of a text, from a line's or a sentence's beginning."""
    i = random.randrange(0, max(1, len(text) - n_chars - 400))
    begin = re.compile(r'\n\s*|(?<=[.!?])\s+(?=[A-Z])').search(text, i, i + 400)
    i = begin.end() if begin else i
    return text[i:i + n_chars]


def wrap(p, width):
    out, col = [], 0
    for w in p.split(' '):
        new_line = out and col + len(w) > width
        out.append(('\n' if new_line else ' ' if out else '') + w)
        col = len(w) if new_line else col + len(w) + 1
    return ''.join(out)


def laid_out(text):
    """As it is, or its paragraphs unwrapped, or wrapped anew."""
    r = random.random()
    if r < .5 or '```' in text or '\n    ' in text or '\n|' in text:
        return text
    paras = [' '.join(p.split()) for p in text.split('\n\n')]
    if r < .8:
        width = random.randint(45, 100)
        paras = [wrap(p, width) for p in paras]
    return random.choice(['\n\n', '\n\n', '\n\n', '\n']).join(p for p in paras if p)


def plant(doc, sentences):
    """Puts each between two sentences of the document; where lines are wrapped, breaks some. The document, and what was put there."""
    words = Words(doc)
    if not words.end:
        return doc, sentences
    wrapped = doc.count('\n') * 110 > len(doc)
    spots = sorted(((random.choice(words.end), s) for s in sentences), key=lambda x: x[0])
    out, at, planted = [], 0, {}
    for i, s in spots:
        if wrapped and random.random() < .6:
            gaps = [m.start() for m in re.finditer(' ', s)]
            if gaps:
                g = random.choice(gaps)
                planted[s] = s[:g] + '\n' + s[g + 1:]
        e = words.at[i][1]
        gap = '\n\n' if random.random() < .12 else '\n' if wrapped and random.random() < .2 else ' '
        out.append(doc[at:e] + gap + planted.get(s, s))
        at = e
    return ''.join(out) + doc[at:], [planted.get(s, s) for s in sentences]


class Sampler:
    """Documents of a pool of texts, and questions about them, as ids of a tokenizer."""

    def __init__(self, pool, tokenizer):
        self.pool, self.tok = pool, tokenizer
        self.enc = lambda s: tokenizer.encode(s, add_special_tokens=False).ids
        self.nl = self.enc('\n')
        self.may_end = {i for i in range(tokenizer.get_vocab_size()) if MAY_BE_LAST.search(tokenizer.decode([i]))}
        self.head = [IM_START] + self.enc('user') + self.nl
        self.elsewhere = collections.deque(maxlen=MORE)      # texts of documents that attention sees beside the sample's own
        self.names, self.name = collections.deque(maxlen=MORE), ''      # of the texts that they, and the sample's own, are part of

    def turn(self, question, first):
        """`... question <|im_end|> \\n <|im_start|>assistant \\n`; the first one follows the document in the same turn."""
        head = self.nl + self.nl if first else [IM_START] + self.enc('user') + self.nl
        return head + question + [IM_END] + self.nl + [IM_START] + self.enc('assistant') + self.nl

    def another(self, n_tokens):
        """Ids of a document that attention is to see beside the samples that follow."""
        ids, words, _ = self.document(n_tokens)
        self.elsewhere.append(words.flat)
        self.names.append(self.name)
        return self.head + ids

    def sample(self, T):
        head = self.head
        if random.random() < .01:
            ids, words, _ = self.document(T // 2)
            seq, weight, doc = self.repetition(ids, words, head, T)
            block = [0] * len(seq)
        else:
            share = random.uniform(.3, .6) if T <= 1024 else random.uniform(.5, .8)
            ids, words, facts = self.document(int(T * share))
            seq, weight, first = head + ids, [0.0] * (len(head) + len(ids)), True
            doc = (len(head), len(seq))
            apart = random.random() < APART
            misses, known, block = 0, set(), [0] * len(seq)
            while len(seq) < T - 40 and misses < 24:
                asked = self.question(words, facts)
                if asked is None or asked[1] in known and asked[1] != NOT_FOUND:
                    misses += 1
                    continue
                known.add(asked[1])
                q, a = self.turn(self.enc(asked[0]), first or apart), self.enc(asked[1])
                most = 220 if not asked[2] else MOST if random.random() < .4 else random.randint(10, 24)
                whole = len(a) <= most
                a = a if whole else a[:most]
                if len(seq) + len(q) + len(a) + 2 > T:
                    misses += 4
                    continue
                seq, first = seq + q + a + [IM_END] + self.nl, False
                block += [block[-1] + 1 if apart else 0] * (len(seq) - len(block))
                told = FIRST[:len(a)] + [1.0] * (len(a) - len(FIRST)) + [1.0 if whole else 0.0]
                told = [max(w, MAY_END) if w and i and a[i - 1] in self.may_end else w for i, w in enumerate(told)]
                told[0] *= REFUSED if asked[1] == NOT_FOUND else 1.0
                weight += [0.0] * len(q) + told + [.1] * len(self.nl)
        begins = {b: i for i, b in reversed(list(enumerate(block)))}
        pos = [doc[1] + i - begins[b] if b else i for i, b in enumerate(block)]
        pos = self.skip_ahead(pos, doc, T)
        pad = T + 1 - len(seq)
        fill = lambda x, last: np.array((x + [last] * pad)[:T + 1])
        return fill(seq, EOT), fill(weight, 0.0), fill(pos, pos[-1]), fill(block, block[-1]), doc[1]

    def document(self, budget, n_facts=None, with_decoys=True):
        """Ids, words and facts of about `budget` tokens; the text as it is where `n_facts` are asked for."""
        self.name = random.choice(self.names) if self.names and random.random() < NEAR else any_text(self.pool)
        text = window(self.pool[self.name], int(budget * 4.0))
        hard = n_facts is None
        if hard:
            text, n_facts = laid_out(text), random.randint(1, 2 + budget // random.choice((250, 80)))
        kind = None
        facts = []
        for _ in range(n_facts):
            kind = kind if kind is not None and random.random() < .6 else fact().kind
            who = akin(random.choice(facts).who) if hard and facts and random.random() < AKIN else None
            facts.append(fact(kind, who if who not in {f.who for f in facts} else None))
        decoys = self.decoys(text, random.randint(0, 2 + budget // 200)) if with_decoys else []
        doc, planted = plant(text, [f.sentence for f in facts] + decoys)
        enc = self.tok.encode(' ' + doc, add_special_tokens=False)
        ids = enc.ids[:budget]
        doc = (' ' + doc)[:enc.offsets[len(ids) - 1][1]] if ids else ''
        kept = [(f, ' '.join(s.split())) for f, s in zip(facts, planted) if s in doc]
        return ids, Words(doc, tuple(self.elsewhere)), kept

    def decoys(self, text, n):
        """Sentences that share three to ten words in a row with the document and go on differently."""
        words, out = Words(text), []
        for _ in range(n):
            other = window(self.pool[any_text(self.pool)], 300).split()[1:]
            if len(words.words) < 12 or len(other) < 16:
                break
            i, k, a = random.randrange(0, len(words.words) - 11), random.choice((3, 4, 5, 6, 8, 10)), random.randint(0, 5)
            tail = other[6 + a:6 + a + random.randint(4, 10)]
            out.append(' '.join(other[:a] + words.words[i:i + k] + tail).rstrip('.,;:') + '.')
        return out

    def question(self, words, facts):
        """(question, answer, whether the answer may be cut), or None where none came to mind."""
        r = random.random()
        if facts and r < .30:
            return self.ask_fact(facts, True)
        if .30 <= r < .50:
            return self.ask_absent(words, facts, .5, True)
        if .50 <= r < .59:
            return self.ask_list(words, True)
        if .59 <= r < .605 and words.words:
            last = words.end[min(1, len(words.end) - 1)]
            return random.choice(OPENING), ' ' + words.span(0, last), True
        if .605 <= r < .61:
            return random.choice(HELLO), I_AM, False
        if .61 <= r < .66:
            return self.ask_about(words)
        return self.ask_phrase(words, True)

    def ask_fact(self, facts, hard=False):
        f, said = random.choice(facts)
        r = random.random()
        if r < .12:
            is_so = random.random() < .5
            value = f.value if is_so else fact(f.kind).value
            return f.check.format(value), f' {said} So {"yes" if value == f.value else "no"}.', False
        others = [(g, t) for g, t in facts if g.sentence != f.sentence]
        if r < (.28 if hard else .20) and others:
            g, other = random.choice(others)
            return f'{f.question} {random.choice(["", "And "])}{g.question}', f' {said} {other}', False
        return f.question, ' ' + said, False

    def ask_absent(self, words, facts, phrases=.35, hard=False):
        """Phrases of other texts, so many of them, and facts of others."""
        if random.random() < phrases:
            text = self.name if hard and random.random() < NEAR else any_text(self.pool)
            other = window(self.pool[text], 400).split()[2:]
            if hard and random.random() < HALF and len(words.words) > 20:
                i, n = random.randrange(0, len(words.words) - 3), random.randint(2, 3)
                here, there = words.words[i:i + n], other[:random.randint(1, 3)]
                other = here + there if random.random() < .5 else there + here
            phrase = ' '.join(other[:random.randint(3, 6)])
            if len(phrase) < 12 or words.count(phrase):
                return None
            return random.choice(ASK + ABOUT).format(p=phrase), NOT_FOUND, False
        known = {f.who for f, _ in facts}
        f = random.choice(facts)[0] if facts and random.random() < .75 else None
        who = (akin if hard else other_name)(f.who) if f and random.random() < .6 else name()
        g = fact(f.kind if f else None, who)
        if g.who in known:
            return None
        return (g.question if random.random() < .85 else g.check.format(g.value)), NOT_FOUND, False

    def ask_list(self, words, hard=False):
        """All mentions of a name, two to five that differ, each to the end of its sentence, and that there are no more."""
        bare = [w.strip('.,;:!?"\'()_*') for w in words.words]
        inside = lambda i, w: w[:1].isupper() and i - 1 not in words.end or hard and random.random() < .3
        names = sorted({n for i, n in enumerate(bare) if len(n) > 3 and n.isalnum() and inside(i, n)})
        for n in random.sample(names, min(12, len(names))):
            mention, hits, last = re.compile(rf'["“‘\'(\[_*]*({n}\b.*)'), [], -1
            for i, w in enumerate(words.words):
                if i > last and (said := mention.match(w)):
                    last = words.end_of[i]
                    hits.append(' '.join([said[1]] + words.words[i + 1:last + 1]))
            few = 2 <= len(hits) <= 5 and len(set(hits)) == len(hits) and sum(map(len, hits)) <= 330
            if few and not any(n.lower() in flat for flat in words.elsewhere):
                return random.choice(LIST).format(p=n), ' ' + '\n'.join(f'- {h}' for h in hits + [n + NO_MORE]), False
        return None

    def ask_about(self, words):
        """Two or three words of a sentence, not side by side; the answer begins at the first."""
        for _ in range(6):
            a, b = random.choice(words.sentences() or [(0, 0)])
            long = [i for i in range(a, b + 1) if len(words.words[i]) > 4 and words.words[i].isalpha()]
            if b - a < 6 or len(long) < 3:
                continue
            picked = sorted(random.sample(long, random.randint(2, 3)))
            rare = [i for i in picked if words.count(' ' + words.words[i]) == 1]
            if len(rare) < len(picked) - 1:
                continue
            order = picked if random.random() < .6 else random.sample(picked, len(picked))
            said = [words.words[i] for i in order]
            topic = random.choice([' ', ' and ', ' ']).join(s.lower() if random.random() < .3 else s for s in said)
            return random.choice(ABOUT).format(p=topic), ' ' + words.span(picked[0], b), True
        return None

    def ask_phrase(self, words, hard=False):
        for _ in range(6):
            n, k = len(words.words), random.randint(3, 6)
            if n < 20:
                return None
            i = random.randrange(0, n - k)
            r = random.random() if hard else 1.0
            by = words.odd if r < AT_END else words.often if r < AT_END + BY_NAME else ()
            if by:
                i = min(max(random.choice(by) - random.randint(k - 1, 14), 0), n - k - 1)
            last = words.end_of[i]
            if last < i + k:
                continue
            phrase = ' '.join(words.words[i:i + k])
            if len(phrase) < 10 or words.count(phrase) != 1:
                continue
            asked = random.choices((phrase, phrase.lower(), phrase[0].upper() + phrase[1:], phrase.upper()), (.85, .09, .04, .02))[0]
            asked = asked.rstrip('.,;:') if random.random() < .7 else asked
            return random.choice(ASK).format(p=asked), ' ' + words.span(i, last), True
        return None

    def repetition(self, ids, words, head, T):
        """Copy a stretch of the document: every token of the answer trains retrieval."""
        n = len(words.words)
        at = random.randrange(0, max(1, n - 30)) if random.random() < .5 else 0
        src = self.enc(' ' + ' '.join(words.words[at:at + random.randint(30, max(31, T // 4))]))
        lead = min(6, len(src))
        q = self.turn(self.enc(random.choice(['Repeat the document from', 'Read from', 'Continue from'])) + src[:lead], True)
        src = src[:T - len(head) - len(ids) - len(q)]
        weight = [0.0] * (len(head) + len(ids) + len(q) + lead) + [1.0] * max(0, len(src) - lead) + [0.0]
        return head + ids + q + src + [IM_END], weight, (len(head), len(head) + len(ids))

    def skip_ahead(self, pos, doc, T):
        if random.random() < .7 and doc[1] > doc[0]:
            spare = int(math.exp(random.uniform(math.log(T + 1), math.log(MAX_POS - 64)))) - T - 1
            for _ in range(random.randint(1, 4)):
                j, gap = random.randrange(*doc), random.randint(0, max(0, spare))
                spare -= gap
                pos[j:] = [p + gap for p in pos[j:]]
        return pos
