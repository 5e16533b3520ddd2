"""The processes of one run share out its batches."""

import numpy as np

from posfuse.data.batching import LengthBatches, SortedBatches


def test_processes_share_out_each_batch():
    for n in (60, 57, 49, 33):
        for world in (2, 3):
            lengths = np.random.default_rng(0).integers(1, 40, n)
            whole = LengthBatches(lengths, 16, 2, seed=3)
            parts = [LengthBatches(lengths, 16, 2, 3, rank, world) for rank in range(world)]
            steps = 0
            for batch, *shares in zip(whole, *parts, strict=True):
                steps += 1
                assert min(map(len, shares)) >= 1
                joined = np.concatenate(shares)
                assert set(joined) == set(batch)
                if len(batch) >= world:
                    assert len(joined) == len(batch)
                    assert max(map(len, shares)) - min(map(len, shares)) <= 1
            assert steps == len(whole)


def test_processes_share_out_the_documents_of_an_evaluation():
    for n in (60, 57, 2):
        lengths = np.random.default_rng(0).integers(1, 40, n)
        parts = [list(SortedBatches(lengths, 8, rank, 2)) for rank in range(2)]
        assert all(parts)
        assert sorted(np.concatenate([*parts[0], *parts[1]])) == list(range(n))
