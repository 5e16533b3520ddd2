"""posfuse sample RUN --prompt TEXT: continue a text with a trained language model."""

import math
import sys
from argparse import Namespace

import torch

from posfuse.config import LARGEST_SEED, Config, longest
from posfuse.data.corpora import is_task
from posfuse.data.datamodule import TextDataModule
from posfuse.data.vocabulary import SPECIAL, UNKNOWN
from posfuse.errors import InputError, input_errors
from posfuse.model.language_model import LanguageModel
from posfuse.training.trained import load_run


def prompt_ids(text: str, cfg: Config, data: TextDataModule) -> torch.Tensor:
    """The prompt's tokens, (1, L). Raises InputError if it is empty or, for a task, has an unknown
    symbol. An unknown word or character of a text is `<unk>`, and a line says so. With words, a
    prompt of only white space is empty."""
    vocabulary = cfg.data.vocabulary
    separates = vocabulary.unit == "words" and vocabulary.file is None
    if not (text.strip() if separates else text):
        raise InputError("--prompt: is empty; give a text to continue")
    with input_errors("--prompt: is not UTF-8", "type it in a terminal with UTF-8"):
        text.encode()
    ids = data.store.encoder(vocabulary)([text])[0].tolist()
    if is_task(cfg.data) and UNKNOWN in ids:
        symbols = " ".join(data.store.words(range(len(SPECIAL), data.store.vocabulary_size)))
        raise InputError(f"--prompt: has symbols that {cfg.data.name} lacks; use only: {symbols}")
    if unknown := ids.count(UNKNOWN):
        share = f"{unknown} of its {len(ids)} tokens are not in the vocabulary"
        print(f"--prompt: {share}; the model reads <unk> there", file=sys.stderr)
    return torch.tensor([ids])


def continuation(
    model: LanguageModel, ids: torch.Tensor, n: int, reach: int, temperature: float, seed: int
) -> torch.Tensor:
    """n further tokens of ids (1, L): (1, n).

    A text that has reached `reach` tokens is continued from its last half.
    """
    draws = torch.Generator().manual_seed(seed)
    whole, end = ids, ids.shape[1] + n
    context = ids if ids.shape[1] < reach else ids[:, -max(1, reach // 2) :]
    while whole.shape[1] < end:
        steps = min(end - whole.shape[1], max(1, reach - context.shape[1]))
        whole = torch.cat((whole, model.generate(context, steps, temperature, draws)), 1)
        context = whole[:, -max(1, reach // 2) :]
    return whole[:, ids.shape[1] :]


def main(arguments: Namespace) -> None:
    """Print the prompt and its continuation. Raises InputError for an option outside its limits,
    and for a run that is not finished or has no language model."""
    given = (arguments.temperature, arguments.seed)
    if arguments.tokens < 1:
        raise InputError(f"--tokens: must be 1 or more (got {arguments.tokens})")
    if not 0 <= arguments.temperature < math.inf:
        raise InputError(f"--temperature: must be 0 or above (got {arguments.temperature:g})")
    if not 0 <= arguments.seed <= LARGEST_SEED:
        largest = f"must be between 0 and {LARGEST_SEED}"
        raise InputError(f"--seed: {largest} (got {arguments.seed})")
    cfg, data, module = load_run(arguments.run)
    if not isinstance(module.model, LanguageModel):
        raise InputError(
            f"{arguments.run}: is not a language model; give a run with task=language_model"
        )
    ids = prompt_ids(arguments.prompt, cfg, data)
    # A text is continued in windows of the trained length. A string of a task must fit into one
    # window, which may have the longest tested length.
    reach = longest(cfg.data) if is_task(cfg.data) else cfg.data.max_len
    if is_task(cfg.data) and ids.shape[1] >= reach:
        raise InputError(
            f"--prompt: has {ids.shape[1]} tokens, but this model reads {reach}; give at most "
            f"{reach - 1}"
        )
    tokens = continuation(module.model, ids, arguments.tokens, reach, *given)[0]
    if cfg.data.vocabulary.unit == "bytes":
        values = [int(i) - len(SPECIAL) for i in tokens if i >= len(SPECIAL)]
        print((arguments.prompt.encode() + bytes(values)).decode(errors="replace"))
    elif cfg.data.vocabulary.file is not None:
        before, whole = data.store.text(ids[0]), data.store.text([*ids[0], *tokens])
        # The tokenizer may change or leave out parts of the prompt, so the prompt is not decoded.
        print(arguments.prompt + whole[len(before) :])
    elif cfg.data.vocabulary.unit == "characters":
        print(arguments.prompt + "".join(data.store.words(tokens)))
    else:
        print(arguments.prompt.strip(), *data.store.words(tokens))
