#!/usr/bin/env bash
# submit_quoting_test.sh BUILD: whatever names, words, variables and folders a job has, the scripts and manifests of every kind of
# place hand them over unchanged, and run nothing else (quoting_peer.py). Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need python3 python3
python=${LOCKSTEP_TEST_PYTHON:-${LOCKSTEP_REAL_VENV:+$LOCKSTEP_REAL_VENV/bin/python}}
if [[ -n ${LOCKSTEP_REAL_VENV:-} && -z ${LOCKSTEP_TEST_PYTHON:-} ]]; then need_python yaml; fi
row_limit=600

handed_over() { "${python:-python3}" -B "$here/quoting_peer.py" "$program" "$PWD/quoting"; }

row "names, words, variables and folders come through every kind's scripts as they are" handed_over
finish
