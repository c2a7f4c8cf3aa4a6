"""The scheduler: a pure core that decides, and a host that carries it out."""
