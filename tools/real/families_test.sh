#!/usr/bin/env bash
# families_test.sh BUILD: models of random shapes, made and stored by transformers, have the same loss here and after an export.
# Exit 77: skipped. LOCKSTEP_ROUNDS=200 sets how many; LOCKSTEP_SEED=$RANDOM looks elsewhere than usual.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python torch transformers
row_limit=1200
seed=${LOCKSTEP_SEED:-1}
row "random shapes of every family, seed $seed" "$python" "$here/families_peer.py" "$program" "$work/models" "${LOCKSTEP_ROUNDS:-25}" "$seed"
finish
