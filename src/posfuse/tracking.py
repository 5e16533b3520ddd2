"""The same numbers to Weights & Biases, offline unless WANDB_MODE says otherwise."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from posfuse import records
from posfuse.config import Config


@contextmanager
def tracker(cfg: Config, folder: Path) -> Iterator[Logger | None]:
    """The run's W&B logger, closed in all cases; None with logger=none.

    What W&B writes lies in the run's folder, the rest of it in output_dir. The run's id is a
    function of what is run, so an interrupted run goes on where it stopped.
    """
    if cfg.logger.name == "none":
        yield None
        return
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    for variable in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        os.environ.setdefault(variable, str(Path(cfg.output_dir).resolve() / ".wandb"))
    os.environ.setdefault("WANDB_SILENT", "true")
    mode: Any = os.environ.get("WANDB_MODE", "offline")
    identity = records.identity(cfg, folder)
    labels = {k: identity[k] for k in ("data", "encoding", "fusion", "seed", "sweep_id", "variant")}
    parts = ("data", "encoding", "fusion")
    run = wandb.init(
        project=cfg.logger.project,
        group=f"{labels['data']}/{labels['encoding']}/{labels['fusion']}",
        name="/".join(str(labels[p]) for p in (*parts, "seed")),
        tags=[cfg.sweep_id, *(labels[p] for p in parts), *cfg.logger.tags],
        config={**{k: v for k, v in identity["settings"].items() if k not in labels}, **labels},
        id=identity["fingerprint"],
        resume="allow",
        dir=folder,
        mode=mode,
        reinit="finish_previous",
        settings=wandb.Settings(x_save_requirements=False, x_transaction_log_flush_interval=0.25),
    )
    try:
        yield WandbLogger(experiment=run, save_dir=folder)
    finally:
        run.finish()
