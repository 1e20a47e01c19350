"""What the paper claims, and whether the finished cells show it: holds, does not, not tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bacon_gcd.benchmark.cells import CellResult
from bacon_gcd.benchmark.experiments import find_experiment
from bacon_gcd.benchmark.grid import Grid, Request
from bacon_gcd.benchmark.tables import Interval, Table, make_table, paired

HOLDS, FAILS, NOT_TESTED = "holds", "does not hold", "not tested"
CIFAR100 = "CIFAR-100-LT"
FLAT = 1.5  # percent: the paper's own range over r
CHEAP = 1.5  # times GCD's seconds per epoch that still count as a small overhead
CPU = "cpu_per_epoch"  # seconds by the clock depend on what else the machine does
CLOSE = 3.0  # percent between estimate and oracle; the paper has 2.6


@dataclass(frozen=True)
class Claim:
    """A claim, what was found, and the numbers."""

    text: str
    verdict: str
    numbers: str


class Evidence:
    """Tables of one protocol and backbone, each read once."""

    def __init__(self, request: Request, grid: Grid) -> None:
        self.request, self.grid = request, grid
        self.tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        """The finished cells of an experiment."""
        if name not in self.tables:
            asked = replace(self.request, experiments=(name,))
            self.tables[name] = make_table(find_experiment(name), asked, self.grid)
        return self.tables[name]

    def gap(
        self, name: str, row: str, other: str, column: str, score: str = "all"
    ) -> Interval | None:
        """One row less another, paired by seed."""
        return self.table(name).difference(row, other, column, score)

    def measured(self, row: str, measure: str) -> dict[int, float]:
        """A measure of a row's features on CIFAR-100-LT, by seed."""
        found = ((_seed(c), c.measures[measure]) for c in self.table("table3").cells[row, CIFAR100])
        return {seed: value for seed, value in found if value is not None}


def _seed(cell: CellResult) -> int:
    return int(cell.settings["seed"])


def all_claims(request: Request, grid: Grid) -> list[Claim]:
    """Every claim, in the order of the paper."""
    evidence = Evidence(request, grid)
    return [check(evidence) for check in CLAIMS]


def told(interval: Interval) -> str:
    """+1.2 ± 0.4 (3 seeds)."""
    half = "" if interval.half is None else f" ± {interval.half:.1f}"
    seeds = "1 seed" if interval.seeds == 1 else f"{interval.seeds} seeds"
    return f"{interval.mean:+.1f}{half} ({seeds})"


def positive(interval: Interval) -> bool:
    """Above zero, and beyond what seeds do where there are several."""
    return interval.mean > 0 and (interval.half is None or interval.sign > 0)


def _claim(text: str, parts: dict[str, Interval | None], shown: Callable[..., bool]) -> Claim:
    """A claim about differences; not tested where one of them was not run."""
    numbers = "; ".join(f"{k} {told(v)}" for k, v in parts.items() if v is not None)
    if any(part is None for part in parts.values()):
        return Claim(text, NOT_TESTED, numbers)
    verdict = HOLDS if shown(*parts.values()) else FAILS
    return Claim(text, verdict, numbers)


def new_gain_most(evidence: Evidence) -> Claim:
    """§5.3: +17.5 on novel classes, +5.0 overall."""
    parts = {
        score: evidence.gap("table3", "BaCon-S", "GCD", CIFAR100, score) for score in ("new", "old")
    }
    return _claim(
        "New classes gain most: BaCon-S over GCD",
        parts,
        lambda new, old: positive(new) and new.mean > old.mean,
    )


def _more(evidence: Evidence, text: str, name: str, hard: str, easy: str) -> Claim:
    parts = {column: evidence.gap(name, "BaCon-S", "GCD", column) for column in (hard, easy)}
    return _claim(text, parts, lambda first, second: positive(first) and first.mean > second.mean)


def gain_by_ratio(evidence: Evidence) -> Claim:
    """§5.3: more evident under extremely imbalanced data."""
    text = "The gain over GCD is larger at a higher ratio"
    return _more(evidence, text, "table4", "ratio 150", "ratio 20")


def gain_by_known(evidence: Evidence) -> Claim:
    """App. E.1: larger with few known classes."""
    text = "The gain over GCD is larger with fewer known classes"
    return _more(evidence, text, "e1", "20 known", "80 known")


def balanced(evidence: Evidence) -> Claim:
    """§5.3: lower standard deviation of many, median and few."""
    parts = {
        f"{side} std": evidence.gap("table3", "BaCon-S", "GCD", CIFAR100, f"{side}_std")
        for side in ("known", "novel")
    }
    return _claim(
        "Accuracy differs less between many, median and few: BaCon-S against GCD",
        parts,
        lambda known, novel: all(positive(_negative(each)) for each in (known, novel)),
    )


