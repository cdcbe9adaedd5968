#!/usr/bin/env bash
# story_test.sh BUILD: the commands of docs/story.md, block by block; in the end both programs answer with the same text. Exit 77:
# skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python torch transformers
[[ -d /usr/share/common-licenses ]] || skip "/usr/share/common-licenses is not here"
row_limit=900
story=$work/story
mkdir "$work/bin" "$story"
ln -s "$program" "$work/bin/lockstep"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/bin/python3"
chmod +x "$work/bin/python3"
export PATH=$work/bin:$PATH

# block N: the N-th block of commands on the page.
block() { awk -v wanted="$1" '/^```sh$/ { n++; inside = 1; next } /^```$/ { inside = 0 } inside && n == wanted' "$here/../../docs/story.md"; }
run_block() { cd "$story" && bash -euo pipefail -c "$(block "$1")"; }

titles=("a tokenizer" "a model folder" "pretraining" "conversations" "fine-tuning with LoRA" "one folder")
for n in "${!titles[@]}"; do row "$((n + 1)). ${titles[n]}" run_block $((n + 1)); done

same_answer() {
  local said
  said=$(run_block 7 2>"$story/errors" | grep -v '^$')
  echo "$said"
  cat "$story/errors"
  [[ -n $said && $(sort -u <<<"$said" | wc -l) == 1 ]]
}
row "7. both programs give the same answer" same_answer
finish
