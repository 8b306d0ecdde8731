"""Training texts and unseen texts, from what lies on the machine."""
import ast, html.parser, pathlib, random, re, subprocess
random.seed(1)
OUT, UN = pathlib.Path('/work/notes/model/texts'), pathlib.Path('/work/notes/model/unseen')
T = pathlib.Path('/work/shared/data/texts')
def put(name, text, folder=OUT):
    text = re.sub(r'\n{4,}', '\n\n\n', text.replace('\r', '').replace('\t', '    '))
    (folder / (name + '.txt')).write_text(text); print(folder.name, name, len(text) // 1000, 'kB')
def read(p): return pathlib.Path(p).read_text(errors='ignore')
def some(files, most, each=60_000):
    files = sorted(files); random.shuffle(files); out, n = [], 0
    for f in files:
        t = read(f)[:each]
        if len(t) < 800: continue
        out.append(t); n += len(t)
        if n > most: break
    return '\n\n'.join(out)
for p in T.glob('*.txt'): put(p.stem, read(p))
for p in (T / 'gutenberg').glob('*.txt'): put(p.stem, read(p), UN if 'katrine' in p.name or 'log-school' in p.name else OUT)
for p in (T / 'nltk').glob('*.txt'): put(p.stem, read(p))
def clean(t):
    t = t.replace(' @-@ ', '-').replace(' @,@ ', ',').replace(' @.@ ', '.')
    t = re.sub(r" ([,.;:!?)\]%]|'s|n't)", r'\1', t); t = re.sub(r'([(\[$]) ', r'\1', t)
    t = re.sub(r'" ([^"\n]*?) "', r'"\1"', t)
    return '\n'.join(l.strip() + '\n' if l.strip() else '' for l in t.split('\n'))
for p in (T / 'wikitext-2').glob('*'): put(p.stem, clean(read(p)))
class Html(html.parser.HTMLParser):
    def __init__(s): super().__init__(); s.out, s.skip, s.pre = [], 0, 0
    def handle_starttag(s, t, a):
        if t in ('script', 'style', 'nav', 'head', 'button'): s.skip += 1
        if t == 'pre': s.pre += 1
        if t in ('p', 'h1', 'h2', 'h3', 'h4', 'pre', 'ul', 'table'): s.out.append('\n\n')
        if t in ('li', 'tr', 'br'): s.out.append('\n- ' if t == 'li' else '\n')
    def handle_endtag(s, t):
        if t in ('script', 'style', 'nav', 'head', 'button'): s.skip -= 1
        if t == 'pre': s.pre -= 1
    def handle_data(s, d):
        if s.skip <= 0: s.out.append(d if s.pre else re.sub(r'\s+', ' ', d))
def text_of(f):
    h = Html(); h.feed(read(f)); return re.sub(r' *\n *\n\s*', '\n\n', ''.join(h.out)) 
sysroot = subprocess.run(['rustc', '--print', 'sysroot'], capture_output=True, text=True).stdout.strip()
d = pathlib.Path(sysroot) / 'share/doc'
pages = [f for f in sorted(d.rglob('*.html')) if '/std/' not in str(f) and '/core/' not in str(f) and 'print' not in f.name]
random.shuffle(pages); out, n = [], 0
for f in pages:
    t = text_of(f)
    if len(t) > 1500: out.append(t[:60000]); n += len(t)
    if n > 3_000_000: break
if out: put('rust-docs', '\n\n'.join(out))
reg = pathlib.Path('/root/.cargo/registry/src')
put('crate-readmes', some([f for f in reg.rglob('*.md')], 2_500_000, 40_000))
def docs_of_rs(f):
    return '\n'.join(re.sub(r'^\s*//[/!] ?', '', l) if re.match(r'\s*//[/!]', l) else '' for l in read(f).split('\n'))
rs = sorted(reg.rglob('*.rs')); random.shuffle(rs); out, n = [], 0
for f in rs:
    t = re.sub(r'\n{2,}', '\n\n', docs_of_rs(f)).strip()
    if len(t) > 3000: out.append(t[:30000]); n += len(t[:30000])
    if n > 2_500_000: break
put('rust-comments', '\n\n'.join(out))
put('rust-code', some([f for f in rs if 3000 < f.stat().st_size < 60000], 1_000_000))
import sys
py = sorted(pathlib.Path(ast.__file__).parent.glob('*.py')); random.shuffle(py); out = []
for f in py:
    try: tree = ast.parse(read(f))
    except Exception: continue
    docs = [ast.get_docstring(x) for x in ast.walk(tree) if isinstance(x, (ast.FunctionDef, ast.ClassDef, ast.Module))]
    out.append('\n\n'.join(x for x in docs if x and len(x) > 60))
put('python-docstrings', '\n\n'.join(out)[:2_000_000])
put('python-code', some(py, 800_000, 40_000))
put('npm-docs', some(pathlib.Path('/usr/lib/node_modules/npm/docs/content').rglob('*.md'), 800_000))
put('aws-examples', some(pathlib.Path('/root/.pyenv/versions/3.11.7/lib/python3.11/site-packages/awscli/examples').rglob('*.rst'), 800_000))
put('git-notes', some(pathlib.Path('/usr/share/doc/git').rglob('*.txt'), 1_000_000))
put('vim-docs', some(pathlib.Path('/usr/share/vim/vim90/doc').glob('*.txt'), 1_500_000))
put('skills', some(pathlib.Path('/opt/skills').rglob('*.md'), 1_000_000))
api = sorted(pathlib.Path('/usr/share/doc/nodejs/api').glob('*.md'))
api = [f for f in api if f.name not in ('all.md', 'index.md')]; random.shuffle(api)
put('nodejs-api', '\n\n'.join(read(f) for f in api)[:1_500_000], UN)
