"""The command line: one function per command. Heavy packages load inside the command that needs them."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

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

__all__ = ["app", "main"]


UsageError: Any = typer.BadParameter.__mro__[1]
"""Wrong arguments: click's exception, which typer carries along without a public name."""


def main() -> None:
    """Run the command line: a mistake of the user's is one line on standard error and exit code 2."""
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
    raise SystemExit(code or 0)


@app.callback()
def _all(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    pass
