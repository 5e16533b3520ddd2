"""What the paper claims and what its notebooks do, option by option."""

import re
from dataclasses import asdict, fields

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from posfuse.config import CONF_DIR, FidelityConfig
from posfuse.runs import identity
from posfuse.runs.checks import checked
from posfuse.training.build import build_data, build_module, build_network
from refusals import refusal
from small_runs import KEEP_WORDS, SMALL, composed, texts_of, write_corpus

PAPER = asdict(FidelityConfig())
NOTEBOOK = {
    "initial_values": "shared_stream",
    "blocks": "copies",
    "batch_order": "by_run",
    "validation_split": "by_seed",
    "gate_scalar": "feature",
    "gate_mlp": "mlp",
    "concat_bias": True,
    "mlp_activation": "relu",
    "mlp_biases": "linear",
    "gate_start": "linear",
    "rope": "table",
    "relative": "table",
    "notebook_parts_only": True,
}
GATES = ["scalar", "feature", "cnn", "mlp"]
SHORT, ARXIV = {"batch_order": "by_seed"}, {"validation_split": "fixed", "gate_scalar": "scalar"}


def config(corpus, *overrides, data="agnews"):
    place = [f"data={data}", f"data.path={corpus}", f"cache_dir={corpus.parent / 'cache'}"]
    return checked(composed(*place, "data.batch_size=16", *SMALL, *overrides))


def network(corpus, *overrides):
    cfg = config(corpus, *overrides)
    return build_module(cfg, build_data(cfg)).model


def test_paper_is_the_default_and_the_schemas_own_values() -> None:
    assert asdict(checked(composed())) == asdict(checked(composed("fidelity=paper")))
    assert OmegaConf.load(CONF_DIR / "fidelity" / "paper.yaml") == PAPER


@pytest.mark.slow
def test_notebook_sets_every_option_by_corpus() -> None:
    corpora = sorted(path.stem for path in (CONF_DIR / "data").glob("*.yaml"))
    for name in set(corpora) - {"copy", "reverse", "associative_recall", "bbc_bytes"}:
        place = ["data.path=somewhere"] if name == "folder" else []
        cfg = checked(composed(f"data={name}", "fidelity=notebook", *place))
        assert asdict(cfg.fidelity) == NOTEBOOK | (ARXIV if name == "arxiv" else SHORT), name
        data = cfg.data
        found = (data.vocabulary.source, cfg.model.head_dropout, data.validation_stratified)
        assert found == (("all", 0.0, True) if name == "arxiv" else ("train", None, False)), name
    assert all(NOTEBOOK[f.name] != PAPER[f.name] for f in fields(FidelityConfig))


# An option, and the choices on which it alone changes what runs.
CHOICES = {
    "gate_scalar": ["fusion=gate_scalar"],
    "gate_mlp": ["fusion=gate_mlp"],
    "concat_bias": ["fusion=concat"],
    "mlp_activation": ["fusion=mlp"],
    "mlp_biases": ["fusion=mlp"],
    "gate_start": ["fusion=gate_feature"],
    "rope": ["encoding=rope"],
    "relative": ["encoding=relative"],
}


@pytest.mark.parametrize("option", PAPER)
def test_each_option_is_set_alone(option: str) -> None:
    choices = CHOICES.get(option, [])
    asked = f"fidelity.{option}={NOTEBOOK[option]}"
    before, after = (checked(composed(*choices, *more)) for more in ([], [asked]))
    assert asdict(after.fidelity) == PAPER | {option: NOTEBOOK[option]}
    old, new = identity.settings(before), identity.settings(after)
    changed = {key for key in old | new if old.get(key) != new.get(key)}
    changed_parts = {key for key in changed if key.startswith(("fusion.", "encoding."))}
    assert changed - changed_parts == {f"fidelity.{option}"} - {"fidelity.notebook_parts_only"}
    assert bool(changed_parts) == bool(choices)
    same = identity.fingerprint(after) == identity.fingerprint(before)
    assert same == (option == "notebook_parts_only")  # which refuses, and changes no number


