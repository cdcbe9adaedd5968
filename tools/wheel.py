#!/usr/bin/env python3
"""Make a wheel of a finished build: the program, the library, headers and CMake files, and python/lockstep.

    wheel.py --build build --out dist

The program inside finds LibTorch, Arrow and CUDA's libraries in the site-packages where pip puts them beside it; no Python
runs when it does. The tag follows from the symbols that the files want of the C library. The same build gives the same bytes.
"""
import argparse
import base64
import csv
import hashlib
import io
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import sbom

ROOT = Path(__file__).resolve().parents[1]
CUDA_PACKAGES = ("nvidia-cuda-runtime==13.*", "nvidia-cublas==13.*", "nvidia-cudnn-cu13==9.*", "nvidia-nccl-cu13>=2.27")
NAME, PACKAGE = "lockstep_trainer", "lockstep"
# Where lib/ finds its neighbours in site-packages; and the first entry, each other.
NEIGHBOURS = ["$ORIGIN", "$ORIGIN/../../torch/lib", "$ORIGIN/../../nvidia/cu13/lib", "$ORIGIN/../../nvidia/cudnn/lib",
              "$ORIGIN/../../pyarrow"]
# Native from the first instruction: pip installs it as it is.
SCRIPT = """#!/bin/sh
here=$(dirname -- "$(readlink -f -- "$0")")
for program in "$here"/../lib*/python3*/*-packages/lockstep/bin/lockstep "$here"/../local/lib/python3*/*-packages/lockstep/bin/lockstep \\
  "$here"/../lockstep/bin/lockstep; do
  if [ -x "$program" ]; then
    [ -e "${program%/bin/lockstep}/lib/liblockstep.so" ] && exec "$program" "$@"
    echo "lockstep: its installation in ${program%/lockstep/bin/lockstep} is incomplete (interrupted?); run: python3 -m pip install --force-reinstall --no-deps lockstep-trainer" >&2
    exit 2
  fi
done
echo "lockstep: the package lockstep-trainer was not found beside $here; install it again with pip" >&2
exit 2
"""


def project_version():
    return re.search(r"project\(lockstep VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def machine_of(path):
    """As uname says it, from the file's header."""
    with open(path, "rb") as file:
        return {62: "x86_64", 183: "aarch64"}[int.from_bytes(file.read(20)[18:], "little")]


def tool_for(machine, name):
    """Debian's binutils for another processor have its name in front."""
    return name if machine == platform.machine() else f"{machine}-linux-gnu-{name}"


def dynamic_symbols(path):
    return run(tool_for(machine_of(path), "objdump"), "-T", str(path))


def newest_glibc(files):
    """(2, 34) from GLIBC_2.34; at least what PyTorch's own wheel wants."""
    wanted = {(2, 28)}
    for path in files:
        wanted |= {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", dynamic_symbols(path))}
    return max(wanted)


def newest_stdcxx(files):
    wanted = [int(found) for path in files for found in re.findall(r"GLIBCXX_3\.4\.(\d+)", dynamic_symbols(path))]
    return max(wanted, default=0)


def tag_of(files):
    """manylinux's number is the C library's; its systems have C++ libraries of their time."""
    major, minor = newest_glibc(files)
    newest = newest_stdcxx(files)
    minor = max(minor, 35 if newest >= 30 else 34 if newest >= 25 else 28)
    return f"py3-none-manylinux_{major}_{minor}_{machine_of(files[0])}"


def stage(build, folder):
    """cmake's install, as a package."""
    prefix = folder / "prefix"
    run("cmake", "--install", str(build), "--prefix", str(prefix), "--strip")
    package = folder / PACKAGE
    shutil.copytree(ROOT / "python" / PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "recipes", package / "recipes")
    shutil.copytree(prefix, package, dirs_exist_ok=True, symlinks=False)
    libraries = sorted((package / "lib").glob("*.so"))
    # FlashAttention's compiler does not allow what it made to be given away (docs/dependencies.md).
    for path in [path for path in libraries if path.name == "liblockstep_flash.so"]:
        path.unlink()
    libraries = [path for path in libraries if path.exists()]
    for path in libraries:
        run("patchelf", "--force-rpath", "--set-rpath", ":".join(NEIGHBOURS), str(path))
    program = package / "bin" / "lockstep"
    run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(program))
    return package, [program, *libraries]


def metadata(version):
    text = (ROOT / "README.md").read_text()
    return (f"Metadata-Version: 2.1\nName: lockstep-trainer\nVersion: {version}\n"
            "Summary: Trains deep networks on one device or many: the same recipe and seed give the same bits\n"
            "License: Apache-2.0\nRequires-Python: >=3.8\nRequires-Dist: torch==2.11.*\n"
            "Provides-Extra: data\nRequires-Dist: pyarrow==26.*; extra == \"data\"\n"
            # PyPI's torch brings these; a CPU build of torch, for which this extra is, does not.
            "Provides-Extra: cuda\n"
            + "".join(f"Requires-Dist: {one}; extra == \"cuda\"\n" for one in CUDA_PACKAGES) +
            f"Description-Content-Type: text/markdown\n\n{text}")


def entry(archive, name, data, mode):
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.external_attr = (0o100000 | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return name, f"sha256={digest}", len(data)


def write(out, package, binaries):
    version, tag = project_version(), tag_of(binaries)
    info = f"{NAME}-{version}.dist-info"
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{NAME}-{version}-{tag}.whl"
    executable = {binaries[0]}
    with zipfile.ZipFile(path, "w") as archive:
        rows = [entry(archive, str(file.relative_to(package.parent)), file.read_bytes(), 0o755 if file in executable else 0o644)
                for file in sorted(package.rglob("*")) if file.is_file()]
        rows.append(entry(archive, f"{NAME}-{version}.data/scripts/lockstep", SCRIPT.encode(), 0o755))
        rows.append(entry(archive, f"{info}/METADATA", metadata(version).encode(), 0o644))
        rows.append(entry(archive, f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
                          0o644))
        rows.append(entry(archive, f"{info}/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644))
        for name, text in sorted(sbom.licences().items()):
            rows.append(entry(archive, f"{info}/licenses/{name}", text, 0o644))
        inside = {str(file.relative_to(package.parent)): file.read_bytes() for file in binaries}
        has_cuda = any(file.name == "liblockstep_cuda.so" for file in binaries)
        rows.append(entry(archive, f"{info}/sboms/lockstep.cdx.json", sbom.sbom(version, inside, has_cuda).encode(), 0o644))
        record = io.StringIO()
        csv.writer(record, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
        entry(archive, f"{info}/RECORD", record.getvalue().encode(), 0o644)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    for tool in ("patchelf", "objdump", "cmake"):
        if shutil.which(tool) is None:
            print(f"wheel.py: {tool} is missing; install it and run the same command again", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = write(arguments.out, *stage(arguments.build, Path(folder)))
        except subprocess.CalledProcessError as error:
            print(f"wheel.py: {' '.join(error.cmd[:3])} failed: {error.stderr.strip()[-500:]}", file=sys.stderr)
            return 1
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
