"""Writes the same random texts in the formats of other libraries: corpora_peer.py FOLDER SEED.

texts.jsonl holds them plainly; whatever else is written must give the same tokens. Texts are hostile: quotes, newlines,
separators, NULs, every plane of Unicode, empty ones and a long one.
"""
import csv
import gzip
import json
import random
import struct
import sys
from pathlib import Path

import datasets
import numpy
import pandas
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import zstandard

try:
    from streaming import MDSWriter
except ImportError:  # it brings a PyTorch of its own
    MDSWriter = None

ALPHABETS = ["abcdefghij     ", "\"',;\t|\\", "\n\r\n\n", "äöüßéèñ", "日本語テキスト", "🙂🚀👩‍👩‍👧", "\0\x01\x7f", "<|endoftext|>"]


def random_texts(draw, count):
    texts = ["", "a", "x" * 300000]
    for _ in range(count):
        texts.append("".join(draw.choice(draw.choice(ALPHABETS)) for _ in range(draw.randrange(400))))
    draw.shuffle(texts)
    return texts


def write_lines(folder, texts):
    lines = "".join(json.dumps({"id": n, "text": text}, ensure_ascii=n % 2 == 0) + "\n" for n, text in enumerate(texts)).encode()
    (folder / "texts.jsonl").write_bytes(lines)
    half = lines.index(b"\n", len(lines) // 2) - 5  # members need not end with lines
    (folder / "members.jsonl.gz").write_bytes(gzip.compress(lines[:half]) + gzip.compress(lines[half:]))
    pack = zstandard.ZstdCompressor().compress
    (folder / "frames.ndjson.zst").write_bytes(pack(lines[:half]) + pack(lines[half:]))


def write_tables(folder, texts):
    frame = pandas.DataFrame({"id": range(len(texts)), "text": texts})
    without_nul = [text.replace("\0", "").replace("\r", "") for text in texts]  # what the csv module can write and read
    (folder / "plain.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in without_nul))
    pandas.DataFrame({"id": range(len(texts)), "text": without_nul}).to_csv(folder / "pandas.csv", index=False)
    with open(folder / "module.tsv", "w", newline="") as file:
        writer = csv.writer(file, dialect="excel-tab")
        writer.writerow(["text", "id"])
        writer.writerows([text, n] for n, text in enumerate(without_nul))
    with gzip.open(folder / "module.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["id", "text"])
        writer.writerows([n, text] for n, text in enumerate(without_nul))
    frame.to_parquet(folder / "pandas.parquet")
    frame.to_feather(folder / "pandas.feather")
    for name, kind in [("large", pa.large_string()), ("view", pa.string_view()), ("binary", pa.binary())]:
        array = pa.array([text.encode() for text in texts], kind) if name == "binary" else pa.array(texts, kind)
        table = pa.table({"text": array, "id": range(len(texts))})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=37, compression="zstd", data_page_size=1000)
        with pa.ipc.new_stream(folder / f"{name}.arrow", table.schema) as stream:
            stream.write_table(table, max_chunksize=29)
    words = pa.table({"text": pa.array(texts).dictionary_encode()})
    pq.write_table(words, folder / "dictionary.parquet", row_group_size=50, use_dictionary=True, data_page_version="2.0")
    with pa.ipc.new_file(folder / "dictionary.arrow", words.schema) as file:
        file.write_table(words)


def write_mds(folder, texts, tokens):
    for name, compression in [("mds", None), ("mds-zstd", "zstd"), ("mds-gz", "gz")]:
        with MDSWriter(out=str(folder / name), columns={"text": "str", "id": "int"}, compression=compression, size_limit=50000) as out:
            for number, text in enumerate(texts):
                out.write({"text": text, "id": number})
    with MDSWriter(out=str(folder / "mds-tokens"), columns={"tokens": "ndarray:uint16", "id": "int"}, size_limit=3000) as out:
        for number, row in enumerate(tokens):
            out.write({"tokens": numpy.array(row, "uint16"), "id": number})


def write_folders(folder, texts, tokens):
    dataset = datasets.Dataset.from_dict({"text": texts})
    dataset.save_to_disk(folder / "saved", num_shards=3)
    datasets.DatasetDict({"train": dataset, "test": dataset.select(range(5))}).save_to_disk(folder / "splits")
    if MDSWriter:
        write_mds(folder, texts, tokens)
    pq.write_table(pa.table({"input_ids": tokens}), folder / "tokens.parquet", row_group_size=11)
    datasets.Dataset.from_dict({"input_ids": tokens}).save_to_disk(folder / "saved-tokens")
    flat = numpy.array([token for row in tokens for token in row], "uint16")
    numpy.save(folder / "tokens.npy", flat)
    (folder / "megatron_text_document.bin").write_bytes(flat.tobytes())
    lengths = numpy.array([len(row) for row in tokens], "int32")
    places = (numpy.cumsum(lengths, dtype="int64") - lengths) * 2
    (folder / "megatron_text_document.idx").write_bytes(
        b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(tokens), len(tokens) + 1) + lengths.tobytes() + places.tobytes() +
        numpy.arange(len(tokens) + 1, dtype="int64").tobytes())


def main():
    folder, draw = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    folder.mkdir(parents=True, exist_ok=True)
    datasets.disable_progress_bars()
    texts = random_texts(draw, 300)
    tokens = [[draw.randrange(300) for _ in range(draw.randrange(1, 60))] for _ in range(100)]
    write_lines(folder, texts)
    write_tables(folder, texts)
    write_folders(folder, texts, tokens)


if __name__ == "__main__":
    main()
