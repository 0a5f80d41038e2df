"""`python -m llmqueue_cli.simulate`: the simulated provider as a process of its own."""

import typer

from llmqueue_cli.simulate.command import fake_provider

typer.run(fake_provider)
