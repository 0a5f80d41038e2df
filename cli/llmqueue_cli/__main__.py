"""`python -m llmqueue_cli`."""

from llmqueue_cli.main import main

main()
