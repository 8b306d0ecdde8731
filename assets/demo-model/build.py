"""Build of the weights in the binary from a folder of plain-text files: initialization, training, export. Twelve minutes on a GPU.

    python build.py --texts FOLDER --out OUT                   # OUT/strata-quote-Q8_0.gguf; the folder may have books held out (`--hold-out`)

    init_induction, _sentence_heads, _presence_head, _list_heads ─► training on all kinds of questions ─► half of them lists ─► GGUF
Lists take longest to learn.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ALL = '--hours .15 --gradients 1 --peak 8e-4 --pace .15 --sharp .02 --wake 4.2 --seed 7'
LISTS = '--hours .0265 --gradients 1 --peak 4e-4 --pace .15 --sharp .02 --seed 8 --asked-for list=.5 phrase=.2 fact=.1 absent=.15 about=.05'


def run(program, *args):
    subprocess.run([sys.executable, HERE / program, *map(str, args)], check=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--texts', required=True)
    ap.add_argument('--out', required=True, type=pathlib.Path)
    ap.add_argument('--hold-out', nargs='*', default=[])
    args = ap.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / 'tokenizer.json', args.out)                  # without it `train.py` trains one on the texts
    common = '--texts', args.texts, '--out', args.out, '--hold-out', *args.hold_out
    run('train.py', *common, *ALL.split())
    all_kinds = args.out / 'all_kinds.pt'
    (args.out / 'last.pt').replace(all_kinds)
    run('train.py', *common, '--start', all_kinds, *LISTS.split())
    run('export.py', args.out, args.out / 'last.pt')


if __name__ == '__main__':
    main()
