//! What agents, administrators and other programs on the hub's cluster cannot have signed, written or trusted.

use super::{Row, row};

pub(super) const ROWS: [Row; 25] = [
    row(
        "B1",
        "A cluster gets no certificate for another cluster, even one whose name begins or ends like its own; labels \
         count for nothing.",
        &[
            "a_cluster_whose_name_is_a_prefix_is_another_cluster",
            "every_corpus_request_gets_its_verdict_on_an_api_server",
            "labels_that_lie_are_refused",
            "requests_of_others_with_our_labels_do_not_count",
        ],
    ),
    row(
        "B2",
        "An addon's own hub identity gets certificates for that addon on its own cluster only.",
        &[
            "addon_identity_asks_only_for_itself_on_its_own_cluster",
            "an_addon_of_a_cluster_whose_name_begins_anothers_may_not_ask",
            "whatever_asks_for_a_cluster_waits_with_the_cluster",
            "token_driver_account_is_told_to_use_the_csr_driver",
        ],
    ),
    row(
        "B3",
        "By names or numbers of CSRs a cluster gets no more than its rate, and delays no other cluster.",
        &[
            "names_that_a_cluster_chooses_give_it_no_more_certificates",
            "names_that_the_requester_chooses_give_it_no_more",
            "cluster_with_many_bad_requests_delays_nobody_else",
            "a_tenant_with_ten_thousand_entries_does_not_delay_another",
        ],
    ),
    row(
        "B4",
        "The hub keeps of a cluster's CSRs what fits the cluster's budget, whatever they are padded with.",
        &[
            "tenant_out_of_room_is_reread_and_others_are_not",
            "whatever_a_requester_pads_little_is_kept",
            "a_request_with_large_labels_is_refused_by_its_size",
            "refused_request_with_finalizers_does_not_linger",
        ],
    ),
    row(
        "B5",
        "A cluster that undoes what the hub writes meets growing pauses, and neither stops nor delays the hub's \
         writes for other clusters.",
        &[
            "repeatedly_removed_entry_is_given_up_only_on_that_cluster",
            "what_is_refused_backs_off_is_reported_and_holds_up_nobody",
            "repeatedly_undone_work_is_restored_with_growing_pauses",
            "flapping_cluster_changes_message_with_growing_pauses",
        ],
    ),
    row(
        "B6",
        "Large or unreadable objects hide no suspension, revocation or deletion, and the hub keeps little of them.",
        &[
            "a_status_too_large_hides_no_eligibility_and_is_not_kept",
            "an_object_with_a_time_that_cannot_be_read_hides_nobody",
            "a_csr_with_a_time_that_cannot_be_read_hides_nobody",
            "annotations_that_are_too_long_make_nobody_eligible",
        ],
    ),
    row(
        "B7",
        "A revocation outlives its object: no certificate or CSR that is older than its ManagedClusterAddOn or its \
         ManagedCluster is accepted.",
        &[
            "what_was_revoked_stays_so_when_its_addon_is_made_anew",
            "certificate_older_than_addon_object_is_refused",
            "certificate_older_than_its_cluster_object_is_refused",
            "a_request_older_than_its_cluster_is_denied",
        ],
    ),
    row(
        "B8",
        "An approval by another program is permission, not proof, and a certificate is never replaced.",
        &[
            "an_approval_by_somebody_else_is_not_proof",
            "an_approved_request_that_policy_refuses_fails",
            "a_certificate_is_never_replaced",
        ],
    ),
    row(
        "B9",
        "Only the hub's account sets the trust bundle of a CSR, and only together with the certificate; without that \
         policy the hub signs and reports it.",
        &[
            "nobody_but_the_hub_sets_the_trust_bundle_of_a_request",
            "without_the_policy_the_hub_signs_and_says_what_is_missing",
        ],
    ),
    row(
        "B10",
        "Only OCM's gRPC server names the user of a CSR, and only while a policy that the hub has tried keeps that \
         name unchanged.",
        &[
            "only_grpc_server_says_whom_it_asks_for_and_nobody_changes_it",
            "without_policy_rewritten_annotation_yields_no_certificate",
            "policy_that_fails_to_protect_requests_lets_nobody_in",
            "request_older_than_dry_run_is_denied_whatever_the_clock_says",
        ],
    ),
    row(
        "B11",
        "An AddOnSigner names only its own addons and agents, under a signer name that is its own and in no domain of \
         Kubernetes or of this program.",
        &[
            "addon_belongs_to_one_signer_and_its_named_successor",
            "a_signer_names_nobody_but_its_own",
            "of_two_with_one_signer_name_the_one_that_had_it_signs",
            "signer_names_of_kubernetes_and_of_the_gateway_are_refused",
        ],
    ),
    row(
        "B12",
        "The hub signs for a signer name only with the right to. Its account has no right that no installation uses; \
         a signer with standalone gateways and without the inventory does not use the one to create CSRs.",
        &[
            "a_signer_that_the_hub_may_not_sign_for_says_so",
            "every_right_of_deploy_is_used",
            "hub_and_agent_may_do_what_they_need_and_no_more",
        ],
    ),
    row(
        "B13",
        "An AddOnSigner takes no host name of another one, and not the gateway's first name.",
        &["a_host_name_of_another_signer_may_not_be_used", "the_first_name_of_the_gateway_stays_everybodys"],
    ),
    row(
        "B14",
        "One AddOnSigner stops no other, whatever is in it, and an invalid edit keeps nothing in effect.",
        &[
            "an_object_that_cannot_be_decoded_says_so_and_others_go_on",
            "poisoned_signer_stops_no_other_and_its_changes_count",
            "hub_starts_beside_poisoned_objects_of_other_kinds",
            "addon_removed_by_invalid_edit_is_out_at_once",
        ],
    ),
    row(
        "B15",
        "The numbers of AddOnSigners in effect, of their authorities and of what they list are limited, the oldest \
         first.",
        &[
            "the_oldest_signers_stay_in_effect",
            "the_number_of_authorities_is_bounded",
            "little_is_kept_of_a_flood_of_requests",
            "bad_signers_are_refused_by_the_field",
        ],
    ),
    row(
        "B16",
        "No authority comes from below a root that is not allowed, from a Secret that does not name its AddOnSigner, \
         or from another lineage.",
        &[
            "an_import_below_another_root_reaches_no_agent",
            "no_secret_is_taken_that_does_not_name_its_signer",
            "authorities_of_another_line_sign_nothing_in_any_step",
            "two_signers_never_share_an_authority",
        ],
    ),
    row(
        "B17",
        "Only accounts that may write the Secrets of the authorities write the anchors that the hub publishes. A \
         revocation does not wait for its publication.",
        &[
            "only_the_hub_writes_the_status_of_an_addonsigner",
            "an_administrator_of_rotations_changes_no_anchor",
            "a_writer_of_config_maps_writes_none_of_the_hubs",
            "a_revocation_does_not_wait_for_its_publication",
        ],
    ),
    row(
        "B18",
        "The hub writes only its trust bundles as ManifestWorks, and only while the policy that limits it to these is \
         in force.",
        &[
            "the_hubs_account_can_write_nothing_but_the_trust_bundle",
            "only_the_policys_own_refusal_says_that_the_right_is_narrowed",
            "without_policy_nothing_is_written_and_rotation_says_so",
            "a_right_that_nobody_confirms_is_believed_for_twenty_minutes",
        ],
    ),
    row(
        "B19",
        "A standalone gateway that was taken over signs nothing, gets no certificate but a gateway's, and reads no \
         key of an authority and no ledger. It cannot change what others trust, which authority signs or who leads, \
         and holds up rotations for a limited time.",
        &[
            "a_gateway_that_was_taken_over_can_change_nothing",
            "a_gateway_cannot_change_whom_the_agent_trusts",
            "no_gateway_lives_for_ever_after_its_last_report",
            "each_pod_of_the_gateways_is_a_tenant_of_its_own",
        ],
    ),
    row(
        "B20",
        "An agent follows a gateway's renewal hints, and replaces certificates that did not help, less and less often.",
        &[
            "gateway_that_tells_it_again_and_again_is_heard_less_often",
            "gateway_calling_each_certificate_revoked_is_heard_less_often",
            "certificates_refused_as_revoked_are_requested_less_often",
            "certificates_that_are_due_at_once_are_requested_less_often",
        ],
    ),
    row(
        "B21",
        "A stranger at the address of the gateway costs an agent no certificate and only few lists at the hub, and no \
         cluster's CSRs hide new anchors from the agents of others.",
        &[
            "stranger_at_the_gateways_address_costs_no_certificate",
            "a_flood_of_the_gateways_signer_locks_no_agent_out",
            "only_anchors_of_an_issued_newer_request_replace",
            "the_hub_is_asked_less_often_and_four_times_an_hour",
        ],
    ),
    row(
        "B22",
        "A hub kubeconfig makes the agent run no program and send no token of its pod without a flag.",
        &["commands_run_credential_plugins_and_the_agent_only_by_a_flag", "a_field_that_cannot_be_used_is_named"],
    ),
    row(
        "B23",
        "A hub with a fast clock drops no key and no anchor and makes no authority; a clock that was set back stops \
         nothing.",
        &[
            "a_clock_that_jumps_ahead_drops_nothing_and_the_hub_says_so",
            "a_clock_that_is_ahead_makes_no_authority",
            "certificate_from_fast_clock_is_replaced_once_clock_is_right",
            "clock_that_jumps_back_an_hour_stops_nothing",
        ],
    ),
    row(
        "B24",
        "After the theft of a key the thief is out as SECURITY.md says.",
        &[
            "stolen_client_authority_ends_without_one_failed_call",
            "stolen_serving_authority_is_believed_until_agents_enrol",
            "revoked_agent_is_out_in_two_seconds_and_enrols_again",
        ],
    ),
    row(
        "B25",
        "The inventory is read-only, asks the API server who reads it, and takes connections from the front proxy \
         alone.",
        &[
            "a_kubeconfig_and_the_readers_role_are_enough",
            "the_right_to_one_certificate_is_no_right_to_all",
            "only_the_api_servers_front_proxy_gets_a_handshake",
            "without_anchors_nobody_is_the_front_proxy",
        ],
    ),
];
