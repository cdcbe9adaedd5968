#!/usr/bin/env bash
# golden_test.sh BUILD: recipes, run folders and checkpoints of earlier versions open, resume and export in this one; those
# of later versions are refused, with the version that wrote them.
set -euo pipefail
program=$(readlink -f "$1/lockstep")
golden=$(cd "$(dirname "${BASH_SOURCE[0]}")/samples/golden" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

say() { echo "$*"; }
fail() { echo "FAILED: $*" && exit 1; }

# refused FOLDER TEXT: it is not opened, and the sentence has that text.
refused() {
  local code=0
  "$program" train "$recipe" --run "$1" run.steps=6 >says 2>&1 || code=$?
  if [[ $code == 3 ]] && grep -q "LS0347" says && grep -qF "$2" says; then return 0; fi
  cat says
  fail "$1 should be refused with $2 (exit $code)"
}

for version in "$golden"/*/; do
  name=$(basename "$version") recipe=${version}recipe.toml
  cp -r "${version}run" "$name"
  "$program" inspect "$name" >says 2>&1 || { cat says; fail "inspect $name"; }
  "$program" eval "$name" --json >says 2>&1 || { cat says; fail "eval $name"; }
  "$program" generate "$name" --tokens 5 --json >says 2>&1 || { cat says; fail "generate $name"; }
  "$program" export "$name" exported >says 2>&1 || { cat says; fail "export $name"; }
  "$program" train "$recipe" --run "$name" run.steps=6 --json >says 2>&1 || { cat says; fail "resume $name"; }
  grep -q '"steps":6' says || { cat says; fail "$name was not resumed to step 6"; }
  python3 - "$name" "${version}expected.json" <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
expected, record = json.load(open(sys.argv[2])), json.load(open(sys.argv[1] + "/record.json"))
losses = [row["loss"] for row in rows if "loss" in row]
assert len(losses) == expected["steps"], losses
assert all(abs(a - b) < 1e-4 for a, b in zip(losses, expected["losses"])), (losses, expected["losses"])
if all(record[key] == expected[key] for key in ("instruction_set", "device")):
    assert rows[-2].get("params_hash", rows[-1].get("params_hash")) == expected["params_hash"], "other bits"
    print("the same bits")
END
  say "ok  $name opens, evaluates, generates, exports and resumes"
  rm -rf exported
done

# Of a version to come.
cp -r "$golden/0.1.0/run" newer && cp -r "$golden/0.1.0/run" newest
recipe=$golden/0.1.0/recipe.toml
sed -i 's/"version": *[0-9]*/"version": 99/; s/"written_by": *"[0-9.]*"/"written_by": "9.8.7"/' newer/checkpoints/*/manifest.json
refused newer 9.8.7
sed -i 's/"build": *"[0-9.]*"/"build": "9.8.7"/' newest/record.json
printf '\n[future]\nkey = 1\n' >>newest/config.toml
refused newest 9.8.7
say "ok  newer folders are refused with the version that wrote them"
