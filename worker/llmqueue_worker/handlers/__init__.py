"""Handler jobs: the owner's own async functions, whose provider calls are charged, booked and
replayed.

loading  the module that holds the functions
runner   from a grant to an outcome: arguments, the function, what became of it
run      one run's time, its present call, and the end that nobody can argue away
llm      `ctx.llm`: the one way to the provider
book     what runs tell the store: acquire, finished calls, journal, progress
progress at most one write a second, the last one always
"""
