"""Tables (dicts) whose last changes can be taken back, at the cost of those changes alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from bacon_gcd.discovery.edits import Edit

# Changes that are remembered for taking edits back without a replay: some 50 MB at most.
KEPT_CHANGES = 300_000


class Change(NamedTuple):
    """One entry of one table, and what stood there before."""

    table: dict[Any, Any]
    key: Any
    before: Any


class _Step(NamedTuple):
    edit: Edit
    changes: list[Change]


_ABSENT = object()


class Journal:
    """What each edit changed. The oldest edits are forgotten when they become too many."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        """Those of the edit that is being applied."""
        self._steps: deque[_Step] = deque()
        self._n_kept = 0  # changes in all steps
        self.n_steps = 0
        """Edits that are not taken back, also forgotten ones."""

    def set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Put a value into a table."""
        self.changes.append(Change(table, key, table.get(key, _ABSENT)))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Remove an entry of a table, if it is there."""
        if key in table:
            self.changes.append(Change(table, key, table.pop(key)))

    def end_step(self, edit: Edit) -> list[Change]:
        """The changes since the last step are those of this edit."""
        changes, self.changes = self.changes, []
        self._steps.append(_Step(edit, changes))
        self.n_steps += 1
        self._n_kept += len(changes)
        while self._n_kept > KEPT_CHANGES and len(self._steps) > 1:
            self._n_kept -= len(self._steps.popleft().changes)
        return changes

    def cancel_step(self) -> None:
        """The changes since the last step never happened."""
        changes, self.changes = self.changes, []
        _restore(changes)

    @property
    def last(self) -> _Step | None:
        """The step that `take_back` undoes; None: there is none, or it is forgotten."""
        return self._steps[-1] if self._steps else None

    def take_back(self) -> None:
        """Undo the last step."""
        changes = self._steps.pop().changes
        self.n_steps -= 1
        self._n_kept -= len(changes)
        _restore(changes)


def _restore(changes: Sequence[Change]) -> None:
    for table, key, before in reversed(changes):
        if before is _ABSENT:
            table.pop(key, None)
        else:
            table[key] = before
