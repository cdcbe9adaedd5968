#!/usr/bin/env python3
"""Write tools/samples/corpora: the same small texts in the formats of other libraries, for data/corpora_test.cc.

Run by hand, with pyarrow, datasets and mosaicml-streaming. The texts are in texts.jsonl; every other file holds them too.
"""
import json
import shutil
from pathlib import Path

import datasets
import numpy
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from streaming import MDSWriter

FOLDER = Path(__file__).resolve().parent / "corpora"
TEXTS = ["The first document.", "Zwölf Boxkämpfer jagen Viktor.", "", "a,b\n\"quoted\"\n", "日本語のテキスト 🙂", "nul \0 inside",
         "The first document."]
TOKENS = [[1, 2, 3], [4], [500, 70000], [5, 6, 7, 8]]
MIXED = [None, "kept", None, "also kept"]


def tables():
    columns = {"id": list(range(len(TEXTS))), "text": TEXTS}
    for name, kind in [("string", pa.string()), ("large", pa.large_string()), ("view", pa.string_view()),
                       ("dictionary", pa.dictionary(pa.int16(), pa.string()))]:
        array = pa.array(TEXTS, pa.string()).cast(kind) if name == "dictionary" else pa.array(TEXTS, kind)
        yield name, pa.table({"id": columns["id"], "text": array})


def turn(role, content):
    return {"role": role, "content": content, "tool_calls": None}


# Preferences as rows, as datasets keeps them; preferences.jsonl holds the same.
def write_preferences():
    rows = [{"id": n, "prompt": [turn("user", f"question {n}")], "chosen": [turn("assistant", f"right {n} 🙂")],
             "rejected": [turn("assistant", f"wrong {n}")]} for n in range(5)]
    plain = [{key: [{k: v for k, v in one.items() if v is not None} for one in value] if key != "id" else value
              for key, value in row.items()} for row in rows]
    (FOLDER / "preferences.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    message = pa.struct([("role", pa.string()), ("content", pa.large_string()), ("tool_calls", pa.string())])
    kinds = [("id", pa.int32()), ("prompt", pa.list_(message)), ("chosen", pa.large_list(message)), ("rejected", pa.list_(message))]
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds})
    pq.write_table(table, FOLDER / "preferences.parquet", row_group_size=2)
    with pa.ipc.new_file(FOLDER / "preferences.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=2)
    with pa.ipc.new_stream(FOLDER / "preferences.arrows", table.schema) as stream:
        stream.write_table(table, max_chunksize=2)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    (FOLDER / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    for name, table in tables():
        pq.write_table(table, FOLDER / f"{name}.parquet", row_group_size=3, compression="snappy")
        with pa.ipc.new_file(FOLDER / f"{name}.arrow", table.schema) as file:
            for batch in table.to_batches(max_chunksize=3):
                file.write(batch)
        with pa.ipc.new_stream(FOLDER / f"{name}.arrows", table.schema) as stream:
            for batch in table.to_batches(max_chunksize=3):
                stream.write(batch)
    write_preferences()
    text = pa.table({"text": TEXTS})
    pa.feather.write_feather(text, FOLDER / "packed.feather", compression="zstd")
    for codec in ("gzip", "zstd", "brotli", "lz4", "none"):
        pq.write_table(text, FOLDER / f"{codec}.parquet", compression=codec)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), FOLDER / "empty.parquet")
    pq.write_table(pa.table({"text": MIXED, "number": [1, 2, 3, 4], "nested": [{"a": "b"}] * 4}), FOLDER / "nulls.parquet")
    pq.write_table(pa.table({"input_ids": TOKENS}), FOLDER / "tokens.parquet")
    pq.write_table(pa.table({"input_ids": pa.array([[1, 2, 3, 4, 5, 6], None, [7, 8, 9, 10]], pa.list_(pa.int32()))}), FOLDER / "token-nulls.parquet")
    dataset = datasets.Dataset.from_dict({"text": TEXTS})
    datasets.DatasetDict({"train": dataset, "test": dataset.select([0])}).save_to_disk(FOLDER / "saved", num_shards={"train": 2, "test": 1})
    for name, compression in [("mds", None), ("mds-zstd", "zstd"), ("mds-gz", "gz")]:
        with MDSWriter(out=str(FOLDER / name), columns={"id": "int", "text": "str"}, compression=compression, size_limit=200) as out:
            for number, value in enumerate(TEXTS):
                out.write({"id": number, "text": value})
    for name, kind, dtype in [("mds-int32", "ndarray:int32", "int32"), ("mds-any", "ndarray", "uint32")]:
        with MDSWriter(out=str(FOLDER / name), columns={"tokens": kind, "text": "str"}) as out:
            for row in TOKENS:
                out.write({"tokens": numpy.array(row, dtype), "text": "x"})


if __name__ == "__main__":
    main()
