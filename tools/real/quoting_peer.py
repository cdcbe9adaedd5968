"""quoting_peer.py PROGRAM FOLDER [SEED]: what `lockstep submit --dry-run` writes for every kind of place, with names and values
that a shell, YAML, HCL or a batch system could take for something else. Each script runs here, with stand-ins for the programs
it starts; the `lockstep` it starts gets the words and variables that were given, no others, and nothing else happens."""
import json, os, random, re, shutil, signal, stat, string, subprocess, sys, time

program, work = sys.argv[1], sys.argv[2]
seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
print("seed", seed)
draw = random.Random(seed)
try:
    import yaml
except ImportError:
    yaml = None
    print("without PyYAML: the manifests of kubernetes, vertex and azureml are left out")

# What breaks out where quotes are missing; PWNED is a file that nobody may make.
HOSTILE = ["it's", 'say "hi"', "a b  c", "$(touch PWNED)", "`touch PWNED`", "'; touch PWNED; '", '"; touch PWNED; "', "$HOME", "${HOME}",
           "$(GIVEN)", "$$", "a$$(GIVEN)$", "$$$(HOME)", "$(NODE_RANK)", "%{x}", "${x}", "{id}", "{}", "{{x}}", "a\\", "\\n", "#SBATCH -N 9", "!x", "*", "~", "-rf", "--help", "&& touch PWNED", "| touch PWNED",
           "END_OF_FILE", "größe", "日本", "yes", "null", "1e3", ": x", "- y", "a,b", "x=y", "%j", "a\tb", "a\nb", "a\ntouch PWNED\n", "END_OF_FILE\ntouch PWNED"]
LETTERS = string.ascii_letters + "  '\"\"$`\\;&|<>(){}[]*?!#%~=,:-"


def hostile(lines=False):
    text = draw.choice(HOSTILE) if draw.random() < 0.7 else "".join(draw.choice(LETTERS) for _ in range(draw.randrange(1, 30)))
    return text if lines or not re.search(r"[\x00-\x1f]", text) else hostile()


GOOGLE = ["--set", "machine=n1-standard-4", "--set", "zone=us-central1-a", "--image", "IMAGE"]
KINDS = {
    "slurm": [], "pbs": [], "lsf": [], "ssh": ["--hosts", "h"], "ray": [],
    "gce": GOOGLE, "terraform": GOOGLE, "tpu": ["--set", "machine=v5litepod-8", "--set", "zone=us-west4-a"],
    "sagemaker": ["--image", "IMAGE", "--set", "machine=ml.p4d.24xlarge", "--set", "role=arn:aws:iam::1:role/t", "--set", "bucket=s3://b/r"],
    "vertex": ["--image", "IMAGE", "--set", "machine=n1-standard-4", "--set", "region=us-central1"],
    "kubernetes": ["--image", "IMAGE"],
    "azureml": ["--image", "IMAGE", "--set", "compute=c", "--set", "workspace=w", "--set", "resource_group=g"]}
WITH_YAML = {"vertex", "kubernetes", "azureml"}

bin_folder, out = work + "/bin", work + "/out"
os.makedirs(bin_folder, exist_ok=True)


def stand_in(name, text):
    path = f"{bin_folder}/{name}"
    open(path, "w").write("#!/bin/bash\n" + text)
    os.chmod(path, 0o755)


stand_in("lockstep", f"""printf '%s\\0' "$@" >{out}.words.new; env -0 >{out}.variables; mv {out}.words.new {out}.words\n""")
stand_in("srun", 'while [[ $1 == -* ]]; do shift; done\nexec "$@"\n')
stand_in("docker", """while [[ $1 != IMAGE ]]; do shift; done; shift; exec "$@"\n""")
for name in ("shutdown", "curl", "gcloud", "apt-get", "nvidia-smi", "nvidia-ctk", "systemctl", "systemd-run", "loginctl", "squeue", "scontrol",
             "scancel", "qstat", "qsub", "qrerun", "reboot", "sleep"):
    stand_in(name, "exit 1\n" if name in ("qsub", "qrerun", "loginctl") else "exit 0\n")


def kubelet_reads(text, variables):
    """Kubernetes' own expansion in commands and values: $(NAME) of a known variable, and $$ for $."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0]), text)


def script_of(kind, plan, commands):
    """The text that runs on the (first) machine, and how: the shell's words."""
    files = {file["path"].rsplit("/", 1)[1]: file["text"] for file in plan["files"]}
    if kind in ("slurm", "pbs", "lsf"):
        return ["bash"], files["job.sh"]
    if kind == "ssh":
        return ["sh"], files["start-0.sh"]
    if kind == "ray":
        return ["bash", "-c"], json.loads(files["settings.json"])["script"]
    if kind == "sagemaker":
        json.loads(files["job.json"])
        return ["sh"], files["run.sh"]
    if kind in ("gce", "terraform", "tpu"):
        return ["bash"], files["startup.sh"]
    job = yaml.safe_load(files["job.yml" if kind == "azureml" else "job.yaml"])
    if kind == "azureml":
        return ["bash", "-c"], job["command"]
    if kind == "vertex":
        container = job["workerPoolSpecs"][0]["containerSpec"]
        return container["command"], container["args"][0]
    container = job["spec"]["template"]["spec"]["containers"][0]
    return container["command"][:2], kubelet_reads(container["command"][2], variables_of(kind, plan))


def variables_of(kind, plan):
    """Those that the manifest gives."""
    if kind not in WITH_YAML or kind == "vertex":
        return {}
    job = yaml.safe_load(next(file["text"] for file in plan["files"] if "/job.y" in file["path"]))
    if kind == "azureml":
        return job.get("environment_variables", {})
    given = {}
    for one in job["spec"]["template"]["spec"]["containers"][0].get("env", []):
        given[one["name"]] = kubelet_reads(one["value"], given)
    return given


