#!/usr/bin/env bash
# wheel_test.sh BUILD: makes a wheel, installs it into an empty environment beside the LibTorch of this build, and trains with
# it, from the shell and from Python. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/real/roots.sh
source "$here/roots.sh"
need patchelf patchelf
need objdump binutils
python3 -c 'import venv, ensurepip' 2>/dev/null || skip "this Python makes no environments"
build=$(dirname "$program")
torch=$(sed -n 's/^LOCKSTEP_TORCH:[A-Z]*=//p' "$build/CMakeCache.txt")
env=$work/env
row_limit=600
small=(run.steps=3 model.layers=1 model.hidden=32 model.heads=2)

make_wheels() {
  local out
  for out in one two; do
    python3 "$here/../wheel.py" --build "$build" --out "$work/$out" || return 1
  done
  local oldest=2_28
  [[ ! -e $build/src/lockstep/liblockstep_cuda.so ]] || oldest='2_3?'  # the CUDA plugin is linked for newer systems
  # shellcheck disable=SC2053
  cmp "$work"/one/*.whl "$work"/two/*.whl && [[ $(ls "$work/one") == lockstep_trainer-*-py3-none-manylinux_${oldest}_*.whl ]]
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
for keys, says in (({"steps": "many"}, "run.steps"), ({"nonsense": 1}, "nonsense is not a recipe key"), ({"name": "x"}, "could be")):
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

# What is inside, and its licences.
bill_of_materials() {
  python3 "$here/../sbom.py" "$work"/one/*.whl >says && says OpenSSL && says Apache-2.0 && says lockstep/lib/liblockstep.so || return 1
  python3 - "$work"/one/*.whl <<'END'
import hashlib, json, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = wheel.namelist()
text = json.loads(wheel.read(next(name for name in names if name.endswith(".cdx.json"))))
assert text["bomFormat"] == "CycloneDX" and text["specVersion"] == "1.5" and text["serialNumber"].startswith("urn:uuid:")
files = {row["name"]: row["hashes"][0]["content"] for row in text["components"] if row["type"] == "file"}
binaries = [name for name in names if name.endswith(".so") or name == "lockstep/bin/lockstep"]
assert sorted(files) == sorted(binaries), (files, binaries)
for name, digest in files.items():
    assert hashlib.sha256(wheel.read(name)).hexdigest() == digest, name
refs = {row["bom-ref"] for row in text["components"]}
assert refs == set(text["dependencies"][0]["dependsOn"])
inside = {row["name"] for row in text["components"] if row["bom-ref"].startswith("inside:")}
licences = {name.split("/")[-1][:-4] for name in names if "/licenses/" in name}
assert licences <= inside and len(licences) >= 8, (inside, licences)
END
}

# A root without compilers, with nothing but Python: what a user of another machine has.
in_clean_root() {
  local root tree packages
  root=$(clean_root "${1:-bookworm}") || { echo "$root" && return 77; }
  rm -rf "$root/home/guest" && mkdir -p "$root/home/guest" "$root/mnt/torch" "$root/mnt/nvidia" && cp "$work"/one/*.whl "$root/home/guest" || return 1
  chroot "$root" sh -c 'cd /home/guest && python3 -m venv env && env/bin/pip install --quiet --no-index --no-deps ./*.whl' || return 1
  chown -R 1000:1000 "$root/home/guest"
  packages=$(cd "$root" && echo home/guest/env/lib/python3*/site-packages)
  ln -s /mnt/torch "$root/$packages/torch" && ln -s /mnt/nvidia "$root/$packages/nvidia" || return 1
  if in_root "$root" sh -c 'command -v cc || command -v gcc || command -v c++'; then return 1; fi
  tree=$("$program" train "${small[@]}" run.name=tree --json 2>/dev/null | grep -o '"params_hash":"[0-9a-f]*"')
  local given
  given="mount --bind '$torch' \"\$root/mnt/torch\" && mount --bind '$(dirname "$torch")/nvidia' \"\$root/mnt/nvidia\""
  guest() { before="$given$1" in_root "$root" sh -c "cd && $2"; }
  local train="env/bin/lockstep train ${small[*]} --json run.name"
  # name | what is different | how the program is started | what doctor says of it
  while IFS='|' read -r name how start finding; do
    guest "$how" "$start $train=$name" >says 2>&1 || { echo "$name:" && cat says && return 1; }
    says "$tree" || { echo "$name" && return 1; }
    guest "$how" "$start env/bin/lockstep doctor" >says 2>&1
    says "$finding" || { echo "$name" && return 1; }
    echo "ok: $name"
  done <<END
plain|||a Python package in
read_only| && mount --bind "\$root/$packages" "\$root/$packages" && mount -o remount,ro,bind "\$root/$packages"||a Python package in
no_home||env -u HOME|HOME is not set
home_gone||env HOME=/nowhere|no folder that can be written to
no_shm| && umount "\$root/dev/shm" && rmdir "\$root/dev/shm"||no /dev/shm
noexec_tmp| && mount -t tmpfs -o noexec,mode=1777 tmpfs "\$root/tmp"||noexec: nothing is run from there
END
  # An installation that was cut off: the program says one sentence, or doctor names it.
  rm "$root/$packages"/lockstep/recipes/first.toml
  guest "" "env/bin/lockstep doctor" >says 2>&1 && return 1
  says "missing or incomplete, such as lockstep/recipes/first.toml" || return 1
  mv "$root/$packages"/lockstep/lib/liblockstep.so "$root/home/guest/"
  guest "" "env/bin/lockstep train" >says 2>&1
  says "is incomplete (interrupted?)" && [[ $(wc -l <says) == 1 ]]
}

row "a wheel, twice the same bytes" make_wheels
row "says what is inside it, with licences" bill_of_materials
row "installs into an empty environment, beside LibTorch" install_it
row "trains with the bits of the tree" train_it
row "find_package(lockstep) from the wheel" for_cplusplus
if [[ $(id -u) == 0 ]] && command -v debootstrap >/dev/null; then
  root=$(clean_root bookworm) && (trap - EXIT && root_has "$root" python3-venv) &&
    row "in a clean root without compilers: read-only, no home, no /dev/shm, noexec /tmp, cut off" in_clean_root bookworm
fi
row "Python: train, metrics, generate, eval, resume, refusals" from_python
finish
