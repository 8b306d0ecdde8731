"""Synthetic facts: a sentence to plant, questions for it, and its value.

    kind (relation, its words) + name + value ─► sentence in one of several wordings, question in one of several others
Facts of one kind differ only in name and value, so an answer must follow the name. All names and values are invented.
"""
import random
from dataclasses import dataclass

SYLLABLES = 'ba be bi bo ka ke ko la le li lo ma me mi mo na ne no ra re ri ro sa se so ta te to va ve vi zu du fu gu ku lu mu pu'.split()
MORE_SYLLABLES = SYLLABLES + 'da de do fa fi ga dra fen gol hur jin kel mor nim pel quor ras sten tol vik wes yar zan bri cor dun'.split()
ADJECTIVES = 'secret annual total final maximum minimum current official registered monthly hidden special average original main'.split()
NOUNS = ['code', 'number', 'budget', 'price', 'password', 'balance', 'rate', 'limit', 'population', 'magic number', 'serial number',
         'temperature', 'capacity', 'id', 'date of issue', 'cost', 'height', 'weight', 'phone number', 'reference']
FIRST = 'Anna Arthur Beatrice Caspar Clara Edith Edwin Felix Frances George Hannah Hugo Irene Jonas Judith Laura Leon Martha Miriam Oscar Paula Robert Ruth Simon Thomas Ursula Walter'.split()
LAST = 'Ashdown Barrow Coldwell Drummond Ellery Farrow Grant Hale Ingram Jessop Kemp Lindley Marlow Norris Orme Pryce Quill Ransome Stroud Thorne Underhill Vance Wexford Yardley'.split()
MONTHS = 'January February March April May June July August September October November December'.split()
COINS = ['crowns', 'dollars', 'pounds', 'euros', 'guineas', 'francs']
PREFIX = ['', '', '', '', 'As far as anyone knows, ', 'According to the register, ', 'It is written that ', 'Note that ', 'In short, ']
# relation: wordings of the document ({n} name, {v} value), questions, value
RELATIONS = {
    'born': (['{n} was born in {v}.', '{n} came into the world in {v}.', '{n}, born in {v}, was the youngest of the family.'],
             ['When was {n} born?', 'In what year was {n} born?', 'What is the year of birth of {n}?'], 'Was {n} born in {}?', 'year'),
    'founded': (['The town of {n} was founded in {v}.', 'The town of {n} dates from {v}.', 'The town of {n} was settled in {v} by fishermen.'],
                ['When was {n} founded?', 'When was the town of {n} founded?', 'How old is the town of {n}?'], 'Was {n} founded in {}?', 'year'),
    'cost': (['The bridge at {n} cost {v} to build.', 'The bridge at {n} was built for {v}.', 'The bridge at {n} cost {v}.'],
             ['How much did the bridge at {n} cost?', 'What did the bridge at {n} cost?', 'How much was paid for the bridge at {n}?'],
             'Did the bridge at {n} cost {}?', 'money'),
    'paid': (['{n} was paid {v} for the work.', '{n} received {v} in wages.', '{n} earned {v} that year.'],
             ['How much was {n} paid?', 'How much did {n} earn?', 'What did {n} get for the work?'], 'Was {n} paid {}?', 'money'),
    'lives': (['{n} lives in {v}.', '{n} has lived in {v} for years.', '{n} keeps a house in {v}.'],
              ['Where does {n} live?', 'Where is the home of {n}?', 'In which place does {n} live?'], 'Does {n} live in {}?', 'place'),
    'kept': (['The key of {n} is kept in {v}.', 'The key of {n} lies in {v}.', 'The key of {n} was left in {v}.'],
             ['Where is the key of {n}?', 'Where is the key of {n} kept?', 'Where can I find the key of {n}?'], 'Is the key of {n} in {}?', 'place'),
    'wrote': (['The song of {n} was written by {v}.', 'The song of {n} is the work of {v}.', 'The song of {n} was composed by {v}.'],
              ['Who wrote the song of {n}?', 'Who is the author of the song of {n}?', 'By whom is the song of {n}?'],
              'Was the song of {n} written by {}?', 'person'),
    'leads': (['The mayor of {n} is {v}.', 'The mayor of {n}, {v}, was elected twice.', 'The mayor of {n} has always been {v}.'],
              ['Who is the mayor of {n}?', 'Who governs {n}?', 'What is the name of the mayor of {n}?'], 'Is {} the mayor of {n}?', 'person'),
    'married': (['{n} married {v}.', '{n} became the wife of {v}.', '{n} was engaged to {v}.'],
                ['Who did {n} marry?', 'Whom did {n} marry?', 'Who was the husband of {n}?'], 'Did {n} marry {}?', 'person'),
    'many': (['The library of {n} holds {v} books.', 'The library of {n} owns {v} volumes.', 'The library of {n} has {v} books on its shelves.'],
             ['How many books does the library of {n} hold?', 'How many books are in the library of {n}?', 'How large is the library of {n}?'],
             'Does the library of {n} hold {} books?', 'count'),
    'opens': (['The market of {n} opens on {v}.', 'The market of {n} begins on {v}.', 'The market of {n} is held on {v}.'],
              ['When does the market of {n} open?', 'When is the market of {n}?', 'On what day is the market of {n}?'],
              'Is the market of {n} on {}?', 'date'),
    'died': (['{n} died on {v}.', '{n} passed away on {v}.', '{n} was buried on {v}.'],
             ['When did {n} die?', 'On what day did {n} die?', 'When was the death of {n}?'], 'Did {n} die on {}?', 'date'),
}


