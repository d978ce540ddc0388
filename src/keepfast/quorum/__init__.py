"""Zab without I/O: who belongs to the ensemble, who leads it, and how a history is committed.

What may live here: state machines whose inputs are peers' packets and the time, and whose outputs
are packets and effects. What may not: sockets, files, threads, clocks, logging, the tree. The
driver passes in packets and times, and performs the effects.
"""

from keepfast.quorum.chains import Chain, Run, chain_of, last_common
from keepfast.quorum.confirmations import Confirmations
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
    StoreSecret,
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
from keepfast.quorum.hello import (
    TREE_SIGNATURE,
    LeaderState,
    StoredIdentity,
    decode_said,
    decode_snap_digests,
    encode_snap,
)
from keepfast.quorum.leader import Leader, LeaderPhase
from keepfast.quorum.leader_means import LeaderMeans, OwnHistory
from keepfast.quorum.learner import EndOfFollowing, Learner, LearnerFacts, Stage
from keepfast.quorum.learner_link import Step
from keepfast.quorum.links import (
    Link,
    RecordStream,
    TreeStream,
    encode_commit,
    encode_packet,
    encode_proposal,
)
from keepfast.quorum.member_spec import (
    Address,
    MemberRole,
    MemberSpec,
    canonical_host,
    parse_member,
)
from keepfast.quorum.membership import Membership, parse_membership
from keepfast.quorum.notes import Note, note
from keepfast.quorum.planner import (
    ALWAYS_RECORDS_BYTES,
    CatchUp,
    LearnerHistory,
    Plan,
    ProvenHistory,
    plan_catch_up,
)
from keepfast.quorum.plausibility import AheadVoters, comes_from
from keepfast.quorum.quorum_options import QuorumOptions
from keepfast.quorum.quorums import Quorums
from keepfast.quorum.shared_secret import (
    SECRET_BYTES,
    Receipt,
    SharedSecret,
    decode_offer,
    decode_receipt,
    encode_offer,
    encode_receipt,
)
from keepfast.quorum.standing import Standing
from keepfast.quorum.votes import NO_VOTE, NO_ZXID, Ballot, Vote

__all__ = [
    "ALWAYS_RECORDS_BYTES",
    "ELECTION_NOTES",
    "NO_VOTE",
    "NO_ZXID",
    "SECRET_BYTES",
    "TREE_SIGNATURE",
    "Address",
    "AheadVoters",
    "Ballot",
    "Candidacy",
    "CatchUp",
    "Chain",
    "Confirmations",
    "Dial",
    "DiskOrder",
    "Effect",
    "Elected",
    "Election",
    "ElectionOptions",
    "EndOfFollowing",
    "Hangup",
    "InitialiseStore",
    "InstallTree",
    "Leader",
    "LeaderMeans",
    "LeaderPhase",
    "LeaderState",
    "Learner",
    "LearnerFacts",
    "LearnerHistory",
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
    "Receipt",
    "RecordStream",
    "Run",
    "SharedSecret",
    "Stage",
    "Standing",
    "Step",
    "StoreEpochs",
    "StoreMembership",
    "StoreSecret",
    "StoredIdentity",
    "TreeStream",
    "TruncateLog",
    "UseMembership",
    "Vote",
    "canonical_host",
    "chain_of",
    "comes_from",
    "decode_offer",
    "decode_receipt",
    "decode_said",
    "decode_snap_digests",
    "encode_commit",
    "encode_offer",
    "encode_packet",
    "encode_proposal",
    "encode_receipt",
    "encode_snap",
    "last_common",
    "note",
    "parse_member",
    "parse_membership",
    "plan_catch_up",
]
