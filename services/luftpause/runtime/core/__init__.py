"""The runtime's pure core: `advance(run, event) -> RunStep`.

Nothing here knows asyncio, clocks, random numbers, files, logs or the network; an import contract keeps it so. The journal is the list of
a run's events, and a run after a restart is their fold.
"""
