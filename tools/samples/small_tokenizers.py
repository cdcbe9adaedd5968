"""Write tools/samples/small_tokenizers.json: small tokenizers of every kind, and what `tokenizers` says of a few texts.

    pip install tokenizers && python3 tools/samples/small_tokenizers.py
"""
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = ["The quick brown fox doesn't jump over the lazy dog; it's 1234 times slower than THE others.",
          "Hello world! Hello there, hello again. naïve café, straße, привет мир, 你好 世界, 日本語テキスト.",
          "for (int i = 0; i < 100; ++i) { total += values[i]; }  // sums\n\n\treturn total;\r\n"] * 4
TEXTS = ["", " ", "Hello world", "hello  world\n", "The quick brown fox doesn't jump", "it's 12345 TIMES", "  two\n\n three \t", "naïve café e\u0301",
         "你好 世界 日本語テキスト", "привет, мир!", "🙂 <s>text</s> <mask> x", "values[i] += 100;\r\n", "\u00a0\u3000 spaces", "ﬁne ½ Ⅳ ＡＢＣ",
         "<unk>unknown ☃ \U0001F9C0", "a\x00b", "THE the The", "\ufffdﬁne", " <s> x", "\n\nit's"]
PATTERNS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "other": r"\p{Lu}?\p{Ll}+|\d+|\s+|[^\s\p{L}\d]+",
}
SPECIALS = ["<unk>", "<s>", "</s>"]


def bytes_only(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


def bpe(trainer=(), **options):
    return models.BPE(**options), trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIALS, show_progress=False, **dict(trainer))


def byte_bpe(**options):
    return bpe({"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}, **options)


def split(name):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"), bytes_only(use_regex=False)])


def template():
    return processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])


def table():
    """name, (model, trainer), normalizer, pre-tokenizer, post-processor, decoder"""
    n, p, d = normalizers, pre_tokenizers, decoders
    yield "gpt2", byte_bpe(), None, bytes_only(), None, d.ByteLevel()
    yield "prefix_space", byte_bpe(), n.NFKC(), p.ByteLevel(add_prefix_space=True), processors.ByteLevel(), d.ByteLevel()
    yield "llama3", byte_bpe(ignore_merges=True), None, split("llama3"), template(), d.ByteLevel()
    yield "nfc", byte_bpe(), n.NFC(), split("llama3"), None, d.ByteLevel()
    yield "pattern", byte_bpe(), None, split("other"), None, d.ByteLevel()
    yield "llama2", bpe(unk_token="<unk>", fuse_unk=True), n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), None, template(), \
        d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    yield "clip", bpe({"end_of_word_suffix": "</w>"}, end_of_word_suffix="</w>", unk_token="<unk>"), \
        n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()]), p.Whitespace(), processors.RobertaProcessing(("</s>", 2), ("<s>", 1)), d.BPEDecoder("</w>")
    yield "bert", (models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(vocab_size=200, special_tokens=SPECIALS, show_progress=False)), \
        n.BertNormalizer(), p.BertPreTokenizer(), processors.BertProcessing(("</s>", 2), ("<s>", 1)), d.WordPiece()
    yield "t5", (models.Unigram(), trainers.UnigramTrainer(vocab_size=200, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False)), \
        n.NFKC(), p.Metaspace(), template(), d.Metaspace()
    yield "words", (models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=100, special_tokens=SPECIALS, show_progress=False)), \
        n.StripAccents(), p.Sequence([p.Punctuation("merged_with_next"), p.Digits(True), p.WhitespaceSplit()]), None, None
    # What a normalizer takes away from a text's beginning is missed behind it: "first" means the text's first character.
    yield "first_space", bpe(unk_token="<unk>"), n.Sequence([n.BertNormalizer(lowercase=False), n.Replace(Regex(r"\s+"), "#")]), \
        p.Metaspace(prepend_scheme="first"), None, d.Metaspace()
    yield "stripped", bpe(unk_token="<unk>"), n.Sequence([n.Strip(), n.Replace("The", "")]), p.Metaspace(prepend_scheme="first"), None, d.Metaspace()
    yield "nothing", (models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=100, special_tokens=SPECIALS, show_progress=False)), \
        n.Replace(Regex(r"\s"), ""), None, None, None


def main():
    out = []
    for name, (model, trainer), normalizer, pre, post, decoder in table():
        owner = Tokenizer(model)
        if normalizer is not None: owner.normalizer = normalizer
        if pre is not None: owner.pre_tokenizer = pre
        if decoder is not None: owner.decoder = decoder
        owner.train_from_iterator(CORPUS, trainer)
        owner.add_special_tokens([AddedToken("<mask>", lstrip=name in ("bert", "t5"))])
        if post is not None: owner.post_processor = post
        rows = [{"text": text, "ids": owner.encode(text).ids, "decoded": owner.decode(owner.encode(text).ids, skip_special_tokens=False)} for text in TEXTS]
        out.append({"name": name, "tokenizer": json.loads(owner.to_str()), "vocab": owner.get_vocab_size(), "rows": rows})
    path = Path(__file__).with_name("small_tokenizers.json")
    path.write_text("[\n" + ",\n".join(json.dumps(one, ensure_ascii=True) for one in out) + "\n]\n")


if __name__ == "__main__":
    main()
