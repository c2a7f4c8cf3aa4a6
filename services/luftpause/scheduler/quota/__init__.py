"""Who may call a shared API now? The rate governor: what providers say about their limits, and the pure core that decides."""
