"""Values that do not fit each other are refused in one line, before any data is read.

test_config.py has the limits of single values.
"""

import pytest

from posfuse.runs.checks import checked
from refusals import refusal
from small_runs import composed

TASK = ["data=even_pairs", "data.corpus.sizes=[200,20,30]", "data.corpus.lengths=[2,12]",
        "data.max_len=12"]  # fmt: skip
COPY, MASKED = ["task=language_model", "data=copy"], ["pretrain=masked"]
TOKENIZER = "data.vocabulary.file=tokenizer.json"
SHUFFLED = ["data=arxiv", "data.word_order=shuffled"]
NAMED = [*SHUFFLED, "data.name=arxiv_shuffled"]

REFUSED = [
    # Test lengths
    (["data.test_lengths=[0]"], "data.test_lengths: must be between 1 and 1048576 (got [0])"),
    (["data.test_lengths=[300,400,400]"],
     "data.test_lengths: must ascend, each length once (got [300, 400, 400]); use [300, 400]"),
    (["data.test_lengths=[256,300]"],
     "data.test_lengths: must be above data.max_len=256, where texts are cut (got 256); use "),
    ([*TASK, "data.corpus.test_lengths=[80]"],
     "data.corpus.test_lengths: must be [40, 80, 160] with data=even_pairs, because data.test_"),
    ([*TASK, "data.max_len=8"],
     "data.corpus.lengths: must end at data.max_len=8 (got [2, 12]), because the cut "),
    ([*TASK, "data.vocabulary.unit=bytes"],
     "data.vocabulary.unit: must be words with data=even_pairs, because its tokens are its symbols "
     "(got bytes)"),
    (["data=even_pairs", "data.corpus.lengths=12"], "data.corpus.lengths: Invalid value assigned"),
    (["data=listops", "data.test_lengths=[3000]"],
     "data.test_lengths: must be [] with data=listops, because it has no documents longer than "),
    (["data=listops", "data.corpus.lengths=[5,3000]"],
     "data.corpus.lengths: must end at data.max_len=2000 or below (got [5, 3000])"),
    ([*COPY, "data.targets=values"],
     "data.targets: must be answers with data=copy, because its answers have no keys and "),
    (["task.output=tied"],
     "task.output: must be untied with task=classification, because only a language model reads "),
    # Shuffled words
    (SHUFFLED,
     "data.name: must end in _shuffled if and only if data.word_order=shuffled, because tables "
     "must not mix two corpora (got arxiv with data.word_order=shuffled); set "
     "data.name=arxiv_shuffled"),
    (["data=arxiv", "data.name=arxiv_shuffled"],
     "two corpora (got arxiv_shuffled with data.word_order=original); set "
     "data.word_order=shuffled, or another name"),
    ([*NAMED, "task=language_model", "data.vocabulary.unit=bytes"],
     "data.word_order: must be original with task=language_model, because a language model "
     "predicts the next word (got shuffled)"),
    (["data=even_pairs", "data.word_order=shuffled", "data.name=even_pairs_shuffled"],
     "data.word_order: must be original with data=even_pairs_shuffled, because only texts can be "),
    (["data=agnews", "data.text=label"],
     "data.text: label is data.labels too, so each text would be its own label; name another "),
    (["model.token_scale=[1,2]"],
     "model.token_scale: must be sqrt_d, learned, or between 1e-6 and 1e6 (got [1, 2])"),
    # Seeds
    *(([f"data.split_seed={value}"],
       f"data.split_seed: must be seed or between 0 and 4294967295 (got {value.strip(chr(39))})")
      for value in ("-1", "4294967296", "seeds", "'3'")),
    (["data.corpus.split_seed=seed"],  # the word is for data.split_seed
     "data.corpus.split_seed: Value 'seed' of type 'str' could not be"),
    (["data.corpus.split_seed=-1"], "data.corpus.split_seed: must be between 0 and 4294967295"),
    (["data.split_seed=${seed}"], "data.split_seed: write data.split_seed=seed (got ${seed})"),
    (["data.corpus.split_seed=${...seed}"], "data.corpus.split_seed: write ${data.split_seed} in "),
    (["seeds.order=${seed}"], "seeds.order: write seeds.order=null (got ${seed})"),
    (["seeds.init=-1"], "seeds.init: must be between 0 and 4294967295"),
    # Kinds of task
    (["data=parity", "task=language_model"], "data.targets: parity has classes"),
    (["data=copy"], "data.targets: must be all with task=classification, because only a lang"),
    (["data=bbc_bytes"], "data.vocabulary.ending: must be empty with task=classification, beca"),
    (["task=language_model", "data.targets=answers"],
     "targets: must be all with task=language_model, because bbc_bytes is a text without answers"),
    (["task=language_model", "data=bbc_article", r"data.vocabulary.ending='\n'"],
     "ending: must be empty with data.vocabulary.unit=words, because only bytes, char"),
    ([*COPY, "data.targets=all"], "data.targets: copy has"),
    ([*COPY, "data.corpus.lengths=[3,40]"], "data.corpus.lengths: must end at data.max_len=41"),
    (["task.name=sorting"], "task.name: must be classification"),
    (["task._target_=absent.Task"], "task._target_: cannot import 'absent.Task'"),
    (["task=language_model", "data=bbc_bytes", "task.class_weights=balanced"],
     "task.class_weights: must be none with task=language_model, because only a classifier has "),
    (["task=language_model", "data=bbc_bytes", "trainer.monitor=macro_f1"],
     "trainer.monitor: task=language_model has no macro_f1; set trainer.monitor=metric, the task"),
    # A user's own texts and tokens
    (["data.splits.test=eval"],
     "data.splits.test: must be test with data=bbc_lead_paragraph, because it makes its own split"),
    (["data=agnews", "data.splits.test=train"], "data.splits: two splits are train; name another"),
    ([TOKENIZER, "data.vocabulary.unit=characters"],
     "data.vocabulary.unit: must be words with data.vocabulary.file, because tokenizer.json is the "
     "vocabulary; set this value, or remove the file (got characters)"),
    ([TOKENIZER, "data.vocabulary.min_count=1"], "data.vocabulary.min_count: must be 2 with data."),
    *(([TOKENIZER, f"data={data}"],
       f"data.vocabulary.file: must be null with data={data}, because its tokens are its symbols ")
      for data in ("even_pairs", "listops")),
    # W&B
    *(([f"logger.project='{name}'"],
       rf"logger.project: must be a name of 1 to 128 characters without /\#?%: (got {name!r})")
      for name in ("a/b", "a:b", "100%", "a#b", "why?", "", "x" * 129)),
    # Schedule and pretraining
    (["optim.end_factor=0.1"],
     "optim.end_factor: must be 0.0 with optim.schedule=constant, because only a linear or cosin"),
    ([*MASKED, "task=language_model", "data.vocabulary.unit=bytes"],
     "pretrain.name: must be none with task=language_model, because a language model needs no "),
    ([*MASKED, "trainer.devices=2"],
     "trainer.devices: must be 1 with pretrain=masked, because pretraining works on one device "),
    ([*MASKED, "pretrain.share=0"], "pretrain.share: must be above 0 and at most 1 (got 0)"),
]  # fmt: skip


