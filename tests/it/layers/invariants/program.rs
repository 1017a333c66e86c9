//! The invariants, which `src/lib.rs` and the code refer to by their numbers, and where they have limits.

use super::{Row, row};

pub(super) const ROWS: [Row; 16] = [
    row(
        "I1",
        "Only `policy` makes an `Approved`: its fields are private, and its only constructors are the two \
         evaluations.",
        &[
            "every_request_gets_its_verdict",
            "every_refusal_has_a_case",
            "an_approval_by_somebody_else_is_not_proof",
            "every_corpus_request_gets_its_verdict_on_an_api_server",
        ],
    ),
    row("I2", "Only `Issuer::prepare` makes a `Prepared`, and signing consumes it.", &[]),
    row(
        "I3",
        "Of a CSR, only its key and its validated subject reach a certificate.",
        &[
            "subject_and_key_are_the_requests_byte_for_byte",
            "extensions_are_the_templates_and_no_others",
            "what_is_issued_is_what_the_golden_certificates_show",
        ],
    ),
    row(
        "I4",
        "A leaf is never a CA, never outlives its issuer, and has a serial number with 128 random bits.",
        &[
            "a_leaf_is_backdated_and_never_outlives_its_issuer",
            "an_issuer_near_its_end_or_before_its_start_does_not_issue",
            "serial_numbers_are_positive_random_and_of_at_most_20_bytes",
        ],
    ),
    row(
        "I5",
        "An anchor is trusted wherever it must be before its key is used ([limits](#limits-of-i5)).",
        &[
            "next_does_not_sign_before_its_anchor_is_trusted",
            "new_authority_signs_only_when_every_gateway_trusts_it",
            "serving_authority_waits_for_last_certificate_without_it",
            "new_authority_awaits_all_clusters_and_restart_writes_nothing",
        ],
    ),
    row(
        "I6",
        "An anchor remains until nothing depends on it.",
        &[
            "an_old_anchor_stays_until_its_last_leaf_has_expired",
            "old_authority_goes_with_key_and_anchor_after_its_last_leaf",
            "older_secret_drops_no_anchor_while_certificates_live",
            "finish_never_drops_what_is_not_old",
        ],
    ),
    row(
        "I7",
        "State is persisted before it is acted on; a failed write stops the step.",
        &[
            "a_hub_that_is_killed_at_any_moment_leaves_a_consistent_line",
            "kills_in_a_rotation_repeat_nothing_and_fail_nobody",
            "a_line_is_never_written_over_a_newer_one",
            "a_leader_that_was_frozen_does_not_act_when_it_wakes_up",
        ],
    ),
    row(
        "I8",
        "An addon that is not eligible gets nothing: its ManagedClusterAddOn is unreadable or deleted, or its cluster \
         is not accepted.",
        &[
            "registrations_without_eligibility_are_refused",
            "nothing_is_eligible_before_both_lists_are_complete",
            "an_addon_without_eligibility_is_denied_on_fresh_evidence",
            "a_time_that_cannot_be_read_denies",
        ],
    ),
    row(
        "I9",
        "Key bytes appear in no log, error or Debug output, and the program's own copies are wiped.",
        &[
            "no_key_reaches_a_log_or_a_status",
            "what_an_api_server_answered_is_never_quoted",
            "a_secret_is_found_in_every_encoding",
            "wiped_keys_leave_no_copy",
        ],
    ),
    row(
        "I10",
        "Hostile bytes reach only fuzzed parsers. `fuzz/` covers CSRs with policy, identities, kubeconfigs, and \
         certificates, paths and headers at the gateway.",
        &["every_fuzz_target_has_seeds", "no_bytes_are_a_request_by_chance", "other_bytes_are_no_identity"],
    ),
    row(
        "I11",
        "The gateway never serves without a client verifier and a non-empty bundle.",
        &[
            "nobody_is_served_without_bundle_and_serving_certificate",
            "strangers_are_refused_in_the_handshake",
            "sessions_are_never_resumed",
            "tls_1_2_is_refused",
        ],
    ),
    row(
        "I12",
        "The end of every background task is observed ([exceptions](#exceptions-to-i12)).",
        &[
            "the_end_of_each_task_ends_the_process_and_is_said",
            "the_end_of_each_of_the_hubs_tasks_ends_the_hub",
            "a_task_that_ends_while_it_is_told_to_stop_was_stopped",
            "a_gateway_whose_inputs_end_stops",
        ],
    ),
    row(
        "I13",
        "No certificate without a row in the ledger; no two different certificates for one CSR; a leader of an \
         earlier epoch writes nothing ([limits](#limits-of-i13)).",
        &[
            "kill_between_any_two_steps_leaves_one_recorded_certificate",
            "random_kills_lose_or_duplicate_no_certificate",
            "frozen_leader_writes_nothing_after_another_takes_over",
            "leader_of_an_earlier_epoch_writes_nothing",
        ],
    ),
    row(
        "I14",
        "A certificate is an identity only for the addon whose CA signed it.",
        &[
            "certificate_of_another_addons_ca_is_no_identity",
            "certificate_that_two_signers_vouch_for_is_no_identity",
            "only_what_the_authority_itself_has_signed_is_an_identity",
        ],
    ),
    row(
        "I15",
        "No session outlives its credential by more than 2 s.",
        &[
            "sessions_end_with_their_certificate",
            "idle_sessions_end_within_two_seconds_of_losing_eligibility",
            "sessions_end_within_two_seconds_of_a_revocation",
            "upgrades_end_within_two_seconds_of_losing_eligibility",
        ],
    ),
    row(
        "I16",
        "What is kept of others' objects is bounded by what was consented, never by what exists.",
        &[
            "no_author_of_one_kind_of_objects_fills_memory",
            "tenants_without_consent_fill_no_memory",
            "each_namespace_is_watched_for_as_long_as_it_is_wanted",
            "padding_costs_nothing_and_is_told_where_it_matters",
        ],
    ),
];

