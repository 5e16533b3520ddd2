"""Corpora, the sources of texts and labels.

A corpus function returns a `Corpus`. One file of conf/data holds its arguments.
"""

import hashlib
import logging
import pkgutil
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posfuse import seals
from posfuse.config import DataConfig, SplitsConfig
from posfuse.data.own_code import code_digests, is_own
from posfuse.data.sources import ENDS, Source, file_source, hub_source
from posfuse.errors import HubUnreachable, InputError, reason

if TYPE_CHECKING:  # importing pandas takes half a second, and help does not need it
    import pandas as pd

SPLITS = ("train", "validation", "test")
VALIDATION = ("validation", "val", "valid", "dev")  # names of this split's file
LIKE_A_SPLIT = re.compile(  # also the name of a part, as train-00000-of-00002
    r"(train(ing)?|val(id(at(e|ion))?)?|dev(elopment)?|eval(uation)?|test(ing)?)"
    r"[-_ ()0-9of]*(set|split|data)?",
    re.I,
)
OF_DATA = (*ENDS, ".json", ".ndjson", ".xlsx", ".arrow", ".feather", ".gz", ".zip")
_ENDS = ".parquet, .csv, .tsv, .jsonl or .txt"
SETTLED = 2.0  # seconds in which a second change of a file may not change its time stamp
_without_hub: list[bool] = []  # not empty after `use_only_hub_cache`
# By split: columns text and label, and an integer group where documents share a part.
Frames = dict[str, "pd.DataFrame"]
Poll = Callable[[], None]  # is called during long work; an exception that it raises ends the work


@dataclass(frozen=True)
class Corpus:
    """Texts and labels by split. They are read only if the cache has no token ids of them.

    A `read` that takes long has the argument `poll`.
    """

    fingerprint: str  # changes whenever the result of `read` can change
    read: Callable[..., Frames | Mapping[str, Source]]  # a Source is not held in memory
    label_names: list[str] | None = None  # names of the labels 0..C-1, if the source has them


def load(cfg: DataConfig) -> Corpus:
    """The corpus of the config: the local folder `data.path` if given, else the corpus function."""
    if cfg.path is not None:
        return folder(cfg.path, cfg.splits)
    assert cfg.corpus is not None  # the checks of the config require one of the two
    arguments = {key: value for key, value in cfg.corpus.items() if key != "_target_"}
    target = cfg.corpus["_target_"]
    function = pkgutil.resolve_name(target)
    corpus = _hub(cfg, **arguments) if function is hub else function(**arguments)
    if not (isinstance(corpus, Corpus) and callable(corpus.read)):
        raise InputError(
            f"data.corpus._target_: {target} must return a Corpus(fingerprint, read) with a "
            "function `read`; docs/your_text.md has an example"
        )
    if is_own(target):  # its texts also depend on its code
        code = sorted(code_digests(target).values())
        return replace(corpus, fingerprint=seals.digest_of([corpus.fingerprint, *code]))
    return corpus


def is_task(cfg: DataConfig) -> bool:
    """True if the corpus generates strings of any length and so reads data.test_lengths itself."""
    return cfg.path is None and cfg.corpus is not None and "test_lengths" in cfg.corpus


def length_split(length: int) -> str:
    """The name of the further test split for this length of data.test_lengths."""
    return f"test@{length}"


def check_sizes(sizes: list[int], least: int) -> None:
    """Raises InputError unless a generated corpus has a size for each split."""
    if len(sizes) != 3 or min(sizes) < least:
        raise InputError(
            f"data.corpus.sizes: must be three numbers of at least {least} (got {sizes})"
        )


def folder(path: str, names: SplitsConfig | None = None) -> Corpus:
    """A local folder with a file for each split (`folder_files`), or a .txt file, from which
    `splits` cuts the test and the validation split.

    CSV files have no types. Their labels are integers if every label is written as str() writes an
    integer, else strings. So 01 and 1 are two classes. Raises InputError for a missing split.
    """
    files = folder_files(path, names)
    return Corpus(files_digest(files), lambda: {s: file_source(f) for s, f in files.items()})


def folder_files(path: str, names: SplitsConfig | None = None) -> dict[str, Path]:
    """The file of each split: train|validation|test.(parquet|csv|tsv|jsonl|txt), or the given
    names. The validation file may also be named val, valid or dev. A single .txt file is train.

    Raises InputError if train or test is missing, for two files of one split, and, with the usual
    names, for another file that is named like a split."""
    root, names = Path(path), names or SplitsConfig()
    if root.suffix.lower() == ".txt" and root.is_file():
        if names != SplitsConfig():
            raise InputError(
                f"data.splits: {root} has all splits; remove data.splits, or give a folder"
            )
        return {"train": root}
    if not root.is_dir():
        raise InputError(
            f"data.path: no folder {root}; give one with train.parquet, test.parquet, or a .txt "
            "file for a language model"
        )
    for key, own in vars(names).items():
        if own and Path(own).suffix.lower() in ENDS:
            raise InputError(
                f"data.splits.{key}: {own} has an ending; give the name alone, "
                f"data.splits.{key}={Path(own).stem}"
            )
    split_of = _split_of(names, VALIDATION)
    files: dict[str, Path] = {}
    for file in sorted(root.iterdir()):
        is_read = file.suffix.lower() in ENDS and file.is_file()
        split = split_of.get(file.stem) if is_read else None
        if split is None:
            name = file.name.partition(".")[0]
            is_data = LIKE_A_SPLIT.fullmatch(name) and file.suffix.lower() in OF_DATA
            if is_data and names == SplitsConfig():
                if not file.is_file():
                    raise InputError(
                        f"{file}: is a folder or a broken link; write the split as one file, or "
                        "move this one elsewhere"
                    )
                raise InputError(
                    f"{file}: is not read; name a split's file train, validation (or val, valid, "
                    f"dev) or test with {_ENDS}, set data.splits, or move this file elsewhere"
                )
        elif split in files:
            raise InputError(
                f"{files[split]}: {file.name} is also a file of the {split} split; remove one"
            )
        else:
            files[split] = file
    needed = ("train", "test", *(["validation"] if names.validation else []))
    if lacking := [split for split in needed if split not in files]:
        others = {*root.iterdir()} - {*files.values()}
        unread = {file.stem for file in others if file.suffix.lower() in ENDS}
        name = unread.pop() if len(unread) == 1 else "NAME"
        raise InputError(
            f"{root}: no {lacking[0]} split; add {getattr(names, lacking[0])}{_ENDS}, or set "
            f"data.splits.{lacking[0]}={name}"
        )
    return {split: files[split] for split in SPLITS if split in files}