@pytest.mark.parametrize(
    ("data", "asked", "expected"),
    [
        ("arxiv", ["fidelity=notebook"], 0.0),
        ("arxiv", ["fidelity=notebook", "model.head_dropout=0.3"], 0.3),
        ("agnews", ["model.dropout=0.2", "model.head_dropout=null"], 0.2),
    ],
)
def test_dropout_before_the_head(data, asked, expected) -> None:
    network = build_network(checked(composed(f"data={data}", *asked)), 10, 3)
    assert network.dropout.p == expected
    assert network.encoder.blocks[0].dropout.p == (0.2 if expected == 0.2 else 0.1)


def values(module: nn.Module) -> torch.Tensor:
    """All of a module's weights that were drawn, as one row."""
    drawn = [p.detach().flatten() for p in module.parameters() if p.unique().numel() > 1]
    return torch.cat(drawn)


def test_the_shared_stream_is_torchs_own_in_the_order_of_construction(two_splits) -> None:
    """By default a module's values do not depend on other modules."""
    start = ["encoding=learned", "seed=3"]
    model = network(two_splits, "fidelity.initial_values=shared_stream", "fusion=concat", *start)
    torch.manual_seed(3)
    bound = 16**-0.5
    embedding = nn.Embedding(len(model.embedding.weight), 8, padding_idx=0).weight
    table = torch.empty(512, 8).normal_()
    halves = [torch.empty(8, 8).uniform_(-bound, bound) for _ in range(2)]
    first = nn.init.xavier_uniform_(torch.empty(24, 8))
    assert torch.equal(model.embedding.weight, embedding)
    assert torch.equal(model.table(), table)
    assert torch.equal(model.fusion.weight_token, halves[0])
    assert torch.equal(model.fusion.weight_position, halves[1])
    assert torch.equal(model.encoder.blocks[0].attention.qkv_weight, first)
    concat, add = (network(two_splits, f"fusion={name}", *start) for name in ("concat", "add"))
    assert torch.equal(values(concat.encoder), values(add.encoder))


@pytest.mark.parametrize("stream", ["by_name", "shared_stream"])
def test_copied_blocks_start_equal_and_are_not_one(two_splits, stream: str) -> None:
    asked = ["model.n_layers=3", f"fidelity.initial_values={stream}", "encoding=relative"]
    for option in ("independent", "copies"):
        encoder = network(two_splits, *asked, f"fidelity.blocks={option}").encoder
        for stack in (encoder.blocks, encoder.positions):  # relative keys: a set for each block
            assert len(stack) == 3
            for block in stack[1:]:
                assert torch.equal(values(block), values(stack[0])) == (option == "copies")
        weights = [p.data_ptr() for p in encoder.parameters()]
        assert len(set(weights)) == len(weights)


def split_texts(corpus, *overrides) -> dict[str, dict[int, list[str]]]:
    data = build_data(config(corpus, *KEEP_WORDS, *overrides))
    return {split: texts_of(data, split) for split in ("train", "validation", "test")}


@pytest.mark.parametrize("limit", ["data.limit=null", "data.limit=15"])
def test_the_validation_split_follows_the_seed_and_the_test_split_never(two_splits, limit) -> None:
    asked = ["fidelity.validation_split=by_seed", limit]
    one, two = (split_texts(two_splits, *asked, f"seed={seed}") for seed in (1, 2))
    fixed, again = (split_texts(two_splits, limit, f"seed={seed}") for seed in (1, 2))
    assert one["validation"] != two["validation"]
    assert one["test"] == two["test"] == fixed["test"]
    assert fixed == again
    if "null" in limit:
        # The same cut as by a split_seed of that number; nothing is lost or counted twice.
        assert two == split_texts(two_splits, "data.split_seed=2")
        first, *others = (sorted([*f["train"].items(), *f["validation"].items()])
                          for f in (one, two, fixed))  # fmt: skip
        assert others == [first, first]


def test_a_validation_split_that_a_corpus_brings_stays(tmp_path) -> None:
    whole = write_corpus(tmp_path / "corpus")
    for seed in (1, 2):
        by_seed = split_texts(whole, "fidelity.validation_split=by_seed", f"seed={seed}")
        assert by_seed == split_texts(whole)


def order(corpus, *overrides) -> list[list[int]]:
    return [b.index.tolist() for b in build_data(config(corpus, *overrides)).train_dataloader()]


