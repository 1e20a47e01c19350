"""The `bacon` command itself: output, errors, and options that commands share."""

from __future__ import annotations

import json as json_module
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bacon_gcd import __version__
from bacon_gcd.config import MAX_SEED, UserError
from bacon_gcd.system.files import one_line_errors
from bacon_gcd.system.launch import AgreedError, launched_number, n_launched, speaks
from bacon_gcd.system.progress import working
from bacon_gcd.system.text import visible

if TYPE_CHECKING:
    import torch

app = typer.Typer(
    name="bacon",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Find categories in images when only some classes have labels. Start with: bacon demo",
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", envvar="BACON_DATA", help="Folder that holds the datasets."),
]


TrunkPrecision = Annotated[
    str, typer.Option("--trunk", help="float32, bfloat16, or auto: bfloat16 where it is native.")
]


RunSeed = Annotated[
    int, typer.Option("--seed", min=0, max=MAX_SEED, help="Decides everything that is drawn.")
]
DeviceName = Annotated[
    str, typer.Option("--device", help="auto (the best there is), cpu, cuda, cuda:N or mps.")
]
StoredTokens = Annotated[
    str,
    typer.Option("--stored", help="How tokens are kept on disk: half, or int8 (half as large)."),
]
Workers = Annotated[int, typer.Option(min=0, help="Threads that prepare images.")]
ImageSide = Annotated[
    int | None, typer.Option(min=1, help="Side of the images, in pixels; the backbone's own.")
]
TunedPart = Annotated[
    str, typer.Option(help="What is trained of the backbone: block, conv, vectors.")
]
LabelTable = Annotated[
    Path | None, typer.Option(help="Table of labels (file_name, label) beside a folder.")
]
NewVectors = Annotated[
    Path | None, typer.Option(help="Their vectors, if the run was made from --features.")
]
RunFolder = Annotated[
    Path, typer.Argument(help="Folder of a run, as made by bacon train or discover.")
]


# How a dataset is split, as in data.longtail.SplitSettings.
Profile = Annotated[
    str | None, typer.Option(help="exp, pareto, balanced or listed; the dataset's own if none.")
]
LARGEST_RATIO = 1e9  # infinity is none
Ratio = Annotated[
    float | None,
    typer.Option(min=1.0, max=LARGEST_RATIO, help="Largest over smallest class [100]."),
]
LabeledRatio = Annotated[
    float | None,
    typer.Option(min=1.0, max=LARGEST_RATIO, help="Ratio of labeled images, if another."),
]
UnlabeledRatio = Annotated[
    float | None,
    typer.Option(min=1.0, max=LARGEST_RATIO, help="Ratio of unlabeled images, if another."),
]
KnownClasses = Annotated[
    str | None,
    typer.Option(help="Number of known classes (the first), their share: 0.5, or ids: 0,3,7."),
]
LabeledShare = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Labeled share of known classes.")
]


STOPPED = 130
"""Exit code after Ctrl-C, as a shell has it."""
EMBEDDING = {"discover", "embed", "predict", "update"}
"""Commands that keep the features of every image they have seen."""


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """A person's mistake or an error of the file system is one line and exit code 2."""
    try:
        with one_line_errors():
            yield
    except UserError as error:
        # Several processes: one says what all know, each what it alone knows.
        if speaks() or not isinstance(error, AgreedError):
            sys.stderr.write(f"bacon: {visible(f'{_which()}{error}')}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        kept = set(sys.argv[1:2]) & EMBEDDING
        more = "; the same command goes on: images that were embedded are kept" if kept else ""
        sys.stderr.write(f"bacon: stopped{more}\n")
        sys.exit(STOPPED)


@contextmanager
def left_at_the_end() -> Iterator[None]:
    """Leave the other processes of a run in good order, where there are any."""
    try:
        yield
    finally:
        if n_launched() > 1:
            from bacon_gcd.system.processes import leave

            leave()


def _which() -> str:
    """Which of several processes this is; nothing for the one that speaks for all."""
    return "" if speaks() else f"process {launched_number()} of {n_launched()}: "


def show(value: Mapping[str, Any], *, as_json: bool, text: str | None = None) -> None:
    """One JSON object for a script, or lines for a person; of several processes, one does."""
    if not speaks():
        return
    if as_json:
        line = json_module.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
        typer.echo(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", line))
    else:
        say(text if text is not None else in_lines(value))


# Characters that JSON leaves as they are, but a terminal obeys, or UTF-8 cannot hold.
CONTROLS = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def say(text: str, *, err: bool = False) -> None:
    """Print lines for a person; names in them cannot send commands to the terminal."""
    typer.echo(visible(text, keep="\n\t"), err=err)


def tell(line: str) -> None:
    """Say on stderr what is going on; of several processes, one does."""
    if speaks():
        say(line, err=True)


def chosen_device(name: str) -> torch.device:
    """The device of this name, after joining the other processes."""
    from bacon_gcd.system import processes
    from bacon_gcd.system.devices import find_device

    device = processes.own_device(find_device(name))
    processes.join(device)
    if n_launched() > 1:
        refuse_other_programs()
    return device


def device_of_one(what: str, name: str) -> torch.device:
    """The device of this name, for a command that several processes cannot share."""
    from bacon_gcd.system.devices import find_device

    if n_launched() > 1:
        raise AgreedError(f"{what} is done by one process; start it without torchrun")
    return find_device(name)


@contextmanager
def loading() -> Iterator[None]:
    """Say on a terminal that modules are being imported: PyTorch alone takes a second or more."""
    with working("loading the program") if sys.stderr.isatty() else nullcontext():
        yield


def tell_device(device: torch.device) -> None:
    """Say which device it is, once the input is known to be good: a mistake is one line."""
    from bacon_gcd.system.devices import device_line

    tell(device_line(device))


def refuse_other_programs() -> None:
    """Refuse processes that were given other options, or run other versions."""
    import numpy
    import torch

    from bacon_gcd.system.processes import refuse_differences

    same = "start all with the same command and environment"
    refuse_differences("options", sys.argv[1:], same)
    versions = {"bacon_gcd": __version__, "torch": torch.__version__, "numpy": numpy.__version__}
    refuse_differences("versions", versions, same)


def in_lines(value: Mapping[str, Any]) -> str:
    """One line per entry, values below each other."""
    width = max((len(str(key)) for key in value), default=0)
    return "\n".join(f"{key!s:<{width}}  {item}" for key, item in value.items())


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bacon {__version__}")
        raise typer.Exit


@app.callback()
def bacon(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Find categories in images when only some classes have labels."""


def class_list(text: str | None) -> int | float | tuple[int, ...] | None:
    """`80` is a number of classes, `0.5` a share, `0,3,7` are ids (`5,` is one id)."""
    if text is None:
        return None
    try:
        if "," not in text:
            return float(text) if "." in text else int(text)
        ids = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        ids = ()
    if not ids:
        raise UserError(f"--known {text!r}: give a number, a share, or class ids such as 0,3,7")
    return ids
