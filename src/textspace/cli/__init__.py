"""The command line: one function per command. Heavy packages load inside the command that needs them."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import textspace
from textspace.cli import (  # noqa: F401 (each adds its commands)
    answering,
    judging,
    making,
    reading,
    reproducing,
    sampling,
    using,
)
from textspace.cli.shared import app, tell
from textspace.errors import TextspaceError
from textspace.train.signals import orderly_exit

__all__ = ["app", "main"]


PANELS = {
    "Learn": ["train", "describe", "demo", "recipes"],
    "Use": ["encode", "decode", "reconstruct", "sample", "interpolate", "vary", "neighbors", "score"],
    "Judge": ["info", "doctor", "evaluate", "compare", "features"],
    "Questions and answers": ["answer", "rank"],
    "The papers": ["papers"],
}
"""Commands as `--help` lists them."""


def _arrange() -> None:
    """In panels; typer puts commands of commands (`recipes`) last in theirs."""
    panels = {command: panel for panel, commands in PANELS.items() for command in commands}
    order = [*panels]
    app.registered_commands.sort(key=lambda each: order.index(_name(each)))
    registered: list[Any] = [*app.registered_commands, *app.registered_groups]
    for each in registered:
        each.rich_help_panel = panels[_name(each)]


def _name(registered: Any) -> str:
    return str(registered.name or registered.callback.__name__)


_arrange()

UsageError: Any = typer.BadParameter.__mro__[1]
"""Wrong arguments: click's exception, which typer carries along without a public name."""


def main() -> None:
    """Run the command line: a mistake of the user's is one line on standard error and exit code 2.

    SIGTERM and SIGHUP end it in order, with exit code 128 + the signal's number, so that no copy of the text is left;
    training saves what it has before and exits with 130, as after Ctrl-C.
    """
    with orderly_exit():
        _run()


def _run() -> None:
    if sys.stdout is None:  # closed by who called us
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (as long as we run)
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if not debug:
        warnings.showwarning = lambda message, *_, **__: tell(f"textspace: note: {message}")
    try:
        code = app(arguments, prog_name="textspace", standalone_mode=False)
    except TextspaceError as error:
        if debug:
            raise
        tell(f"textspace: {error}")
        raise SystemExit(2) from None
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            command = error.ctx.command_path if error.ctx else "textspace"
            tell(f"textspace: {error.format_message().rstrip('.')}; see {command} --help")
        raise SystemExit(2) from None
    except BrokenPipeError:  # e.g. `| head`
        sys.stderr.close()
        raise SystemExit(141) from None
    except (OSError, MemoryError, UnicodeEncodeError, RuntimeError) as error:
        told = _not_our_fault(error)
        if debug or told is None:
            raise
        tell(f"textspace: {told}")
        sys.stdout = None  # what it still holds cannot be written at the end either
        raise SystemExit(2) from None
    raise SystemExit(code or 0)


def _not_our_fault(error: Exception) -> str | None:
    """What is wrong with the machine, in one sentence; None where the error is of another kind."""
    if isinstance(error, UnicodeEncodeError):
        shown = error.object[error.start : error.start + 1]
        return f"the terminal's encoding {error.encoding} has no {shown!r}: set PYTHONIOENCODING=utf-8"
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        return "there is not enough memory for this: ask for less at a time"
    if isinstance(error, OSError) and error.errno is not None:
        where = f" ({error.filename})" if error.filename else ""
        return f"could not read or write{where}: {error.strerror}"
    return None


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"textspace {textspace.__version__}")
        raise typer.Exit


@app.callback()
def _all(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show which version this is.")
    ] = False,
) -> None:
    pass
