"""A GPT-2 with random weights as Hugging Face keeps it: config.json and model.safetensors. Needs PyTorch alone.

Usage: random_gpt2.py FOLDER SEED LAYERS HIDDEN HEADS VOCAB POSITIONS
Normal numbers of deviation 0.02, those that write to the residual stream narrower by the depth; norms one, biases zero."""
import ctypes, json, math, pathlib, struct, sys
import torch

folder = pathlib.Path(sys.argv[1])
seed, layers, d, heads, vocab, positions = map(int, sys.argv[2:8])
shapes = {"wte.weight": [vocab, d], "wpe.weight": [positions, d], "ln_f.weight": [d], "ln_f.bias": [d]}
for i in range(layers):
    for name, size in [("ln_1", [d]), ("ln_2", [d]), ("attn.c_attn", [d, 3 * d]), ("attn.c_proj", [d, d]), ("mlp.c_fc", [d, 4 * d]),
                       ("mlp.c_proj", [4 * d, d])]:
        shapes[f"h.{i}.{name}.weight"], shapes[f"h.{i}.{name}.bias"] = size, size[-1:]
torch.manual_seed(seed)
header, offset, parts = {}, 0, []
for name, shape in shapes.items():
    if len(shape) == 1:
        values = torch.full(shape, 1.0 if name.endswith("weight") else 0.0)
    else:
        values = torch.randn(shape) * (0.02 / math.sqrt(2 * layers) if "c_proj" in name else 0.02)
    header["transformer." + name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * values.numel()]}
    offset += 4 * values.numel()
    parts.append(ctypes.string_at(values.data_ptr(), 4 * values.numel()))
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
folder.mkdir(parents=True)
(folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
(folder / "config.json").write_text(json.dumps({
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": d, "n_head": heads, "n_layer": layers, "n_positions": positions,
    "vocab_size": vocab, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}))
