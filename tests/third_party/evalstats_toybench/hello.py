"""The command this plugin adds."""

import click


@click.command()
def toy():
    """Say hello."""
    click.echo("hello from toybench")
