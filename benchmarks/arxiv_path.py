"""ArXiv's path end to end at full length, on generated documents in the hub's exact form.

    python benchmarks/arxiv_path.py --documents 64 --fusion gate_scalar

writes a folder as the hub serves ArxivClassification (data/<split>-00000-of-00001.parquet and a
README.md that names the 11 classes), whose documents have 5,000 words and more, trains one epoch
on it by the authors' settings (4,096 tokens, d=128, 8 heads, 2 layers, dropout 0.1, Adam), and
prints documents a second and peak memory from the run's record. The words mean nothing: each class
has a few that it prefers, so the accuracy says no more than that labels and texts stay together.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

CLASSES = [f"cs.{s}" for s in ("AI", "CE", "CV", "DS", "IT", "NE", "PL", "SY")]
CLASSES += [f"math.{s}" for s in ("AC", "GR", "ST")]
README = "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n"
README += "    dtype:\n      class_label:\n        names:\n"
VOCABULARY = 60_000  # more than the 50,000 that are kept
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=64, help="for training")
    parser.add_argument("--fusion", default="gate_scalar")
    parser.add_argument("--batch-size", type=int, default=8, help="the authors' is 64")
    parser.add_argument("overrides", nargs="*", help="further overrides, as encoding=rope")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder) / "hub", arguments.documents)
        command = ["posfuse-train", "data=arxiv", "protocol=arxiv", f"data.corpus.id={corpus}"]
        command += [f"fusion={arguments.fusion}", f"data.batch_size={arguments.batch_size}"]
        command += ["trainer.max_epochs=1", "logger=none", f"output_dir={folder}/out"]
        command += [f"cache_dir={folder}/cache", *arguments.overrides]
        subprocess.run([str(Path(sys.executable).parent / command[0]), *command[1:]], check=True)
        (path,) = Path(folder, "out").rglob("result.json")
        record = json.loads(path.read_text())
    speed, peak = record["documents_per_second"], record["peak_memory_bytes"] / 2**30
    print(
        f"{record['data']} {record['encoding']} {record['fusion']}: "
        f"{len(record['label_names'])} classes, {record['documents']['train']} documents, "
        f"{record['mean_tokens']['train']:.0f} tokens each "
        f"({record['truncated_share']['train']:.0%} cut), vocabulary {record['vocabulary_size']}: "
        f"{speed:.2f} docs/s, peak {peak:.2f} GiB, test accuracy {record['test']['accuracy']:.2f}"
    )


if __name__ == "__main__":
    main()
