#!/usr/bin/env bash
# chat_test.sh BUILD: conversations through the templates of tools/samples/chat_templates.json against transformers: text, ids and,
# where a template has generation marks, the mask. Exit 77: skipped. LOCKSTEP_CONVERSATIONS=200 sets how many each template
# sees (60 by default); LOCKSTEP_SEED=$RANDOM looks elsewhere than usual.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python transformers jinja2
seed=${LOCKSTEP_SEED:-491921532}
templates=$here/../samples/chat_templates.json
echo "seed $seed"
peer() { "$python" "$here/chat_peer.py" "$program" "$templates" "$PWD" "$1" "${LOCKSTEP_CONVERSATIONS:-60}" "$seed"; }
for name in $("$python" -c 'import json, sys; print(*[row["name"] for row in json.load(open(sys.argv[1]))])' "$templates"); do
  row "$name: text, ids and masks" peer "$name"
done
finish
