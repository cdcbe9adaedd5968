"""Makes the folders of tools/samples/huggingface: small models by transformers, and what PyTorch finds in them, in fp64.

    python3 huggingface.py FOLDER [NAME...]          needs torch and transformers; the tests need neither. NAME: only these

Each model is stirred, so that no weight is 0 or 1 and every one matters. `expected.json` holds the loss over each window of
eval.bin, and the losses and gradient norms of a few steps of AdamW over all of train.bin: a whole epoch a step, so that the
order of samples does not matter."""
import array, json, pathlib, random, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB, SEQ_LEN, TRAIN, EVAL, STEPS = 40, 16, 6, 5, 3
RATE, DECAY, CLIP, BETAS, EPSILON = 0.01, 0.1, 0.5, (0.9, 0.95), 1e-3
GPT2 = dict(vocab_size=VOCAB, n_embd=12, n_layer=2, n_head=3, n_positions=20, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
LLAMA = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=24, max_position_embeddings=64)
NEOX = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=64, bos_token_id=None, eos_token_id=None)
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.3], "long_factor": [2.0, 5.5]}
MODELS = {  # name: (family, config, type in the file); those named -bin are pickles of PyTorch
    "gpt2-tied": ("gpt2", dict(GPT2, layer_norm_epsilon=1e-4), torch.float32),
    "gpt2-untied-fp16": ("gpt2", dict(GPT2, tie_word_embeddings=False, n_inner=20), torch.float16),
    "llama-untied": ("llama", dict(LLAMA, tie_word_embeddings=False), torch.float32),
    "llama-tied-llama3-bf16": ("llama", dict(LLAMA, tie_word_embeddings=True, rms_norm_eps=1e-4, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.25, "high_freq_factor": 3.5,
        "original_max_position_embeddings": 16}), torch.bfloat16),
    "llama-wide-yarn": ("llama", dict(LLAMA, head_dim=6, rope_theta=100.0, rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.3,
        "original_max_position_embeddings": 16}), torch.float32),
    "llama-yarn": ("llama", dict(LLAMA, num_attention_heads=2, rope_theta=50.0, rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}), torch.float32),
    "llama-linear": ("llama", dict(LLAMA, num_key_value_heads=4, rope_scaling={"rope_type": "linear", "factor": 2.0}),
                     torch.float32),
    "gpt2-gelu": ("gpt2", dict(GPT2, activation_function="gelu"), torch.float32),
    "gpt2-relu-bin": ("gpt2", dict(GPT2, activation_function="relu"), torch.float32),
    "llama-biased-gelu": ("llama", dict(LLAMA, attention_bias=True, mlp_bias=True, hidden_act="gelu"), torch.float32),
    "llama-biased-tied-bin": ("llama", dict(LLAMA, attention_bias=True, tie_word_embeddings=True), torch.bfloat16),
    "llama-dynamic": ("llama", dict(LLAMA, max_position_embeddings=10, rope_theta=100.0, rope_scaling={
        "rope_type": "dynamic", "factor": 3.0}), torch.float32),
    "llama-longrope-long": ("llama", dict(LLAMA, rope_scaling=dict(LONGROPE, original_max_position_embeddings=8)),
                            torch.float32),
    "mistral-window": ("mistral", dict(LLAMA, head_dim=6, sliding_window=5), torch.float32),
    "qwen2-window-tied": ("qwen2", dict(LLAMA, use_sliding_window=True, sliding_window=6, max_window_layers=1,
                                        tie_word_embeddings=True), torch.float32),
    "qwen3": ("qwen3", dict(LLAMA, head_dim=6, num_key_value_heads=1, rope_theta=100.0), torch.float32),
    "qwen3-window-biased": ("qwen3", dict(LLAMA, num_hidden_layers=3, head_dim=8, attention_bias=True, use_sliding_window=True,
                                          sliding_window=4, layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
                            torch.float32),
    "gemma2": ("gemma2", dict(LLAMA, head_dim=6, sliding_window=5, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                              query_pre_attn_scalar=9, bos_token_id=None, eos_token_id=None, pad_token_id=None), torch.float32),
    "gemma3": ("gemma3_text", dict(LLAMA, num_hidden_layers=3, num_key_value_heads=1, head_dim=8, sliding_window=4,
                                   layer_types=["sliding_attention", "sliding_attention", "full_attention"], query_pre_attn_scalar=7,
                                   final_logit_softcapping=4.0, rope_parameters={
                                       "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
                                       "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}},
                                   bos_token_id=None, eos_token_id=None, pad_token_id=None), torch.float32),
    "phi": ("phi", dict(LLAMA, num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.5, resid_pdrop=0,
                        embd_pdrop=0), torch.float32),
    "phi3-window": ("phi3", dict(LLAMA, sliding_window=6, pad_token_id=None), torch.float32),
    "phi3-longrope": ("phi3", dict(LLAMA, num_attention_heads=2, num_key_value_heads=1, original_max_position_embeddings=8,
                                   partial_rotary_factor=0.5, rope_scaling=LONGROPE, pad_token_id=None), torch.float32),
    "olmo2": ("olmo2", dict(LLAMA, num_key_value_heads=2, pad_token_id=None, eos_token_id=None), torch.float32),
    "smollm3": ("smollm3", dict(LLAMA, num_hidden_layers=3, no_rope_layer_interval=2, pad_token_id=None, bos_token_id=None,
                                eos_token_id=None), torch.float32),
    "gpt-neox": ("gpt_neox", dict(NEOX, rotary_pct=0.5), torch.float32),
    "gpt-neox-serial": ("gpt_neox", dict(NEOX, use_parallel_residual=False, attention_bias=False, rotary_emb_base=100), torch.float32),
    "llama-longrope-short": ("llama", dict(LLAMA, rope_scaling=dict(LONGROPE, original_max_position_embeddings=16)),
                             torch.float32),
}


def write_tokens(path, windows, seed):
    source = random.Random(seed)
    tokens = [source.randrange(VOCAB) for _ in range(windows * SEQ_LEN + 1)]
    path.write_bytes(array.array("H", tokens).tobytes())
    rows = [tokens[at : at + SEQ_LEN + 1] for at in range(0, len(tokens) - 1, SEQ_LEN)]
    return torch.tensor(rows, dtype=torch.long)


def loss_of(model, windows):
    logits = model(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), windows[:, 1:].reshape(-1))


def trained(model, windows):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}],
                                  lr=RATE, betas=BETAS, eps=EPSILON)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, windows)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        steps.append({"loss": loss.item(), "grad_norm": norm.item()})
    return steps


def make(folder, family, config, kind, train, evaluation):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn_like(parameter))
    model.to(kind).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if folder.name.endswith("-bin"):
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    # Only the plain implementation caps scores.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").train()
    with torch.no_grad():
        losses = [loss_of(model, window[None]).item() for window in evaluation]
    steps = trained(model, train)
    with torch.no_grad():
        after = loss_of(model, evaluation).item()
    return {"eval": losses, "steps": steps, "eval_after": after}


root = pathlib.Path(sys.argv[1])
root.mkdir(parents=True, exist_ok=True)
train, evaluation = write_tokens(root / "train.bin", TRAIN, 1), write_tokens(root / "eval.bin", EVAL, 2)
path, wanted = root / "expected.json", sys.argv[2:] or list(MODELS)
expected = json.loads(path.read_text()) if sys.argv[2:] else {}
expected.update({name: make(root / name, *MODELS[name], train, evaluation) for name in wanted})
path.write_text(json.dumps({name: expected[name] for name in MODELS if name in expected}, indent=1) + "\n")
