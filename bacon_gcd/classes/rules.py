"""The constants of counting and sorting classes, each with its reason; `python -m bench rules`."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """Chosen on cifar100, objects, textures and the demo set (docs/discovery-evidence.md)."""

    axes: int = 128
    """Principal axes that are kept: with 64 known and new images are told apart less well."""
    neighbors: int = 10
    """Images whose scores are averaged with those of an image."""
    smoothing: float = 0.5
    """Weight of these neighbors in the positions by which images are grouped."""
    rows_per_neighbor: int = 20
    """Images for each of these neighbors: in small sets ten would be of other classes."""
    isotropic: float = 0.4
    """Share of the within-class covariance that is the same in all directions."""
    shape_labels: float = 100.0
    """Labels beyond one per class that weigh as much as the over-clusters in that covariance."""
    scale_labels: float = 20.0
    """The same for its size, which fewer labels can tell."""
    part_spread: float = 2.0
    """Variance within a class over that within a part of it, where no labels tell."""
    least_between: float = 0.02
    """Variance of class means along an axis, of that within classes; zero would be no axis."""
    known_between: float = 0.5
    """Share of the covariance of images in which all known classes are of one size, where known
    classes are told from new ones."""
    known_isotropic: float = 0.7
    """`isotropic` there."""
    unseen_share: float = 0.7
    """Of the log-density of a class nobody has seen, there."""
    unlabeled_weight: float = 0.3
    """Of an image that was sorted into a class, where a labeled one counts 1."""
    penalty: float = 1.0
    """Of the ridge regression that tells classes apart, in squares within classes along an axis."""
    size_power: float = 0.3
    """Of the size of a class, by which its predictions are divided: small classes are predicted
    low. The more classes there are, the more they lose by that."""
    many_classes: float = 25.0
    """Classes with which half of this power is taken: among ten, sizes say something."""
    judged: int = 2
    """Times that all images are sorted anew by it; with more of them known classes grow."""
    clusterings: int = 8
    """Clusterings of all images that are asked, too, where labels are few."""
    many_labels: float = 6.0
    """Labels of a known class, on average, from which on they are not: then they hardly count."""
    label_weight: float = 6.0
    """Clusterings that the answer by the evidence counts as, for each label of a known class."""
    dims_per_class: int = 2
    """Dimensions of the features for each class from which on it is used."""
    folds: int = 6
    """Times that known classes are hidden to see where known ends and new begins."""
    whole_folds: int = 3
    """Times that the whole sorting is repeated with classes hidden, for the confidence."""
    hidden_classes: float = 1 / 3
    """Share of the known classes that a fold hides."""
    hidden_labels: float = 1 / 3
    """Share of the labels of the other classes that it hides."""
    prior_strength: float = 1.0
    """Of the threshold that is expected before any fold was seen."""
    lone_quantile: float = 0.7
    """Of the scores of hidden classes, where no class has a second label to hide."""
    usual_images: float = 40.0
    """Images of a class, on average, from which on `rows_per_part` and `evidence_weight` hold."""
    size_classes: float = 2.0
    """Classes of that size that count beside the known ones when it is asked how large they are."""
    usual_classes: float = 15.0
    """Classes where no label tells how large they are."""
    rows_per_part: int = 8
    """Images in a part of a class, on average."""
    least_in_part: int = 2
    """The same where classes are small."""
    most_parts: int = 400
    measuring_classes: float = 9.0
    """Known classes that weigh as much as the evidence in the number of new ones. The evidence
    finds too few classes where there are many, so its weight falls with the cube."""
    crowding: float = 10.0
    """Growth of the number of new classes, on a log scale, with the share of new images beyond a
    half: many new classes lie closer together than the known ones that measure them."""
    lone_growth: float = 0.7
    """The same where no class has a second label: many images in known classes are new ones."""
    crowded_images: float = 15.0
    """New images for each class up to which that number grows."""
    evidence_weight: float = 0.02
    """Of an image in the evidence for a number of classes."""
    most_evidence: float = 0.25
    """The same where classes are small."""
    lone_evidence_weight: float = 0.1
    """The same where there is no label at all."""
    edge: float = 0.25
    """Share of the way from the mean of known images below the threshold to that of hidden classes
    from which on a group of new images is a class and no fragment of a known one."""
    uneven: float = 0.45
    """Standard deviation of the log sizes of known classes from which new ones are uneven, too."""
    counting_seeds: int = 3
    """Over-clusterings whose median count is taken."""
    sample: int = 4_000
    """Images that are over-clustered, and by which the whole sorting is checked."""
    most_hidden: int = 400
    """Hidden images of a kind that a fold scores."""
    new_ease: float = 0.8
    """Images of new classes that are right, over those of hidden classes that are."""
    still_missed: float = 0.8
    """Unlabeled images of known classes that are wrong, over those that are with labels hidden."""
    most_independent: float = 25.0
    """Images that any number of hidden ones counts as, in the interval of the expected accuracy."""
    agreement_slope: float = 1.2
    agreement_start: float = 0.42
    """Where no class can be hidden to measure the accuracy: how it grows with the share of an
    image's neighbors that are in its class, and the share at which it would be zero."""
    halves: int = 2
    """Halves of the features that are asked the same, to see how often answers agree."""
    halved_dims: int = 256
    """Dimensions of the features from which on halves of them are asked the same."""
    halved_images: int = 2_000
    """Images of which they are asked; a sample of more."""
    told: tuple[float, ...] = (0.19, 0.74, 0.51, -0.44)
    """What hidden images, agreement of halves and of neighbors weigh in the expected accuracy."""
    told_without_hidden: tuple[float, ...] = (0.5, 0.83, -0.43)
    """The same where no class can be hidden."""
    told_images: float = 27.0
    """Independent images that an accuracy told by all of them is worth, in its interval."""
    confidence_slope: float = 0.7
    """Log-odds of a confidence, over those of a softmax whose mean is right."""
    evidence_share: float = 0.5
    """Standard deviations of the regression that one of the evidence of known classes counts, when
    the probability of a known class is told."""
    spread_of_count: float = 0.8
    """Half the width of the interval of the number of new classes, on a log scale."""

    min_scores: int = 4
    """Scores of hidden images of each kind, before a threshold is fitted to them."""
    most_weight: int = 200
    """Scores of a kind; more of them do not outweigh the other kind."""
    usual_slope: float = 0.6
    """Of the logistic curve between new and known, before any fold was seen."""
    clear: float = 0.75
    """Silhouette from which clusters are clear enough to be counted without labels."""
    least: int = 2
    """Images of a new class that is counted; one alone is an outlier."""
    outlier_spreads: float = 3.5
    """Robust standard deviations beyond the median distance of a class; then it is an outlier."""
    leverage_weight: float = 0.5
    """Standard deviations of the evidence that one of the leverage counts, in outlier scores."""
    own_statistics: int = 8
    """Images from which on a class has a radius of its own; smaller ones share that of all."""
    least_agreement: float = 1 / 3
    """Agreement with a second description of the images from which on it may count."""
    beside: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0)
    """How much it may count, where the first counts 1."""
    compared: int = 500
    """Images by which it is seen whether both agree; a sample of more."""
    least_compared: int = 40
    """Images below which chance would decide that."""
    weighed: int = 2_000
    """Images by which it is seen how much the second counts."""
    suspecting: int = 6
    """Similar images by which a label is suspected."""
    suspect_votes: float = 2 / 3
    """Of them that agree on another class, none on the label's."""
    similar: float = 0.9
    """Cosine of features below which no pixels are compared to find duplicates."""
    duplicate_bits: int = 6
    """Of 64 in which the difference hashes of near duplicates may differ."""
    duplicate_gap: float = 12.0
    """Mean difference of the 9 x 8 thumbnails of near duplicates, of 255."""
    opening_images: int = 3
    """Different images that open a class in `bacon update`."""

    @property
    def for_known(self) -> Rules:
        """The same where known classes are told from new ones."""
        return replace(self, isotropic=self.known_isotropic)

    def for_class_size(self, n_images: float) -> Rules:
        """The same for classes of so many images, on average. Ours.

        In small classes an image says more of its class: parts are smaller, so that none holds two
        classes, and each image counts for more in the evidence for a number of classes.
        """
        share = min(n_images / self.usual_images, 1.0)
        return replace(
            self,
            rows_per_part=max(round(share * self.rows_per_part), self.least_in_part),
            evidence_weight=min(self.evidence_weight / share, self.most_evidence),
        )


def share_by_number(number: int, half: float) -> float:
    """0 to 1, and 1/2 where the number is `half`: how far something that needs many counts."""
    return float(number**3 / (number**3 + half**3))


RULES = Rules()
