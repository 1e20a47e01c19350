"""What a run works on."""

import numpy as np

from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.benchmark.workbench import prepare
from bacon_gcd.data.longtail import SplitSettings


def bench_of(**split):
    asked = RunSettings(
        dataset="planted", method="kmeans", backbone="vectors", split=SplitSettings(**split)
    )
    return prepare(resolve(asked, changes={}, recipe={}), data=None)


def test_a_balanced_split_has_the_groups_of_its_long_tail():
    tailed, balanced = bench_of(), bench_of(profile="balanced")
    assert len(set(balanced.true_counts)) == 1
    assert len(set(tailed.true_counts)) == 10
    np.testing.assert_array_equal(balanced.group_counts, tailed.true_counts)
    np.testing.assert_array_equal(tailed.group_counts, tailed.true_counts)