def terraform_reads(plan, folder):
    for file in plan["files"]:
        if file["path"].endswith("main.tf"):
            done = subprocess.run(["terraform", "fmt", "-check", "-"], input=file["text"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


def submit(words, folder):
    state = folder + "/state"
    return subprocess.run([program, "submit", *words, "--dry-run", "--json"], capture_output=True, cwd=folder,
                          env={**os.environ, "XDG_STATE_HOME": state, "XDG_CONFIG_HOME": folder})


def try_one(kind, number):
    here = f"{work}/{number}"
    os.makedirs(here + "/var")
    made = kind in ("slurm", "pbs", "lsf")  # the folder is that of the submission
    value, word = hostile(), hostile(lines=True)
    launches = kind == "tpu" or draw.random() < 0.5
    name = "program " + hostile() if launches and draw.random() < 0.5 else "train.py"
    there = f"{here}/there {hostile().replace('/', '_')}"[:200]
    if made:
        os.makedirs(there)
    words = ["--to", kind, *KINDS[kind], "--env", "GIVEN=" + value, "--folder", there]
    if kind in ("slurm", "pbs", "lsf"):
        words += ["--program", "lockstep"]
    if launches:
        quoted = " ".join("'" + text.replace("'", "'\\''") + "'" for text in (name, "--text", word))
        # A shell's words, as our reader takes them: '\\'' is a quote between two quoted parts.
        words += ["--launch", quoted]
        expected = [name, "--text", word]
    else:
        path = word.replace("\x00", "")
        words += ["data.kind=text", "data.path=" + path, "run.name=" + draw.choice(["a", "a-b.c", "X" * 60])]
        expected = ["data.path=" + path]
    done = submit([*words], here)
    if done.returncode == 2:
        return "refused", done.stderr.decode()
    assert done.returncode == 0, (words, done)
    plan = json.loads(done.stdout)
    shell, script = script_of(kind, plan, plan["commands"])
    if kind == "terraform" and shutil.which("terraform"):
        terraform_reads(plan, here)
    script = script.replace("/var/lib/lockstep", here + "/var")
    for file in plan["files"]:  # a shared folder has them all
        path = here + "/state" + file["path"].split(here + "/state", 1)[-1]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").write(file["text"])
    for path in (out + ".words", out + ".variables"):
        if os.path.exists(path):
            os.unlink(path)
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": here, "TMPDIR": here, "PBS_JOBID": "1", "SLURM_JOB_ID": "1", "HOSTNAME": "a-0",
                   "NODE_RANK": "0", "MASTER_ADDR": "h", "JOB_COMPLETION_INDEX": "0", **variables_of(kind, plan)}
    if shell[-1] == "-c":
        shell, given = [*shell, script], None
    else:
        given = script.encode()
        open(here + "/script", "wb").write(given)
        shell, given = [*shell, here + "/script"], None
    ran = subprocess.run(shell, cwd=here, env=environment, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    end = time.monotonic() + 10
    while not os.path.exists(out + ".words") and time.monotonic() < end:
        time.sleep(0.02)
    about = f"{kind}: {words}\n{script}\n{ran.stdout.decode()}{ran.stderr.decode()}"
    assert os.path.exists(out + ".words"), "nothing was started\n" + about
    got = open(out + ".words", "rb").read().decode().split("\0")[:-1]
    if launches:
        assert got[-3:] == expected and got[0] == "launch", f"{got}\n{about}"
    else:
        assert expected[0] in got and got[0] == "train", f"{got}\n{about}"
    variables = dict(one.split("=", 1) for one in open(out + ".variables", "rb").read().decode().split("\0") if "=" in one)
    assert variables.get("GIVEN") == value, f"{variables.get('GIVEN')!r} is not {value!r}\n{about}"
    assert kind in ("slurm", "lsf") or variables["PWD"] == there, f"{variables['PWD']}\n{about}"  # theirs is in the header
    return "ran", ""


def pwned():
    return [path for path, _, files in os.walk(work) for file in files if file == "PWNED"] + [p for p in ("/tmp/PWNED", "PWNED") if os.path.exists(p)]


counts, number = {}, 0
rounds = int(os.environ.get("LOCKSTEP_QUOTING_ROUNDS", "12"))
for kind in KINDS:
    if kind in WITH_YAML and yaml is None:
        continue
    ran = refused = 0
    reason = ""
    while ran < rounds:
        number += 1
        how, why = try_one(kind, number)
        ran, refused, reason = ran + (how == "ran"), refused + (how == "refused"), why or reason
        assert refused <= 8 * rounds, why
        assert not pwned(), (kind, number, pwned())
        shutil.rmtree(f"{work}/{number}", ignore_errors=True)
    print(f"{kind}: {ran} ran, {refused} were refused; last: {reason.strip()[:150]}" if refused else f"{kind}: {ran} ran")

# What no script or manifest can hold, and the ledger could not read back, is refused, and a secret's value is not repeated.
for words in (["--env", "A=x\ny"], ["--env", "A=\x1b[2J"], ["--env", b"A=\xff"], ["--secret", "T=file:/a\nhush"], ["--folder", "/a\nb"],
              ["--set", "partition=a\nb"], ["--launch", "'a\ntouch PWNED\n.py'"]):
    done = submit(["--to", "slurm", *words], work)
    assert done.returncode == 2 and b"[LS07" in done.stderr and b"hush" not in done.stderr, (words, done)
