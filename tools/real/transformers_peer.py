"""The other side of transformers_test.sh: Hugging Face's library makes models, opens ours and says what loss it finds.

    transformers_peer.py tokens FILE VOCAB          random tokens, 16 bits each
    transformers_peer.py make FOLDER MODEL_TYPE KEY=JSON...     a small model of that type, with these values in its config
    transformers_peer.py make FOLDER gpt2|llama [WORD...]
        tied, wide, biased, bf16 or fp16; ACTIVATION; llama3, linear, yarn, dynamic, longrope or longrope-short;
        bin, bin-old or bin-shards: pytorch_model.bin instead of safetensors
    transformers_peer.py loss FILE SEQ_LEN FOLDER...   mean over consecutive windows, as `lockstep eval` takes them
    transformers_peer.py adapter BASE FOLDER TARGETS [WORD=JSON...]     PEFT makes a LoRA adapter with random values; words are LoraConfig's
    transformers_peer.py adapter_loss FILE SEQ_LEN BASE FOLDER...       the loss of the model with each of these adapters
    transformers_peer.py adapter_train FILE SEQ_LEN BASE FOLDER STEPS LR    losses of training that adapter on all windows at once
    transformers_peer.py words FOLDER    a byte-level tokenizer for the model in it, with a chat template
    transformers_peer.py prompts FILE VOCAB    prompts of several lengths, as numbers, for `lockstep generate --prompts`
    transformers_peer.py greedy FOLDER OURS COUNT [KEY=JSON...]    generate(do_sample=False) draws the tokens that OURS has, printed by
                                    `lockstep generate --json`
    transformers_peer.py chat FOLDER OURS    the same for messages, by apply_chat_template
    transformers_peer.py choices FILE / documents FILE    lines for `lockstep eval`
    transformers_peer.py likelihoods FOLDER FILE OURS DELIMITER    log-likelihoods as lm-evaluation-harness asks for them
    transformers_peer.py perplexities FOLDER FILE OURS WINDOW STRIDE    by the windows of transformers' guide
    transformers_peer.py serve      the same, many times: reads "NUMBER<tab>FOLDER<tab>WORD<tab>...", runs the words in the folder,
                                    leaves what they print in FOLDER/peer-says and answers "NUMBER CODE".
"""
import array, contextlib, json, os, pathlib, random, sys, traceback


def tokens(path, vocab):
    source = random.Random(1)
    with open(path, "wb") as file:
        array.array("H", (source.randrange(int(vocab)) for _ in range(32 * 40 + 1))).tofile(file)


SIZES = dict(vocab_size=192, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=96, max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None)


def make(folder, family, *words):
    if family not in ("gpt2", "llama") or any("=" in word for word in words):
        return make_from_config(folder, family, {key: json.loads(value) for key, value in (word.split("=", 1) for word in words)})
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    from transformers.activations import ACT2FN
    torch.manual_seed(1)
    tied = "tied" in words
    activation = next((word for word in words if word in ACT2FN and word != "linear"), "gelu_new" if family == "gpt2" else "silu")
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=192, activation_function=activation, n_embd=64, n_layer=2, n_head=4, n_positions=48, n_inner=96,
                                           tie_word_embeddings=tied, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    else:
        scalings = {"llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 32},
                    "linear": {"rope_type": "linear", "factor": 2.0},
                    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
                    "dynamic": {"rope_type": "dynamic", "factor": 4.0}}
        for name, first in ("longrope", 16), ("longrope-short", 32):  # windows of 32 are longer than the first only
            scalings[name] = {"rope_type": "longrope", "original_max_position_embeddings": first,
                              "short_factor": [1 + 0.1 * k for k in range(8)], "long_factor": [1 + k * k for k in range(8)]}
        scaling = next((scalings[word] for word in words if word in scalings), None)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=192, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                             num_key_value_heads=2, intermediate_size=96, max_position_embeddings=24 if "dynamic" in words else 64,
                                             hidden_act=activation, attention_bias="biased" in words, mlp_bias="biased" in words,
                                             rope_scaling=scaling, head_dim=24 if "wide" in words else None, rms_norm_eps=1e-6, tie_word_embeddings=tied))
    with torch.no_grad():  # away from the initial values, so that every weight matters
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    kind = torch.bfloat16 if "bf16" in words else torch.float16 if "fp16" in words else torch.float32
    model.to(kind).save_pretrained(folder, max_shard_size="60KB")
    if any(word.startswith("bin") for word in words):
        as_pickles(model, pathlib.Path(folder), words)
    print(sorted(path.name for path in pathlib.Path(folder).iterdir()))