def test_the_order_of_batches_follows_the_run_only_where_asked(two_splits) -> None:
    runs = [["fusion=add"], ["fusion=concat"], ["fusion=add", "encoding=learned"]]
    paper = [order(two_splits, *run) for run in runs]
    assert paper[0] == paper[1] == paper[2]
    runs.append(["fusion=add", "seed=1"])
    by_run = [order(two_splits, "fidelity.batch_order=by_run", *run) for run in runs]
    assert len({str(batches) for batches in by_run}) == len(runs)
    assert by_run[0] == order(two_splits, "fidelity.batch_order=by_run", *runs[0])
    everyone = list(range(54))
    assert all(sorted(np.concatenate(batches)) == everyone for batches in (*by_run, *paper))


# An option, an operator whose argument it sets, and the argument.
ARGUMENTS = [
    ("concat_bias", "concat", "bias"),
    ("mlp_activation", "mlp", "activation"),
    ("mlp_biases", "mlp", "biases"),
    *(("gate_start", f"gate_{kind}", "start") for kind in GATES),
]


@pytest.mark.parametrize(("option", "fusion", "argument"), ARGUMENTS)
def test_an_option_sets_an_operators_argument(option, fusion, argument) -> None:
    default, set_to = PAPER[option], NOTEBOOK[option]
    chosen, asked, given = f"fusion={fusion}", f"fidelity.{option}={set_to}", f"fusion.{argument}="

    def fusion_of(*overrides):
        return checked(composed(*overrides)).fusion

    plain, cfg = fusion_of(chosen), checked(composed(chosen, asked))
    assert plain[argument] == default
    assert cfg.fusion == plain | {argument: set_to}
    assert asdict(checked(OmegaConf.structured(cfg))) == asdict(cfg)
    # The option at its default leaves an argument that is given, and other operators stay.
    assert fusion_of(chosen, f"{given}{set_to}") == cfg.fusion
    assert fusion_of("fusion=add", asked) == fusion_of("fusion=add")
    assert fusion_of(chosen, asked, f"{given}{set_to}") == cfg.fusion
    for value in (default, "other"):
        line = refusal(fusion_of, chosen, asked, f"{given}{value}")
        assert line.startswith(f"fusion.{argument}: {value}, but fidelity.{option}=")


@pytest.mark.parametrize("kind", GATES)
def test_a_gate_with_a_linear_start_is_its_gate_but_for_the_start(kind: str) -> None:
    arm = checked(composed(f"fusion=gate_{kind}_linear_start")).fusion
    gate = checked(composed(f"fusion=gate_{kind}")).fusion
    assert arm == gate | {"name": f"gate_{kind}_linear_start", "start": "linear"}


def test_an_encoding_with_a_name_of_its_own_is_not_replaced() -> None:
    for name in ("rope_linear_start", "my_rope"):
        own = ["encoding=rope", f"encoding.name={name}"]
        plain, asked = (checked(composed(*own, *more)) for more in ([], ["fidelity.rope=table"]))
        assert asked.encoding == plain.encoding


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["encoding=alibi"], "encoding=alibi: not in the authors' notebooks; with fidelity=noteb"),
        (["fusion=gate_cnn"], "fusion=gate_cnn: not in the authors' notebooks; with "
         "fidelity=notebook use one of add, concat, mul, mlp, gate_scalar, gate_feature, gate_mlp"),
        (["fusion=gate_cnn_linear_start"], "fusion=gate_cnn_linear_start: not in"),
        # A part that the user set is not replaced silently.
        (["encoding=rope", "encoding.table._target_=posfuse.model.encoding.Learned"],
         "_target_: .* set only one of the two"),
        (["fusion=gate_scalar", "fusion._target_=posfuse.model.fusion.GateCNN"],
         "_target_: .* set only one of the two"),
        (["encoding=relative", "encoding.attention.clip=3"],
         "encoding.attention: .* set only one of the two"),
        (["encoding=rope", "encoding.attention._target_=posfuse.model.attention_encoding.Alibi"],
         "encoding.attention: .* set only one of the two"),
    ],
)  # fmt: skip
def test_what_the_notebooks_do_not_have_is_refused(overrides: list[str], message: str) -> None:
    line = refusal(checked, composed("data=imdb", "fidelity=notebook", *overrides))
    assert re.search(message, line)
    allowed = ["fidelity.notebook_parts_only=false", "fidelity.rope=attention"]
    allowed += ["fidelity.relative=attention", "fidelity.gate_scalar=scalar"]
    checked(composed("data=imdb", "fidelity=notebook", *allowed, *overrides))
