"""Models of random shapes against transformers: families_peer.py PROGRAM WORK ROUNDS SEED [FAMILY].

Each round draws a family and a configuration that nobody would choose: odd numbers of heads, vocabularies that nothing divides,
every kind of RoPE scaling, windows, biases, caps, tied or not, and how the weights are stored (fp32, bf16, fp16; one file, shards,
pickles). transformers makes the model and says what loss it finds; Lockstep must find the same (1e-5), say so of what it exports, and
transformers must open that with the same loss. Every third model is then trained for three steps by both, by AdamW or SGD, with slices, ranks and
layouts drawn as well: the losses and what every tensor moved by must be the same. A folder that Lockstep refuses must be one that docs/models.md says it refuses.
A round that differs prints the words that repeat it alone: ROUND by its number.
"""
import array
import json
import pathlib
import random
import shutil
import subprocess
import sys
import warnings

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

PROGRAM, WORK, ROUNDS, SEED = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
ONLY = sys.argv[5] if len(sys.argv) > 5 else ""
logging.set_verbosity_error()
warnings.simplefilter("ignore")
torch.set_num_threads(1)
TOKENS = 40


def rope(draw, dim, kinds=("default", "linear", "dynamic", "yarn", "llama3", "longrope")):
    """Old and new forms of the same: rope_scaling beside rope_theta, or rope_parameters."""
    kind, theta = draw.choice(kinds), draw.choice([10000.0, 500000.0, 1234.5, 1e6])
    said = {"rope_type": kind}
    original = draw.choice([8, 16, 24])
    if kind in ("linear", "dynamic"):
        said["factor"] = draw.choice([2.0, 3.5, 8.0])
    if kind == "yarn":
        said.update(factor=draw.choice([2.0, 4.0, 7.5]), original_max_position_embeddings=original)
        for key, values in (("beta_fast", [32, 16.0, 20]), ("beta_slow", [1, 2.0]), ("attention_factor", [1.0, 1.3]), ("truncate", [False, True]),
                            ("mscale", [0.707, 1.0]), ("mscale_all_dim", [0.5, 1.0])):
            if draw.random() < 0.25:
                said[key] = draw.choice(values)
    if kind == "llama3":
        said.update(factor=draw.choice([8.0, 32.0]), low_freq_factor=draw.choice([1.0, 2.0]), high_freq_factor=4.0, original_max_position_embeddings=original)
    if kind == "longrope":
        said.update(short_factor=[round(1 + 0.1 * draw.random() * k, 3) for k in range(dim // 2)],
                    long_factor=[round(1 + draw.random() * k, 3) for k in range(dim // 2)], original_max_position_embeddings=draw.choice([16, 64]))
        if draw.random() < 0.3:
            said["attention_factor"] = 1.25
        if draw.random() < 0.3:
            said["factor"] = 4.0
    if kind == "default" and draw.random() < 0.5:
        return {"rope_theta": theta}
    if draw.random() < 0.4:
        return {"rope_parameters": {**said, "rope_theta": theta}}
    if draw.random() < 0.2:
        said["type"] = said.pop("rope_type")  # as it was before
    return {"rope_scaling": said, "rope_theta": theta}


def shape(draw, wide=True):
    kv = draw.choice([1, 1, 2, 3, 5])
    heads = kv * draw.choice([1, 2, 3])
    dim = draw.choice([6, 8, 10, 16, 24])
    values = dict(vocab_size=draw.choice([97, 131, 193, 200, 255, 257]), num_hidden_layers=draw.choice([1, 2, 3, 4]), num_attention_heads=heads,
                  num_key_value_heads=kv, hidden_size=heads * dim, intermediate_size=draw.choice([33, 70, 96, 129]),
                  max_position_embeddings=draw.choice([48, 64, 100]), pad_token_id=None, bos_token_id=None, eos_token_id=None,
                  tie_word_embeddings=draw.random() < 0.5)
    if wide and draw.random() < 0.4:
        values["head_dim"] = draw.choice([6, 8, 14, 20])
        dim = values["head_dim"]
        if draw.random() < 0.5:
            values["hidden_size"] = draw.choice([30, 50, 66])
    return values, dim


def windows(draw, values):
    kinds = ["sliding_attention", "full_attention"]
    if draw.random() < 0.5:
        values["layer_types"] = [draw.choice(kinds) for _ in range(values["num_hidden_layers"])]


def gpt2(draw):
    heads, dim = draw.choice([1, 3, 5, 7]), draw.choice([5, 8, 11])
    return dict(vocab_size=draw.choice([97, 131, 255]), n_layer=draw.choice([1, 2, 3]), n_head=heads, n_embd=heads * dim, n_positions=draw.choice([TOKENS, 64]),
                n_inner=draw.choice([None, 37, 64]), activation_function=draw.choice(["gelu_new", "gelu", "relu", "silu"]),
                layer_norm_epsilon=draw.choice([1e-5, 1e-3]), tie_word_embeddings=draw.random() < 0.5, bos_token_id=None, eos_token_id=None)


def llama(draw):
    values, dim = shape(draw)
    return {**values, **rope(draw, dim), "attention_bias": draw.random() < 0.4, "mlp_bias": draw.random() < 0.4,
            "rms_norm_eps": draw.choice([1e-6, 1e-5, 1e-2]), "hidden_act": draw.choice(["silu", "gelu", "relu", "gelu_pytorch_tanh"])}


def mistral(draw):
    values, dim = shape(draw)
    return {**values, **rope(draw, dim), "sliding_window": draw.choice([None, 1, 5, 17, 100]), "rms_norm_eps": draw.choice([1e-6, 1e-3])}


def qwen2(draw):
    values, dim = shape(draw, wide=False)
    values.update(rope(draw, dim), use_sliding_window=draw.random() < 0.6, sliding_window=draw.choice([3, 9]), max_window_layers=draw.choice([0, 1, 2, 28]))
    if values["use_sliding_window"]:
        windows(draw, values)
    return values


def qwen3(draw):
    values, dim = shape(draw)
    values.update(rope(draw, values.setdefault("head_dim", dim)), attention_bias=draw.random() < 0.4, use_sliding_window=draw.random() < 0.5,
                  sliding_window=draw.choice([4, 11]), max_window_layers=draw.choice([0, 1, 3]))
    if values["use_sliding_window"]:
        windows(draw, values)
    return values


def gemma2(draw):
    values, dim = shape(draw)
    values.setdefault("head_dim", dim)
    values.update(rope(draw, values["head_dim"], ("default", "linear", "llama3")), sliding_window=draw.choice([2, 6, 50]), query_pre_attn_scalar=draw.choice([1, 20, 7]),
                  attn_logit_softcapping=draw.choice([None, 2.0, 50.0]), final_logit_softcapping=draw.choice([None, 3.0, 30.0]),
                  attention_bias=draw.random() < 0.3, hidden_activation=draw.choice(["gelu_pytorch_tanh", "gelu", "silu"]))
    windows(draw, values)
    return values


def gemma3_text(draw):
    values = gemma2(draw)
    del values["attn_logit_softcapping"]
    for key in ("rope_scaling", "rope_theta", "rope_parameters"):
        values.pop(key, None)
    if draw.random() < 0.7:
        full = draw.choice([{"rope_type": "linear", "factor": 8.0}, {"rope_type": "default"}, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}])
        values["rope_parameters"] = {"full_attention": {**full, "rope_theta": 100000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}
    if draw.random() < 0.4:
        values.pop("layer_types", None)
        values["sliding_window_pattern"] = draw.choice([2, 3])
    return values


def partial(draw, dim):
    return draw.choice([share for share in (0.25, 0.4, 0.5, 0.75, 1.0) if int(dim * share) % 2 == 0 and int(dim * share) >= 2])


def phi(draw):
    values, dim = shape(draw, wide=False)
    share = partial(draw, dim)
    return {**values, **rope(draw, int(dim * share), ("default", "linear", "dynamic", "yarn", "llama3")), "partial_rotary_factor": share, "hidden_act": draw.choice(["gelu_new", "gelu", "relu"])}


def phi3(draw):
    values, dim = shape(draw, wide=False)
    values.update(partial_rotary_factor=partial(draw, dim), sliding_window=draw.choice([None, 5, 30]), original_max_position_embeddings=draw.choice([16, 64]))
    if draw.random() < 0.6:
        half = int(dim * values["partial_rotary_factor"]) // 2
        values["rope_scaling"] = {"rope_type": "longrope", "short_factor": [1 + 0.1 * k for k in range(half)], "long_factor": [1.5 + k for k in range(half)]}
    return values


def olmo2(draw):
    values, dim = shape(draw, wide=False)
    return {**values, **rope(draw, dim), "attention_bias": draw.random() < 0.4, "rms_norm_eps": draw.choice([1e-6, 1e-3])}


def smollm3(draw):
    values, dim = shape(draw, wide=False)
    return {**values, **rope(draw, dim), "no_rope_layer_interval": draw.choice([1, 2, 3, 4]), "attention_bias": draw.random() < 0.4, "mlp_bias": draw.random() < 0.4,
            "use_sliding_window": False}


def gpt_neox(draw):
    values, dim = shape(draw, wide=False)
    del values["num_key_value_heads"]
    share = partial(draw, dim)
    said = rope(draw, int(dim * share), ("default", "linear", "dynamic", "yarn"))
    if "rope_parameters" in said:
        said["rope_parameters"]["partial_rotary_factor"] = share
    return {**values, **said, "rotary_pct": share, "use_parallel_residual": draw.random() < 0.5, "attention_bias": draw.random() < 0.6,
            "hidden_act": draw.choice(["gelu", "gelu_new", "relu", "gelu_fast"]), "layer_norm_eps": draw.choice([1e-5, 1e-3])}


FAMILIES = [gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi, phi3, olmo2, smollm3, gpt_neox]


def save(draw, model, folder):
    kind = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    model.to(kind)
    form = draw.choice(["one", "shards", "shards", "bin", "bin shards", "bin old"])
    model.save_pretrained(folder, max_shard_size="30KB" if "shards" in form else "5GB")
    if "bin" in form:
        for file in folder.glob("*.safetensors*"):
            file.unlink()
        weights, names = model.state_dict(), list(model.state_dict())
        if form == "bin shards":
            places = {}
            for part in range(2):
                file = f"pytorch_model-0000{part + 1}-of-00002.bin"
                torch.save({name: weights[name] for name in names[part::2]}, folder / file)
                places.update({name: file for name in names[part::2]})
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
        else:
            torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=form == "bin")
    return f"{str(kind)[6:]} {form}"


def loss_of(folder, data):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(data) - TOKENS, TOKENS):
            window = torch.tensor(data[at : at + TOKENS + 1], dtype=torch.long)
            total += torch.nn.functional.cross_entropy(model(window[None, :-1]).logits[0].double(), window[1:], reduction="sum").item()
            count += TOKENS
    return total / count


STEPS, RATE, EPSILON = 3, 0.01, 1e-3  # a large epsilon: what has no gradient but rounding stays where it is


def windows_of(data):
    return torch.stack([torch.tensor(data[at : at + TOKENS + 1], dtype=torch.long) for at in range(0, len(data) - TOKENS, TOKENS)])


def train_there(folder, data, how):
    """The model as it was, as it became, and the losses before each step, all windows being one batch."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": how["decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = (torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=EPSILON) if how["optimizer"] == "adamw"
                 else torch.optim.SGD([*matrices, *others], lr=RATE, momentum=0.9))
    windows, losses = windows_of(data), []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(windows[:, :-1]).logits.double().flatten(0, 1), windows[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        if how["clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), how["clip"])
        optimizer.step()
    return before, dict(model.named_parameters()), losses


def layout(draw, config, family):
    """Words for ranks that share the work; empty: one rank."""
    heads = getattr(config, "num_attention_heads", getattr(config, "n_head", 1))
    kv = getattr(config, "num_key_value_heads", None) or heads
    layers = getattr(config, "num_hidden_layers", getattr(config, "n_layer", 1))
    choices = [[], [], ["--nproc", "2", "parallel.zero=3"], ["--nproc", "2", "parallel.zero=1", "optim.moments=fp32"]]
    if layers % 2 == 0:
        choices.append(["--nproc", "2", "parallel.pipeline=2"])
    if heads % 2 == 0 and kv % 2 == 0 and (getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 0) % 2 == 0:
        choices.append(["--nproc", "2", "parallel.tensor=2"])
    if heads == kv and family != "gpt2":
        choices.append(["--nproc", "2", "parallel.context=2"])
    return draw.choice(choices)


def train_here(draw, folder, file, data, vocab, family):
    """What differs from training by PyTorch; empty: nothing."""
    how = {"optimizer": draw.choice(["adamw", "adamw", "sgd"]), "clip": draw.choice([0, 0.3])}
    how["decay"] = draw.choice([0, 0.1]) if how["optimizer"] == "adamw" else 0
    config = AutoConfig.from_pretrained(folder)
    samples = (len(data) - 1) // TOKENS
    words = [*layout(draw, config, family), f"batch.slices={draw.choice([2, samples])}", f"memory.recompute={draw.choice(['none', 'cheap', 'full'])}",
             f"optim.name={how['optimizer']}", f"optim.clip={how['clip']}", f"optim.weight_decay={how['decay']}"]
    if how["optimizer"] == "adamw":
        words += [f"optim.epsilon={EPSILON}", "optim.beta1=0.9", "optim.beta2=0.95"]
    else:
        words += ["optim.momentum=0.9"]
    if family in ("gpt2", "phi", "gpt_neox"):
        words.append("model.dropout=0")
    here, out = WORK / "run", WORK / "trained"
    for path in here, out:
        shutil.rmtree(path, ignore_errors=True)
    said = run("train", f"model.from={folder}", "--run", here, "run.device=cpu", "precision.compute=fp32", "data.kind=tokens", f"data.path={file}",
               f"data.eval_path={file}", f"data.seq_len={TOKENS}", f"model.vocab={vocab}", f"batch.global={samples}", "batch.strands=2", f"run.steps={STEPS}",
               f"optim.lr={RATE}", "optim.warmup=0", "optim.schedule=constant", "log.eval_every=0", "log.every=1", "--json", *words)
    what = " ".join(words)
    if said.returncode:
        return f"{what}: train ends with {said.returncode}: {said.stderr.strip()[-600:]}"
    lines = [json.loads(line) for line in (here / "metrics.jsonl").read_text().splitlines()]
    ours = [line["loss"] for line in lines if "loss" in line]
    before, after, theirs = train_there(folder, data, how)
    if len(ours) != STEPS or any(not abs(a - b) <= 2e-5 for a, b in zip(ours, theirs)):
        return f"{what}: losses {ours}, theirs {theirs}"
    said = run("export", here, out)
    if said.returncode:
        return f"{what}: export: {said.stderr.strip()}"
    found = dict(AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).named_parameters())
    if sorted(found) != sorted(after):
        return f"{what}: other tensors: {sorted(set(found) ^ set(after))}"
    for name, weight in after.items():
        apart, moved = (found[name] - weight).norm().item(), (weight - before[name]).norm().item()
        if not apart <= 2e-3 * moved + 1e-6 * weight.numel() ** 0.5:
            return f"{what}: {name} is {apart:.3g} away from theirs, which moved by {moved:.3g}"
    return ""


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


def one(number):
    draw = random.Random(f"{SEED}/{number}")
    family = draw.choice(FAMILIES)
    if ONLY:
        family = next(one for one in FAMILIES if one.__name__ == ONLY)
    values = family(draw)
    folder, out, file = WORK / "model", WORK / "exported", WORK / "tokens.bin"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(number)
    try:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family.__name__, **values))
    except Exception as error:  # noqa: BLE001  # transformers does not take it
        return "not made", f"{family.__name__}: {error}"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    stored = save(draw, model, folder)
    vocab = model.config.vocab_size
    data = array.array("H", (draw.randrange(vocab) for _ in range(TOKENS * 4 + 1)))
    file.write_bytes(data.tobytes())
    what = f"{family.__name__} {stored} {json.dumps(values)}"
    try:
        theirs = loss_of(folder, data)
    except Exception as error:  # noqa: BLE001
        return "not made", f"{what}: {error}"
    evaluate = ["run.device=cpu", "precision.compute=fp32", "data.kind=tokens", f"data.path={file}", f"data.seq_len={TOKENS}", f"model.vocab={vocab}", "--json"]
    said = run("eval", folder, *evaluate)
    if said.returncode == 2 and "LS0177" in said.stderr:
        return "refused", f"{what}: {said.stderr.strip()}"
    if said.returncode:
        return "wrong", f"{what}\n  eval: {said.stderr.strip()}"
    ours = json.loads(said.stdout)["loss"]
    if not abs(ours - theirs) <= 1e-5:
        return "wrong", f"{what}\n  ours {ours}, theirs {theirs}"
    said = run("export", folder, out)
    if said.returncode:
        return "wrong", f"{what}\n  export: {said.stderr.strip()}"
    again = loss_of(out, data)
    if not abs(again - theirs) <= 1e-5:
        return "wrong", f"{what}\n  exported: theirs is {again}, not {theirs}"
    differs = train_here(draw, folder, file, data, vocab, family.__name__) if number % 3 == 0 else ""
    return ("wrong", f"{what}\n  trained with {differs}") if differs else ("alike", "")


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    counts = {}
    for number in range(int(ROUNDS)) if ":" not in ROUNDS else range(*map(int, ROUNDS.split(":"))):
        kind, what = one(number)
        counts[kind] = counts.get(kind, 0) + 1
        if kind != "alike":
            print(f"{kind}, round {number} of seed {SEED}: {what}", flush=True)
    print(counts)
    sys.exit(counts.get("wrong", 0) > 0)


main()
