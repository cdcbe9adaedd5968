"""Direct preference optimization in plain PyTorch, for dpo_test.sh: written from the paper, with transformers' models.

    dpo_peer.py prepare FOLDER          base: a small model with a tokenizer and a chat template; base-adapter: LoRA for it;
                                        FORM.jsonl: preferences; trained/NAME: what each row of TRAINED comes to, and
                                        trained/NAME.steps: loss, rewards of the chosen and the rejected answers, accuracy
    dpo_peer.py compare A B BOUND       weights of two folders, or adapters; needs no PyTorch
"""
import array
import glob
import json
import os
import struct
import sys

# name: the form of the pairs, and what is not as usual
TRAINED = {
    "chats": ("chats", {}),
    "shared": ("shared", {"beta": 0.3}),
    "texts": ("texts", {}),
    "smooth": ("mixed", {"smoothing": 0.2}),
    "mixed": ("mixed", {}),
    "lora": ("mixed", {"adapter": "base-adapter"}),
}
END = "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = "red green blue seven eight nine apple pear plum quick slow bright dark tree stone river".split()


def rows():
    import torch

    draw = torch.Generator().manual_seed(11)
    pick = lambda count: " ".join(WORDS[i] for i in torch.randint(len(WORDS), (count,), generator=draw).tolist())
    for n in range(12):
        yield pick(3 + n % 4), pick(2 + n % 5), pick(1 + (n * 2) % 5) + " no"


def turn(role, content):
    return {"role": role, "content": content}


def row_of(form, n, question, chosen, rejected):
    if form == "mixed":
        form = ["chats", "shared", "several"][n % 3]
    if form == "texts":
        return {"prompt": question + ":", "chosen": " " + chosen, "rejected": " " + rejected}
    if form == "shared":
        return {"chosen": [turn("user", question), turn("assistant", chosen)],
                "rejected": [turn("user", question), turn("assistant", rejected)], "prompt": question}
    prompt = [turn("user", question)]
    if form == "several":
        prompt = [turn("system", "be brief"), turn("user", "hello"), turn("assistant", "dark stone")] + prompt
    return {"prompt": prompt, "chosen": [turn("assistant", chosen)], "rejected": [turn("assistant", rejected)]}


def pairs(path, form):
    with open(path, "w") as file:
        for n, (question, chosen, rejected) in enumerate(rows()):
            file.write(json.dumps(row_of(form, n, question, chosen, rejected)) + "\n")


def make(folder):
    import peft
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<|pad|>", "<|im_start|>", END],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([" ".join(WORDS), "user assistant system"] * 20, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token="<|pad|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    config = transformers.LlamaConfig(vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                                      eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id)
    model = transformers.LlamaForCausalLM(config)
    for value in model.parameters():
        if value.dim() > 1:
            value.data.mul_(4)  # far from uniform, so that log-probabilities differ
    model.save_pretrained(folder)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    peft.get_peft_model(model, config).save_pretrained(folder + "-adapter")


def encoded(tokenizer, row, answer, length):
    """Tokens, and from which on they are trained."""
    if isinstance(row[answer], str):
        prompt = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
        both = [tokenizer(row["prompt"] + row[each], add_special_tokens=False)["input_ids"] for each in ("chosen", "rejected")]
        first = min(len(os.path.commonprefix([prompt, ids])) for ids in both)
        return (both[answer == "rejected"] + [tokenizer.eos_token_id])[: length + 1], first
    prompt = row["prompt"] if isinstance(row.get("prompt"), list) else row[answer][:-1]
    begin = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(prompt + row[answer][-1:], tokenize=False)
    assert whole.startswith(begin) and whole.endswith(END + "\n")
    ids = tokenizer(whole[:-1], add_special_tokens=False)["input_ids"]  # no model is asked for the line's end
    return ids[: length + 1], len(tokenizer(begin, add_special_tokens=False)["input_ids"])


def logprob(model, sample):
    import torch

    ids, first = sample
    tokens = torch.tensor([ids])
    logits = model(tokens).logits[0, :-1].float()
    each = torch.log_softmax(logits, -1).gather(1, tokens[0, 1:, None])[:, 0]
    return each[first - 1:].double().sum()


def train(folder, path, out, beta=0.1, smoothing=0, adapter="", steps=5, lr=0.003, length=64):
    import peft
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    model.train()
    trained = [value for value in model.parameters() if value.requires_grad]
    groups = [{"params": [v for v in trained if v.dim() > 1], "weight_decay": 0.1},
              {"params": [v for v in trained if v.dim() < 2], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-5)
    with open(path) as file:
        samples = [[encoded(tokenizer, json.loads(line), answer, length) for answer in ("chosen", "rejected")]
                   for line in file]
    with torch.no_grad():
        reference = [[logprob(model, sample).item() for sample in pair] for pair in samples]
    lines = []
    for _ in range(steps):
        optimizer.zero_grad()
        sums = [0.0] * 4
        for pair, (before_chosen, before_rejected) in zip(samples, reference):
            chosen, rejected = logprob(model, pair[0]) - before_chosen, logprob(model, pair[1]) - before_rejected
            h = beta * (chosen - rejected)
            sigmoid = torch.nn.functional.logsigmoid
            loss = -(1 - smoothing) * sigmoid(h) - smoothing * sigmoid(-h)
            (loss / len(samples)).backward()
            for k, number in enumerate((loss, beta * chosen, beta * rejected, (chosen > rejected).double())):
                sums[k] += number.item() / len(samples)
        optimizer.step()
        lines.append(" ".join(f"{number:.9f}" for number in sums) + "\n")
    model.save_pretrained(out)
    with open(out + ".steps", "w") as file:
        file.writelines(lines)


def prepare(folder):
    import torch

    torch.manual_seed(7)
    torch.set_num_threads(1)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.chdir(folder)
    make("base")
    for form in ("chats", "shared", "texts", "mixed"):
        pairs(form + ".jsonl", form)
    os.mkdir("trained")
    for name, (form, options) in TRAINED.items():
        train("base", form + ".jsonl", "trained/" + name, **options)


def weights_of(folder):
    """fp32 tensors of safetensors files, as arrays."""
    found = {}
    for path in sorted(glob.glob(folder + "/model*.safetensors")) or [folder + "/adapter_model.safetensors"]:
        with open(path, "rb") as file:
            whole = file.read()
        (size,) = struct.unpack("<Q", whole[:8])
        for name, tensor in json.loads(whole[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            assert tensor["dtype"] == "F32", name
            begin, end = tensor["data_offsets"]
            found[name] = array.array("f", whole[8 + size + begin : 8 + size + end])
    return found


def compare(a, b, bound):
    first, second = weights_of(a), weights_of(b)
    assert first and first.keys() == second.keys(), sorted(first.keys() ^ second.keys())
    assert all(len(first[name]) == len(second[name]) for name in first)
    worst = max(abs(x - y) for name in first for x, y in zip(first[name], second[name]))
    print(f"{len(first)} tensors, the largest difference is {worst:.2e}")
    assert worst < float(bound), worst


{"prepare": prepare, "compare": compare}[sys.argv[1]](*sys.argv[2:])
