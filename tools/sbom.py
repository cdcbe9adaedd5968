#!/usr/bin/env python3
"""What is inside a wheel, as CycloneDX 1.5: our binaries with their hashes, the libraries that were linked into them
statically or as headers, and what they open at run time. The same build gives the same text.

    sbom.py WHEEL           print the list that a wheel holds, as a table
"""
import hashlib
import json
import re
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

# Debian package, name, SPDX licence, what of it is inside. The licence of a row is of the files that are used.
INSIDE = [
    ("libfmt-dev", "fmt", "MIT", "headers, compiled once"),
    ("nlohmann-json3-dev", "nlohmann-json", "MIT", "headers"),
    ("libcli11-dev", "CLI11", "BSD-3-Clause", "headers"),
    ("libtomlplusplus-dev", "tomlplusplus", "MIT", "headers"),
    ("libssl-dev", "OpenSSL", "Apache-2.0", "libssl.a and libcrypto.a"),
    ("libpcre2-dev", "PCRE2", "BSD-3-Clause", "libpcre2-8.a"),
    ("zlib1g-dev", "zlib", "Zlib", "libz.a"),
    ("libzstd-dev", "zstd", "BSD-3-Clause", "libzstd.a"),
]
# Python package, version, SPDX licence or a name, where it is used, whether a run needs it.
OPENED = [
    ("torch", "2.11", "BSD-3-Clause", "LibTorch: products on the CPU, Gloo, modules of your own", "required"),
    ("nvidia-cuda-runtime", "13", "LicenseRef-NVIDIA-CUDA-EULA", "libcudart", "required"),
    ("nvidia-cublas", "13", "LicenseRef-NVIDIA-CUDA-EULA", "cuBLASLt, on GPUs", "optional"),
    ("nvidia-cudnn-cu13", "9", "LicenseRef-NVIDIA-cuDNN-EULA", "attention on GPUs", "optional"),
    ("nvidia-nccl-cu13", "2", "BSD-3-Clause", "several GPUs", "optional"),
    ("pyarrow", "26", "Apache-2.0", "Parquet, Arrow and object stores", "optional"),
]


def debian_version(package):
    """"3.0.19" of "3.0.19-1~deb12u2"; empty where dpkg does not know it."""
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    version = re.sub(r"^\d+:", "", found.stdout.strip())
    return re.sub(r"[-+].*$", "", version), found.stdout.strip()


def licence_of(name):
    """{'id'} for SPDX's own, {'name'} for the others."""
    return {"license": {"name": name.removeprefix("LicenseRef-")} if name.startswith("LicenseRef-") else {"id": name}}


def statically_linked(has_cuda):
    rows = []
    for package, name, licence, what in INSIDE:
        version, full = debian_version(package)
        rows.append({"type": "library", "bom-ref": f"inside:{name}", "name": name, "version": version or "unknown", "scope": "required",
                     "description": what, "licenses": [licence_of(licence)],
                     **({"purl": f"pkg:deb/debian/{package}@{full}"} if full else {})})
    if has_cuda:
        rows.append({"type": "library", "bom-ref": "inside:cudnn-frontend", "name": "cudnn-frontend", "version": "1.18.0", "scope": "required",
                     "description": "headers, in liblockstep_cuda.so", "licenses": [licence_of("MIT")],
                     "purl": "pkg:pypi/nvidia-cudnn-frontend@1.18.0"})
    return rows


def sbom(version, binaries, has_cuda):
    """`binaries`: {name in the wheel: bytes}."""
    files = [{"type": "file", "bom-ref": f"file:{name}", "name": name, "scope": "required",
              "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}], "licenses": [licence_of("Apache-2.0")]}
             for name, data in sorted(binaries.items())]
    opened = [{"type": "library", "bom-ref": f"pypi:{name}", "name": name, "version": f"{wanted}.*", "scope": scope, "description": what,
               "licenses": [licence_of(licence)], "purl": f"pkg:pypi/{name}"} for name, wanted, licence, what, scope in OPENED]
    inside = statically_linked(has_cuda)
    this = f"pkg:pypi/lockstep-trainer@{version}"
    text = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": {"type": "application", "bom-ref": this, "name": "lockstep-trainer", "version": version, "purl": this,
                                       "licenses": [licence_of("Apache-2.0")]}},
            "components": files + inside + opened,
            "dependencies": [{"ref": this, "dependsOn": [row["bom-ref"] for row in files + inside + opened]}]}
    digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()
    text["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}"  # of the content: no clock, no chance
    return json.dumps(text, indent=1) + "\n"


def licences():
    """{name: text} of what is inside, as its Debian package states them."""
    texts = {}
    for package, name, _, _ in INSIDE:
        path = Path("/usr/share/doc") / package / "copyright"
        if path.exists():
            texts[f"{name}.txt"] = path.read_bytes()
    return texts


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/sboms/lockstep.cdx.json"))
        for row in json.loads(wheel.read(name))["components"]:
            licence = row["licenses"][0]["license"]
            print(f"{row['type']:<8} {row['name']:<44} {row.get('version', ''):<10} {licence.get('id') or licence.get('name'):<26} "
                  f"{row.get('description', '')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
