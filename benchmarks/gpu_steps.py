"""A training step on a GPU, and what alternatives give.

    python benchmarks/gpu_steps.py --imdb FOLDER    # on a machine with a GPU

IMDB and ArXiv with the authors' settings (512 and 4,096 tokens, 64 documents), and a small run, the
longest task of the demo; all with bfloat16 mixed precision. ArXiv's documents are generated.
Several seeds of the small run also train as a stack.
"""

import tempfile
import warnings
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir

import arxiv_path
import results
import stacked
import steps
from posfuse.config import CONF_DIR, Config
from posfuse.data.batching import Batch
from posfuse.runs.checks import checked
from posfuse.training.build import build_data

NEEDS = "a GPU"  # on a CPU step_budget.py does the same
FOLDERS = ("imdb",)
MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.attention_encoding model.encoding data.batching data.datamodule training.build "
    "training.module training.classifier process.environment conf/protocol conf/model/small.yaml"
)
SHARED = ["fusion=add", "encoding=sinusoidal", "logger=none", "trainer.progress=none"]
SETTINGS = {
    "imdb": ["data=imdb", "protocol=imdb"],
    "arxiv": ["data=arxiv", "protocol=arxiv"],
    "small run": [
        "data=lead_story_long", "data.batch_size=32", "model.n_layers=1",
        "model.attention_dropout=0",
    ],
}  # fmt: skip
WARM, STEPS = 5, 20
SEEDS = (4, 24)  # of a stack
ARXIV_DOCUMENTS = 64 * (WARM + STEPS)


def config(name: str, folder: Path | None, cache: Path, overrides: list[str]) -> Config:
    given = [*SETTINGS[name], *SHARED, f"cache_dir={cache}", f"output_dir={cache}", *overrides]
    if folder:
        given.append(f"data.path={folder}")
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return checked(compose("train", given))


def host_syncs(step: steps.Step, batch: Batch) -> int | str:
    """How often a step waits for the device."""
    if batch.ids.device.type != "cuda":
        return "no GPU"
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in found)


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--imdb", type=results.folder, help="folder, as data.path takes it")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--documents", type=int, default=ARXIV_DOCUMENTS, help="of ArXiv")
    parser.add_argument("overrides", nargs="*", help="of all settings, as data.max_len=32")
    arguments = parser.parse_args()
    steps.as_in_a_run()
    rows, syncs, stacks = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folders = {"imdb": arguments.imdb, "arxiv": root}
        if "arxiv" in arguments.settings:
            for split, frame in arxiv_path.generated(arguments.documents):
                frame.to_parquet(root / f"{split}.parquet", index=False)
        for name in arguments.settings:
            if name == "imdb" and not arguments.imdb:
                print("imdb: skipped, no folder; give --imdb FOLDER")
                continue
            cfg = config(name, folders.get(name), root / "cache", arguments.overrides)
            data = build_data(cfg)
            on = steps.batches(cfg, data, WARM + STEPS)
            found = steps.alternatives(cfg, data, torch.bfloat16)
            rows += steps.compared(name, found, on[:WARM], on[WARM:], arguments.repeats)
            syncs.append([name, host_syncs(found[steps.USUAL], on[0])])
            if name == "small run":
                both = (on[:WARM], on[WARM:])
                stacks += stacked.compared(
                    name, cfg, data, SEEDS, both, arguments.repeats, torch.bfloat16
                )
            print(f"{name}: {len(found)} kinds of steps compared", flush=True)
    tables = [
        results.table(
            "A step on a GPU",
            ["settings", "step", "ms", "speed"],
            rows,
            f"Forward and backward pass, clipping and optimiser on up to {STEPS} batches; the "
            "speed is relative to the first row of the settings in the same turn, median over "
            f"{arguments.repeats} turns. A bound computes less than the run does: it limits what a "
            "change could gain. Attention uses torch's fused kernels unless a row says otherwise.",
        ),
        results.table(
            "Waiting for the GPU",
            ["settings", "host waits in a step"],
            syncs,
            "Operations of a step after which the processor waits for the device, as counted by "
            "torch.cuda.set_sync_debug_mode.",
        ),
        results.table(
            "Seeds as a stack",
            ["settings", "step", "ms", "speed"],
            stacks,
            "A step of so many seeds, one after another and as a stack by torch.func, on the same "
            "batches. In a stack attention uses batched products. sweep_times measures the "
            "alternative: several processes on one device.",
        ),
    ]
    results.write(arguments, tables, {}, FOLDERS if arguments.imdb else ())


if __name__ == "__main__":
    main()
