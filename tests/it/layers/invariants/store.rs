//! What the ledger's store, the API server and other programs on the hub's cluster cannot do.

use super::{Row, row};

pub(super) const ROWS: [Row; 12] = [
    row(
        "B43",
        "Rows that were altered, deleted, inserted, reordered or cut off are found, even below a false claim of an \
         archive.",
        &[
            "changed_rows_are_found_and_both_checkers_name_the_same_one",
            "neither_checker_trusts_archive_claims_over_a_checkpoint",
            "ledger_falsely_claiming_archived_row_contradicts_checkpoint",
            "the_row_of_the_published_checkpoint_stays_with_all_after_it",
        ],
    ),
    row(
        "B44",
        "The hub believes no latest value without its entry.",
        &["a_forged_latest_value_is_named_and_not_believed", "a_forged_latest_value_does_not_hide_a_change"],
    ),
    row(
        "B45",
        "What hides a certificate from lists is found by `certs verify`.",
        &[
            "a_schema_in_sqlite_that_hides_a_certificate_is_named",
            "a_schema_in_postgresql_that_hides_a_certificate_is_named",
            "an_index_hides_a_certificate_from_lists_not_from_the_check",
            "no_code_in_postgresql_hides_itself_from_the_check",
        ],
    ),
    row(
        "B46",
        "Lists fail where row-level security could shorten them, and follow no `search_path` of a role.",
        &["a_list_that_a_policy_could_shorten_is_refused", "the_search_path_of_a_role_changes_no_list"],
    ),
    row(
        "B47",
        "A recorded certificate is published only on the CSR with the same key and subject, and only if the published \
         trust bundle accepts it; otherwise the CSR waits. A ledger that is damaged or lacks its last rows ends the \
         hub.",
        &[
            "request_whose_row_holds_wrong_certificate_waits_and_says_why",
            "held_request_is_signed_once_ledger_is_right_again",
            "ledger_returning_without_its_last_rows_is_not_continued",
            "corrupt_file_stops_the_program",
        ],
    ),
    row(
        "B48",
        "A ledger that is away delays certificates, stops no gateway, and loses or doubles no record.",
        &[
            "ledger_outage_delays_requests_but_not_the_gateway",
            "full_disk_is_reported_and_loses_nothing",
            "intent_whose_commit_was_not_answered_is_found",
            "transaction_cut_off_by_network_does_not_lock_ledger_forever",
        ],
    ),
    row(
        "B49",
        "A password in a URL is in no log, error or help text.",
        &[
            "a_password_in_a_ledgers_url_is_never_printed",
            "a_password_in_a_proxys_url_is_never_printed",
            "a_password_in_a_gateways_url_is_never_printed",
            "password_is_in_no_help_or_error_about_other_arguments",
        ],
    ),
    row(
        "B50",
        "Text that others wrote steers no terminal.",
        &[
            "no_text_of_a_ledger_steers_a_terminal",
            "what_others_wrote_is_one_line_without_control_characters",
            "json_of_what_others_wrote_moves_no_cursor",
        ],
    ),
    row(
        "B51",
        "While the API server is silent or away, a hub in doubt writes nothing, and the gateway reports the age of \
         what it knows.",
        &[
            "a_hub_that_is_not_sure_signs_nothing",
            "api_server_outage_during_rotation_loses_nothing",
            "silent_connection_is_replaced_and_hub_learns_what_it_missed",
            "gateway_without_news_says_so_and_refuses_all_if_told_to",
        ],
    ),
    row(
        "B52",
        "A Lease that is taken or deleted, or an etcd that is restored, ends the hub; two hubs publish one \
         certificate for a CSR.",
        &[
            "a_hub_whose_lease_was_taken_ends_with_a_sentence",
            "a_hub_whose_lease_was_deleted_ends",
            "a_hub_whose_etcd_was_restored_under_it_ends",
            "two_hubs_make_one_authority_and_one_certificate_per_request",
        ],
    ),
    row(
        "B53",
        "Another program that keeps changing what the hub writes meets growing pauses and holds up no other object.",
        &[
            "beside_a_rival_the_hub_writes_rarely",
            "program_that_keeps_changing_anchors_meets_growing_pauses",
            "addons_whose_writes_hang_hold_up_no_other",
            "events_do_not_make_a_refused_write_come_earlier",
        ],
    ),
    row(
        "B54",
        "A list of objects is read page by page, and a page that is too large is asked for by halves.",
        &["a_page_that_is_too_large_is_asked_for_by_halves", "oversized_page_of_others_prevents_no_enrolment"],
    ),
];
