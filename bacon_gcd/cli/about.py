"""What there is: bacon doctor, bacon methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from bacon_gcd.cli.app import JsonFlag, app, show


@app.command()
def doctor(json: JsonFlag = False) -> None:
    """Tell what this machine offers: versions, device, threads, bf16, weights, disk.

    Example: bacon doctor --json
    """
    from bacon_gcd.cli.doctor import examine

    show(examine(), as_json=json)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show every setting of this one.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the methods, or every setting of one of them with its meaning.

    Example: bacon methods bacon-s
    """
    from bacon_gcd.config import choose
    from bacon_gcd.methods import METHODS, describe_entry, describe_settings

    if name is None:
        facts = {n: describe_entry(e) for n, e in METHODS.items()}
        text = "\n".join("\n".join(_method_lines(n, fact)) for n, fact in facts.items())
        return show(facts, as_json=json, text=text)
    entry = METHODS[choose("method", name, METHODS)]
    described = {p: describe_settings(s.settings) for p, s in entry.presets.items()}
    lines = _method_lines(name, describe_entry(entry))
    for setting, (_, meaning) in next(iter(described.values())).items():
        values = "  ".join(f"{p}={d[setting][0]}" for p, d in described.items())
        lines.append(f"  {setting:<26} {values:<44} {meaning}")
    values_only = {p: {k: v for k, (v, _) in d.items()} for p, d in described.items()}
    return show(values_only, as_json=json, text="\n".join(lines))


def _method_lines(name: str, facts: Mapping[str, Any]) -> list[str]:
    recipes = [f"{preset}: {recipe}" for preset, recipe in facts["recipes"].items()]
    first, *rest = [facts["summary"], facts["paper"], *recipes]
    return [f"{name:<16} {first}", *(f"{'':<16} {line}" for line in rest)]
