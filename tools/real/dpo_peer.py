"""Direct preference optimization in plain PyTorch, for dpo_test.sh: written from the paper, with transformers' models.

    dpo_peer.py make FOLDER [lora]           a small model with a tokenizer and a chat template; FOLDER-adapter beside it
    dpo_peer.py pairs FILE FORM              preferences: chats, shared, texts, mixed
    dpo_peer.py train MODEL PAIRS OUT [KEY=VALUE ...]   steps, lr, beta, smoothing, length, adapter; a line of numbers a step
    dpo_peer.py compare A B BOUND            weights of two folders, or adapters
"""
import json
import os
import sys

import torch
import transformers

os.environ["HF_HUB_OFFLINE"] = "1"
torch.manual_seed(7)
torch.set_num_threads(1)
END = "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = "red green blue seven eight nine apple pear plum quick slow bright dark tree stone river".split()


def rows():
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


def make(folder, *with_adapter):
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
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:
                value.mul_(4)  # far from uniform, so that log-probabilities differ
    model.save_pretrained(folder)
    if with_adapter:
        import peft

        peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear",
                                                   task_type="CAUSAL_LM")).save_pretrained(folder + "-adapter")


def encoded(tokenizer, row, answer, length):
    """Tokens, and from which on they are trained."""
    if isinstance(row[answer], str):
        prompt = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
        ids = prompt + tokenizer(row[answer], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        return ids[: length + 1], len(prompt)
    prompt = row["prompt"] if isinstance(row.get("prompt"), list) else row[answer][:-1]
    begin = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(prompt + row[answer][-1:], tokenize=False)
    assert whole.startswith(begin) and whole.endswith(END + "\n")
    ids = tokenizer(whole[:-1], add_special_tokens=False)["input_ids"]  # no model is asked for the line's end
    return ids[: length + 1], len(tokenizer(begin, add_special_tokens=False)["input_ids"])


def logprob(model, sample):
    ids, first = sample
    tokens = torch.tensor([ids])
    logits = model(tokens).logits[0, :-1].float()
    each = torch.log_softmax(logits, -1).gather(1, tokens[0, 1:, None])[:, 0]
    return each[first - 1:].double().sum()


def train(folder, path, out, *words):
    values = {"steps": 5, "lr": 0.003, "beta": 0.1, "smoothing": 0, "length": 64, "adapter": "", "decay": 0.1}
    values.update(word.split("=", 1) for word in words)
    steps, length = int(values["steps"]), int(values["length"])
    lr, beta, smoothing = (float(values[key]) for key in ("lr", "beta", "smoothing"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if values["adapter"]:
        import peft

        model = peft.PeftModel.from_pretrained(model, values["adapter"], is_trainable=True)
    model.train()
    trained = [value for value in model.parameters() if value.requires_grad]
    groups = [{"params": [v for v in trained if v.dim() > 1], "weight_decay": float(values["decay"])},
              {"params": [v for v in trained if v.dim() < 2], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)
    with open(path) as file:
        samples = [[encoded(tokenizer, json.loads(line), answer, length) for answer in ("chosen", "rejected")]
                   for line in file]
    with torch.no_grad():
        reference = [[logprob(model, sample).item() for sample in pair] for pair in samples]
    for step in range(steps):
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
        print(" ".join(f"{number:.9f}" for number in sums), flush=True)
    model.save_pretrained(out)


def weights_of(folder):
    import glob

    import safetensors.torch

    files = sorted(glob.glob(folder + "/model*.safetensors")) or [folder + "/adapter_model.safetensors"]
    found = {}
    for file in files:
        found.update(safetensors.torch.load_file(file))
    return found


def compare(a, b, bound):
    first, second = weights_of(a), weights_of(b)
    assert first and first.keys() == second.keys(), sorted(first.keys() ^ second.keys())
    worst = max((first[name].float() - second[name].float()).abs().max().item() for name in first)
    print(f"{len(first)} tensors, the largest difference is {worst:.2e}")
    assert worst < float(bound), worst


{"make": make, "pairs": pairs, "train": train, "compare": compare}[sys.argv[1]](*sys.argv[2:])