@dataclass
class Fact:
    kind: tuple
    who: str
    value: str
    sentence: str
    question: str
    check: str     # a yes/no question; {} is the value


def word():
    return ''.join(random.choice(random.choice((SYLLABLES, MORE_SYLLABLES))) for _ in range(random.randint(2, 4))).capitalize()


def name():
    r = random.random()
    return word() if r < .75 else f'{random.choice(FIRST)} {random.choice(LAST)}' if r < .9 else f'{random.choice(FIRST)} {word()}'


def other_name(who):
    """The name with one word or syllable changed."""
    parts = who.split(' ')
    if len(parts) > 1:
        i = random.randrange(2)
        parts[i] = random.choice((FIRST, LAST)[i])
        return ' '.join(parts)
    i = random.randrange(0, max(1, len(who) - 1), 2)
    return (who[:i] + random.choice(SYLLABLES) + who[i + 2:]).capitalize()


def similar_name(who):
    """A name with the same beginning: a syllable longer or shorter, or one word or syllable changed."""
    r, last = random.random(), who.split(' ')[-1]
    if r < .25 and last not in LAST:
        return who + random.choice(MORE_SYLLABLES)
    if r < .5 and last not in LAST and len(last) > 5:
        return who[:-2]
    return other_name(who)


def digits(n):
    return ''.join(random.choice('0123456789') for _ in range(n))


def value_of(sort):
    r = random.random()
    if sort == 'year':
        return str(random.randint(1100, 2030))
    if sort == 'count':
        return digits(random.randint(2, 5)) if r < .6 else f'{random.randint(1, 99)},{digits(3)}'
    if sort == 'money':
        n = str(random.randint(3, 9999)) if r < .6 else f'{random.randint(1, 99)},{digits(3)}'
        return f'{n} {random.choice(COINS)}' if r < .8 else f'${n}'
    if sort == 'date':
        return f'{random.randint(1, 28)} {random.choice(MONTHS)}' + (f' {random.randint(1500, 2030)}' if r < .6 else '')
    if sort == 'place':
        return word() if r < .5 else f'{random.choice(["Upper", "Lower", "North", "Old", "New"])} {word()}' if r < .8 else f'the {random.choice(["house", "tower", "garden", "cellar"])} of {word()}'
    if sort == 'person':
        return f'{random.choice(FIRST)} {random.choice(LAST)}' if r < .5 else f'{word()} {word()}'
    return digits(random.randint(3, 8)) if r < .6 else f'{word()} {word()}' if r < .85 else f'{word()}-{digits(4)}'


def fact(kind=None, who=None):
    """A fact of that kind and about that name, if given."""
    kind = kind or (('is', random.choice(ADJECTIVES), random.choice(NOUNS)) if random.random() < .6 else (random.choice(list(RELATIONS)),))
    who = who or name()
    if kind[0] == 'is':
        _, adj, noun = kind
        value, prep = value_of('any'), random.choice(['of', 'for'])
        said = f'The {adj} {noun} {prep} {who} is {value}.' if random.random() < .9 else f'The {adj} {noun} {prep} {who}: {value}.'
        asked = f'What is the {adj} {noun} {prep} {who}?' if random.random() < .8 else f'Tell me the {adj} {noun} {prep} {who}.'
        return Fact(kind, who, value, said, asked, f'Is the {adj} {noun} {prep} {who} {{}}?')
    wordings, questions, check, sort = RELATIONS[kind[0]]
    value = value_of(sort)
    return Fact(kind, who, value, random.choice(wordings).format(n=who, v=value), random.choice(questions).format(n=who),
                check.replace('{n}', who))
