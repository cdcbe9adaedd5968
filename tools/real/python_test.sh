#!/usr/bin/env bash
# python_test.sh BUILD: Python programs that were not written for us: PyTorch scripts under `lockstep launch`, and the
# safetensors package on our files. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python torch.distributed safetensors numpy
tests=$(dirname "$program")/src/lockstep
[[ -x $tests/cli_test && -x $tests/checkpoint_test ]] || skip "the tests are not built"
export LOCKSTEP_TEST_PYTHON=$python

# passes PROGRAM FILTER: those tests run, and none is skipped.
passes() {
  "$tests/$1" --gtest_filter="$2" >says 2>&1 && says "[  PASSED  ]" && ! grep -q "SKIPPED" says && return 0
  cat says
  return 1
}

row "PyTorch scripts under lockstep launch" passes cli_test "LaunchPython.*"
row "the safetensors package reads ours, and we read its" passes checkpoint_test "Python.*"
finish
