"""Train on documents of ArXiv's length, generated in the file format of the hub.

    python benchmarks/arxiv_path.py

It writes a folder like the hub's ArxivClassification (data/<split>-00000-of-00001.parquet and a
README.md that names the 11 classes), with documents of 5,000 words and more. It trains one epoch
with each encoding and the authors' settings (4,096 tokens, d=128, 8 heads, 2 layers, dropout 0.1,
Adam), and stores documents per second and peak memory from the runs' records. The words are random,
and each class prefers a few of them, so the accuracy only shows that texts keep their labels.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import results
from posfuse.runs import records

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.attention_encoding model.biases data.batching data.datamodule training.build "
    "training.module training.classifier training.run conf/protocol/arxiv.yaml"
)
EXECUTABLE = str(Path(sys.executable).parent / "posfuse-train")
ENCODINGS = ["sinusoidal", "rope", "alibi", "t5", "relative"]
MEASURED = ["sinusoidal", "rope", "t5"]  # unless others are asked for
CLASSES = [f"cs.{s}" for s in ("AI", "CE", "CV", "DS", "IT", "NE", "PL", "SY")]
CLASSES += [f"math.{s}" for s in ("AC", "GR", "ST")]
README = "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n"
README += "    dtype:\n      class_label:\n        names:\n"
VOCABULARY = 60_000  # more than the 50,000 of the model's vocabulary
OWN_WORDS = 40  # of each class
OWN_SHARE = 0.05  # of a document's words


def generated(documents: int) -> Iterator[tuple[str, pd.DataFrame]]:
    """`documents` for training, a quarter as many for validation and for test: each split's name
    and its text and label."""
    draw = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(VOCABULARY)])
    frequency = 1 / np.arange(1, VOCABULARY + 1)  # Zipf's law
    frequency /= frequency.sum()
    for split, share in (("train", 1), ("validation", 4), ("test", 4)):
        size = max(documents // share, len(CLASSES))
        labels = draw.permutation(np.resize(np.arange(len(CLASSES)), size))
        texts = []
        for label in labels:
            chosen = draw.choice(VOCABULARY, draw.integers(5_000, 12_000), p=frequency)
            own = draw.random(len(chosen)) < OWN_SHARE
            chosen[own] = 1_000 + OWN_WORDS * label + draw.integers(OWN_WORDS, size=own.sum())
            texts.append(" ".join(words[chosen]))
        yield split, pd.DataFrame({"text": texts, "label": labels})


def write_corpus(root: Path, documents: int) -> Path:
    """The generated documents in the hub's form."""
    (root / "data").mkdir(parents=True)
    names = "".join(f"          '{i}': {name}\n" for i, name in enumerate(CLASSES))
    (root / "README.md").write_text(f"{README}{names}---\n")
    for split, frame in generated(documents):
        frame.to_parquet(root / "data" / f"{split}-00000-of-00001.parquet", index=False)
    return root


def run(corpus: Path, folder: Path, overrides: list[str]) -> records.Record:
    """The record of a run of one epoch on the corpus; the next run reuses its token ids."""
    command = [EXECUTABLE, "data=arxiv", "protocol=arxiv", f"data.corpus.id={corpus}"]
    command += ["trainer.max_epochs=1", "trainer.progress=none", "logger=none"]
    command += [f"output_dir={folder / 'out'}", f"cache_dir={folder / 'cache'}", *overrides]
    subprocess.run(command, check=True)
    (path,) = (folder / "out").rglob(records.RESULT)
    record = records.read_result(path)
    shutil.rmtree(folder / "out")
    return record


def row(record: records.Record) -> list[str | float]:
    return [
        record["encoding"], record["documents"]["train"], record["mean_tokens"]["train"],
        record["documents_per_second"], record["peak_memory_bytes"] / 1e9,
    ]  # fmt: skip


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--documents", type=int, default=16, help="for training")
    parser.add_argument("--encodings", nargs="+", default=MEASURED, choices=ENCODINGS)
    parser.add_argument("--batch-size", type=int, default=8, help="the authors' is 64")
    parser.add_argument("overrides", nargs="*", help="further overrides, as data.max_len=1024")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder) / "hub", arguments.documents)
        given = [f"data.batch_size={arguments.batch_size}", *arguments.overrides]
        for encoding in arguments.encodings:
            found.append(run(corpus, Path(folder), [*given, f"encoding={encoding}"]))
    (classes,) = {len(record["label_names"]) for record in found}
    note = (
        f"Whole runs of one epoch with the authors' settings except for the batch size, "
        f"{arguments.batch_size}: {classes} classes, {found[0]['truncated_share']['train']:.0%} of "
        f"the documents cut, {found[0]['vocabulary_size']:,} words, fusion {found[0]['fusion']}. "
        "Documents per second include training and validation. The peak is that of the process."
    )
    columns = ["encoding", "documents", "tokens of each", "docs/s", "peak memory GB"]
    table = results.table("ArXiv's path at full length", columns, map(row, found), note)
    results.write(arguments, [table], {"records": found})


if __name__ == "__main__":
    main()
