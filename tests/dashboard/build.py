#!/usr/bin/env python3
"""Writes deploy/chart/files/dashboard.json from the table below: `tests/dashboard/build.py`.

A dashboard is 1,000 lines of JSON, of which these are the ones that say something. A test compares both, and runs every
query on a real Prometheus.
"""
import json
import pathlib

RATE = "[$__rate_interval]"


def quantile(q, metric):
    return f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{RATE})))"


# Title, what it tells, kind, unit, width of 24, and queries with their legends.
PANELS = [
    ("Requests per second", "Requests at the gateway whose response has begun.", "stat", "reqps", 4,
     [(f"sum(rate(addon_signer_gateway_requests_total{RATE}))", "")]),
    ("Failed requests", "The share that was answered with a 5xx.", "stat", "percentunit", 4,
     [(f'(sum(rate(addon_signer_gateway_requests_total{{code=~"5.."}}{RATE})) or vector(0)) '
       f"/ sum(rate(addon_signer_gateway_requests_total{RATE}))", "")]),
    ("Connections", "Open connections of clients that were let in.", "stat", "short", 4,
     [("sum(addon_signer_gateway_sessions)", "")]),
    ("Valid certificates", "Certificates of agents that have not expired.", "stat", "short", 4,
     [('sum(max by (signer, authority) (addon_signer_certificates_valid{signer!~"gateway-.*"}))', "")]),
    ("Authority ends in", "The first of those that sign.", "stat", "s", 4,
     [('min(addon_signer_authority_end_timestamp_seconds{state="Active"}) - time()', "")]),
    ("Gateway cert ends in", "The first; the gateway renews it with a third of its life left.", "stat", "s", 4,
     [("min(addon_signer_gateway_certificate_end_timestamp_seconds > 0) - time()", "")]),
    ("Requests by addon", "", "timeseries", "reqps", 8,
     [(f"sum by (addon) (rate(addon_signer_gateway_requests_total{RATE}))", "{{addon}}")]),
    ("Requests by route", "", "timeseries", "reqps", 8,
     [(f"sum by (route) (rate(addon_signer_gateway_requests_total{RATE}))", "{{route}}")]),
    ("Requests by status", "", "timeseries", "reqps", 8,
     [(f"sum by (code) (rate(addon_signer_gateway_requests_total{RATE}))", "{{code}}")]),
    ("Bytes from agents, by addon", "Bodies and WebSockets.", "timeseries", "Bps", 8,
     [(f"sum by (addon) (rate(addon_signer_gateway_received_bytes_total{RATE}))", "{{addon}}")]),
    ("Bytes to agents, by addon", "Bodies and WebSockets.", "timeseries", "Bps", 8,
     [(f"sum by (addon) (rate(addon_signer_gateway_sent_bytes_total{RATE}))", "{{addon}}")]),
    ("Connections by addon", "", "timeseries", "short", 8,
     [("sum by (addon) (addon_signer_gateway_sessions)", "{{addon}}")]),
    ("Time of the gateway", "Of each forwarded request, without the backend's.", "timeseries", "s", 8,
     [(quantile(q, "addon_signer_gateway_own_seconds"), f"{name} %") for q, name in ((0.5, 50), (0.99, 99))]),
    ("Time of backends", "Until the answer began.", "timeseries", "s", 8,
     [(quantile(q, "addon_signer_gateway_backend_seconds"), f"{name} %") for q, name in ((0.5, 50), (0.99, 99))]),
    ("Refused requests", "What the gateway answered itself: docs/reference.md, Problems.", "timeseries", "reqps", 8,
     [(f"sum by (problem) (rate(addon_signer_gateway_problems_total{RATE}))", "{{problem}}")]),
    ("Failed handshakes", "Many with unknown_authority: agents with certificates of an authority that is gone.",
     "timeseries", "cps", 8,
     [(f"sum by (cause) (rate(addon_signer_gateway_handshakes_failed_total{RATE}))", "{{cause}}")]),
    ("Ended connections", "By the gateway: the identity lost trust or eligibility, or the client was idle.",
     "timeseries", "cps", 8,
     [(f"sum(rate(addon_signer_gateway_sessions_ended_total{RATE}))", "lost trust"),
      (f"sum(rate(addon_signer_gateway_idle_ended_total{RATE}))", "idle")]),
    ("Silence of the API server", "Revocations wait while it is silent; up to a minute is normal.",
     "timeseries", "s", 8,
     [("max by (pod, instance) (addon_signer_registry_age_seconds)", "{{pod}} {{instance}}")]),
    ("Certificates issued", "", "timeseries", "cps", 8,
     [(f"sum by (signer) (rate(addon_signer_certificates_issued_total{RATE}))", "{{signer}}")]),
    ("Requests refused", "docs/reference.md has the reasons.", "timeseries", "cps", 8,
     [(f"sum by (signer, reason) (rate(addon_signer_csrs_refused_total{RATE}))", "{{signer}} {{reason}}")]),
    ("From CSR to certificate", "With all that it waited for.", "timeseries", "s", 8,
     [(quantile(q, "addon_signer_csr_seconds"), f"{name} %") for q, name in ((0.5, 50), (0.99, 99))]),
    ("Valid certificates by authority", "In a rotation they move from the old one to the new one.",
     "timeseries", "short", 8,
     [("max by (signer, authority) (addon_signer_certificates_valid)", "{{signer}} {{authority}}")]),
    ("Certificates that were not renewed", "They expire within a day.", "timeseries", "short", 8,
     [("max by (signer) (addon_signer_certificates_unrenewed)", "{{signer}}")]),
    ("Trust bundle not yet applied", "Addons on clusters, by their ManifestWorks.", "timeseries", "short", 8,
     [("max by (signer) (addon_signer_trust_missing)", "{{signer}}")]),
    ("Rotations", "The step at which each lineage is.", "table", "short", 12,
     [("max by (signer, phase) (addon_signer_rotation_phase) == 1", "")]),
    ("Authorities", "Time until each expires.", "table", "s", 12,
     [("max by (signer, authority, state) (addon_signer_authority_end_timestamp_seconds) - time()", "")]),
    ("Ledger: entries", "", "timeseries", "cps", 8,
     [(f"max(rate(addon_signer_ledger_entries{RATE}))", "entries")]),
    ("Ledger: time of a commit", "", "timeseries", "s", 8,
     [(quantile(0.99, "addon_signer_ledger_commit_seconds"), "99 %")]),
    ("Ledger: room on its disk", "Of a SQLite file.", "timeseries", "bytes", 8,
     [("min(addon_signer_ledger_available_bytes)", "bytes")]),
    ("Programs", "Version and roles of what runs.", "table", "short", 24,
     [("count by (version, roles) (addon_signer_build_info)", "")]),
]


def panels():
    x = y = 0
    for number, (title, told, kind, unit, width, queries) in enumerate(PANELS, 1):
        height = 4 if kind == "stat" else 7
        if x + width > 24:
            x, y = 0, y + (4 if y == 0 else 7)
        targets = [
            {"refId": chr(ord("A") + index), "expr": expr, "legendFormat": legend,
             **({"format": "table", "instant": True} if kind == "table" else {})}
            for index, (expr, legend) in enumerate(queries)
        ]
        yield {
            "id": number, "title": title, "description": told, "type": kind,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": targets,
        }
        x += width


DASHBOARD = {
    "uid": "addon-signer", "title": "addon-signer", "tags": ["addon-signer"], "schemaVersion": 39, "editable": True,
    "time": {"from": "now-6h", "to": "now"}, "refresh": "1m",
    "templating": {"list": [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
    ]},
    "panels": list(panels()),
}

if __name__ == "__main__":
    target = pathlib.Path(__file__).parents[2] / "deploy/chart/files/dashboard.json"
    target.write_text(json.dumps(DASHBOARD, indent=1) + "\n")
