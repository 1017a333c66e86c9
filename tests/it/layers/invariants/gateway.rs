//! What strangers, agents, owners of routes and backends cannot do at the gateway.

use super::{Row, row};

pub(super) const ROWS: [Row; 17] = [
    row(
        "B26",
        "A stranger holds no session, and from one address displaces no handshake of an address that has fewer.",
        &[
            "strangers_hold_no_sessions",
            "half_open_handshakes_are_cut",
            "flood_from_one_source_spares_handshakes_of_others",
            "a_flood_cannot_displace_a_few_others",
        ],
    ),
    row(
        "B27",
        "A stranger writes few lines of the audit log, hides no count, adds no line, and learns no signer's name.",
        &[
            "strangers_write_few_lines_and_the_counts_add_up",
            "every_failure_has_one_of_few_causes",
            "text_of_others_is_cut_and_cannot_end_a_line",
            "a_handshake_names_no_signer_however_many_there_are",
        ],
    ),
    row(
        "B28",
        "An addon on a cluster uses no connection and no request of another addon or cluster.",
        &[
            "connections_are_limited_per_addon_of_a_cluster",
            "calls_are_limited_per_addon_of_a_cluster",
            "crowded_cluster_takes_no_permits_of_another",
            "connections_that_are_refused_take_no_session_permits",
        ],
    ),
    row(
        "B29",
        "A permit is free again when its client is silent, vanishes, or sends or reads too slowly.",
        &[
            "silent_clients_are_closed",
            "a_peer_that_vanishes_is_noticed",
            "clients_that_send_a_byte_now_and_then_are_cut",
            "clients_that_take_nothing_are_closed",
        ],
    ),
    row(
        "B30",
        "What one connection of an agent keeps in memory is limited.",
        &[
            "clients_with_many_large_heads_lose_their_connection",
            "a_client_with_a_piece_in_each_buffer_loses_its_connection",
            "an_upload_that_nobody_reads_is_taken_up_to_its_window",
            "so_many_pieces_wait_for_a_client_whatever_their_size",
        ],
    ),
    row(
        "B31",
        "Agents' uses and refusals are few lines in the logs and the ledger, and those of one addon hide none of \
         another.",
        &[
            "connections_of_one_addon_do_not_hide_those_of_another",
            "hundred_thousand_refusals_fit_in_few_lines_that_add_up",
            "ten_thousand_requests_are_one_use",
            "what_nobody_drains_is_bounded_and_the_known_stay_known",
        ],
    ),
    row(
        "B32",
        "Only the gateway sets identity headers; what a client sends under these names is removed, in any spelling.",
        &[
            "a_backend_is_told_who_asks_by_the_gateway_alone",
            "headers_that_claim_an_identity_are_stripped_in_any_spelling",
            "headers_that_other_proxies_set_are_stripped_as_folded",
            "trailers_of_a_request_carry_no_identity",
        ],
    ),
    row(
        "B33",
        "An agent reaches no host, path or method that its routes do not allow, and no path of another cluster.",
        &[
            "requests_outside_the_routes_are_refused",
            "calls_for_other_hosts_are_misdirected",
            "no_other_reading_of_a_path_reaches_another_route",
            "the_cluster_in_a_path_is_the_callers_own",
        ],
    ),
    row(
        "B34",
        "No bytes of a request are taken for the next request on a connection that agents share.",
        &[
            "content_where_http_gives_it_no_meaning_reaches_no_backend",
            "a_delete_with_content_has_a_connection_that_ends_with_it",
            "connection_with_incomplete_upload_is_not_reused",
            "upgrades_that_hide_further_requests_are_refused",
        ],
    ),
    row(
        "B35",
        "The gateway proves itself to the backends that a route says, and sends nothing to one that does not prove \
         itself.",
        &[
            "the_gateway_shows_its_certificate_only_where_a_route_says_so",
            "a_backend_with_another_certificate_gets_no_request",
        ],
    ),
    row(
        "B36",
        "A route needs the consent of both owners, and a mistake in one harms that route alone.",
        &[
            "both_sides_consent_and_either_may_withdraw",
            "a_route_that_may_not_attach_has_no_effect_and_is_told_why",
            "a_typo_in_a_route_harms_that_route_alone",
            "bad_routes_are_refused_by_the_field",
        ],
    ),
    row(
        "B37",
        "A younger route takes no request from an older one with the same path, and has none refused by a path with \
         the same normal form.",
        &[
            "the_older_of_two_routes_wins_and_the_other_is_told",
            "paths_read_alike_never_stop_an_older_route",
            "a_younger_path_of_others_that_is_read_alike_stays_out",
            "a_younger_route_takes_requests_only_as_written",
        ],
    ),
    row(
        "B38",
        "What the routes of an addon and the Services of a namespace take is limited, the oldest first.",
        &[
            "the_oldest_routes_of_a_namespace_stay_in_effect",
            "an_addon_has_a_bounded_number_of_paths",
            "paths_that_stay_out_count_among_those_of_an_addon",
            "services_are_read_in_a_bounded_number_of_namespaces",
        ],
    ),
    row(
        "B39",
        "No endpoint is a loopback, link-local or metadata address, and no Service leads elsewhere by name.",
        &[
            "endpoints_that_no_backend_may_have_are_refused",
            "endpoints_on_the_clouds_metadata_service_are_refused",
            "the_endpoints_of_a_service_are_not_on_loopback",
            "backends_that_lead_elsewhere_are_refused_with_a_sentence",
        ],
    ),
    row(
        "B40",
        "No request reaches the hub or its namespace, and the metrics refuse requests that a proxy forwards.",
        &[
            "connection_reaching_hub_or_its_namespace_carries_nothing",
            "gateway_knows_live_pods_and_services_of_hub_namespace",
            "forwarding_to_hub_metrics_is_refused_there",
        ],
    ),
    row(
        "B41",
        "A route may name an address only inside a network of the hub's flag.",
        &["an_address_inside_an_allowed_network_is_a_backend"],
    ),
    row(
        "B42",
        "A slow or broken backend holds up no request of another route or cluster.",
        &[
            "a_silent_backend_holds_no_request_of_another_route",
            "answers_that_nobody_reads_end_no_request_of_another_cluster",
            "a_backend_that_is_down_or_speaks_garbage_is_a_bad_gateway",
            "a_request_that_the_backend_may_have_seen_is_not_sent_again",
        ],
    ),
];
