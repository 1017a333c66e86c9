--
-- PostgreSQL database dump
--

\restrict sTMHWQcPpJX0u319y1tfgJvNf9MAYXPddCYCf9AZlOSCdPAShh9lCYUYbCLMrsK

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: entries_are_not_altered(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.entries_are_not_altered() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'entries of the ledger are not altered';
END
$$;


--
-- Name: entries_are_not_deleted(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.entries_are_not_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF OLD.seq > COALESCE((SELECT MAX(through) FROM archives), 0) THEN
        RAISE EXCEPTION 'entries of the ledger are not deleted before they are archived';
    END IF;
    RETURN OLD;
END
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: _sqlx_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public._sqlx_migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);


--
-- Name: archives; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.archives (
    through bigint NOT NULL,
    hash bytea NOT NULL,
    file text NOT NULL,
    "time" text NOT NULL
);


--
-- Name: certificates; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.certificates (
    seq bigint NOT NULL,
    uid text NOT NULL,
    request text NOT NULL,
    signer text NOT NULL,
    cluster text NOT NULL,
    addon text NOT NULL,
    agent text NOT NULL,
    issuer text NOT NULL,
    serial text NOT NULL,
    not_before bigint NOT NULL,
    not_after bigint NOT NULL,
    state text NOT NULL,
    signed_seq bigint,
    ended_seq bigint,
    published_at bigint,
    last_seen bigint,
    last_seen_from text,
    released bigint DEFAULT 0 NOT NULL,
    requested bigint DEFAULT 0 NOT NULL,
    CONSTRAINT certificates_check CHECK (((released = 0) OR (state = 'abandoned'::text))),
    CONSTRAINT certificates_state_check CHECK ((state = ANY (ARRAY['intent'::text, 'signed'::text, 'published'::text, 'unpublished'::text, 'abandoned'::text])))
)
WITH (fillfactor='50');


--
-- Name: entries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.entries (
    seq bigint NOT NULL,
    entry text NOT NULL,
    hash bytea NOT NULL
);


--
-- Name: fence; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.fence (
    id bigint NOT NULL,
    epoch bigint NOT NULL,
    replica text NOT NULL,
    CONSTRAINT fence_id_check CHECK ((id = 1))
);


--
-- Name: latest; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.latest (
    topic text NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    seq bigint NOT NULL
);


--
-- Name: unfinished; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.unfinished (
    seq bigint NOT NULL
);


--
-- Data for Name: _sqlx_migrations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public._sqlx_migrations VALUES (1, 'ledger', '2026-11-28 11:23:04.581385+00', true, '\x47fe757e6074c37ff34c79d572f512589f1bfafcc8fb5932dd145c2c006a037b096eff9d388bb020126ea0131fca1c38', 58810536);


--
-- Data for Name: archives; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.archives VALUES (18, '\x41a0d8ada688f89eb5d6f097dba66338ff2ab35bd69da8fe37ab9f7960c51ae1', '/tmp/made/postgres/archive.jsonl', '2026-11-28T11:23:07Z');


--
-- Data for Name: certificates; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.certificates VALUES (39, '5b03b9ad-cde6-445e-bd0a-0dfe3faa7de6', 'addon-spoke2-telemetry-59cwf', 'telemetry', 'spoke2', 'telemetry', 'telemetry', '1f5c9241fa9eb0be', '35855ccd4c755ef0ec51f3b65dd8da148d2c5063', 1795864980, 1795868586, 'published', 40, NULL, 1795864986, NULL, NULL, 0, 1795864986);
INSERT INTO public.certificates VALUES (24, 'a1fd7521-2cf3-43e6-8497-20f0b575ed20', 'addon-signer-gateway-m9j25', 'gateway-serving', '', '', '', '03030416d9fefc47', '35855ccd49823d89993bc30bb73c60b6116ef19d', 1795864686, 1795951386, 'published', 25, NULL, 1795864986, NULL, NULL, 0, 1795864985);
INSERT INTO public.certificates VALUES (33, '103bb962-03ee-4b0f-aa5b-ff32f8d9fe3a', 'addon-spoke1-secret-lh4xj', 'secret', 'spoke1', 'secret', 'secret', '300563920cbe5d0e', '35855ccd20e527902b9d2d4bc17df306d7def293', 1795864980, 1795951386, 'published', 34, NULL, 1795864986, NULL, NULL, 0, 1795864986);
INSERT INTO public.certificates VALUES (27, 'e32c9972-11b1-4979-b7e3-236098db811f', 'addon-spoke1-telemetry-scsxm', 'telemetry', 'spoke1', 'telemetry', 'telemetry', '1f5c9241fa9eb0be', '35855ccdf24da4095f6b7428a72b170c84eb482f', 1795864980, 1795868586, 'published', 28, NULL, 1795864986, NULL, NULL, 0, 1795864986);
INSERT INTO public.certificates VALUES (29, '4a123e8a-b5a3-4faf-826f-9789dff096ab', 'addon-spoke2-telemetry-n6zhv', 'telemetry', 'spoke2', 'telemetry', 'telemetry', '1f5c9241fa9eb0be', '35855ccd07c675db9400dd4743507a732de0840c', 1795864980, 1795868586, 'published', 30, NULL, 1795864986, NULL, NULL, 0, 1795864986);
INSERT INTO public.certificates VALUES (31, '57aa6a92-8f24-4083-9e28-082da432853e', 'addon-spoke3-telemetry-w2fzv', 'telemetry', 'spoke3', 'telemetry', 'telemetry', '1f5c9241fa9eb0be', '35855ccdeec4619545e5ad0e7f457d5102fcc42d', 1795864980, 1795868586, 'published', 32, NULL, 1795864986, NULL, NULL, 0, 1795864986);
INSERT INTO public.certificates VALUES (35, '0a825e4a-5785-47d3-bcbb-6d39f1104ecd', 'addon-spoke1-issuer-kbpq2', 'issuer', 'spoke1', 'issuer', 'issuer', 'e806f6116545d47d', '35855ccd96a658077434be74ce5183535d8c2ad6', 1795864984, 1795951386, 'published', 36, NULL, 1795864986, NULL, NULL, 0, 1795864986);
INSERT INTO public.certificates VALUES (37, '31d780aa-5f5b-4654-af6d-e1955ae5f5a0', 'addon-spoke1-vault-kkz68', 'vault', 'spoke1', 'vault', 'vault', '138f631ad2a793d2', '35855ccd37404e25ce32d547e27566be0806a4d3', 1795864980, 1795951386, 'published', 38, NULL, 1795864986, NULL, NULL, 0, 1795864986);


--
-- Data for Name: entries; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.entries VALUES (19, '{"seq":19,"previous":"41a0d8ada688f89eb5d6f097dba66338ff2ab35bd69da8fe37ab9f7960c51ae1","time":"2026-11-27T15:23:05Z","kind":"head-key","epoch":1,"replica":"signer-1_3a9b4672c0d6892b","actor":"","details":{"key":"MCowBQYDK2VwAyEABrg7aWVGHdGRs6BNHSPj3YGtZc8JzhzmY6vxyNBY4qs="}}', '\x932ce705a09957fb714a92d205427d52afd80e70bd237a77e8ed793df9eb57d2');
INSERT INTO public.entries VALUES (20, '{"seq":20,"previous":"932ce705a09957fb714a92d205427d52afd80e70bd237a77e8ed793df9eb57d2","time":"2026-11-28T11:23:06Z","kind":"leader","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"version":"0.1.0"}}', '\xf7ff547845c3168ed6b673bf4cd8579e5f74b5413207bdae75d522e0130fa815');
INSERT INTO public.entries VALUES (21, '{"seq":21,"previous":"f7ff547845c3168ed6b673bf4cd8579e5f74b5413207bdae75d522e0130fa815","time":"2026-11-28T11:23:06Z","kind":"authority","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIIBtTCCAVugAwIBAgIUGLEunebyLlT36fSrmwzIIXe2jv8wCgYIKoZIzj0EAwIwFTETMBEGA1UEAxMKdmF1bHQgcm9vdDAeFw0yNjExMjgxMTIyMzRaFw0yNzExMjgxMTIzMDRaMDgxNjA0BgNVBAMTLWFkZG9uLXNpZ25lciBjbGllbnQgQ0EgdmF1bHQgMTM4ZjYzMWFkMmE3OTNkMjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCf1mHksAzMzdddY61nrHn7eaJakp7pnO254l41kmbZc3IRVI7453uTMErDXgU8vFO1W8xSQRTIDgDa4gJF51jWjZjBkMA4GA1UdDwEB/wQEAwIBBjASBgNVHRMBAf8ECDAGAQH/AgEAMB0GA1UdDgQWBBTJ4zr3Ei8q8hcz7dTLiFJtQ9psvzAfBgNVHSMEGDAWgBTNXh7CHCnRBfEuRJQiplx1bUSSaTAKBggqhkjOPQQDAgNIADBFAiBbjSjFkqlwty2q6F7gaHXwFLeZeXKCYx56jOGaXZtKkQIhAPSHauZbHpXbewUQM/i1NqZmmgoSYA22JIWLatfEXrQj","id":"138f631ad2a793d2","line":"vault","step":"activated"}}', '\x09c75004694a976476387a66309eac54fc22177ac0df6a4ec83279c30e4cc818');
INSERT INTO public.entries VALUES (22, '{"seq":22,"previous":"09c75004694a976476387a66309eac54fc22177ac0df6a4ec83279c30e4cc818","time":"2026-11-28T11:23:06Z","kind":"authority","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIIBtzCCAV2gAwIBAgIUH96FzDjjR/PSgyCMpvhnYmGU5xowCgYIKoZIzj0EAwIwGTEXMBUGA1UEAwwOY29ycG9yYXRlIHJvb3QwHhcNMjYxMTI4MTEyMzA0WhcNMjcxMTI4MTEyMzA0WjA5MTcwNQYDVQQDDC5hZGRvbi1zaWduZXIgY2xpZW50IENBIGlzc3VlciBlODA2ZjYxMTY1NDVkNDdkMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEPB9BXd6tZqq2mixoNzTuS2NqhaX+wQF7xl9mGcmI9xZy9RlfjHnk25wEjXtDwMVAjs1FjwWlGknibchDofAT/6NjMGEwDgYDVR0PAQH/BAQDAgEGMA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0OBBYEFB0lCBj9k1z+zlaRah94BK2py/moMB8GA1UdIwQYMBaAFCOZ5ie8+0aOa+Dfj+er57vkbBrrMAoGCCqGSM49BAMCA0gAMEUCIAJwY8Lux6mNhjgR2aqKeSA8TLaRoN0ZKZTIdmQUtht6AiEAo+gFeZQJBPf0/k8+FfAvGvoO6WdjtSSx7vKHORB9ymA=","id":"e806f6116545d47d","line":"issuer","step":"activated"}}', '\xf1a95c21d8debf262289bad77be4b6232f022969f17de541d478dc327ae2b953');
INSERT INTO public.entries VALUES (23, '{"seq":23,"previous":"f1a95c21d8debf262289bad77be4b6232f022969f17de541d478dc327ae2b953","time":"2026-11-28T11:23:06Z","kind":"anchors","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"authorities":"138f631ad2a793d2","config-map":"vault-client-ca","line":"vault"}}', '\x41271a4119e8fb95120387d8b3152221acef41098c7cdead4b58672f9cd727f1');
INSERT INTO public.entries VALUES (24, '{"seq":24,"previous":"41271a4119e8fb95120387d8b3152221acef41098c7cdead4b58672f9cd727f1","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:serviceaccount:addon-signer:addon-signer-gateway","details":{"addon":"","agent":"","cluster":"","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIBDTCBtAIBADAfMR0wGwYDVQQDDBRhZGRvbi1zaWduZXItZ2F0ZXdheTBZMBMG\nByqGSM49AgEGCCqGSM49AwEHA0IABDdsuMRMK46267zUzsJeubmZunVepTZNMhWZ\nmI1m3CLBn+uAxb6gCdaKJZ+OG4TOxP/KW0xdxovZsUAZZSyNUFmgMzAxBgkqhkiG\n9w0BCQ4xJDAiMCAGA1UdEQQZMBeCD2dhdGV3YXkuZXhhbXBsZYcEfwAAATAKBggq\nhkjOPQQDAgNIADBFAiEAjoh4Y/CU+NqNiJ9oetdbZ0Ws8W7g3oR7BR7e1nuSYfcC\nIB7+QaUViXdD3PVZzB1zweaRCbhon8ZRhKJpyze8wkqx\n-----END CERTIFICATE REQUEST-----\n","generation":"0","issuer":"03030416d9fefc47","not-after":"2026-11-29T11:23:06Z","not-before":"2026-11-28T11:18:06Z","prepared":"2026-11-28T11:23:06Z","request":"addon-signer-gateway-m9j25","requested":"2026-11-28T11:23:05Z","requester":"system:serviceaccount:addon-signer:addon-signer-gateway","serial":"35855ccd49823d89993bc30bb73c60b6116ef19d","signer":"gateway-serving","signer-name":"addon-signer.io/gateway-serving","tbs":"0adc0e8ab622cf8afbe49b87e640b1b981dc85d47e4955f93ebad415232fabd2","uid":"a1fd7521-2cf3-43e6-8497-20f0b575ed20"}}', '\x66e12cb3cd49a16aa4fde52231ca3a1f3f93f1d875eb5e24bec67ba8af4cc65e');
INSERT INTO public.entries VALUES (25, '{"seq":25,"previous":"66e12cb3cd49a16aa4fde52231ca3a1f3f93f1d875eb5e24bec67ba8af4cc65e","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIIB7TCCAZOgAwIBAgIUNYVczUmCPYmZO8MLtzxgthFu8Z0wCgYIKoZIzj0EAwIwMzExMC8GA1UEAwwoYWRkb24tc2lnbmVyIHNlcnZpbmcgQ0EgMDMwMzA0MTZkOWZlZmM0NzAeFw0yNjExMjgxMTE4MDZaFw0yNjExMjkxMTIzMDZaMB8xHTAbBgNVBAMMFGFkZG9uLXNpZ25lci1nYXRld2F5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEN2y4xEwrjrbrvNTOwl65uZm6dV6lNk0yFZmYjWbcIsGf64DFvqAJ1ooln44bhM7E/8pbTF3Gi9mxQBllLI1QWaOBmDCBlTAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwEwDAYDVR0TAQH/BAIwADAdBgNVHQ4EFgQUm5tsYVnUTTPg87Ww85nz/kBJlAAwHwYDVR0jBBgwFoAUAwMEFtn+/EcIVVZ7ykh2auhCgf4wIAYDVR0RBBkwF4IPZ2F0ZXdheS5leGFtcGxlhwR/AAABMAoGCCqGSM49BAMCA0gAMEUCIQC4YKpynrt7+jYSr1uWcxYpbdnqxThuUbeDrPQkVLCvVQIgcxrQCXcu8EXxkJL49SO5U16mQc6QyyQSnZ/TO7Sc4Uw=","serial":"35855ccd49823d89993bc30bb73c60b6116ef19d","uid":"a1fd7521-2cf3-43e6-8497-20f0b575ed20"}}', '\xd0d1dfeb20a05fd5da0513fe5030e6b065a05a25d38c66e487a806cfcec341d9');
INSERT INTO public.entries VALUES (26, '{"seq":26,"previous":"d0d1dfeb20a05fd5da0513fe5030e6b065a05a25d38c66e487a806cfcec341d9","time":"2026-11-28T11:23:06Z","kind":"anchors","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"authorities":"e806f6116545d47d","config-map":"issuer-client-ca","line":"issuer"}}', '\xf9ee6396004cfe954a63353a7da63cbb51151b060755dec343b8bf17611a7ed2');
INSERT INTO public.entries VALUES (44, '{"seq":44,"previous":"5312c0a999a294aa6c06b60335766220292fd3abb5711b014778be3074d977d7","time":"2026-11-28T11:23:07Z","kind":"authority","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIIBujCCAWGgAwIBAgIQZvOc9IOVmmMplaGxjujBMzAKBggqhkjOPQQDAjA8MTowOAYDVQQDDDFhZGRvbi1zaWduZXIgY2xpZW50IENBIHRlbGVtZXRyeSBjZjA2MzI0ZmFiMDg4YTQwMB4XDTI2MTEyODExMTgwNloXDTI3MTEyODExMjMwNlowPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgY2YwNjMyNGZhYjA4OGE0MDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPrKVMAtayxzV6aEhIQhwh7L+wxOMcrQAdgPLISBxOXP17mJWBSW+BOKHYkyZpGQnUCwRz4+W7e6DVYVbKNJJdCjRTBDMA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQUzwYyT6sIikBqZwIig7T+9ieg9cMwEgYDVR0TAQH/BAgwBgEB/wIBADAKBggqhkjOPQQDAgNHADBEAiBDDztda2MKeTtYMTJEGcE4ASa1bqUPJVdpiedlgsCWJAIgNzEDqUfltUnB7MlHORLLnyV1KOxtfGfLT5xs48vKFDo=","id":"cf06324fab088a40","line":"telemetry","step":"activated"}}', '\x3e5b8d49f0bd1d1f34883ad34f9d23ebd59777ede620b80ba4827c1a2bb5fbcd');
INSERT INTO public.entries VALUES (27, '{"seq":27,"previous":"f9ee6396004cfe954a63353a7da63cbb51151b060755dec343b8bf17611a7ed2","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:open-cluster-management:spoke1:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke1","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3jCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMTphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAE21vgQzuz3vKKHJr7c5lqWTaTVry3iwAxdJP6Rknm\nJQP2KCfFYx13o/1TX5w2PpVz9qsjHJJpTr7ujA/1WYyai6BIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0gAMEUCIQDAaMQXQcOgL/vt2wWbM9a5\n9jsq2TrfFemkGycq7/8gfAIgfNhaPBPLJ8Rgl28WHq6YDa8gKXzqTYQdKg5Gc1Yi\nYeg=\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"1f5c9241fa9eb0be","not-after":"2026-11-28T12:23:06Z","not-before":"2026-11-28T11:23:00Z","prepared":"2026-11-28T11:23:06Z","request":"addon-spoke1-telemetry-scsxm","requested":"2026-11-28T11:23:06Z","requester":"system:open-cluster-management:spoke1:a1","serial":"35855ccdf24da4095f6b7428a72b170c84eb482f","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"8b6be6097e7f80ca34b943425996a1507c265c793f8a70ec21685319a6f0562a","uid":"e32c9972-11b1-4979-b7e3-236098db811f"}}', '\x04ed6022a2bf7989c0467b4fe684f044f6e03ee71de629cb2471b9fe969f79de');
INSERT INTO public.entries VALUES (28, '{"seq":28,"previous":"04ed6022a2bf7989c0467b4fe684f044f6e03ee71de629cb2471b9fe969f79de","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIICxzCCAmygAwIBAgIUNYVczfJNpAlfa3QopysXDITrSC8wCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgMWY1YzkyNDFmYTllYjBiZTAeFw0yNjExMjgxMTIzMDBaFw0yNjExMjgxMjIzMDZaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNtb4EM7s97yihya+3OZalk2k1a8t4sAMXST+kZJ5iUD9ignxWMdd6P9U1+cNj6Vc/arIxySaU6+7owP9VmMmoujga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFHAI2XFt27h+Bb5sjqBXYLy8Qt+nMB8GA1UdIwQYMBaAFB9ckkH6nrC+L/JLCs988pmkccjJMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNJADBGAiEAhrLuoyJSrk1etbwysNG+vHtVbev/CcwQtpjli14nroACIQCJysTjynmsxbMldzsWNE3kqZK7XURH/KS00emsmIooDg==","serial":"35855ccdf24da4095f6b7428a72b170c84eb482f","uid":"e32c9972-11b1-4979-b7e3-236098db811f"}}', '\x985b21a427906ec2bdc9e3be865a7e82ed747d04bce16c5073e11897952274b0');
INSERT INTO public.entries VALUES (29, '{"seq":29,"previous":"985b21a427906ec2bdc9e3be865a7e82ed747d04bce16c5073e11897952274b0","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:open-cluster-management:spoke2:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke2","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3zCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAE6TjahmK8d8ynW2ZyX1nD7ee6IeLi3MRXHH7EA2k4\nIQWr8N6WfRjn2o9VXCz0T1SKQMfN3aW3fyMtgEFuuC3446BIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0kAMEYCIQDWjAAUhWDBe4ZqeaX8MoIq\nDHJsWr/IEu4OeL4aJW2wuQIhAOS9h5N49S7cn92kldDIHTDqUzsSfDEOVBtfejzx\nttpG\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"1f5c9241fa9eb0be","not-after":"2026-11-28T12:23:06Z","not-before":"2026-11-28T11:23:00Z","prepared":"2026-11-28T11:23:06Z","request":"addon-spoke2-telemetry-n6zhv","requested":"2026-11-28T11:23:06Z","requester":"system:open-cluster-management:spoke2:a1","serial":"35855ccd07c675db9400dd4743507a732de0840c","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"b703f349898e08ff738da4ef9e21e7165a42e2ce80b5c95923294f22a818dc4f","uid":"4a123e8a-b5a3-4faf-826f-9789dff096ab"}}', '\xfb627cec9189fa6b75a842086d10ad333dc46a6a9521da35c052e2bb0552eada');
INSERT INTO public.entries VALUES (30, '{"seq":30,"previous":"fb627cec9189fa6b75a842086d10ad333dc46a6a9521da35c052e2bb0552eada","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIICxjCCAmygAwIBAgIUNYVczQfGdduUAN1HQ1B6cy3ghAwwCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgMWY1YzkyNDFmYTllYjBiZTAeFw0yNjExMjgxMTIzMDBaFw0yNjExMjgxMjIzMDZaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOk42oZivHfMp1tmcl9Zw+3nuiHi4tzEVxx+xANpOCEFq/Deln0Y59qPVVws9E9UikDHzd2lt38jLYBBbrgt+OOjga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFEevElIRD81PTepDWjD70uqSkFTMMB8GA1UdIwQYMBaAFB9ckkH6nrC+L/JLCs988pmkccjJMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNIADBFAiADFPbXmJ/ZXks7UyRP8KkgyAjGxgOTUDAFcLOrCl7SYAIhAJYhdAePpJM6KY27hCqZJIzj6ThxDS4Dbj9HXcom5yms","serial":"35855ccd07c675db9400dd4743507a732de0840c","uid":"4a123e8a-b5a3-4faf-826f-9789dff096ab"}}', '\xea54ea470bb7827f642d4e4cd0cb2c581311cef4ad08efab8fc817daaa1b0096');
INSERT INTO public.entries VALUES (31, '{"seq":31,"previous":"ea54ea470bb7827f642d4e4cd0cb2c581311cef4ad08efab8fc817daaa1b0096","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:open-cluster-management:spoke3:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke3","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3zCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMzphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMzphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAEAerxgU+ZaQg3B1K1q827qW6wr/BgngVkTm3km9PR\nBEAnmsGBPV8ZJK3LjeGF5gQKlAuLf1C7ng6u1vsqWkCUK6BIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0kAMEYCIQC1s2qRjO3Vtn1zbdJTyUM5\nTjZ5DcTfgCVt1FrTyC8EKAIhAN9im/fhvwiV0pZiED9II9JFFYqUd6l4b19Qaca3\nxIQC\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"1f5c9241fa9eb0be","not-after":"2026-11-28T12:23:06Z","not-before":"2026-11-28T11:23:00Z","prepared":"2026-11-28T11:23:06Z","request":"addon-spoke3-telemetry-w2fzv","requested":"2026-11-28T11:23:06Z","requester":"system:open-cluster-management:spoke3:a1","serial":"35855ccdeec4619545e5ad0e7f457d5102fcc42d","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"4339fcc59f67e67aea2c560a1db92b103e7fbc55438f4d3aad57373c44303b04","uid":"57aa6a92-8f24-4083-9e28-082da432853e"}}', '\x5588386cdc9709b55837436f7379bcff08e86289092f3df5c98214025096c335');
INSERT INTO public.entries VALUES (32, '{"seq":32,"previous":"5588386cdc9709b55837436f7379bcff08e86289092f3df5c98214025096c335","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIICxjCCAmygAwIBAgIUNYVcze7EYZVF5a0Of0V9UQL8xC0wCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgMWY1YzkyNDFmYTllYjBiZTAeFw0yNjExMjgxMTIzMDBaFw0yNjExMjgxMjIzMDZaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTM6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTM6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAHq8YFPmWkINwdStavNu6lusK/wYJ4FZE5t5JvT0QRAJ5rBgT1fGSSty43hheYECpQLi39Qu54Ortb7KlpAlCujga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFNXU4jaOiJy3ro52KN1xNBu+ECOoMB8GA1UdIwQYMBaAFB9ckkH6nrC+L/JLCs988pmkccjJMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNIADBFAiEA3o6zR+Q1b9E0SinlZH6bj6nMv6VbJMJYNgnK2/WrjYwCIEQ0tOwrECL8q2900xlaIwAQwPFLe2w2GczJLyo3Njtf","serial":"35855ccdeec4619545e5ad0e7f457d5102fcc42d","uid":"57aa6a92-8f24-4083-9e28-082da432853e"}}', '\xddc1898eff13023f261092ce4532f7543cddccf96f7a14861973586089a996d4');
INSERT INTO public.entries VALUES (33, '{"seq":33,"previous":"ddc1898eff13023f261092ce4532f7543cddccf96f7a14861973586089a996d4","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:open-cluster-management:spoke1:a1","details":{"addon":"secret","agent":"secret","cluster":"spoke1","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIBzzCCAXUCAQAwgc0xNDAyBgNVBAoMK3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjpzZWNyZXQxQzBBBgNVBAoMOnN5c3RlbTpvcGVuLWNsdXN0\nZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjpzZWNyZXQxUDBOBgNV\nBAMMR3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tl\nMTphZGRvbjpzZWNyZXQ6YWdlbnQ6c2VjcmV0MFkwEwYHKoZIzj0CAQYIKoZIzj0D\nAQcDQgAE4u4mp9/VrnJij6JBzyGTUYZmICSWs4r1Lyebtr/EDvpYBYx6DRqKHa5w\nttB1rFY2t6TaKicM7Uu3ZSGXb5RgFqBFMEMGCSqGSIb3DQEJDjE2MDQwMgYDVR0R\nBCswKYInc2VjcmV0LmFkZG9uLm9wZW4tY2x1c3Rlci1tYW5hZ2VtZW50LmlvMAoG\nCCqGSM49BAMCA0gAMEUCIQCj16qzBLJs2M1DvXcK052UWODpvNO/DPzYxRQsh2/B\nNgIgL4UKmXwsBs0ole/MXPnKCiVWM893AQdBoPxBTl4eUco=\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"300563920cbe5d0e","not-after":"2026-11-29T11:23:06Z","not-before":"2026-11-28T11:23:00Z","prepared":"2026-11-28T11:23:06Z","request":"addon-spoke1-secret-lh4xj","requested":"2026-11-28T11:23:06Z","requester":"system:open-cluster-management:spoke1:a1","serial":"35855ccd20e527902b9d2d4bc17df306d7def293","signer":"secret","signer-name":"example.com/secret","tbs":"5a0cd4a398bef21675678cf0aecf81ce935fd2b372bcaea5debae6a9b2445d96","uid":"103bb962-03ee-4b0f-aa5b-ff32f8d9fe3a"}}', '\x24a502e09f0ddb0fdd142699de22f28406d77d9e8fda0db63490026860ffe2a9');
INSERT INTO public.entries VALUES (34, '{"seq":34,"previous":"24a502e09f0ddb0fdd142699de22f28406d77d9e8fda0db63490026860ffe2a9","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIICjjCCAjWgAwIBAgIUNYVczSDlJ5ArnS1LwX3zBtfe8pMwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJU2VjcmV0IENBMB4XDTI2MTEyODExMjMwMFoXDTI2MTEyOTExMjMwNlowgc0xNDAyBgNVBAoMK3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDphZGRvbjpzZWNyZXQxQzBBBgNVBAoMOnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjpzZWNyZXQxUDBOBgNVBAMMR3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjpzZWNyZXQ6YWdlbnQ6c2VjcmV0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE4u4mp9/VrnJij6JBzyGTUYZmICSWs4r1Lyebtr/EDvpYBYx6DRqKHa5wttB1rFY2t6TaKicM7Uu3ZSGXb5RgFqOBqjCBpzAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwIwDAYDVR0TAQH/BAIwADAdBgNVHQ4EFgQUW5s+escpNnJMvThiMxHwE8oQvm0wHwYDVR0jBBgwFoAUMAVjkgy+XQ4frn9qFbRerf1RwMAwMgYDVR0RBCswKYInc2VjcmV0LmFkZG9uLm9wZW4tY2x1c3Rlci1tYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0cAMEQCICo4rH7An5tp6bJGqGx/iYp3DcSmqzHQfiB9wv91cc/MAiBpxK7D1tVzjIpc+bpv8vgft7Xng2hIGHSHFBQpYXdkaQ==","serial":"35855ccd20e527902b9d2d4bc17df306d7def293","uid":"103bb962-03ee-4b0f-aa5b-ff32f8d9fe3a"}}', '\x884e31a265c45560eed9e7faa895405102873ede2026b7f133cb2ea1cd12079e');
INSERT INTO public.entries VALUES (35, '{"seq":35,"previous":"884e31a265c45560eed9e7faa895405102873ede2026b7f133cb2ea1cd12079e","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:open-cluster-management:spoke1:a1","details":{"addon":"issuer","agent":"issuer","cluster":"spoke1","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIBzzCCAXUCAQAwgc0xNDAyBgNVBAoMK3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjppc3N1ZXIxQzBBBgNVBAoMOnN5c3RlbTpvcGVuLWNsdXN0\nZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjppc3N1ZXIxUDBOBgNV\nBAMMR3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tl\nMTphZGRvbjppc3N1ZXI6YWdlbnQ6aXNzdWVyMFkwEwYHKoZIzj0CAQYIKoZIzj0D\nAQcDQgAEETU/gJCkzfN3ct/F5l8XBn8ajB/ZWR0GgoPKp3lxCLyz8hG7bNS0D93z\nZIYC3d4YnaLC5/yeZGr0Vq499Zq3haBFMEMGCSqGSIb3DQEJDjE2MDQwMgYDVR0R\nBCswKYInaXNzdWVyLmFkZG9uLm9wZW4tY2x1c3Rlci1tYW5hZ2VtZW50LmlvMAoG\nCCqGSM49BAMCA0gAMEUCIGR57OsieoRa/rT8OVqh/TDivLARHF8U3elOxmxOLNfF\nAiEApVb6MLB/H2eBqnnFH7Yvl9n3xIpa/zUU6Jj04W4zRec=\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"e806f6116545d47d","not-after":"2026-11-29T11:23:06Z","not-before":"2026-11-28T11:23:04Z","prepared":"2026-11-28T11:23:06Z","request":"addon-spoke1-issuer-kbpq2","requested":"2026-11-28T11:23:06Z","requester":"system:open-cluster-management:spoke1:a1","serial":"35855ccd96a658077434be74ce5183535d8c2ad6","signer":"issuer","signer-name":"example.com/issuer","tbs":"68e437c1b3ec284873cd62e120a2edc71365b6b503bf13a9da5d82c8454fb6cd","uid":"0a825e4a-5785-47d3-bcbb-6d39f1104ecd"}}', '\x67fb7473364c501ef17ef21df5e2b60176dfecfc6de39cfef4d6b0f1178b4369');
INSERT INTO public.entries VALUES (36, '{"seq":36,"previous":"67fb7473364c501ef17ef21df5e2b60176dfecfc6de39cfef4d6b0f1178b4369","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIICszCCAlqgAwIBAgIUNYVczZamWAd0NL50zlGDU12MKtYwCgYIKoZIzj0EAwIwOTE3MDUGA1UEAwwuYWRkb24tc2lnbmVyIGNsaWVudCBDQSBpc3N1ZXIgZTgwNmY2MTE2NTQ1ZDQ3ZDAeFw0yNjExMjgxMTIzMDRaFw0yNjExMjkxMTIzMDZaMIHNMTQwMgYDVQQKDCtzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246aXNzdWVyMUMwQQYDVQQKDDpzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246aXNzdWVyMVAwTgYDVQQDDEdzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246aXNzdWVyOmFnZW50Omlzc3VlcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBE1P4CQpM3zd3LfxeZfFwZ/Gowf2VkdBoKDyqd5cQi8s/IRu2zUtA/d82SGAt3eGJ2iwuf8nmRq9FauPfWat4WjgaowgacwDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFB2YF3QfGnl+TZp9hJVdCXtRNUzoMB8GA1UdIwQYMBaAFB0lCBj9k1z+zlaRah94BK2py/moMDIGA1UdEQQrMCmCJ2lzc3Vlci5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNHADBEAiAJhdeC0Kq1vduSDgljN/8rqBxv3QjnI2YPucsfCRbUFAIgYnOtpbi7YZGsMJvWXvPovf8tiPNCmkaa1vAv80SufB8=","serial":"35855ccd96a658077434be74ce5183535d8c2ad6","uid":"0a825e4a-5785-47d3-bcbb-6d39f1104ecd"}}', '\x9026d140915affe957843a6ec4523461984149e8b3cbc91acaac46252afb4a47');
INSERT INTO public.entries VALUES (45, '{"seq":45,"previous":"3e5b8d49f0bd1d1f34883ad34f9d23ebd59777ede620b80ba4827c1a2bb5fbcd","time":"2026-11-28T11:23:07Z","kind":"authority","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIIBvDCCAWGgAwIBAgIQV7ProfXLH3hxpsib+GD2XzAKBggqhkjOPQQDAjA8MTowOAYDVQQDDDFhZGRvbi1zaWduZXIgY2xpZW50IENBIHRlbGVtZXRyeSAxZjVjOTI0MWZhOWViMGJlMB4XDTI2MTEyNzE1MTgwNFoXDTI3MTEyNzE1MjMwNFowPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgMWY1YzkyNDFmYTllYjBiZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJFyB4bnyaxxCO+Spx7FWZYgmE3DrG7+81RGBBMB8nNYiw2Wo4xVMlbpq00Iurdft0TZ/MXI9H6OIghLnYbVUW6jRTBDMA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQUH1ySQfqesL4v8ksKz3zymaRxyMkwEgYDVR0TAQH/BAgwBgEB/wIBADAKBggqhkjOPQQDAgNJADBGAiEAhQlbZcUJB9HSALqjiZMhZ/2SDvdVQrCFXmN8vACu/+sCIQCQg1eeXLwQFBMdX2leBzcN8fPViorPAWoOSfHxRpJu7g==","id":"1f5c9241fa9eb0be","line":"telemetry","step":"retired"}}', '\x54bc78f9056384d5816af0337058d1dcdf48f40ad7b36ba9909ff33c04a96989');
INSERT INTO public.entries VALUES (37, '{"seq":37,"previous":"9026d140915affe957843a6ec4523461984149e8b3cbc91acaac46252afb4a47","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:open-cluster-management:spoke1:a1","details":{"addon":"vault","agent":"vault","cluster":"spoke1","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIByzCCAXACAQAwgckxMzAxBgNVBAoMKnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp2YXVsdDFCMEAGA1UECgw5c3lzdGVtOm9wZW4tY2x1c3Rl\nci1tYW5hZ2VtZW50OmNsdXN0ZXI6c3Bva2UxOmFkZG9uOnZhdWx0MU4wTAYDVQQD\nDEVzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6\nYWRkb246dmF1bHQ6YWdlbnQ6dmF1bHQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\nAAQtx42dHLU5enY33dsCgvrZxAHC1QLgumseGzYfHizSmfrWDp+cMnvtmVn7caig\nb08F/JqFBdxhXV1xzCtL598DoEQwQgYJKoZIhvcNAQkOMTUwMzAxBgNVHREEKjAo\ngiZ2YXVsdC5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjO\nPQQDAgNJADBGAiEA42pLXFVXtlrjMcM7w/CMTzuU40TzpTnPq2UdT0lK0FYCIQCl\nQVl5wNBpPjBaAgCcw2xINV7dGA1FJ9qW3XQjm8X6gg==\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"138f631ad2a793d2","not-after":"2026-11-29T11:23:06Z","not-before":"2026-11-28T11:23:00Z","prepared":"2026-11-28T11:23:06Z","request":"addon-spoke1-vault-kkz68","requested":"2026-11-28T11:23:06Z","requester":"system:open-cluster-management:spoke1:a1","serial":"35855ccd37404e25ce32d547e27566be0806a4d3","signer":"vault","signer-name":"example.com/vault","tbs":"75149b112419ef6db59711672072b23a3af65111eec1a94ea9816d5ac2f6effc","uid":"31d780aa-5f5b-4654-af6d-e1955ae5f5a0"}}', '\xfb046a3412513578609c0343a890b2400c19863aec8666537bc0ca131e3b103a');
INSERT INTO public.entries VALUES (38, '{"seq":38,"previous":"fb046a3412513578609c0343a890b2400c19863aec8666537bc0ca131e3b103a","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIICrzCCAlSgAwIBAgIUNYVczTdATiXOMtVH4nVmvggGpNMwCgYIKoZIzj0EAwIwODE2MDQGA1UEAxMtYWRkb24tc2lnbmVyIGNsaWVudCBDQSB2YXVsdCAxMzhmNjMxYWQyYTc5M2QyMB4XDTI2MTEyODExMjMwMFoXDTI2MTEyOTExMjMwNlowgckxMzAxBgNVBAoMKnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDphZGRvbjp2YXVsdDFCMEAGA1UECgw5c3lzdGVtOm9wZW4tY2x1c3Rlci1tYW5hZ2VtZW50OmNsdXN0ZXI6c3Bva2UxOmFkZG9uOnZhdWx0MU4wTAYDVQQDDEVzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246dmF1bHQ6YWdlbnQ6dmF1bHQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQtx42dHLU5enY33dsCgvrZxAHC1QLgumseGzYfHizSmfrWDp+cMnvtmVn7caigb08F/JqFBdxhXV1xzCtL598Do4GpMIGmMA4GA1UdDwEB/wQEAwIHgDATBgNVHSUEDDAKBggrBgEFBQcDAjAMBgNVHRMBAf8EAjAAMB0GA1UdDgQWBBT2PkIn2b7Q3SOG0UM4RHNmQHgadTAfBgNVHSMEGDAWgBTJ4zr3Ei8q8hcz7dTLiFJtQ9psvzAxBgNVHREEKjAogiZ2YXVsdC5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNJADBGAiEA1JNyYI7RHesMh8ELxjuA+VrR6wSUUdaYSJr4P+M/KFsCIQCF0oo7c5nz0o6jp8xZsXBG/JDoKKNhCbkEMMj7sY9w5g==","serial":"35855ccd37404e25ce32d547e27566be0806a4d3","uid":"31d780aa-5f5b-4654-af6d-e1955ae5f5a0"}}', '\x137c7777f12f4fe40f9b9427a99423f520a3f8b944ad6b7541061873c5a0a242');
INSERT INTO public.entries VALUES (39, '{"seq":39,"previous":"137c7777f12f4fe40f9b9427a99423f520a3f8b944ad6b7541061873c5a0a242","time":"2026-11-28T11:23:06Z","kind":"intent","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"system:open-cluster-management:spoke2:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke2","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3zCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAEjP93hXU/GQtOHeKV/QeJjBi9je18TdGpYeCZuOnx\nbq3br0Xux/xIV7PoAx5oYJGR3gznE5L9srurFnqv1R5fs6BIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0kAMEYCIQCvgijtBPN1p/uGuPc3dK9o\nKfEgngJwaf72Gt//ag2qOAIhALELDSzpY1Tk/OvJJM0cWwOIp+ieIWxN8owpBRNW\nGP3z\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"1f5c9241fa9eb0be","not-after":"2026-11-28T12:23:06Z","not-before":"2026-11-28T11:23:00Z","prepared":"2026-11-28T11:23:06Z","request":"addon-spoke2-telemetry-59cwf","requested":"2026-11-28T11:23:06Z","requester":"system:open-cluster-management:spoke2:a1","serial":"35855ccd4c755ef0ec51f3b65dd8da148d2c5063","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"3147b31db33497ea97fe9c59400a6a0609480bb2272bc83b569dac24bcdce4ba","uid":"5b03b9ad-cde6-445e-bd0a-0dfe3faa7de6"}}', '\xaa852cf8d4db18642a9555b6efd67a933a35e7699c363de84df22f78eaf8c10b');
INSERT INTO public.entries VALUES (40, '{"seq":40,"previous":"aa852cf8d4db18642a9555b6efd67a933a35e7699c363de84df22f78eaf8c10b","time":"2026-11-28T11:23:06Z","kind":"signed","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"certificate":"MIICxTCCAmygAwIBAgIUNYVczUx1XvDsUfO2XdjaFI0sUGMwCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgMWY1YzkyNDFmYTllYjBiZTAeFw0yNjExMjgxMTIzMDBaFw0yNjExMjgxMjIzMDZaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIz/d4V1PxkLTh3ilf0HiYwYvY3tfE3RqWHgmbjp8W6t269F7sf8SFez6AMeaGCRkd4M5xOS/bK7qxZ6r9UeX7Ojga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFOdYBP2+or3rNix38sYG+M8huaB4MB8GA1UdIwQYMBaAFB9ckkH6nrC+L/JLCs988pmkccjJMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNHADBEAiAlTxY3TqZjGR6NmddmoCbViLAlG2ZR5+FQGpgPH5DIeAIgVZQq4eRVtnh2eR+vZT/+3uZ7KA3B4aFcolpPR0Aekxo=","serial":"35855ccd4c755ef0ec51f3b65dd8da148d2c5063","uid":"5b03b9ad-cde6-445e-bd0a-0dfe3faa7de6"}}', '\x25ce2fc1ea1c96fec8300b535e1d5086fdad60b7ec0068293efa4720abb46c7a');
INSERT INTO public.entries VALUES (41, '{"seq":41,"previous":"25ce2fc1ea1c96fec8300b535e1d5086fdad60b7ec0068293efa4720abb46c7a","time":"2026-11-28T11:23:06Z","kind":"standing","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"ann","details":{"addon":"telemetry","change":"revoked","cluster":"spoke3","revoke-before":"2026-11-28T11:23:07Z","revoked-before":""}}', '\x482a58fe52dfb28e15c2e8205b9e995311c5af8a792e75aaad5d0d9e0afd9460');
INSERT INTO public.entries VALUES (42, '{"seq":42,"previous":"482a58fe52dfb28e15c2e8205b9e995311c5af8a792e75aaad5d0d9e0afd9460","time":"2026-11-28T11:23:06Z","kind":"authority","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"1f5c9241fa9eb0be","details":{"certificate":"MIIBujCCAWGgAwIBAgIQZvOc9IOVmmMplaGxjujBMzAKBggqhkjOPQQDAjA8MTowOAYDVQQDDDFhZGRvbi1zaWduZXIgY2xpZW50IENBIHRlbGVtZXRyeSBjZjA2MzI0ZmFiMDg4YTQwMB4XDTI2MTEyODExMTgwNloXDTI3MTEyODExMjMwNlowPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgY2YwNjMyNGZhYjA4OGE0MDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPrKVMAtayxzV6aEhIQhwh7L+wxOMcrQAdgPLISBxOXP17mJWBSW+BOKHYkyZpGQnUCwRz4+W7e6DVYVbKNJJdCjRTBDMA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQUzwYyT6sIikBqZwIig7T+9ieg9cMwEgYDVR0TAQH/BAgwBgEB/wIBADAKBggqhkjOPQQDAgNHADBEAiBDDztda2MKeTtYMTJEGcE4ASa1bqUPJVdpiedlgsCWJAIgNzEDqUfltUnB7MlHORLLnyV1KOxtfGfLT5xs48vKFDo=","id":"cf06324fab088a40","line":"telemetry","step":"prepared"}}', '\xa07496ba0f10da002fc201a17fdd6a8ed5b55ee0311f86e6e909c2b428bbc1ba');
INSERT INTO public.entries VALUES (43, '{"seq":43,"previous":"a07496ba0f10da002fc201a17fdd6a8ed5b55ee0311f86e6e909c2b428bbc1ba","time":"2026-11-28T11:23:06Z","kind":"anchors","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"authorities":"cf06324fab088a40 1f5c9241fa9eb0be","config-map":"telemetry-client-ca","line":"telemetry"}}', '\x5312c0a999a294aa6c06b60335766220292fd3abb5711b014778be3074d977d7');
INSERT INTO public.entries VALUES (46, '{"seq":46,"previous":"54bc78f9056384d5816af0337058d1dcdf48f40ad7b36ba9909ff33c04a96989","time":"2026-11-28T11:23:07Z","kind":"authority","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"again","details":{"certificate":"MIIBvDCCAWKgAwIBAgIRAOXwhFRX922cc4g7TsJ+3r0wCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgOTY4MjBiOWIxM2FkZDA5OTAeFw0yNjExMjgxMTE4MDdaFw0yNzExMjgxMTIzMDdaMDwxOjA4BgNVBAMMMWFkZG9uLXNpZ25lciBjbGllbnQgQ0EgdGVsZW1ldHJ5IDk2ODIwYjliMTNhZGQwOTkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARbjLnuEaIABzfo8o2No8DR9o9+7GjtyPIBAGXSMwPj9Tt1c9ZA7bWyuk+CjDkMnQ+TQUJVgcjMd6/OkH5x5vDTo0UwQzAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFJaCC5sTrdCZAnQusMU2EsgEkwOdMBIGA1UdEwEB/wQIMAYBAf8CAQAwCgYIKoZIzj0EAwIDSAAwRQIgfnX78zUSfFBT+oY2tCj8wcrhQdstfElj/IgSrSoGMxQCIQCtfjtHX07/u14g9w7nNFOIVSlQgJBJ5IZhLl4Jdzu54A==","id":"96820b9b13add099","line":"telemetry","step":"prepared"}}', '\x706f7f8e11edb769eee31ab7caf2086425afab34379181b15428a150cbddfe96');
INSERT INTO public.entries VALUES (47, '{"seq":47,"previous":"706f7f8e11edb769eee31ab7caf2086425afab34379181b15428a150cbddfe96","time":"2026-11-28T11:23:07Z","kind":"anchors","epoch":2,"replica":"signer-1_7d1212988ac4f9ee","actor":"","details":{"authorities":"96820b9b13add099 cf06324fab088a40 1f5c9241fa9eb0be","config-map":"telemetry-client-ca","line":"telemetry"}}', '\x36d61409c0b355e2bff640a242be2030bdd3589786ed1b474ad7636d567e66d1');


--
-- Data for Name: fence; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.fence VALUES (1, 2, 'signer-1_7d1212988ac4f9ee');


--
-- Data for Name: latest; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.latest VALUES ('ledger', '', '16cc886ff24ec583330dc09d380c34a8', 1);
INSERT INTO public.latest VALUES ('authority', 'approved/70666fd1fa5bc5e1', 'activated', 3);
INSERT INTO public.latest VALUES ('signer', 'approved', '{"signerName":"example.com/approved","addOns":["approved"],"approval":"External","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"SelfSigned"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 5);
INSERT INTO public.latest VALUES ('signer', 'asked', '{"signerName":"example.com/asked","addOns":["asked"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"Imported"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 6);
INSERT INTO public.latest VALUES ('signer', 'issuer', '{"signerName":"example.com/issuer","addOns":["issuer"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"CertManager","issuerRef":{"name":"corporate","kind":"Issuer","group":"cert-manager.io"}},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 7);
INSERT INTO public.latest VALUES ('signer', 'secret', '{"signerName":"example.com/secret","addOns":["secret"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"Imported","secretName":"of-secret"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 8);
INSERT INTO public.latest VALUES ('signer', 'telemetry', '{"signerName":"example.com/telemetry","addOns":["telemetry"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"1h","maxDuration":"24h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"SelfSigned"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":["default"]},"hostnames":[]}}', 9);
INSERT INTO public.latest VALUES ('authority', '(serving)/03030416d9fefc47', 'activated', 10);
INSERT INTO public.latest VALUES ('authority', 'secret/300563920cbe5d0e', 'activated', 11);
INSERT INTO public.latest VALUES ('signer', 'vault', '{"signerName":"example.com/vault","addOns":["vault"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"Vault","vault":{"path":"pki"}},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 12);
INSERT INTO public.latest VALUES ('anchors', 'approved', '70666fd1fa5bc5e1', 13);
INSERT INTO public.latest VALUES ('anchors', '(serving)', '03030416d9fefc47', 15);
INSERT INTO public.latest VALUES ('anchors', 'secret', '300563920cbe5d0e', 16);
INSERT INTO public.latest VALUES ('head-key', '', 'MCowBQYDK2VwAyEABrg7aWVGHdGRs6BNHSPj3YGtZc8JzhzmY6vxyNBY4qs=', 19);
INSERT INTO public.latest VALUES ('authority', 'vault/138f631ad2a793d2', 'activated', 21);
INSERT INTO public.latest VALUES ('authority', 'issuer/e806f6116545d47d', 'activated', 22);
INSERT INTO public.latest VALUES ('anchors', 'vault', '138f631ad2a793d2', 23);
INSERT INTO public.latest VALUES ('anchors', 'issuer', 'e806f6116545d47d', 26);
INSERT INTO public.latest VALUES ('revocation', 'spoke3/telemetry', '2026-11-28T11:23:07Z', 41);
INSERT INTO public.latest VALUES ('authority', 'telemetry/cf06324fab088a40', 'activated', 44);
INSERT INTO public.latest VALUES ('authority', 'telemetry/1f5c9241fa9eb0be', 'retired', 45);
INSERT INTO public.latest VALUES ('authority', 'telemetry/96820b9b13add099', 'prepared', 46);
INSERT INTO public.latest VALUES ('anchors', 'telemetry', '96820b9b13add099 cf06324fab088a40 1f5c9241fa9eb0be', 47);


--
-- Data for Name: unfinished; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Name: _sqlx_migrations _sqlx_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public._sqlx_migrations
    ADD CONSTRAINT _sqlx_migrations_pkey PRIMARY KEY (version);


--
-- Name: archives archives_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.archives
    ADD CONSTRAINT archives_pkey PRIMARY KEY (through);


--
-- Name: certificates certificates_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.certificates
    ADD CONSTRAINT certificates_pkey PRIMARY KEY (seq);


--
-- Name: entries entries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);


--
-- Name: fence fence_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.fence
    ADD CONSTRAINT fence_pkey PRIMARY KEY (id);


--
-- Name: latest latest_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.latest
    ADD CONSTRAINT latest_pkey PRIMARY KEY (topic, name);


--
-- Name: unfinished unfinished_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.unfinished
    ADD CONSTRAINT unfinished_pkey PRIMARY KEY (seq);


--
-- Name: certificates_addon; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_addon ON public.certificates USING btree (addon, seq);


--
-- Name: certificates_agent; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_agent ON public.certificates USING btree (agent, seq);


--
-- Name: certificates_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_end ON public.certificates USING btree (not_after, seq);


--
-- Name: certificates_ended; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_ended ON public.certificates USING btree (seq) WHERE (ended_seq IS NOT NULL);


--
-- Name: certificates_holder; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_holder ON public.certificates USING btree (cluster, addon, agent, seq);


--
-- Name: certificates_issuer; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_issuer ON public.certificates USING btree (issuer, seq);


--
-- Name: certificates_seen; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_seen ON public.certificates USING btree (COALESCE(last_seen, (0)::bigint), seq, ((not_after + 0)));


--
-- Name: certificates_serial; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX certificates_serial ON public.certificates USING btree (serial);


--
-- Name: certificates_signer; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX certificates_signer ON public.certificates USING btree (signer, seq);


--
-- Name: certificates_uid; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX certificates_uid ON public.certificates USING btree (requested, uid, released);


--
-- Name: entries entries_are_not_altered; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER entries_are_not_altered BEFORE UPDATE ON public.entries FOR EACH ROW EXECUTE FUNCTION public.entries_are_not_altered();


--
-- Name: entries entries_are_not_deleted; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON public.entries FOR EACH ROW EXECUTE FUNCTION public.entries_are_not_deleted();


--
-- PostgreSQL database dump complete
--

\unrestrict sTMHWQcPpJX0u319y1tfgJvNf9MAYXPddCYCf9AZlOSCdPAShh9lCYUYbCLMrsK

