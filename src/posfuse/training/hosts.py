"""host=transformers: loads a pretrained model from a local folder and splits it for fusion.

Its position table has the name `position_embeddings` in each of these families. A run checks the
other parts once on a few random tokens.
"""

from typing import Any

import torch
from torch import Tensor, nn

from posfuse.config import Config, is_pretrained, longest
from posfuse.data.pretrained_folder import TOKENIZER, check_architecture, read_tokenizer
from posfuse.errors import InputError, input_errors
from posfuse.model.encoder import valid_positions
from posfuse.model.pretrained_host import Host, NoPositions, PretrainedEncoder

TABLE = "position_embeddings"
CLOSE = 1e-4  # relative to an output's largest number; more than the rounding of float32
OTHERS = "use a BERT-like one, such as bert, roberta, electra, distilbert or albert"


def load_host(cfg: Config) -> Host | None:
    """The pretrained model of a config, on the CPU in float32; None for host=own.

    Raises InputError if transformers is not installed, the folder cannot be read, the model cannot
    be split, its tokenizer does not fit, or documents are longer than its table.
    """
    if not is_pretrained(cfg):
        return None
    path = cfg.host.path
    assert path is not None  # checked
    model = _load(path)
    family = _family(path, model.config)
    with input_errors(f"{family}, which cannot be run on fused embeddings", OTHERS):
        tokenizer, n = read_tokenizer(path), model.get_input_embeddings().num_embeddings
        if tokenizer.size > n:
            raise InputError(
                f"{path}: {TOKENIZER} has ids up to {tokenizer.size - 1}, but the model has {n} "
                "word embeddings; give the model's own tokenizer"
            )
        if cfg.data.max_len <= tokenizer.special:
            raise InputError(
                f"data.max_len: must be above {tokenizer.special}, the special tokens that {path} "
                f"adds to each document (got {cfg.data.max_len})"
            )
        return _take_apart(cfg, path, family, model)


def _load(path: str) -> Any:
    """The model of a folder with all its pretrained values, without its pooler."""
    try:
        import transformers  # takes seconds; only this host needs it
    except ImportError as error:
        raise InputError(
            "host=transformers: the package transformers is not installed; run pip install "
            "'posfuse[transformers]'"
        ) from error
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    local = {"local_files_only": True, "trust_remote_code": False}
    again = "write it again with model.save_pretrained(FOLDER)"
    with input_errors(f"host.path: {path} cannot be loaded", again):
        check_architecture(path)
        config = transformers.AutoConfig.from_pretrained(path, **local)
        if config.is_encoder_decoder:
            raise InputError(f"{_family(path, config)}, an encoder with a decoder; {OTHERS}")
        kind = getattr(config, "position_embedding_type", None) or "absolute"
        if kind != "absolute":
            raise InputError(f"{_family(path, config)} with {kind} positions; {OTHERS}")
        model, report = transformers.AutoModel.from_pretrained(
            path, config=config, output_loading_info=True, **local
        )
    # Encoders are often saved without a pooler, and it is not used here.
    if missing := sorted(key for key in report["missing_keys"] if not key.startswith("pooler.")):
        raise InputError(
            f"host.path: {path} lacks weights of its model ({', '.join(missing[:3])}); {again}"
        )
    if isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler = None
    if broken := [name for name, value in model.named_parameters() if not value.isfinite().all()]:
        raise InputError(
            f"host.path: {path} has weights that are not finite in {broken[0]}; give a model whose "
            "training did not diverge"
        )
    return model.float().eval()


def _family(path: str, config: Any) -> str:
    return f"host.path: {path} is a model of the family {config.model_type}"


@torch.no_grad()
def _take_apart(cfg: Config, path: str, family: str, model: Any) -> Host:
    tables = [
        (name, module)
        for name, module in model.named_modules()
        if name.rpartition(".")[2] == TABLE and isinstance(module, nn.Embedding)
    ]
    if len(tables) != 1:
        raise InputError(f"{family}, which has no single table of absolute positions; {OTHERS}")
    name, table = tables[0]
    embedding = model.get_input_embeddings()
    first = _first_row(model, table, embedding)
    rows = table.weight[first:].clone()
    length = longest(cfg.data)
    if length > len(rows):
        key = "data.test_lengths" if length > cfg.data.max_len else "data.max_len"
        raise InputError(
            f"{key}: {length}, but {path} has positions for {len(rows)} tokens; use {len(rows)} or "
            "fewer"
        )

    # Two documents, one of half the length, without <pad>, which RoBERTa gives another position.
    n, pad, draws = embedding.num_embeddings, model.config.pad_token_id, torch.Generator()
    ids = torch.randint(n, (2, length), generator=draws.manual_seed(0))
    if pad is not None:
        ids[ids == pad] = (pad + 1) % n
    short = max(length // 2, 1)
    lengths = torch.tensor([length, short])
    x = embedding(ids) + rows[:length]
    expected = model(input_ids=ids, attention_mask=valid_positions(lengths, length).long())[0]
    parent = model.get_submodule(name.rpartition(".")[0])
    setattr(parent, TABLE, NoPositions(table.embedding_dim))
    model.set_input_embeddings(nn.Identity())  # the embeddings belong to the classifier only
    encoder = PretrainedEncoder(model, expected.shape[-1])
    encoded = encoder(x, lengths)

    if not _close(encoded[0], expected[0]) or not _close(encoded[1, :short], expected[1, :short]):
        raise InputError(
            f"{family}, whose outputs for inputs_embeds differ from those for input_ids; {OTHERS}"
        )
    if not _close(encoder(x[1:, :short], lengths[1:]), encoded[1:, :short]):
        raise InputError(f"{family}, whose outputs depend on padding; {OTHERS}")
    order = torch.randperm(length, generator=draws.manual_seed(0))
    if not _close(encoder(x[:1, order], lengths[:1]), encoded[:1, order]):
        raise InputError(
            f"{family}, whose outputs depend on the order of tokens without its position table (by "
            f"relative positions, convolutions, windows or a causal mask); {OTHERS}"
        )
    for part in (embedding, model):
        part.train()
    return Host(embedding, rows, encoder)


def _first_row(model: Any, table: nn.Embedding, embedding: nn.Embedding) -> int:
    """The row of the table for a document's first token; in RoBERTa it is 2."""
    asked: list[Tensor] = []
    hook = table.register_forward_pre_hook(lambda _, given: asked.append(given[0]))
    model(inputs_embeds=embedding.weight[None, :2], attention_mask=torch.ones(1, 2).long())
    hook.remove()
    if not asked:
        raise ValueError("it does not use its position table with inputs_embeds")
    first, second = asked[0].flatten()[:2].tolist()
    if second != first + 1:
        raise ValueError(f"its tokens have the positions {first} and {second}")
    return int(first)


def _close(one: Tensor, other: Tensor) -> bool:
    largest = other.abs().max()
    return bool((one - other).abs().max() <= CLOSE * largest)
