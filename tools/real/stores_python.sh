# shellcheck shell=bash disable=SC2154
# The Python of the tests with object stores, in a folder of its own: one test sets it up while the other waits. After common.sh.
if [[ -z ${LOCKSTEP_TEST_PYTHON:-} && -n ${LOCKSTEP_REAL_VENV:-} ]]; then
  packages=$LOCKSTEP_REAL_VENV-stores
  exec {stores_lock}>"$packages.lock"
  flock "$stores_lock"
  if [[ ! -e $packages/complete-azure ]]; then
    echo "setting up $packages with moto, gcp-storage-emulator and Azure's own client from PyPI"
    { python3 -m venv --clear "$packages" &&
      "$packages/bin/python" -m pip install --quiet 'moto[server]' gcp-storage-emulator boto3 pyarrow azure-storage-blob &&
      touch "$packages/complete-azure"; } >"$work/why" 2>&1 || skip "the servers cannot be installed: $(tail -n 1 "$work/why")"
  fi
  exec {stores_lock}>&-
  LOCKSTEP_TEST_PYTHON=$packages/bin/python
fi