def _negative(interval: Interval) -> Interval:
    return replace(interval, mean=-interval.mean)


def flat_in_interval(evidence: Evidence) -> Claim:
    """§5.4, ablation (d)."""
    table, text = evidence.table("ablation-d"), "Accuracy is flat in the interval r"
    numbers = [table.number((row.label, CIFAR100), "all") for row in table.experiment.rows]
    known = [number.mean for number in numbers if number is not None]
    if len(known) < len(numbers):
        return Claim(text, NOT_TESTED, f"{len(known)} of {len(numbers)} intervals run")
    spread = max(known) - min(known)
    listed = ", ".join(f"{mean:.1f}" for mean in known)
    return Claim(text, HOLDS if spread <= FLAT else FAILS, f"{listed}: range {spread:.1f}")


def small_overhead(evidence: Evidence) -> Claim:
    """§4: the second branch shares the frozen trunk."""
    table, text = evidence.table("table3"), "The second branch costs little"
    rows = [table.cells[row, CIFAR100] for row in ("BaCon-S", "GCD")]
    found = [[s for cell in cells if (s := cell.seconds.get(CPU))] for cells in rows]
    if not all(found):
        return Claim(text, NOT_TESTED, "")
    seconds = [min(each) for each in found]
    times = seconds[0] / seconds[1]
    numbers = f"{seconds[0]:.1f} CPU s per epoch against GCD's {seconds[1]:.1f}: {times:.2f} times"
    return Claim(text, HOLDS if times <= CHEAP else FAILS, numbers)


def _lower(evidence: Evidence, text: str, measures: Sequence[str]) -> Claim:
    parts: dict[str, Interval | None] = {}
    for measure in measures:
        ours, theirs = (evidence.measured(row, measure) for row in ("BaCon-S", "GCD"))
        seeds = sorted(set(ours) & set(theirs))
        parts[measure] = paired([theirs[s] - ours[s] for s in seeds]) if seeds else None
    numbers = "; ".join(
        f"{name} lower by {part.mean:.3f}" + ("" if part.half is None else f" ± {part.half:.3f}")
        for name, part in parts.items()
        if part is not None
    )
    claim = _claim(text, parts, lambda *found: all(positive(each) for each in found))
    return replace(claim, numbers=numbers)


def compact(evidence: Evidence) -> Claim:
    """The t-SNE figure."""
    text = "Features of a class are more compact than GCD's"
    return _lower(evidence, text, ["alignment"])


def aligned_and_uniform(evidence: Evidence) -> Claim:
    """Both at once: classes close together, and all images spread out."""
    text = "Better alignment and uniformity than GCD"
    return _lower(evidence, text, ["alignment", "uniformity"])


def near_oracle(evidence: Evidence) -> Claim:
    """§5.4, ablation (a)."""
    parts = {
        "estimate - oracle": evidence.gap("ablation-a", "contrastive", "oracle", CIFAR100),
        "estimate - balanced": evidence.gap("ablation-a", "contrastive", "balanced", CIFAR100),
    }
    return _claim(
        "The estimated prior is close to the oracle and better than a balanced one (classifier)",
        parts,
        lambda oracle, flat: abs(oracle.mean) <= CLOSE and positive(flat),
    )


def both_help(evidence: Evidence) -> Claim:
    """§5.4, ablation (b)."""
    parts = {
        other: evidence.gap("ablation-b", "both", other, CIFAR100)
        for other in ("baseline", "vanilla")
    }
    return _claim(
        "Debiasing and sampling together are better than neither, and pseudo-labels than none",
        parts,
        lambda none, vanilla: positive(none) and positive(vanilla),
    )


def soft_beats_hard(evidence: Evidence) -> Claim:
    """§5.4, ablation (c)."""
    parts: dict[str, Interval | None] = {
        "soft - hard": evidence.gap("ablation-c", "soft", "hard", CIFAR100)
    }
    return _claim("Soft pseudo-labels are better than hard ones", parts, positive)


CLAIMS: tuple[Callable[[Evidence], Claim], ...] = (
    new_gain_most,
    gain_by_ratio,
    gain_by_known,
    balanced,
    flat_in_interval,
    small_overhead,
    compact,
    aligned_and_uniform,
    near_oracle,
    both_help,
    soft_beats_hard,
)


def claims_text(claims: Sequence[Claim]) -> str:
    """The claims as a Markdown table."""
    lines = ["| claim | | numbers |", "|---|---|---|"]
    lines += [f"| {c.text} | **{c.verdict}** | {c.numbers or '–'} |" for c in claims]
    counts = {v: sum(c.verdict == v for c in claims) for v in (HOLDS, FAILS, NOT_TESTED)}
    summary = ", ".join(f"{verdict}: {n}" for verdict, n in counts.items())
    return "\n".join([*lines, "", f"{summary}.", ""])
