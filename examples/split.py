"""The paper's long tail without any image: class counts of CIFAR-100-LT at four ratios."""

from bacon_gcd.data.longtail import SplitSettings, plan_counts

for ratio in (20, 50, 100, 150):
    plan = plan_counts(SplitSettings(dataset="cifar100-lt", ratio=ratio))
    novel = sum(n for c, n in enumerate(plan.unlabeled) if c not in plan.known)
    unlabeled_known = sum(plan.unlabeled) - novel
    print(f"ratio {ratio:3d}: {sum(plan.labeled)} labeled, {unlabeled_known} + {novel} unlabeled")
