"""Conversations against transformers: chat_peer.py PROGRAM TEMPLATES WORK NAME COUNT SEED.

Random conversations go through one template of tools/samples/chat_templates.json. `lockstep data show --json` must give the
text and the ids of apply_chat_template, refuse what it refuses and, where the template has generation marks, give its mask.
"""
import json
import random
import subprocess
import sys
from pathlib import Path

from transformers import PreTrainedTokenizerFast

PROGRAM, TEMPLATES, WORK, NAME, COUNT, SEED = sys.argv[1:7]
RANDOM = random.Random(f"{SEED} {NAME}")
WORDS = ["Hello", " world", "ünï", "日本", "\n", "  ", "'s", "1 2", "<b>", "{{ x }}", "</think>", "<think>", "\t", "👋", "\"q\""]
ROW = next(row for row in json.loads(Path(TEMPLATES).read_text()) if row["name"] == NAME)


def words():
    return "x" + "".join(RANDOM.choice(WORDS) for _ in range(RANDOM.randint(0, 12))) + RANDOM.choice([".", ".\n", ""])


def call():
    return {"type": "function", "function": {"name": RANDOM.choice("fgh"), "arguments": {"x": words(), "n": RANDOM.randint(0, 9)}}}


def conversation():
    """Mostly in the order that templates want."""
    messages = [{"role": "system", "content": words()}] if RANDOM.random() < 0.4 else []
    for _ in range(RANDOM.randint(1, 4)):
        messages.append({"role": "user", "content": words()})
        if RANDOM.random() < 0.2 and NAME in ("qwen2.5", "qwen3"):
            messages += [{"role": "assistant", "content": RANDOM.choice(["", words()]), "tool_calls": [call()]},
                         {"role": "tool", "content": words()}]
        messages.append({"role": "assistant", "content": words()})
    if RANDOM.random() < 0.1:
        RANDOM.shuffle(messages)
    row = {"messages": messages}
    if NAME == "llama3.2":
        row["chat_template_kwargs"] = {"date_string": "1 Jan 2030"}
    if NAME == "qwen2.5" and RANDOM.random() < 0.3:
        row["tools"] = [{"type": "function", "function": {"name": "f", "description": words(), "parameters": {}}}]
    return row


def folder():
    """A tokenizer with the template's special tokens."""
    here = Path(WORK)
    (here / "words.txt").write_text("user assistant system Hello world the cat\n" * 3)
    subprocess.run([PROGRAM, "tokenize", "--train", "words.txt", "--vocab-size", "400", "--out", "model", "--special",
                    ",".join(ROW["special"])], cwd=here, check=True, capture_output=True)
    (here / "model/tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", **ROW["tokens"]}))
    (here / "model/chat_template.jinja").write_text(ROW["template"])
    return here / "model"


def rendered(tokenizer, row, **options):
    return tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), **row.get("chat_template_kwargs", {}), **options)


def shown(rows, *keys):
    """What Lockstep makes of these rows."""
    file = Path(WORK) / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ran = subprocess.run([PROGRAM, "data", "show", file, "--tokenizer", Path(WORK) / "model", "--json", "--count", str(len(rows)),
                          "data.seq_len=4096", *keys], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"lockstep data show: {ran.stderr}")
    return json.loads(ran.stdout)


def main():
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder())
    good, refused = [], []
    for _ in range(int(COUNT)):
        row = conversation()
        try:
            rendered(tokenizer, row, tokenize=False)
            good.append(row)
        except Exception:  # noqa: BLE001  # whatever the template raises
            refused.append(row)
    report = shown(good, "data.train_on=all")
    assert report["samples"] == len(good), (report["samples"], len(good))
    for row, sample in zip(good, report["shown"]):
        text = rendered(tokenizer, row, tokenize=False)
        said = "".join(part["text"] for part in sample["parts"])
        assert said == text, f"text of {json.dumps(row)}:\n{said!r}\n{text!r}"
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert sample["tokens"] == ids, f"ids of {json.dumps(row)}"
    if refused:
        faults = shown(refused + good[:1], "data.train_on=all")["statistics"]["skipped"]
        assert faults == len(refused), f"{faults} skipped, and transformers refuses {len(refused)}"
    masks = 0
    if "generation" in ROW["template"].replace("add_generation_prompt", ""):
        masks = compare_masks(tokenizer, good)
    else:
        check_turns(good)
    print(f"{NAME}: {len(good)} conversations alike, {len(refused)} refused by both, {masks} masks alike")


def check_turns(rows):
    """Without marks there is no mask to compare with: every turn is found, ends with a special token and says its last word."""
    rows = [row for row in rows if " ".join(m["role"] for m in row["messages"]).count("assistant") and
            "assistant assistant" not in " ".join(m["role"] for m in row["messages"])]
    report = shown(rows, "data.train_on=assistant")
    assert report["samples"] == len(rows), report["statistics"]
    for row, sample in zip(rows, report["shown"]):
        turns = [part["text"] for part in sample["parts"] if part["trained"]]
        wanted = [message for message in row["messages"] if message["role"] == "assistant"]
        assert len(turns) == len(wanted), f"turns of {json.dumps(row)}: {turns}"
        for turn, message in zip(turns, wanted):
            said = message["content"].split("</think>")[-1].strip()
            if "<think>\\n' }}{% endif %}" in ROW["template"]:  # the prompt ends with it: a turn that begins so is trained behind it
                said = said.removeprefix("<think>\n")
            assert said in turn and turn.endswith(tuple(ROW["special"])), f"{message}: {turn!r}"


def compare_masks(tokenizer, rows):
    rows = [row for row in rows if any(message["role"] == "assistant" for message in row["messages"])]
    report = shown(rows, "data.train_on=assistant")
    assert report["samples"] == len(rows), report["statistics"]
    for row, sample in zip(rows, report["shown"]):
        wanted = rendered(tokenizer, row, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        mask = [bool(m) for m in wanted["assistant_masks"]]
        count = len(sample["trained"])
        assert sample["trained"] == mask[:count] and not any(mask[count:]), f"mask of {json.dumps(row)}"
    return len(rows)


main()
