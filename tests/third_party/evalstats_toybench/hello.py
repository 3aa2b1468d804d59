"""The commands this plugin adds."""

import click


@click.command()
def toy():
    """Say hello."""
    click.echo("hello from toybench")


@click.command()
@click.option("--bank", required=True)
def drive(bank):
    """Ask the toy model, which is always right, three items of a bank."""
    from evalstats_plugin.adaptive.plan import Plan

    plan = Plan(bank=bank, max_items=3)
    session = plan.session(plan.load())
    while session.stopped is None:
        for place in session.next().tolist():
            session.record(place, 1.0)
    click.echo(f"stopped: {session.stopped}")