pub(super) const NOTES: &str = "
## A model of a lineage

A model explores I4 to I7. In it a hub ends at each write, gateways learn late, agents get anchors by a ManifestWork or
with their certificates alone, an AddOnSigner comes and goes, authorities are tainted and revoked, another program
removes what administrators have requested, an issuer answers late, with a short authority or with one that has left the
lineage, a clock jumps, and a Secret comes from a backup, also after a taint. The invariants hold in every order of 8 of
these (7 with agents, 6 with taints and revocations, an issuer or mishaps) and in 150,000 random walks of 40:
`no_order_of_rotations_breaks_an_invariant`, `no_order_of_agents_breaks_an_invariant`,
`no_signer_that_comes_and_goes_breaks_an_invariant`, `no_order_of_taints_and_revocations_breaks_an_invariant`,
`no_late_answer_of_an_issuer_breaks_an_invariant`, `no_clock_and_no_restored_secret_breaks_an_invariant`. Copies of the
machine with one fault each are found: `a_broken_machine_is_found`, `a_machine_that_overlooks_agents_is_found`.

## Limits of I5

- An addon that becomes eligible again after the next authority began to sign may have an older bundle. So may one that
  was installed while the hub's clock was more than a minute behind. addon-signer-agent recovers by itself if it runs
  then, and else [with its next renewal](runbooks/rotate-a-ca.md#an-agent-that-missed-a-new-anchor)
  (`agent_distrusting_gateway_gets_anchors_with_new_certificate`).
- An authority that has a day left is replaced even if the hub does not know whether all agents or gateways trust the
  next one ([decision 11](decisions/0011-the-gateways-authority-follows-the-longest-certificate.md)). The hub says so
  (`serving_successor_without_evidence_is_forced_in_time`).
- With standalone gateways, a signer that starts knows only the gateways whose Leases exist. A gateway that is
  partitioned and whose pod was deleted earlier refuses certificates of newer authorities; once its data is too old, it
  refuses all.
- An AddOnSigner that was out of effect, or whose Secret was restored from before a rotation, may sign briefly before
  the gateways have read its new status.
- If an API server sends only bookmarks on the signer's watch of Leases while the gateways renew theirs at another API
  server, the signer forgets these gateways.

## Exceptions to I12

The end of these tasks is not observed: those of an HTTP/2 connection, which end with it (`connection.rs` in
`crates/gateway/src`, `backend/http2/mod.rs` for backends), and that of an upload that outlasts the start of its answer
(the same file), which ends with its request.

## Limits of I13

A ledger that was lost, or restored from a backup, does not know what happened since. A CSR that has a certificate keeps
it, and the hub reports how many of these certificates the ledger lacks
(`older_ledger_is_noticed_and_requests_keep_one_certificate`). If the ledger has the intent for a CSR, the hub records
the certificate that the CSR has (`ledger_with_only_intent_recovers_certificate_from_request`).
";