@pytest.mark.parametrize("lengths", ["5", "abc", "[2,abc]", "[2,null]", "[2.5]", "{a:1}"])
def test_lengths_of_a_corpus_of_ones_own_are_a_list_of_numbers(lengths, own_module):
    own_module("with_lengths", "def corpus(lengths=None, **options): ...")
    own = composed("data.corpus._target_=with_lengths.corpus", f"+data.corpus.lengths={lengths}")
    expected = "data.corpus.lengths: must be a list of whole numbers (got "
    assert refusal(checked, own).startswith(expected)


@pytest.mark.parametrize(("overrides", "expected"), REFUSED)
def test_it_is_refused_in_one_line(overrides, expected) -> None:
    assert expected in refusal(checked, composed(*overrides))


def test_a_task_of_ones_own_may_have_keys_and_values(own_module):
    own_module("own_recall", "from posfuse.data.causal_tasks import associative_recall\n")
    target = "data.corpus._target_=own_recall.associative_recall"
    cfg = checked(composed("task=language_model", "data=associative_recall", target))
    assert cfg.data.targets == "values"


def test_an_error_that_is_its_own_cause_is_one_line(monkeypatch):
    monkeypatch.setenv("OC_CAUSE", "1")  # as under a debugger
    assert refusal(checked, composed("+optim.foo=3")).startswith("optim.foo: unknown key; ")
