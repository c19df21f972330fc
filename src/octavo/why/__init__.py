"""Why a request resumed where it did, and not later.

Inside:

    causes           the causes, and the rule that finds them: engine and simulator share it
    records          a bounded ring: what was found when each request started
    fingerprint      what a prompt was, as far as two can be compared by it, and never its tokens
    misses           for other engines: what tiers were asked for and did not have
    explain, story   from records to a report, and to sentences
"""

from octavo.why.causes import BecameOf, Cause, Loss, find_loss
from octavo.why.explain import explain_request
from octavo.why.fingerprint import Difference, Fingerprint, FingerprintMaker, compare
from octavo.why.misses import MARK, Looks, MissLog, MissReport, find_report, tell_misses
from octavo.why.records import MOST_RECORDS, BelowDevice, StartRecord, WhyLog
from octavo.why.report import Differs, Left, Missing, WhyReport
from octavo.why.story import tell

__all__ = [
    "MARK",
    "MOST_RECORDS",
    "BecameOf",
    "BelowDevice",
    "Cause",
    "Difference",
    "Differs",
    "Fingerprint",
    "FingerprintMaker",
    "Left",
    "Looks",
    "Loss",
    "MissLog",
    "MissReport",
    "Missing",
    "StartRecord",
    "WhyLog",
    "WhyReport",
    "compare",
    "explain_request",
    "find_loss",
    "find_report",
    "tell",
    "tell_misses",
]
