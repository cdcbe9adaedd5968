#!/usr/bin/env bash
# transformers_test.sh BUILD: Hugging Face's own library opens our checkpoints, and we open its. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
row_limit=300

# shellcheck source=tools/real/transformers_peer.sh
source "$here/transformers_peer.sh"
need_python torch transformers
start_peer

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
    data.seq_len=32 "model.vocab=$vocab" "${longer[@]}" --json >ours 2>says || { cat says; return 1; }
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

# A model of transformers of this type with these values in its config: the same loss there, here and after an export, and
# trained in every kind of layout: the bits of one rank, or what tensor and context ranks are allowed.
in_every_layout() {
  local word layout bits one=''
  for word in "$@"; do [[ $word == vocab_size=* ]] && vocab=${word#*=}; done
  peer tokens tokens.bin 192 >says
  peer make theirs-folder "$@" >says 2>&1 || { cat says; return 1; }
  "$program" export theirs-folder exported >says 2>&1 || { cat says; return 1; }
  compare theirs-folder exported || return 1
  for layout in "1 " "2 parallel.zero=3" "2 parallel.pipeline=2" "2 parallel.tensor=2" "2 parallel.context=2"; do
    "$program" train model.from=theirs-folder "run.name=run${layout// /-}" run.steps=2 run.device=cpu data.kind=tokens \
      data.path=tokens.bin data.seq_len=32 batch.global=8 batch.slices=8 optim.lr=1e-3 log.eval_every=0 log.fingerprint=true \
      --nproc "${layout%% *}" ${layout#* } --json >says 2>&1 || { cat says; return 1; }
    bits=$(hash_of says)
    one=${one:-$bits}
    if [[ $layout == *tensor* || $layout == *context* ]]; then
      number loss "runs/run${layout// /-}/metrics.jsonl" >of_layout
      near "$(cat of_layout)" "$(number loss runs/run1-/metrics.jsonl)" || { echo "$layout"; return 1; }
    elif [[ -z $bits || $bits != "$one" ]]; then
      echo "$layout: params_hash is ${bits:-missing}, one rank gives $one"
      return 1
    fi
  done
  if [[ -e runs/run1-/checkpoints ]]; then compare runs/run1-/checkpoints/step-00000002; fi
}

refused_architecture() {
  mkdir -p mamba-folder && echo '{"model_type": "mamba"}' >mamba-folder/config.json && printf '\x02\0\0\0\0\0\0\0{}' >mamba-folder/model.safetensors
  ends 2 "$program" eval mamba-folder && says 'gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi, phi3, olmo2'
}

longer=() vocab=192
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
windows='layer_types=["sliding_attention","full_attention","sliding_attention"]'
yarn='rope_scaling={"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":16}'
longrope='rope_scaling={"rope_type":"longrope","short_factor":[1.0,1.1,1.3,1.6],"long_factor":[1.5,2.0,4.0,9.0]}'
both_ropes='rope_parameters={"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":100000.0},"sliding_attention":{"rope_type":"default","rope_theta":500.0}}'
row "mistral: a window, wide heads, odd vocabulary" in_every_layout mistral sliding_window=7 head_dim=24 vocab_size=197
row "mistral: no window, tied, YaRN" in_every_layout mistral sliding_window=null tie_word_embeddings=true "$yarn"
row "qwen2: biases, windows in some layers" in_every_layout qwen2 num_hidden_layers=3 use_sliding_window=true sliding_window=9 max_window_layers=1
row "qwen2: tied, no window, heads of their own keys" in_every_layout qwen2 num_key_value_heads=4 tie_word_embeddings=true
row "qwen3: norms of q and k, wide heads" in_every_layout qwen3 head_dim=24 vocab_size=201
row "qwen3: windows by layer_types, biases" in_every_layout qwen3 head_dim=16 num_hidden_layers=3 attention_bias=true \
  use_sliding_window=true sliding_window=5 "$windows"
row "gemma2: soft caps, windows in turns" in_every_layout gemma2 head_dim=24 sliding_window=6 attn_logit_softcapping=3.0 \
  final_logit_softcapping=5.0 query_pre_attn_scalar=20
row "gemma2: no caps, untied" in_every_layout gemma2 head_dim=16 attn_logit_softcapping=null final_logit_softcapping=null \
  tie_word_embeddings=false
row "gemma3: two kinds of rotary positions" in_every_layout gemma3_text head_dim=24 num_hidden_layers=3 sliding_window=5 \
  query_pre_attn_scalar=30 final_logit_softcapping=6.0 "$windows" "$both_ropes"
row "phi: half of a head turns" in_every_layout phi partial_rotary_factor=0.5 vocab_size=194
row "phi: all of a head turns, one head of keys for two" in_every_layout phi partial_rotary_factor=1.0 hidden_act='"gelu"'
row "phi3: fused maps, grouped heads, a window" in_every_layout phi3 sliding_window=9
row "phi3: LongRoPE on half of a head" in_every_layout phi3 partial_rotary_factor=0.5 original_max_position_embeddings=16 "$longrope"
row "olmo2: norms behind maps" in_every_layout olmo2 rms_norm_eps=1e-5
row "olmo2: biases, tied, linear RoPE" in_every_layout olmo2 attention_bias=true tie_word_embeddings=true \
  'rope_scaling={"rope_type":"linear","factor":2.0}'
row "smollm3: layers without positions" in_every_layout smollm3 num_hidden_layers=3 no_rope_layer_interval=2
row "gpt_neox: halves side by side" in_every_layout gpt_neox rotary_pct=0.25
row "gpt_neox: one after the other, no biases" in_every_layout gpt_neox use_parallel_residual=false attention_bias=false \
  hidden_act='"gelu_new"' vocab_size=198
row "a folder of another architecture is refused with those that are known" refused_architecture
row "we start from a pytorch_model.bin" theirs_to_ours gpt2 tied bin
row "we start from a pytorch_model.bin of bf16 weights" theirs_to_ours llama bin bf16
row "we start from a pytorch_model.bin in shards" theirs_to_ours llama tied bin-shards
row "we start from a pytorch_model.bin of before PyTorch 1.6" theirs_to_ours gpt2 bin-old fp16
finish
