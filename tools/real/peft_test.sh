#!/usr/bin/env bash
# peft_test.sh BUILD: Hugging Face's PEFT and we train the same LoRA adapters and open each other's. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
row_limit=300

# shellcheck source=tools/real/transformers_peer.sh
source "$here/transformers_peer.sh"
need_python torch transformers peft
start_peer

# quietly COMMAND...: says something only when it fails.
quietly() { "$@" >says 2>&1 || { cat says; return 1; }; }
losses() { grep -o '"loss": *[-+0-9.e]*' "$1" | sed 's/.*: *//'; }

# near A B BOUND: two files with a number per line, as many lines, each within the bound.
near() {
  paste "$1" "$2" | awk -v bound="$3" '
    { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > bound) { bad = 1; print "line " NR ": " $1 " and " $2 } }
    END { exit bad || NR == 0 }' && return 0
  echo "$1 and $2 differ by more than $3"
  return 1
}

ours=(run.device=cpu precision.compute=fp32 data.kind=tokens data.seq_len=32)
evaluate() {  # FILE WORDS...: our loss, as a line
  local file=$1
  shift
  "$program" eval "$@" "${ours[@]}" data.path="$PWD/tokens.bin" --json >evaluated 2>says || { cat says; return 1; }
  losses evaluated >"$file"
}

# The windows of the file are one batch: then the order in which they are read does not matter.
train() {  # WORDS...
  quietly "$program" train "${ours[@]}" data.path=tokens.bin data.eval_fraction=0 batch.global=40 batch.slices=8 \
    model.from=base tune.method=lora run.steps=6 optim.lr=0.01 optim.schedule=constant optim.warmup=0 optim.clip=0 \
    log.eval_every=0 "$@"
}

# A model of this type with values in its config, up to "--"; then the maps that have adapters and words of LoraConfig. The
# adapter that PEFT makes gives the same loss here and there, both train it alike, and PEFT and transformers open what we save.
both_ways() {
  local config=()
  while [[ $1 != -- ]]; do config+=("$1") && shift; done
  shift
  quietly peer tokens tokens.bin 192 && quietly peer make base "${config[@]}" && quietly peer adapter base theirs "$@" || return 1

  peer adapter_loss tokens.bin 32 base theirs >there 2>says || { cat there; return 1; }
  losses there >there.loss
  evaluate here.loss base --adapter theirs && near here.loss there.loss 1e-6 || return 1

  peer adapter_train tokens.bin 32 base theirs 6 0.01 >there || { cat there; return 1; }
  losses there >there.losses
  train run.name=lora tune.adapter=theirs && losses runs/lora/metrics.jsonl >here.losses &&
    near here.losses there.losses 1e-5 || return 1

  quietly "$program" export runs/lora ours && quietly "$program" export runs/lora --merge --out merged || return 1
  peer adapter_loss tokens.bin 32 base ours runs/lora/checkpoints/step-00000006 >there || { cat there; return 1; }
  losses there >there.loss
  evaluate here.loss runs/lora && cat here.loss here.loss >twice && near twice there.loss 1e-6 || return 1

  peer loss tokens.bin 32 merged >there || { cat there; return 1; }
  losses there >there.loss
  evaluate merged.loss merged && near merged.loss here.loss 1e-6 && near merged.loss there.loss 1e-6
}

# An adapter begins as PEFT's do: A within its bound and not all alike, B zeros, so that the model is as it was.
begins_as_the_base() {
  quietly peer tokens tokens.bin 192 && quietly peer make base llama && train run.name=new optim.lr=1e-30 || return 1
  losses runs/new/metrics.jsonl | head -n 1 >here.loss
  peer loss tokens.bin 32 base >there || { cat there; return 1; }
  losses there >there.loss
  near here.loss there.loss 1e-6 || return 1
  quietly "$program" export runs/new ours
  "$python" - <<'PY'
import safetensors.torch, torch
for name, value in safetensors.torch.load_file("ours/adapter_model.safetensors").items():
    if ".lora_B." in name:
        assert not value.abs().max() > 1e-20, name
    else:
        layer = torch.nn.Linear(value.shape[1], value.shape[0])
        torch.nn.init.kaiming_uniform_(layer.weight, a=5 ** 0.5)
        bound = value.shape[1] ** -0.5
        assert 0.95 * bound < value.max() <= bound and -bound <= value.min() < -0.95 * bound, name
        assert abs(value.std() - layer.weight.std()) < 0.1 * bound, name
PY
}

refused_adapters() {
  quietly peer tokens tokens.bin 192 && quietly peer make base llama && quietly peer make other gpt2 &&
    quietly peer adapter other theirs c_attn && quietly peer adapter base dora q_proj use_dora=true || return 1
  ends 3 "$program" eval base --adapter theirs "${ours[@]}" data.path="$PWD/tokens.bin" && says "does not fit this model" || return 1
  ends 3 "$program" eval base --adapter dora "${ours[@]}" data.path="$PWD/tokens.bin" && says "use_dora"
}

# The weights under an adapter are those of bitsandbytes, to the bit.
as_bitsandbytes() {
  peer tokens tokens.bin 192 && quietly peer make base llama hidden_size=128 intermediate_size=192 || return 1
  quietly "$program" train model.from=base run.name=q run.steps=1 data.path=tokens.bin "${ours[@]}" batch.global=8 tune.method=lora \
    tune.base=nf4 optim.lr=1e-30 log.eval_every=0 || return 1
  quietly "$program" export runs/q merged --merge || return 1
  "$python" "$here/quantized_peer.py" base merged
}

row "llama: all maps" both_ways llama num_key_value_heads=2 -- all-linear r=4 lora_alpha=8
row "llama, tied: q and v, rsLoRA" both_ways llama tie_word_embeddings=true -- q_proj,v_proj r=8 lora_alpha=16 use_rslora=true
row "llama: the head is trained beside" both_ways llama -- q_proj,down_proj r=4 'modules_to_save=["lm_head"]'
row "gpt2: Conv1D, square ones too" both_ways gpt2 -- c_attn,c_proj,c_fc r=4 fan_in_fan_out=true
row "qwen2: biases" both_ways qwen2 -- all-linear r=4
row "qwen3: norms of q and k" both_ways qwen3 head_dim=24 -- all-linear r=4
row "gemma2: soft caps" both_ways gemma2 head_dim=24 -- all-linear r=4 lora_alpha=3
row "phi: halves side by side" both_ways phi -- all-linear r=4
row "phi3: fused maps" both_ways phi3 -- all-linear r=4
row "olmo2: norms behind maps" both_ways olmo2 -- all-linear r=4
row "gpt_neox: q, k and v of each head together" both_ways gpt_neox -- all-linear r=4
row "an adapter begins as PEFT's do" begins_as_the_base
row "adapters of other models and kinds are refused" refused_adapters
if "$python" -c 'import bitsandbytes' 2>/dev/null; then
  row "nf4: the weights of bitsandbytes" as_bitsandbytes
else
  echo "without bitsandbytes: nf4 is not compared"
fi
finish