def _split_of(names: SplitsConfig, usual: Sequence[str]) -> dict[str, str]:
    """The split of each name. Validation has the usual names if none is given. A name has one
    purpose; train and test come first."""
    validation = [names.validation] if names.validation else usual
    return {**dict.fromkeys(validation, "validation"), names.train: "train", names.test: "test"}


def files_below(folder: Path) -> dict[str, Path]:
    """The files in a folder and its folders, except hidden ones, such as those of git."""
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*"))}
    return {
        place.as_posix(): path
        for place, path in files.items()
        if path.is_file() and not any(part.startswith(".") for part in place.parts)
    }


def files_digest(files: dict[str, Path]) -> str:
    """sha256 over the names, endings and bytes of the files; capitals in the ending of a split's
    file make no difference. A process reads an unchanged file once."""
    digest = hashlib.sha256()
    for split, path in files.items():
        ending = path.suffix.lower() if split in SPLITS else path.suffix
        digest.update(f"{split}{ending}".encode())
        state = path.stat()
        is_settled = time.time() - state.st_mtime > SETTLED
        content = _content if is_settled else _content.__wrapped__
        digest.update(content(path.resolve(), state.st_size, state.st_mtime_ns))
    return digest.hexdigest()


@cache
def _content(path: Path, size: int, changed: int) -> bytes:
    return bytes.fromhex(seals.digest(path))


def hub(id: str, revision: str = "main") -> Corpus:
    """A corpus of the Hugging Face hub, or a local folder in the hub's form. Raises InputError if
    it cannot be loaded, and HubUnreachable if the network is the reason.
    """
    return _hub(DataConfig(), id, revision)


def _hub(cfg: DataConfig, id: str, revision: str = "main") -> Corpus:
    """`hub` with the column of the labels and the names of the splits in the config."""
    import datasets  # takes a second; only corpora of the hub need it

    datasets.disable_progress_bars()
    # Otherwise each of the hub's retries prints two lines.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        if Path(id).is_dir():
            # The cache of `datasets` compares time stamps, which may be those of other texts.
            name = files_digest(files_below(Path(id)))
            place = str(Path(datasets.config.HF_DATASETS_CACHE, name))
            loaded = datasets.load_dataset(id, cache_dir=place)
        else:
            name, loaded = f"{id}@{revision}", _from_hub(id, revision)
    except Exception as error:  # network, cache and repository errors have no common ancestor
        why = reason(error)
        is_unreachable = isinstance(error, ConnectionError)
        if is_unreachable and _without_hub:
            why = "the hub was unreachable in an earlier run of this sweep; not tried again"
        raise (HubUnreachable if is_unreachable else InputError)(
            f"data.corpus.id: cannot load {id!r} from the hub ({why}); without a network, put "
            "train.parquet and test.parquet (columns text, label) in a folder and give "
            "data.path=FOLDER"
        ) from error
    split_of = _split_of(cfg.splits, ["validation"])
    splits = {split: loaded[name] for name, split in split_of.items() if name in loaded}
    unread = [s for s in loaded if s not in (*split_of, *SPLITS) and LIKE_A_SPLIT.fullmatch(s)]
    needed = {"train", "test"} | ({"validation"} if cfg.splits.validation or unread else set())
    if not needed <= splits.keys():
        raise InputError(
            f"data.corpus.id: {id!r} has the splits {', '.join(loaded)}; name those to use by "
            "data.splits.train, data.splits.validation and data.splits.test, or give another corpus"
        )
    label = splits["train"].features.get(cfg.labels)

    def read() -> dict[str, Source]:
        return {split: hub_source(part, f"{id} ({split})") for split, part in splits.items()}

    # The names of the Arrow files contain the revision's commit, so a new download changes them.
    arrow = [Path(f["filename"]) for part in splits.values() for f in part.cache_files]
    files = [(*path.parts[-3:], path.stat().st_size) for path in arrow]
    return Corpus(f"{name} {files}", read, getattr(label, "names", None))


@lru_cache
def _from_hub(id: str, revision: str) -> Any:
    """The corpus in the hub's form, loaded once per process, because without a network the library
    retries for 23 s, even for a corpus in its local cache."""
    import datasets

    return datasets.load_dataset(id, revision=revision)


def use_only_hub_cache() -> None:
    """Load corpora only from the hub's local cache until this process ends."""
    import datasets

    datasets.config.HF_HUB_OFFLINE = True
    _without_hub.append(True)
