"""How does a person's decision reach the run that waits for it, once and for good?"""

import asyncio

from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.core.events import ApprovalAnswered
from luftpause.runtime.core.model import Verdict
from luftpause.runtime.entries import Entry
from luftpause.runtime.recorder import Over, Recorder
from luftpause.runtime.refusals import bad_argument, stopping


async def answer(entry: Entry, allow: bool, approval_id: str | None, recorder: Recorder, at: float) -> tuple[Verdict, bool]:
    """What is decided about this approval (without an id the oldest), and whether that was decided by this call. On disk on return.

    Raises LuftpauseError (`bad_argument`) where there is no such approval.
    """
    await entry.taken_up.wait()
    wanted = approval_id or next((call.approval for call in entry.run.waiting), None) or _last(entry)
    asked = next((call for call in entry.run.waiting if call.approval == wanted), None)
    if asked is None or wanted is None:
        verdict = next((each for each in entry.run.verdicts if each.approval == wanted), None)
        if verdict is None:
            raise _unknown(entry, approval_id)
        await over(entry, verdict.approval)  # its decision may still be on its way to the disk
        return verdict, False
    try:
        effects = await recorder.record(entry, ApprovalAnswered(wanted, allow, at))
    except Over:
        raise stopping() from None
    entry.decided.put_nowait(effects)
    return Verdict(wanted, asked.asked.name, allow), True


async def over(entry: Entry, approval: str) -> bool | None:
    """When the approval doesn't wait any longer: what was decided; None: the run has ended without a decision."""
    key = f"{entry.handle}/{approval}"
    while key in entry.approval_keys and not entry.ended:
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry.watchers.add(watcher)
        try:
            await watcher
        finally:
            entry.watchers.discard(watcher)
    run = entry.shown or entry.run
    return next((verdict.allowed for verdict in run.verdicts if verdict.approval == approval), None)


def _last(entry: Entry) -> str | None:
    """The approval that was decided last."""
    return entry.run.verdicts[-1].approval if entry.run.verdicts else None


def _unknown(entry: Entry, approval_id: str | None) -> LuftpauseError:
    waiting = ", ".join(call.approval for call in entry.run.waiting)
    if waiting:
        return bad_argument("approvalId", f"{entry.handle} has no approval {approval_id!r}; waiting are: {waiting}")
    if entry.run.state.ended:
        return bad_argument("handle", f"{entry.handle} has ended ({entry.run.state.value}); nothing waits for approval")
    named = f" {approval_id!r}" if approval_id else ""
    return bad_argument("handle", f"{entry.handle} waits for no approval{named} now")
