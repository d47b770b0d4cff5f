"""`completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "pravega-spark"
VARIABLE = "_PRAVEGA_SPARK_COMPLETE"
"""By this variable the shell asks the program for completions (click's own way)."""

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    Use it with: eval "$(pravega-spark completion bash)".
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(context.find_root().command, {}, PROGRAM, VARIABLE)
    click.echo(script.source_template % script.source_vars())
