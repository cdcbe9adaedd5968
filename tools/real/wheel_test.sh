#!/usr/bin/env bash
# wheel_test.sh BUILD: makes a wheel, installs it into an empty environment beside the LibTorch of this build, and trains with
# it, from the shell and from Python. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need patchelf patchelf
need objdump binutils
python3 -c 'import venv, ensurepip' 2>/dev/null || skip "this Python makes no environments"
build=$(dirname "$program")
torch=$(sed -n 's/^LOCKSTEP_TORCH:[A-Z]*=//p' "$build/CMakeCache.txt")
env=$work/env
small=(run.steps=3 model.layers=1 model.hidden=32 model.heads=2)

make_wheels() {
  local out
  for out in one two; do
    python3 "$here/../wheel.py" --build "$build" --out "$work/$out" || return 1
  done
  cmp "$work"/one/*.whl "$work"/two/*.whl && [[ $(ls "$work/one") == lockstep_trainer-*-py3-none-manylinux_2_*.whl ]]
}

install_it() {
  local packages
  python3 -m venv "$env" && "$env/bin/pip" install --quiet --no-index --no-deps "$work"/one/*.whl || return 1
  packages=$("$env/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  # As pip would have put them there.
  ln -s "$torch" "$packages/torch" && ln -s "$(dirname "$torch")/nvidia" "$packages/nvidia" || return 1
  [[ $("$env/bin/lockstep" --version) == lockstep\ * ]] || return 1
  # Nothing of the build is used: only what lies beside the package, and the system.
  if ldd "$packages/lockstep/bin/lockstep" | grep -F "$build"; then return 1; fi
}

train_it() {
  local shell tree
  shell=$("$env/bin/lockstep" train "${small[@]}" run.name=shell --json 2>/dev/null | grep -o '"params_hash":"[0-9a-f]*"')
  tree=$("$program" train "${small[@]}" run.name=tree --json 2>/dev/null | grep -o '"params_hash":"[0-9a-f]*"')
  [[ -n $shell && $shell == "$tree" ]] || { echo "'$shell' and '$tree'" && return 1; }
}

from_python() {
  "$env/bin/python" - <<'END'
import lockstep
small = {"model.layers": 1, "model.hidden": 32, "model.heads": 2, "log.every": 1}
seen = []
run = lockstep.train("first", run="runs/python", steps=4, overrides=small, on_step=seen.append, quiet=True)
assert [row["step"] for row in run.metrics() if "loss" in row] == [1, 2, 3, 4], run.metrics()
assert [row["step"] for row in seen if "loss" in row] == [1, 2, 3, 4], seen
assert run.metrics().tail(1).column("step") == [4]
assert run.checkpoints() and run.events()[0]["event"] == "start", run.events()
assert run.generate("this dog", tokens=5, temperature=0).startswith("this dog")
assert run.eval()["loss"] > 0
assert run.resume(quiet=True).folder == run.folder
print(repr(run.metrics().tail(2)))
for keys, says in (({"steps": "many"}, "run.steps"), ({"nonsense": 1}, "no recipe key"), ({"name": "x"}, "could be")):
    try:
        lockstep.train("first", quiet=True, **keys)
        raise SystemExit(f"{keys} was taken")
    except lockstep.LockstepError as error:
        assert error.code == 2 and says in str(error), error
END
}

# What the wheel holds for C++ programs: found by `lockstep --cmake-dir`, with LibTorch beside it.
for_cplusplus() {
  local folder
  folder=$("$env/bin/lockstep" --cmake-dir) || return 1
  [[ $folder == "$env"/* && -e $folder/lockstep-config.cmake ]] || { echo "$folder" && return 1; }
  mkdir -p own
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(own LANGUAGES CXX)' 'set(CMAKE_CXX_STANDARD 20)' \
    'find_package(lockstep REQUIRED COMPONENTS torch)' 'add_executable(own main.cc)' 'target_link_libraries(own PRIVATE lockstep::lockstep)' >own/CMakeLists.txt
  printf '%s\n' '#include <cstdio>' '#include "lockstep/text/tokenizer_c.h"' '#include "lockstep/base/hash.h"' \
    'int main() { std::puts(lockstep::base::hex64(lockstep::base::hash_text("x")).c_str()); }' >own/main.cc
  cmake -S own -B made "-Dlockstep_DIR=$folder" && cmake --build made && made/own || return 1
  # And LibTorch is the environment's, not the one that the wheel was built with.
  grep -F "$env" <(cmake -S own -B made -LA --debug-output 2>/dev/null; cat made/build.make made/CMakeFiles/own.dir/link.txt 2>/dev/null) >/dev/null
}

row "a wheel, twice the same bytes" make_wheels
row "installs into an empty environment, beside LibTorch" install_it
row "trains with the bits of the tree" train_it
row "find_package(lockstep) from the wheel" for_cplusplus
row "Python: train, metrics, generate, eval, resume, refusals" from_python
finish
