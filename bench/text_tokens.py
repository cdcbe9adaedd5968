"""A token file out of text that is at hand: files are read, cut into byte-pair tokens learnt from them, and written as nanoGPT's .bin.

Usage: bench/text_tokens.py OUT.bin EVAL.bin PATHS... [--vocab 50257] [--mib 48] [--eval 0.02]
PATHS are folders, searched for .py, .txt, .md, .rst, .html, .h and .c; each text is taken once, tags of HTML left out.
Needs the Python package `tokenizers`. The order of files is drawn from a fixed seed; every 50th or so goes to EVAL.bin."""
import argparse, array, hashlib, html, pathlib, random, re

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("eval_out")
parser.add_argument("paths", nargs="+")
parser.add_argument("--vocab", type=int, default=50257)
parser.add_argument("--mib", type=float, default=48)
parser.add_argument("--eval", type=float, default=0.02)
a = parser.parse_args()
random.seed(7)

files = sorted(f for path in a.paths for f in pathlib.Path(path).rglob("*")
               if f.suffix in {".py", ".txt", ".md", ".rst", ".html", ".h", ".c"} and f.is_file() and not f.is_symlink())
random.shuffle(files)
texts, seen, taken = [], set(), 0
for f in files:
    try:
        text = f.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):
        continue
    if f.suffix == ".html":
        text = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", text)))
        text = re.sub(r"\n\s*\n+", "\n\n", text)
    mark = hashlib.sha256(text.encode()).digest()
    if len(text) < 500 or mark in seen:
        continue
    seen.add(mark)
    texts.append(text[:400_000])
    taken += len(texts[-1])
    if taken > a.mib * 2**20:
        break

held = max(1, int(len(texts) * a.eval))
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator(texts[held:], trainers.BpeTrainer(
    vocab_size=a.vocab, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
for name, part in ((a.eval_out, texts[:held]), (a.out, texts[held:])):
    ids = array.array("H")
    for one in tokenizer.encode_batch(part):
        ids.extend(one.ids)
        ids.append(0)
    with open(name, "wb") as out:
        ids.tofile(out)
    print(f"{name}: {len(part)} texts, {sum(map(len, part)) / 2**20:.1f} MiB, {len(ids) / 1e6:.2f} M tokens of {tokenizer.get_vocab_size()} kinds")
