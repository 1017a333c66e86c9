//! addon-signer: certificates and an mTLS gateway for the agents of Open Cluster Management addons.
//!
//! # The map
//!
//! Three rings. What is inside knows nothing of what is outside; `tests/it/layers.rs` reads the imports.
//!
//! ```text
//! program   main  cli  app  demo                        parse, wire, run; the only users of anyhow
//! shell     hub  gateway  inventory  agent              talk, wait, log; none of them imports another
//!           ledger                                      the record of decisions: SQLite or PostgreSQL
//! cross     api  audit  telemetry  listener             Kubernetes' types, decisions, metrics, accepting TLS,
//!           clock  output                               the one reader of the time
//! core      identity  csr  policy  ca  registry  trust  values in, values out: no kube, tokio, clock, dice, log, file
//!           journal                                     entries, their chain and its heads
//!           rate  throttle  sighting  timestamp  private_key  public_key  asn1  general_names  pem  hex
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`identity`] | names of clusters, addons, agents; the convention that writes and reads them as one user |
//! | [`csr`], [`public_key`] | PKCS#10 and the keys in it, read strictly, possession proven; [`csr::build`] writes one |
//! | [`policy`] | the rules; makes [`policy::Approved`], or a [`policy::Refusal`] that names the broken rule |
//! | [`ca`] | `authority`: one CA certificate. `bundle`: anchors. `issuer`: prepare, sign, compare, verify. `tbs`: the template. `serial`: serial numbers. `line`: Next, Active, Old, and the one step that may be taken |
//! | [`registry`] | which addon of which cluster is registered now, and which of its certificates are revoked |
//! | [`trust`] | the value that the hub hands to the gateway: whom to trust for what, and where requests go |
//! | [`rate`], [`throttle`] | how many certificates one identity may get; how many like events are written one by one |
//! | [`sighting`] | which certificate was last used when, from where |
//! | [`private_key`] | a key that signs, prints nothing, and is wiped |
//! | [`timestamp`], [`clock`] | seconds since 1970; the one place that reads them |
//! | `asn1`, `general_names`, `pem`, `hex` | encodings |
//! | [`api`] | AddOnSigner and its CRD, its way into the core's types, the slices of OCM's types that we use |
//! | [`journal`] | what is recorded: entries, the chain of their hashes, heads that vouch for it |
//! | [`ledger`] | where it is recorded: one writer on SQLite or PostgreSQL, readers, the check of all of it |
//! | [`hub`] | one task per line of authorities, one per signer name, one that writes registrations, watches of who is registered; `supervisor` starts and stops them; `lease` says whether this hub leads |
//! | [`gateway`] | accept, TLS, session, routes, proxy; its own serving certificate |
//! | [`inventory`] | the ledger as an aggregated, read-only API of the hub's Kubernetes |
//! | [`agent`] | the managed cluster's side: judge what is stored, enrol, prove, store |
//! | crate `stand-in` | a stand-in for a Kubernetes API server, for the demo and the fast tests; not in the image |
//! | [`telemetry`], [`audit`], `listener`, `output` | metrics, decisions of consequence as lines of JSON, accept loop and TLS of every listener, what commands print |
//! | [`app`], [`cli`], `demo` | one process from hub and gateway; the command line; the whole story on loopback |
//!
//! `ARCHITECTURE.md` follows a request for a certificate, a call through the gateway and a rotation from file to file.
//!
//! # The invariants
//!
//! Each with the tests that fail when it is broken; `SECURITY.md` has all of them.
//!
//! - I1 Only [`policy`] makes an [`policy::Approved`]: `every_request_gets_its_verdict`, `every_refusal_has_a_case`,
//!   `an_approval_by_somebody_else_is_not_proof`.
//! - I2 Only [`ca::issuer::Issuer::prepare`] makes a [`ca::issuer::Prepared`]; signing consumes it. The types say so.
//! - I3 Nothing of a request but key and validated subject reaches a certificate:
//!   `subject_and_key_are_the_requests_byte_for_byte`, `extensions_are_the_templates_and_no_others`.
//! - I4 A leaf is never a CA, never outlives its issuer, has a random serial number:
//!   `a_leaf_is_backdated_and_never_outlives_its_issuer`, `serial_numbers_are_positive_random_and_of_at_most_20_bytes`.
//! - I5 An anchor is trusted everywhere it must be before its key is used:
//!   `next_does_not_sign_before_its_anchor_is_trusted`, `an_anchor_is_published_and_trusted_before_its_key_signs`,
//!   `a_serving_authority_waits_for_the_last_certificate_given_out_without_it`.
//! - I6 An anchor stays until nobody depends on it: `an_old_anchor_stays_until_its_last_leaf_has_expired`,
//!   `an_old_authority_goes_when_its_last_leaf_has_expired_key_and_anchor`.
//! - I7 State is persisted before it is acted on; a failed write stops the step:
//!   `a_hub_that_is_killed_at_any_moment_leaves_a_consistent_line`, `a_line_is_never_written_over_a_newer_one`,
//!   `a_leader_that_was_frozen_does_not_act_when_it_wakes_up`.
//! - I8 An unreadable or deleted registration denies: `registrations_without_standing_are_refused`,
//!   `nothing_has_standing_before_both_lists_are_complete`, `a_detached_cluster_is_refused_by_its_next_request`,
//!   `a_time_that_cannot_be_read_denies`.
//! - I9 Key bytes are in no log, error or Debug, and ours are wiped: `debug_of_a_key_shows_no_key`,
//!   `no_key_reaches_a_log_or_a_status`, `key_is_in_no_log`, `wiped_keys_leave_no_copy`.
//! - I10 Hostile bytes meet only fuzzed parsers: `fuzz/`, `every_fuzz_target_has_seeds`, `other_bytes_are_no_identity`.
//! - I11 The gateway never serves without a client verifier and a non-empty bundle:
//!   `nobody_is_served_before_there_is_a_bundle_and_a_serving_certificate`, `strangers_are_refused_in_the_handshake`.
//! - I12 The end of every background task is observed: `a_gateway_whose_inputs_end_stops`,
//!   `of_a_deleted_signer_nothing_is_trusted_and_nothing_answered`.
//! - I13 No certificate without a row of the ledger, and no request with two:
//!   `hub_killed_between_any_two_steps_leaves_one_certificate_that_is_the_recorded_one`,
//!   `hub_killed_at_each_boundary_on_sqlite_leaves_one_certificate_that_is_the_recorded_one`,
//!   `hubs_killed_at_random_moments_lose_double_and_forget_no_certificate`,
//!   `leader_that_was_frozen_writes_nothing_when_another_has_taken_over`,
//!   `certificate_of_a_deleted_request_is_unpublished_and_nobody_elses`.
//! - I14 A certificate is an identity only of the addon whose CA signed it:
//!   `certificate_of_another_addons_ca_is_no_identity`, `certificate_that_two_signers_vouch_for_is_no_identity`.
//! - I15 No session outlives its credential by more than 2 s: `sessions_end_with_their_certificate`,
//!   `idle_sessions_end_within_two_seconds_of_losing_standing`, `responses_under_way_end_within_two_seconds_of_losing_standing`,
//!   `sessions_end_within_two_seconds_of_a_revocation`.

pub mod agent;
pub mod api;
pub mod app;
pub(crate) mod asn1;
pub mod audit;
pub mod ca;
pub mod cli;
pub mod clock;
pub mod csr;
#[cfg(feature = "demo")]
pub mod demo;
pub mod gateway;
pub(crate) mod general_names;
pub(crate) mod hex;
pub mod hub;
pub mod identity;
pub mod inventory;
pub mod journal;
pub mod ledger;
pub(crate) mod listener;
pub(crate) mod output;
pub(crate) mod pem;
pub mod policy;
pub mod private_key;
pub mod public_key;
pub mod rate;
pub mod registry;
pub mod sighting;
pub mod telemetry;
pub mod throttle;
pub mod timestamp;
pub mod trust;
