"""Whom would the rules let go next? Worked out from waiters and leases alone, recounted for every question.

Written from the rules (R1, R3 to R7, R10), for targets that are not out of credit. It knows no lines, sums or counters.
"""

from math import exp, inf

from luftpause.scheduler.quota.model import Mode, Origin, Scope, State, Target, Waiter

NEAR = 1e-6
DAY = 86_400.0


class Oracle:
    """One target, as it is now."""

    def __init__(self, state: State, target: Target) -> None:
        self.now, self.settings, self.depths = state.now, state.settings, state.depths
        self.t = target
        self.leases = list(target.leases.values())
        self.sequential = target.cascade.until > state.now

    def next(self) -> Waiter | None:
        """
        The first in order that may go.

        Nobody passes one who waits for the same scope, but for owners of shares within their own where it waits for what is kept for them.
        """
        closed, kept, lines = set[str](), set[str](), set[tuple[int, tuple[str, ...], str]]()
        for rank, waiter in self.ranked():
            line = (waiter.priority, waiter.scopes, waiter.caller)
            if closed & set(waiter.scopes) or line in lines:
                continue
            lines.add(line)
            if any(not self.entitled(self.t.scopes[name], waiter.caller, units) for name, units in waiter.cost if name in kept):
                continue
            if any(units > self.t.scopes[name].limit and not self.doubted(self.t.scopes[name]) for name, units in waiter.cost):
                return None  # it is refused now, as its limit has been lowered
            way = self.in_the_way(waiter, rank)
            if way is None:
                return waiter
            name, why = way
            if not name:
                return None
            (kept if why == "kept" else closed).add(name)
        return None

    def ranked(self) -> list[tuple[int, Waiter]]:
        """Class, then depth in a sequential time, then the caller's leases, then arrival; a promoted P2 is the first P1."""

        def key(waiter: Waiter) -> tuple[int, int, int]:
            depth = self.depths.get(waiter.caller, 0) if self.sequential else 0
            return depth, sum(lease.caller == waiter.caller for lease in self.leases), waiter.number

        waiters = list(self.t.waiters.values())
        promoted = self.promoted(sorted((waiter for waiter in waiters if waiter.priority == 2), key=key))
        keyed = [((waiter.priority, 1, *key(waiter)), waiter.priority, waiter) for waiter in waiters if waiter is not promoted]
        if promoted is not None:
            keyed.append(((1, 0, 0, 0, 0), 1, promoted))
        return [(rank, waiter) for _, rank, waiter in sorted(keyed, key=lambda one: one[0])]

    def promoted(self, background: list[Waiter]) -> Waiter | None:
        b = self.t.breaker
        soon = (b.mode is Mode.HALF_OPEN or b.window < inf) and self.now < b.open_until + self.settings.exclusive_seconds[2]
        soon = soon or self.now < self.t.learning_until
        if not background or soon or any(lease.promoted for lease in self.leases):
            return None
        oldest = min(background, key=lambda waiter: waiter.number)
        if self.t.unblocked - oldest.unblocked_at >= self.settings.promote_seconds - NEAR:
            return oldest
        return background[0] if self.now >= self.t.floor_at else None

    def in_the_way(self, waiter: Waiter, rank: int) -> tuple[str, str] | None:
        """The scope that refuses it and why, empty: the target does; None: nothing."""
        if self.target_closed(rank):
            return "", "target"
        for name, units in sorted(waiter.cost):
            why = self.scope_closed(self.t.scopes[name], name, units, rank, waiter.caller)
            if why:
                return name, why
        return None

    def target_closed(self, rank: int) -> bool:
        b, flying = self.t.breaker, len(self.leases)
        if b.mode in {Mode.OPEN, Mode.DISABLED} or (rank == 2 and self.now < self.t.learning_until):
            return True
        probing = b.mode is Mode.HALF_OPEN
        if (probing or b.window < inf) and self.now < b.open_until + self.settings.exclusive_seconds[rank]:
            return True
        if probing and sum(lease.probe and lease.episode == b.episode for lease in self.leases) >= self.settings.probes_max:
            return True
        learned = not probing and b.rate < inf and min(max(1.0, b.rate), b.tokens + (self.now - b.tokens_at) * b.rate) < 1 - NEAR
        return learned or (not probing and flying >= b.window) or flying >= self.at_once(flying) or (self.sequential and flying > 0)

    def at_once(self, flying: int) -> float:
        """The learned most in flight; it rises by one where it has been full long enough."""
        b = self.t.breaker
        stated = b.in_flight_max >= b.in_flight_stated
        rises = flying >= b.in_flight_max and self.now - b.risen_at >= (DAY if stated else self.settings.concurrency_step_seconds)
        return b.in_flight_max + 1 if rises else b.in_flight_max

    def out(self, name: str) -> float:
        return sum(dict(lease.cost).get(name, 0.0) for lease in self.leases)

    def scope_closed(self, s: Scope, name: str, units: float, rank: int, caller: str) -> str:
        """Why; empty: it is open."""
        if self.now < s.blocked_until:
            return "blocked"
        if units > s.limit or s.spec.kind == "concurrent":
            full = self.out(name) > s.limit if units > s.limit else s.limit - self.out(name) < units - NEAR
            return "full" if full else ""
        cap = self.capacity(s)
        free = s.remaining - self.out(name)
        most = max(0.0, cap - units)
        headroom = self.headroom(s, cap, rank)
        if free < min(units, cap) + min(headroom, most) - NEAR:
            return "room"
        kept = self.kept(s, caller, rank) if rank and not self.entitled(s, caller, units) else 0.0
        if free < min(units, cap) + min(headroom + kept, most) - NEAR:
            return "kept"
        health = self.health(s, cap, free)
        if rank == 2 and (
            health < s.spec.red or (health < self.settings.yield_health and self.forecast(s, (0, 1)) * max(self.rest(s), 1) >= 1)
        ):
            return "red"
        return "pace" if rank > 0 and s.spec.kind == "fixed" and health < s.spec.green and self.now < s.paced[rank] else ""

    def doubted(self, s: Scope) -> bool:
        """Somebody told this limit, but not within a window."""
        return (s.origin is not Origin.CONFIGURED or s.limit != s.spec.limit) and self.now - s.told_at >= s.spec.window_seconds

    def capacity(self, s: Scope) -> float:
        return s.limit * (s.spec.burst if s.spec.kind == "bucket" else 1)

    # ---- reservations

    def used(self, s: Scope, owner: str) -> float:
        share = s.shares.get(owner)
        if share is None:
            return 0.0
        return share.used if s.spec.kind == "fixed" else share.used * exp(-(self.now - share.used_at) / s.spec.window_seconds)

    def entitled(self, s: Scope, caller: str, units: float) -> bool:
        share = dict(self.t.spec.reservations).get(caller, 0.0)
        return share > 0 and self.used(s, caller) + units <= share * s.limit + NEAR

    def kept(self, s: Scope, caller: str, rank: int) -> float:
        """What owners of shares still want of them, in classes that are not worse: until the window ends, or in the seconds ahead."""
        total, tau = 0.0, max(60.0, s.spec.window_seconds / 6)
        for owner, part in self.t.spec.reservations:
            if owner == caller or owner not in s.shares:
                continue
            share = s.shares[owner]
            wanted = sum(share.demand[1 : rank + 1]) * exp(-(self.now - share.demand_at) / tau) / tau
            rest = max(0.0, part * s.limit - self.used(s, owner))
            if s.spec.kind == "fixed":
                total += min(rest, wanted * self.rest(s))
            else:
                seconds = self.settings.forecast_seconds
                total += min(rest, part * s.limit * seconds / s.spec.window_seconds, wanted * seconds)
        return total

    # ---- forecasts

    def rest(self, s: Scope) -> float:
        return s.reset_at - self.now if s.spec.kind == "fixed" and s.reset_at < inf else s.spec.window_seconds

    def health(self, s: Scope, cap: float, free: float) -> float:
        pace = max(self.rest(s) / s.spec.window_seconds, 0.02) if s.spec.kind == "fixed" else 1.0
        return min(1.0, max(0.0, free / cap / pace))

    def forecast(self, s: Scope, classes: tuple[int, ...]) -> float:
        tau = max(60.0, s.spec.window_seconds / 6)
        seen = [s.demand[rank] * exp(-(self.now - s.demand_at) / tau) / tau for rank in classes]
        return sum(max(rate, s.spec.declared_demand) if rank == 0 else rate for rank, rate in zip(classes, seen, strict=True))

    def headroom(self, s: Scope, cap: float, rank: int) -> float:
        if rank == 0:
            return s.spec.protect[0] * cap
        horizon, part = (
            (self.rest(s), self.rest(s) / s.spec.window_seconds) if s.spec.kind == "fixed" else (self.settings.forecast_seconds, 1.0)
        )
        return max(s.spec.protect[rank] * cap * part, min(self.forecast(s, (0,)) * horizon, self.settings.forecast_part_max * cap * part))
