"""Batches: who is in them, in what order, how they are padded."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posfuse.data.batching import Documents, LengthBatches, ResidentDocuments, SortedBatches
from posfuse.data.evaluations import Evaluations
from posfuse.data.token_store import TokenizedSplit
from small_corpora import tokenized

lengths_lists = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def of_lengths(*lengths: int) -> TokenizedSplit:
    """Documents without a token twice, from 2."""
    ends = 2 + np.cumsum(lengths)
    return tokenized(*(range(end - n, end) for end, n in zip(ends, lengths, strict=True)))


def drawn_members(data, n):
    return np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True)))


def order(lengths, seed=0, epoch=0, batch_size=4, pool_batches=3) -> list[list[int]]:
    batches = LengthBatches(np.asarray(lengths), batch_size, pool_batches, seed)
    batches.set_epoch(epoch)
    return [members.tolist() for members in batches]


@given(lengths_lists, st.integers(1, 9), st.integers(1, 5), st.integers(0, 3), st.integers(0, 3))
def test_every_document_comes_once_an_epoch(lengths, batch_size, pool, seed, epoch) -> None:
    batches = order(lengths, seed, epoch, batch_size, pool)
    assert sorted(i for members in batches for i in members) == list(range(len(lengths)))
    assert max(len(members) for members in batches) <= batch_size
    assert len(batches) == len(LengthBatches(np.asarray(lengths), batch_size, pool, seed))


@given(lengths_lists, st.integers(1, 9), st.integers(1, 4), st.integers(0, 2), st.integers(1, 30))
def test_the_parts_of_an_epoch_are_its_batches_in_order(lengths, batch_size, parts, epoch, most):
    whole = order(lengths, 0, epoch, batch_size)[:most]
    sampler = LengthBatches(
        np.asarray(lengths), batch_size, 3, 0, evaluations=Evaluations(parts), most=most
    )
    assert sampler.in_epoch == len(whole)
    found, sizes = [], []
    for part in range(parts):
        sampler.set_epoch(epoch * parts + part)
        batches = [members.tolist() for members in sampler]
        assert len(sampler) == len(batches)
        found += batches
        sizes.append(len(batches))
        sampler.start = 1  # the first batch is done
        assert [members.tolist() for members in sampler] == batches[1:]
    assert found == whole
    assert max(sizes) - min(sizes) <= 1


@given(lengths_lists, st.integers(1, 9))
def test_evaluation_takes_every_document_once_the_shortest_first(lengths, batch_size) -> None:
    members = np.concatenate(list(SortedBatches(np.asarray(lengths), batch_size)))
    assert sorted(members) == list(range(len(lengths)))
    assert np.all(np.diff(np.asarray(lengths)[members]) >= 0)


@given(lengths_lists, st.integers(1, 30), st.data())
def test_a_batch_is_padded_to_its_longest_member_and_cut_at_max_len(lengths, max_len, data) -> None:
    split = of_lengths(*lengths)
    members = drawn_members(data, len(lengths))
    batch = Documents(split, max_len)[members]
    kept = [min(lengths[i], max_len) for i in members]
    assert batch.ids.shape == (len(members), max(kept))
    assert batch.lengths.tolist() == kept
    assert batch.n_tokens == sum(kept)
    assert batch.index.tolist() == members.tolist()
    assert batch.labels.tolist() == [i % 3 for i in members]
    for row, i, n in zip(batch.ids.tolist(), members, kept, strict=True):
        start = split.offsets[i]
        assert row == list(range(start + 2, start + 2 + n)) + [0] * (max(kept) - n)


@given(lengths_lists, st.integers(1, 30), st.integers(0, 1), st.data())
def test_a_batch_assembled_on_the_device_is_the_same_but_for_more_padding(
    lengths, max_len, ending, data
):
    documents = Documents(of_lengths(*lengths), max_len, ending)
    members = drawn_members(data, len(lengths))
    batch = documents[members]
    found = ResidentDocuments(documents, max_len, torch.device("cpu"))[members]
    length = batch.ids.shape[1]
    assert found.ids.shape[1] == min(-(-length // 8) * 8, max_len)
    assert found.ids[:, :length].tolist() == batch.ids.tolist()
    assert not found.ids[:, length:].any()
    for name in ("labels", "lengths", "index", "n_tokens"):
        mine, expected = getattr(found, name), getattr(batch, name)
        assert getattr(mine, "dtype", None) == getattr(expected, "dtype", None)
        assert torch.as_tensor(mine).tolist() == torch.as_tensor(expected).tolist()


def test_a_document_that_is_cut_keeps_its_ending_and_a_batch_moves_whole() -> None:
    batch = Documents(of_lengths(6, 3, 1), 4, ending=1)[np.arange(3)]
    assert batch.ids.tolist() == [[2, 3, 4, 7], [8, 9, 10, 0], [11, 0, 0, 0]]
    moved = batch.to("meta")
    parts = (moved.ids, moved.labels, moved.lengths, moved.index)
    assert {part.device.type for part in parts} == {"meta"}


def test_order_follows_from_seed_and_epoch_alone() -> None:
    lengths = list(range(1, 50))
    first = order(lengths, seed=0, epoch=2)
    torch.manual_seed(2)
    np.random.seed(2)
    assert order(lengths, seed=0, epoch=2) == first
    assert order(lengths, seed=0, epoch=3) != first
    assert order(lengths, seed=1, epoch=2) != first


def test_members_are_of_like_length_and_not_sorted_through_the_epoch() -> None:
    lengths = np.random.default_rng(0).geometric(0.02, 2000)
    batches = list(LengthBatches(lengths, 32, 20, seed=0))
    padded = sum(lengths[b].max() * len(b) for b in batches)
    shuffled = np.random.default_rng(1).permutation(2000).reshape(-1, 40)
    at_random = sum(lengths[b].max() * len(b) for b in shuffled)
    assert padded < at_random / 2
    means = [lengths[b].mean() for b in batches]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.3


@pytest.mark.parametrize("max_len", [2, 100])
def test_words_are_counted_where_they_are_read(max_len):
    """Over many documents, the cut left out; padding is no word."""
    draw = np.random.default_rng(0)
    documents = [draw.integers(1, 9, size=n) for n in draw.integers(1, 6, size=2500)]
    expected = np.bincount(np.concatenate([d[:max_len] for d in documents]), minlength=12)
    found = Documents(tokenized(*documents), max_len).counts(12)
    assert found.tolist() == expected.tolist()


def test_each_process_evaluates_its_share_of_the_documents():
    lengths = np.array([5, 3, 9, 1, 7])
    shares = [np.concatenate(SortedBatches(lengths, 2, rank, 2).batches) for rank in (0, 1)]
    assert [lengths[share].tolist() for share in shares] == [[1, 5, 9], [3, 7]]


def test_processes_share_out_each_batch():
    for n in (60, 57, 49, 33):
        for world in (2, 3):
            lengths = np.random.default_rng(0).integers(1, 40, n)
            whole = LengthBatches(lengths, 16, 2, seed=3)
            parts = [LengthBatches(lengths, 16, 2, 3, rank, world) for rank in range(world)]
            assert sum(1 for _ in whole) == len(whole)
            for batch, *shares in zip(whole, *parts, strict=True):
                assert min(map(len, shares)) >= 1
                joined = np.concatenate(shares)
                assert set(joined) == set(batch)
                if len(batch) >= world:
                    assert len(joined) == len(batch)
                    assert max(map(len, shares)) - min(map(len, shares)) <= 1
