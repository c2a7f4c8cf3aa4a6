"""The scheduler's pure core: `decide(state, event) -> Step`.

Nothing here knows asyncio, clocks, random numbers, files, logs or the network; an import contract keeps it so. Time is a float in
seconds that comes in with each event (the host's monotonic clock). Facts are in the past tense, decisions in the imperative.
"""
