#!/usr/bin/env bash
# notebook_test.sh BUILD: the example notebook, run headless by nbconvert: it starts a run, plots it while it trains, and
# shows its gradients. LOCKSTEP_KEEP_PICTURES=DIR keeps the pictures. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python nbconvert ipykernel matplotlib pandas
row_limit=600
export LOCKSTEP_PROGRAM=$program PYTHONPATH=$here/../../python IPYTHONDIR=$work/ipython MPLCONFIGDIR=$work/matplotlib

run_it() {
  cp "$here/../../examples/notebook/live_run.ipynb" . || return 1
  "$python" -m nbconvert --to notebook --execute --ExecutePreprocessor.timeout=600 --ExecutePreprocessor.kernel_name=python3 \
    --output done.ipynb live_run.ipynb >says 2>&1 || { cat says && return 1; }
  cp done.ipynb "$work/done.ipynb"
  "$python" -m nbconvert --to html done.ipynb >says 2>&1 || { cat says && return 1; }
}

pictures() {
  "$python" - "$work/done.ipynb" "${LOCKSTEP_KEEP_PICTURES:-}" <<'END'
import base64, io, json, sys
import matplotlib.image
outputs = [one for cell in json.load(open(sys.argv[1]))["cells"] for one in cell.get("outputs", [])]
assert not [one for one in outputs if one["output_type"] == "error"], outputs
data = [one["data"] for one in outputs if "data" in one]
pngs = ["".join(one["image/png"]) for one in data if "image/png" in one]
assert len(pngs) == 2, len(pngs)  # the curve, which was drawn again in place, and the histograms
for number, png in enumerate(pngs):
    pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(png)))
    dark = (pixels[..., :3].min(axis=2) < 0.7).mean()
    assert 0.005 < dark < 0.5, f"picture {number}: {dark:.4f} of its pixels are drawn on"
    if sys.argv[2]:
        open(f"{sys.argv[2]}/notebook-{number}.png", "wb").write(base64.b64decode(png))
svgs = [one for one in data if "image/svg+xml" in one]
assert len(svgs) == 1 and "polyline" in "".join(svgs[0]["image/svg+xml"]) or "path" in "".join(svgs[0]["image/svg+xml"])
bars = [one for one in data if "step 20 of 20" in "".join(one.get("text/html", ""))]
assert bars and "<svg" in "".join(bars[0]["text/html"])
tables = [one for one in data if "120" in "".join(one.get("text/plain", "")) and "loss" in "".join(one["text/plain"])]
assert tables, "the last rows are not shown"
END
}

row "the notebook runs to its end, without a screen" run_it
row "its pictures are drawn, its bar and its tables are there" pictures
finish
