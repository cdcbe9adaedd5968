#!/usr/bin/env python3
"""Write wheels.lock: which wheels make up LibTorch and CUDA, with sizes and SHA-256.

Run by hand when the torch version changes. The versions are those that torch's own metadata pins
(Requires-Dist of torch and of the cuda-toolkit package it names), and of FlashAttention's compiler those below, which
were measured together. Needs the network.

    python3 tools/lock_wheels.py 2.11.0 > tools/wheels.lock
"""
import io
import re
import sys
import zipfile

import wheels

# Beyond torch itself: extras of cuda-toolkit, and what the torch wheel names directly.
CPU_EXTRAS = ["cudart", "cupti"]
CUDA_EXTRAS = ["cublas", "cufft", "cufile", "curand", "cusolver", "cusparse", "nvjitlink", "nvrtc", "nvtx"]
CUDA_DIRECT = ["nvidia-cudnn", "nvidia-cusparselt", "nvidia-nccl", "nvidia-nvshmem"]
CUDNN_FRONTEND = "1.18.0"  # headers only, not pinned by torch: any that knows this cuDNN will do
NVCC_EXTRAS = ["nvcc", "crt", "nvvm", "cccl"]
PYARROW = "26.0.1"  # Arrow's C++ libraries; the Python that it was built for does not matter
ARCHES = ["x86_64", "aarch64"]
# FlashAttention, its compiler, and what these two import when tools/flash/build.py runs them.
FLASH = [("flash-attn-4", "4.0.0b36"), ("quack-kernels", "0.6.5"), ("nvidia-cutlass-dsl-libs-base", "4.8.1"),
         ("nvidia-cutlass-dsl-libs-core", "4.8.1"), ("nvidia-cutlass-dsl-libs-cu13", "4.8.1"),
         ("apache-tvm-ffi", "0.1.15.post2"), ("cuda-bindings", "13.5.0"), ("cuda-pathfinder", "1.8.6"),
         ("numpy", "2.4.6"), ("einops", "0.8.2"), ("typing-extensions", "4.16.0")]
FLASH_PYTHONS = r"(?:py3-none-any|cp31[1-4]-cp31[1-4]-manylinux)"


class Remote(io.RawIOBase):
    """A file behind a URL, read by ranges, so that a wheel's directory can be listed without the wheel."""

    def __init__(self, url):
        self.url, self.position = url, 0
        request = wheels.open_url(url, 1)
        self.size = int(request.headers["Content-Range"].rsplit("/", 1)[-1])
        request.close()

    def seekable(self):
        return True

    def readable(self):
        return True

    def seek(self, offset, whence=0):
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self):
        return self.position

    def readinto(self, buffer):
        want = min(len(buffer), self.size - self.position)
        if want <= 0:
            return 0
        with wheels.open_url(self.url, self.position) as reply:
            got = reply.read(want)
        buffer[:len(got)] = got
        self.position += len(got)
        return len(got)


def open_wheel(url):
    return zipfile.ZipFile(io.BufferedReader(Remote(url), 1 << 16))


def requirements(url):
    archive = open_wheel(url)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode()
    return [line.removeprefix("Requires-Dist: ") for line in text.splitlines() if line.startswith("Requires-Dist")]


def pinned(lines, pattern):
    for line in lines:
        match = re.match(pattern, line)
        if match:
            return match.group(1), match.group(2)
    raise SystemExit(f"nothing in the metadata matches {pattern}")


def rows(set_name, name, version, tag=""):
    """Rows for both machines, the preferred Python first."""
    found = []
    for file, (url, sha256) in wheels.index_links(name).items():
        machines = [a for a in ARCHES if file.endswith((a + ".whl", "-none-any.whl"))]
        if machines and re.match(rf"[A-Za-z0-9_]+-{re.escape(version)}(\.0)*-{tag}", file) and "win" not in file:
            wheel = wheels.Wheel(f"{set_name} {machines[0]} {name} {version} {file} 0 0 {sha256}")
            archive = open_wheel(url)
            disk = sum(m.file_size for m in archive.infolist() if wheel.wants(m.filename))
            size = archive.fp.raw.size
            found += [(machine, "cp312" not in file, file,
                       f"{set_name} {machine} {name} {version} {file} {size} {disk} {sha256}") for machine in machines]
    if not found:
        raise SystemExit(f"no wheel of {name} {version}")
    return [row for *_, row in sorted(found)]


def main():
    torch_version = sys.argv[1]
    torch_links = wheels.index_links("torch")
    torch_wheel = f"torch-{torch_version}-cp312-cp312-manylinux_2_28_x86_64.whl"
    needs = requirements(torch_links[torch_wheel][0])
    toolkit_version = pinned(needs, r"(cuda-toolkit)\[.*\]==([\d.]+)")[1]
    toolkit = requirements(wheels.index_links("cuda-toolkit")[f"cuda_toolkit-{toolkit_version}-py2.py3-none-any.whl"][0])

    def extra(name):
        return pinned(toolkit, rf"([\w-]+)==([\d.]+)\.\*;.*extra == '{name}'")

    print("# Written by lock_wheels.py: set, machine, package, version, wheel, bytes, unpacked bytes, SHA-256.")
    lines = rows("cpu", "torch", torch_version, r"cp\d+-cp\d+-")
    for name in CPU_EXTRAS:
        lines += rows("cpu", *extra(name))
    lines += rows("cuda", "torch", torch_version, r"cp\d+-cp\d+-")
    for name in CUDA_EXTRAS:
        lines += rows("cuda", *extra(name))
    for name in CUDA_DIRECT:
        lines += rows("cuda", *pinned(needs, rf"({name}[\w-]*)==([\d.]+)"))
    lines += rows("cuda", wheels.FRONTEND, CUDNN_FRONTEND, r"cp\d+-cp\d+-")
    for name in NVCC_EXTRAS:
        lines += rows("nvcc", *extra(name))
    lines += rows("arrow", wheels.ARROW, PYARROW, r"cp31[1-4]-cp31[1-4]-manylinux")
    for name, version in FLASH:
        lines += rows("flash", name, version, FLASH_PYTHONS)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