def make_from_config(folder, family, values):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(1)
    sizes = {key: value for key, value in SIZES.items() if (family, key) != ("gpt_neox", "num_key_value_heads")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**sizes, **values}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size="60KB")
    print(sorted(path.name for path in pathlib.Path(folder).iterdir()))


def as_pickles(model, folder, words):
    """As torch.save keeps them: tied weights share a storage, and one matrix is a view of its transpose."""
    import torch
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    weights = model.state_dict()
    name = next(name for name, weight in weights.items() if weight.dim() == 2)
    weights[name] = weights[name].t().contiguous().t()
    if "bin-shards" not in words:
        torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization="bin-old" not in words)
        return
    places, names = {}, list(weights)
    for part in range(3):
        file = f"pytorch_model-0000{part + 1}-of-00003.bin"
        torch.save({name: weights[name] for name in names[part::3]}, folder / file)
        places.update({name: file for name in names[part::3]})
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def loss(path, seq_len, *folders):
    data = array.array("H")
    data.frombytes(pathlib.Path(path).read_bytes())
    for folder in folders:
        print(json.dumps({"loss": loss_of(folder, data, int(seq_len)), "model": folder}))


def loss_of(folder, data, seq_len):
    import torch
    from transformers import AutoModelForCausalLM
    # Only the plain implementation of attention caps scores.
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    lost = {what: sorted(names) for what, names in info.items() if names}
    assert not lost, lost  # every tensor has its place, none is missing
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(data) - seq_len, seq_len):
            window = torch.tensor(data[at : at + seq_len + 1], dtype=torch.long)
            logits = model(window[None, :-1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
            count += seq_len
    return total / count


def adapter(base, folder, targets, *words):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.manual_seed(2)
    values = {key: json.loads(value) for key, value in (word.split("=", 1) for word in words)}
    targets = targets if targets == "all-linear" else targets.split(",")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(target_modules=targets, task_type="CAUSAL_LM", **values))
    with torch.no_grad():  # B begins with zeros: then every adapter would look right
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    print(sorted(path.name for path in pathlib.Path(folder).iterdir()))


def with_adapter(base, folder, trainable=False):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    model = PeftModel.from_pretrained(model, folder, is_trainable=trainable)
    import safetensors
    with safetensors.safe_open(pathlib.Path(folder) / "adapter_model.safetensors", "pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}
    from peft import get_peft_model_state_dict
    loaded = get_peft_model_state_dict(model)
    assert sorted(loaded) == sorted(stored), (sorted(loaded), sorted(stored))  # every tensor has its place, none is missing
    assert all(torch.equal(loaded[name].float(), stored[name].float()) for name in stored)
    return model


def windows_of(path, seq_len):
    import torch
    data = array.array("H")
    data.frombytes(pathlib.Path(path).read_bytes())
    return torch.stack([torch.tensor(data[at : at + seq_len + 1], dtype=torch.long) for at in range(0, len(data) - seq_len, seq_len)])


def mean_loss(model, windows):
    import torch
    logits = model(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), windows[:, 1:].flatten())


def adapter_loss(path, seq_len, base, *folders):
    import torch
    for folder in folders:
        model = with_adapter(base, folder).eval()
        with torch.no_grad():
            print(json.dumps({"loss": mean_loss(model, windows_of(path, int(seq_len))).item(), "model": folder}))


def adapter_train(path, seq_len, base, folder, steps, lr):
    import torch
    model = with_adapter(base, folder, trainable=True).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=float(lr), betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for _ in range(int(steps)):
        loss = mean_loss(model, windows_of(path, int(seq_len)))
        print(json.dumps({"loss": loss.item()}))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def words(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=["<|start|>", "<|end|>"])
    tokenizer.train_from_iterator(["the dog barks at the cat", "the cat that the dog hears runs", "a bird and the bird"] * 20, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|start|>", eos_token="<|end|>")
    fast.chat_template = ("{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}"
                          "{% if add_generation_prompt %}assistant: {% endif %}")
    fast.save_pretrained(folder)


def prompts(path, vocab):
    source = random.Random(2)
    with open(path, "w") as file:
        for length in (1, 2, 3, 9, 30, 17, 31, 8):
            numbers = [source.randrange(int(vocab)) for _ in range(length)]
            print(json.dumps({"prompt": " ".join(map(str, numbers))}), file=file)


def load(folder):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)  # these models are small, and the machine may be busy
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def lines_of(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def continued(model, prompt, count, **options):
    import torch
    with torch.no_grad():
        whole = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                               max_new_tokens=count, min_new_tokens=None, pad_token_id=0, **options)
    return whole[0].tolist()


def greedy(folder, ours, count, *options):
    model = load(folder)
    options = {key: json.loads(value) for key, value in (word.split("=", 1) for word in options)}
    for line in lines_of(ours):
        theirs = continued(model, line["tokens"][:line["prompt_tokens"]], int(count), **options)
        assert theirs == line["tokens"], (theirs, line["tokens"])
        ended = theirs[-1] == options.get("eos_token_id")
        assert line["finish_reason"] == ("stop" if ended else "length"), line
    print("the same")


def chat(folder, ours):
    from transformers import AutoTokenizer
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    for line in lines_of(ours):
        messages = line.get("messages") or [{"role": "system", "content": "be brief"}, {"role": "user", "content": line["prompt"]}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        assert prompt == line["tokens"][:line["prompt_tokens"]], (prompt, line["tokens"])
        theirs = continued(model, prompt, 12, eos_token_id=tokenizer.eos_token_id)
        assert theirs == line["tokens"], (theirs, line["tokens"])
        text = tokenizer.decode(theirs[len(prompt):]).removesuffix(tokenizer.eos_token)
        assert text == line["completion"], (text, line["completion"])
    print("the same")


def choices(path):
    source = random.Random(3)
    nouns, ends = ["the dog", "a cat", "the bird that runs", "é", "the  cat"], ["", " ", "\n", "  "]
    with open(path, "w") as file:
        for k in range(40):
            context = " and ".join(source.choices(nouns, k=1 + k % 12)) + source.choice(ends) if k else ""
            line = {"context": context, "choices": source.choices(["barks", "runs at the cat", "hears", "é and é"], k=3), "answer": k % 3}
            if k % 4 == 3:
                line = {"prompt": context, "completion": source.choice([" barks", "runs", " at the cat that the dog hears"])}
            print(json.dumps(line), file=file)


def documents(path):
    source = random.Random(4)
    with open(path, "w") as file:
        for length in (1, 3, 20, 60, 200, 9):
            print(json.dumps({"text": " ".join(source.choices(["the", "dog", "barks", "é", "cat\n"], k=length))}), file=file)


def log_likelihood(model, before, after):
    import torch
    limit = model.config.max_position_embeddings
    whole = (before + after)[-(limit + 1):]
    with torch.no_grad():
        logits = model(torch.tensor([whole[:-1]])).logits[0].double().log_softmax(-1)
    rows = logits[-len(after):]
    return rows.gather(1, torch.tensor(after)[:, None]).sum().item(), rows.argmax(-1).tolist() == after


def pair(tokenizer, context, continuation):
    """As lm-evaluation-harness' _encode_pair."""
    if not context:
        return [tokenizer.bos_token_id], tokenizer.encode(continuation, add_special_tokens=False)
    spaces = len(context) - len(context.rstrip())
    if spaces > 0:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    whole = tokenizer.encode(context + continuation, add_special_tokens=False)
    before = tokenizer.encode(context, add_special_tokens=False)
    return before, whole[len(before):]


def likelihoods(folder, path, ours, delimiter):
    from transformers import AutoTokenizer
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    lines, said = lines_of(path), lines_of(ours)
    right = normed = questions = 0
    for number, (line, mine) in enumerate(zip(lines, said), 1):
        assert mine["line"] == number, mine
        if "completion" in line:
            theirs, likeliest = log_likelihood(model, *pair(tokenizer, line["prompt"], line["completion"]))
            assert abs(theirs - mine["logprob"]) < 1e-4 and likeliest == mine["greedy"], (theirs, likeliest, mine)
            continue
        scores = [log_likelihood(model, *pair(tokenizer, line["context"], delimiter + choice))[0] for choice in line["choices"]]
        assert all(abs(a - b) < 1e-4 for a, b in zip(scores, mine["logprobs"])), (scores, mine)
        scores = mine["logprobs"]  # near enough; which of two near ones is ahead is our own affair
        by_length = [score / len(choice) for score, choice in zip(scores, line["choices"])]
        questions += 1
        right += scores.index(max(scores)) == line["answer"]
        normed += by_length.index(max(by_length)) == line["answer"]
    total = said[len(lines)]
    assert abs(total["acc"] - right / questions) < 1e-9 and abs(total["acc_norm"] - normed / questions) < 1e-9, (right, normed, total)
    error = (right / questions * (1 - right / questions) / (questions - 1)) ** 0.5
    assert abs(total["acc_stderr"] - error) < 1e-9, (error, total)
    print(f"{questions} questions, {len(lines) - questions} completions: the same")


def perplexities(folder, path, ours, window, stride):
    import math
    import torch
    from transformers import AutoTokenizer
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    window, stride = int(window), int(stride)
    lines, said, all_sum, all_count = lines_of(path), lines_of(ours), 0.0, 0
    for line, mine in zip(lines, said):
        ids = torch.tensor([tokenizer.encode(line["text"])])
        total, count, before = 0.0, 0, 0
        for begin in range(0, ids.size(1), stride):
            end = min(begin + window, ids.size(1))
            labels = ids[:, begin:end].clone()
            labels[:, : -(end - before)] = -100
            with torch.no_grad():
                logits = model(ids[:, begin:end]).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, labels[0, 1:], ignore_index=-100, reduction="sum").item()
            count += (labels[0, 1:] != -100).sum().item()
            before = end
            if end == ids.size(1):
                break
        assert count == mine["tokens"] and abs(total + mine["logprob"]) < 1e-3, (total, count, mine)
        if count:
            assert abs(math.exp(total / count) / mine["perplexity"] - 1) < 1e-4, (total, count, mine)
            bits = total / math.log(2) / len(line["text"].encode())
            assert abs(bits - mine["bits_per_byte"]) < 1e-4, (bits, mine)
        all_sum, all_count = all_sum + total, all_count + count
    assert abs(all_sum / all_count - said[len(lines)]["loss"]) < 1e-5, (all_sum / all_count, said[len(lines)])
    print("the same")


def serve():
    for line in sys.stdin:
        number, folder, *words = line.rstrip("\n").split("\t")
        os.chdir(folder)
        code = 0
        with open("peer-says", "w") as says, contextlib.redirect_stdout(says), contextlib.redirect_stderr(says):
            try:
                COMMANDS[words[0]](*words[1:])
            except Exception:
                traceback.print_exc()
                code = 1
        print(number, code, flush=True)


COMMANDS = {"tokens": tokens, "make": make, "loss": loss, "serve": serve, "adapter": adapter, "adapter_loss": adapter_loss,
            "adapter_train": adapter_train, "words": words, "prompts": prompts, "greedy": greedy, "chat": chat, "choices": choices,
            "documents": documents, "likelihoods": likelihoods, "perplexities": perplexities}
COMMANDS[sys.argv[1]](*sys.argv[2:])
