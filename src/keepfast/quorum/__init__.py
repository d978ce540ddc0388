"""Zab without I/O: who belongs to the ensemble, who leads it, and how a history is agreed on.

What may live here: machines that take what peers said and the time, and give what to say and do.
What may not: sockets, files, threads, clocks, logging, the tree. The driver passes in packets and
times, and carries out what the machines ask for.
"""

from keepfast.quorum.chains import Chain, Run, chain_of, last_common
from keepfast.quorum.effects import (
    Dial,
    DiskOrder,
    Effect,
    Hangup,
    InitialiseStore,
    InstallTree,
    Notify,
    PrepareTree,
    StoreEpochs,
    StoreMembership,
    TruncateLog,
    UseMembership,
)
from keepfast.quorum.election import (
    ELECTION_NOTES,
    Candidacy,
    Elected,
    Election,
    ElectionOptions,
)
from keepfast.quorum.hello import TREE_SIGNATURE, decode_snap_digests, encode_snap
from keepfast.quorum.leader import Leader, LeaderHost, OwnHistory
from keepfast.quorum.leader import Phase as LeaderPhase
from keepfast.quorum.learner import Learner, LearnerFacts, LearnerHost, Stage
from keepfast.quorum.learner_link import Step
from keepfast.quorum.links import (
    Link,
    RecordStream,
    TreeStream,
    encode_commit,
    encode_packet,
    encode_proposal,
)
from keepfast.quorum.membership import (
    Address,
    MemberRole,
    Membership,
    MemberSpec,
    canonical_host,
    parse_member,
    parse_membership,
)
from keepfast.quorum.notes import Note, note
from keepfast.quorum.options import QuorumOptions
from keepfast.quorum.planner import (
    ALWAYS_RECORDS_BYTES,
    CatchUp,
    LearnerHistory,
    Plan,
    ProvenHistory,
    plan_catch_up,
)
from keepfast.quorum.quorums import Quorums
from keepfast.quorum.standing import Standing
from keepfast.quorum.votes import NO_VOTE, NO_ZXID, Ballot, Vote

__all__ = [
    "ALWAYS_RECORDS_BYTES",
    "ELECTION_NOTES",
    "NO_VOTE",
    "NO_ZXID",
    "TREE_SIGNATURE",
    "Address",
    "Ballot",
    "Candidacy",
    "CatchUp",
    "Chain",
    "Dial",
    "DiskOrder",
    "Effect",
    "Elected",
    "Election",
    "ElectionOptions",
    "Hangup",
    "InitialiseStore",
    "InstallTree",
    "Leader",
    "LeaderHost",
    "LeaderPhase",
    "Learner",
    "LearnerFacts",
    "LearnerHistory",
    "LearnerHost",
    "Link",
    "MemberRole",
    "MemberSpec",
    "Membership",
    "Note",
    "Notify",
    "OwnHistory",
    "Plan",
    "PrepareTree",
    "ProvenHistory",
    "QuorumOptions",
    "Quorums",
    "RecordStream",
    "Run",
    "Stage",
    "Standing",
    "Step",
    "StoreEpochs",
    "StoreMembership",
    "TreeStream",
    "TruncateLog",
    "UseMembership",
    "Vote",
    "canonical_host",
    "chain_of",
    "decode_snap_digests",
    "encode_commit",
    "encode_packet",
    "encode_proposal",
    "encode_snap",
    "last_common",
    "note",
    "parse_member",
    "parse_membership",
    "plan_catch_up",
]
