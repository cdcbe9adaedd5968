#!/usr/bin/env bash
# transformers_test.sh BUILD: Hugging Face's own library opens our checkpoints, and we open its. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
row_limit=300

need_python torch transformers
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false CUDA_VISIBLE_DEVICES=

peer() { "$python" "$here/transformers_peer.py" "$@"; }
number() { grep -o "\"$1\": *[-+0-9.e]*" "$2" | head -n 1 | sed 's/.*: *//'; }

# near A B: equal within 1e-6.
near() {
  awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= 1e-6) }' && return 0
  echo "losses $1 and $2 differ by more than 1e-6"
  return 1
}

# evaluate FOLDER: our loss on the tokens, in `ours`.
evaluate() {
  "$program" eval "$1" run.device=cpu precision.compute=fp32 data.kind=tokens data.path="$PWD/tokens.bin" \
    data.seq_len=32 model.vocab=192 "${longer[@]}" --json >ours 2>says || { cat says; return 1; }
}

# compare FOLDER...: transformers and we find the same loss in each.
compare() {
  local folder
  peer loss tokens.bin 32 "$@" >all 2>says || { cat says; return 1; }
  for folder in "$@"; do
    grep -F "\"$folder\"" all >theirs
    evaluate "$folder" && near "$(number loss ours)" "$(number loss theirs)" || return 1
  done
}

# A model that we trained, for the keys given: saved by one rank and by three, and exported.
ours_to_theirs() {
  [[ " $* " == *"=dynamic "* ]] && longer=(model.context=64)
  peer tokens tokens.bin 192
  for ranks in 1 3; do
    "$program" train "$recipe" "run.name=here$ranks" run.steps=12 run.device=cpu "${small[@]}" model.vocab=192 "$@" \
      --nproc "$ranks" parallel.zero=$((ranks == 1 ? 0 : 3)) >says 2>&1 || { cat says; return 1; }
  done
  "$program" export runs/here1 exported --dtype bf16 >says 2>&1 || { cat says; return 1; }
  compare runs/here1/checkpoints/step-00000012 runs/here3/checkpoints/step-00000012 exported
}

# A model that transformers made, in small shards; trained on here, exported, and opened there again.
theirs_to_ours() {
  [[ " $* " == *" dynamic "* ]] && longer=(model.context=32)  # sequences longer than the model says
  peer tokens tokens.bin 192
  peer make theirs-folder "$@" >says 2>&1 || { cat says; return 1; }
  "$program" train model.from=theirs-folder run.name=tuned run.steps=3 run.device=cpu data.kind=tokens data.path=tokens.bin \
    data.seq_len=32 batch.global=8 batch.slices=8 optim.lr=1e-3 log.eval_every=0 "${longer[@]}" >says 2>&1 ||
    { cat says; return 1; }
  "$program" export theirs-folder exported >says 2>&1 || { cat says; return 1; }
  compare theirs-folder runs/tuned/checkpoints/step-00000003 exported
}

longer=()
gpt2=(model.family=gpt2)
llama=(model.family=llama model.heads=4 model.kv_heads=2)
scaled=(model.context=64 model.rope_scaling=8 model.rope_original_context=32)
row "transformers opens our gpt2, tied" ours_to_theirs "${gpt2[@]}"
row "transformers opens our gpt2, untied" ours_to_theirs "${gpt2[@]}" model.tied=false
row "transformers opens our llama with grouped heads, tied" ours_to_theirs "${llama[@]}"
row "transformers opens our llama with grouped heads, untied, scaled RoPE" ours_to_theirs "${llama[@]}" model.tied=false "${scaled[@]}"
row "transformers opens our llama with wide heads, RoPE by YaRN" ours_to_theirs "${llama[@]}" model.head_dim=24 "${scaled[@]}" \
  model.rope_type=yarn
biased=(model.attention_bias=true model.mlp_bias=true model.activation=gelu)
row "transformers opens our gpt2 with relu" ours_to_theirs "${gpt2[@]}" model.activation=relu
row "transformers opens our llama with biases and gelu" ours_to_theirs "${llama[@]}" "${biased[@]}"
row "transformers opens our llama, RoPE by dynamic NTK" ours_to_theirs "${llama[@]}" model.context=64 model.rope_scaling=4 \
  model.rope_type=dynamic model.rope_original_context=24
row "transformers opens our llama, RoPE by LongRoPE" ours_to_theirs "${llama[@]}" "${scaled[@]}" model.rope_type=longrope \
  model.rope_original_context=16 model.rope_short_factor=1,1.1,1.2,1.5 model.rope_long_factor=1,2,4,9
row "we start from a gpt2 of transformers, tied" theirs_to_ours gpt2 tied
row "we start from a gpt2 of transformers, untied, fp16" theirs_to_ours gpt2 fp16
row "we start from a llama of transformers, tied" theirs_to_ours llama tied
row "we start from a llama of transformers, untied, scaled RoPE, bf16" theirs_to_ours llama llama3 bf16
row "we start from a llama of transformers, RoPE by YaRN" theirs_to_ours llama yarn
row "we start from a llama of transformers, wide heads, linear RoPE" theirs_to_ours llama linear wide
for activation in gelu gelu_fast gelu_pytorch_tanh quick_gelu relu relu2 silu; do
  row "we start from a gpt2 of transformers with $activation" theirs_to_ours gpt2 tied "$activation"
done
row "we start from a llama of transformers with biases" theirs_to_ours llama biased tied
row "we start from a llama of transformers with gelu and biases" theirs_to_ours llama biased gelu
row "we start from a llama of transformers with relu" theirs_to_ours llama relu
row "we start from a llama of transformers, dynamic RoPE beyond its length" theirs_to_ours llama dynamic
row "we start from a llama of transformers, LongRoPE, long" theirs_to_ours llama longrope
row "we start from a llama of transformers, LongRoPE, short" theirs_to_ours llama longrope-short
row "we start from a pytorch_model.bin" theirs_to_ours gpt2 tied bin
row "we start from a pytorch_model.bin of bf16 weights" theirs_to_ours llama bin bf16
row "we start from a pytorch_model.bin in shards" theirs_to_ours llama tied bin-shards
row "we start from a pytorch_model.bin of before PyTorch 1.6" theirs_to_ours gpt2 bin-old fp16
finish
