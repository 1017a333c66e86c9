--
-- PostgreSQL database dump
--

\restrict QazW0PGkAaBTjnDOpw9kJhD6ZIp2tZGiobAeZULWmuUWCmDI37Av8rlpTy4ckWe

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

INSERT INTO public._sqlx_migrations VALUES (1, 'ledger', '2026-11-30 10:44:17.776349+00', true, '\x47fe757e6074c37ff34c79d572f512589f1bfafcc8fb5932dd145c2c006a037b096eff9d388bb020126ea0131fca1c38', 129680404);


--
-- Data for Name: archives; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.archives VALUES (17, '\x759fcb1cbe189d055441ba1e06f28a6677fd0d10fe535d249e224b3cb78273ae', '/tmp/keep/postgres/archive.jsonl', '2026-11-30T10:44:20Z');


--
-- Data for Name: certificates; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.certificates VALUES (30, '344c41f7-92d1-4ba6-bd39-18b72bf31861', 'addon-spoke1-secret-dllgs', 'secret', 'spoke1', 'secret', 'secret', 'd0fb414021f36ce5', '3586a9c1ce1c32dcf385ed30c303b8dffc4bcc7c', 1796035454, 1796121859, 'published', 31, NULL, 1796035459, NULL, NULL, 0, 1796035459);
INSERT INTO public.certificates VALUES (21, '60f6679b-e5c5-40bf-b5d5-eb345bf72a1e', 'addon-signer-gateway-8jmqf', 'gateway-serving', '', '', '', 'e357aa6a5ec4931a', '3586a9c1b28b70e41937b46d1277fc2463f6eac0', 1796035159, 1796121859, 'published', 22, NULL, 1796035459, NULL, NULL, 0, 1796035459);
INSERT INTO public.certificates VALUES (24, '6f3ca1eb-2bcd-4e31-9178-ab67aaef40b7', 'addon-spoke1-telemetry-l2tlm', 'telemetry', 'spoke1', 'telemetry', 'telemetry', '84ec280bcb1cc98d', '3586a9c19566799298d0dc0bcb262f5ec0c3f9f6', 1796035454, 1796039059, 'published', 25, NULL, 1796035459, NULL, NULL, 0, 1796035459);
INSERT INTO public.certificates VALUES (26, '8c6a3cb6-d3b9-4a27-83d8-dcf2f6d74bcb', 'addon-spoke2-telemetry-5pwtb', 'telemetry', 'spoke2', 'telemetry', 'telemetry', '84ec280bcb1cc98d', '3586a9c1cdcf9dff28155b486bedcecf34d8fc61', 1796035454, 1796039059, 'published', 27, NULL, 1796035459, NULL, NULL, 0, 1796035459);
INSERT INTO public.certificates VALUES (32, 'bbea4587-0550-44a7-b524-25e77469fcb3', 'addon-spoke1-issuer-kmdtx', 'issuer', 'spoke1', 'issuer', 'issuer', 'd50333fcbb335823', '3586a9c105e809938209a82a8a848c702cd418b9', 1796035458, 1796121859, 'published', 33, NULL, 1796035459, NULL, NULL, 0, 1796035459);
INSERT INTO public.certificates VALUES (28, '306632b0-044f-4da3-8d23-0b3066678f95', 'addon-spoke3-telemetry-qbw2v', 'telemetry', 'spoke3', 'telemetry', 'telemetry', '84ec280bcb1cc98d', '3586a9c1b3442761f5afc187ea079956d8cd48d6', 1796035454, 1796039059, 'published', 29, NULL, 1796035459, NULL, NULL, 0, 1796035459);
INSERT INTO public.certificates VALUES (34, 'c9dd4a71-6e38-4d29-be1c-c94f7438a293', 'addon-spoke2-telemetry-s9j78', 'telemetry', 'spoke2', 'telemetry', 'telemetry', '84ec280bcb1cc98d', '3586a9c2993ea1a95a5b8ffa814b6bdce890b57b', 1796035454, 1796039060, 'published', 35, NULL, 1796035460, NULL, NULL, 0, 1796035459);


--
-- Data for Name: entries; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.entries VALUES (18, '{"seq":18,"previous":"759fcb1cbe189d055441ba1e06f28a6677fd0d10fe535d249e224b3cb78273ae","time":"2026-11-29T14:44:18Z","kind":"head-key","epoch":1,"replica":"signer-1_b69d88362150c5f3","actor":"","details":{"key":"MCowBQYDK2VwAyEAtshMwidv1GBIBEMnG/1Llml2jqcTZLlY2KPv65IUfoE="}}', '\xc7a65e13a078dc8ed461a0babf59833ae9a141dc84796dfeb551aba734d9eaf2');
INSERT INTO public.entries VALUES (19, '{"seq":19,"previous":"c7a65e13a078dc8ed461a0babf59833ae9a141dc84796dfeb551aba734d9eaf2","time":"2026-11-30T10:44:19Z","kind":"leader","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"version":"0.1.0"}}', '\x7aeb532911c0e7a883eed61133ba2c1e0ee65e2765357ebe64a46ed0a986e861');
INSERT INTO public.entries VALUES (20, '{"seq":20,"previous":"7aeb532911c0e7a883eed61133ba2c1e0ee65e2765357ebe64a46ed0a986e861","time":"2026-11-30T10:44:19Z","kind":"authority","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIIBuDCCAV2gAwIBAgIUDGmB+Ik1roqvoEVPkBi/hHGoFQswCgYIKoZIzj0EAwIwGTEXMBUGA1UEAwwOY29ycG9yYXRlIHJvb3QwHhcNMjYxMTMwMTA0NDE4WhcNMjcxMTMwMTA0NDE4WjA5MTcwNQYDVQQDDC5hZGRvbi1zaWduZXIgY2xpZW50IENBIGlzc3VlciBkNTAzMzNmY2JiMzM1ODIzMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEPV/S0u/Fk6nQ3HAjKc8fuf/i9XqCoul2QbxHwYK8+FgPioLKagdczV04igihz+DHk5O6Y74Cpz5EvnrquLbWs6NjMGEwDgYDVR0PAQH/BAQDAgEGMA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0OBBYEFNLt1oaXa+XUbsmQJ5UtSkIENESeMB8GA1UdIwQYMBaAFIFXvwSCybR7gWKHL86opPI7KsDBMAoGCCqGSM49BAMCA0kAMEYCIQCIQ3fJlmQCBeJc0PQb/jZjGdDZ9YbV1HiNzsZHzpyllQIhAJn4W2sdYZq+wA5Sz/LeQdDgdjsTEycktT3mbsVVFD84","id":"d50333fcbb335823","line":"issuer","step":"activated"}}', '\x43566b2e89932963db792201d373a228d81768a7ebe8b98d63fca1139ceb393f');
INSERT INTO public.entries VALUES (21, '{"seq":21,"previous":"43566b2e89932963db792201d373a228d81768a7ebe8b98d63fca1139ceb393f","time":"2026-11-30T10:44:19Z","kind":"intent","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"system:serviceaccount:addon-signer:addon-signer-gateway","details":{"addon":"","agent":"","cluster":"","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIBDTCBtAIBADAfMR0wGwYDVQQDDBRhZGRvbi1zaWduZXItZ2F0ZXdheTBZMBMG\nByqGSM49AgEGCCqGSM49AwEHA0IABJQ2oaOsJa62EVKlJmL6y9XttHAuyzMl1WPu\nlKwTpkxSGJ82q5X2XFmj9y/fw36bxVS6lZjbnoozDdy9Kn5mdA6gMzAxBgkqhkiG\n9w0BCQ4xJDAiMCAGA1UdEQQZMBeCD2dhdGV3YXkuZXhhbXBsZYcEfwAAATAKBggq\nhkjOPQQDAgNIADBFAiEAqjIDCDIUt8NuqHeCsXP3H0EaY61Pq0V/tmhL3Gc7gTkC\nIAImw4LF1DCa3VDHHA8I049F54UFPxvHEAYcLgGzx7l2\n-----END CERTIFICATE REQUEST-----\n","generation":"0","issuer":"e357aa6a5ec4931a","not-after":"2026-12-01T10:44:19Z","not-before":"2026-11-30T10:39:19Z","prepared":"2026-11-30T10:44:19Z","request":"addon-signer-gateway-8jmqf","requested":"2026-11-30T10:44:19Z","requester":"system:serviceaccount:addon-signer:addon-signer-gateway","serial":"3586a9c1b28b70e41937b46d1277fc2463f6eac0","signer":"gateway-serving","signer-name":"addon-signer.io/gateway-serving","tbs":"9afd7f50796066742f2e4b43217ea244b2a3769792faefefc85be8e9dfb14154","uid":"60f6679b-e5c5-40bf-b5d5-eb345bf72a1e"}}', '\x3e76d95d44b1934011a9ba7feae2f8df9013ac4a05aeff766470949d66d7e5e9');
INSERT INTO public.entries VALUES (22, '{"seq":22,"previous":"3e76d95d44b1934011a9ba7feae2f8df9013ac4a05aeff766470949d66d7e5e9","time":"2026-11-30T10:44:19Z","kind":"signed","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIIB7DCCAZOgAwIBAgIUNYapwbKLcOQZN7RtEnf8JGP26sAwCgYIKoZIzj0EAwIwMzExMC8GA1UEAwwoYWRkb24tc2lnbmVyIHNlcnZpbmcgQ0EgZTM1N2FhNmE1ZWM0OTMxYTAeFw0yNjExMzAxMDM5MTlaFw0yNjEyMDExMDQ0MTlaMB8xHTAbBgNVBAMMFGFkZG9uLXNpZ25lci1nYXRld2F5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAElDaho6wlrrYRUqUmYvrL1e20cC7LMyXVY+6UrBOmTFIYnzarlfZcWaP3L9/DfpvFVLqVmNueijMN3L0qfmZ0DqOBmDCBlTAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwEwDAYDVR0TAQH/BAIwADAdBgNVHQ4EFgQUv5IHWj05FSp5krf8uuGNjxNwm9owHwYDVR0jBBgwFoAU41eqal7EkxqSZjLhMIKpVTV8rMAwIAYDVR0RBBkwF4IPZ2F0ZXdheS5leGFtcGxlhwR/AAABMAoGCCqGSM49BAMCA0cAMEQCICL5Y4GDdAYGI0vC8VJRwUbHydE1yNDxSshfrdj2h8iMAiBM2P85EbQJ5On7kWc2s5t40Gi2Nra9ULiwIQ7MgbzAQw==","serial":"3586a9c1b28b70e41937b46d1277fc2463f6eac0","uid":"60f6679b-e5c5-40bf-b5d5-eb345bf72a1e"}}', '\xe5f4ebf8c678a51d60a85c1a1e8d0b62e61b726d843c23c89356a57746e1c582');
INSERT INTO public.entries VALUES (23, '{"seq":23,"previous":"e5f4ebf8c678a51d60a85c1a1e8d0b62e61b726d843c23c89356a57746e1c582","time":"2026-11-30T10:44:19Z","kind":"anchors","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"authorities":"d50333fcbb335823","config-map":"issuer-client-ca","line":"issuer"}}', '\x0c55ca52136cd64ea2e03aecdc53624bfa5e7b9b3e48f5817e931bbfc7ea021a');
INSERT INTO public.entries VALUES (24, '{"seq":24,"previous":"0c55ca52136cd64ea2e03aecdc53624bfa5e7b9b3e48f5817e931bbfc7ea021a","time":"2026-11-30T10:44:19Z","kind":"intent","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"system:open-cluster-management:spoke1:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke1","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3jCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMTphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAE7cE3MvIQ0Vk8I8ZcyxWJJxN2eYkUxy2FYS38xmFo\nokI2yYyisKut+QMIuQbZlALzeD/B7+ayWGgoEJuyIT06q6BIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0gAMEUCIQDhUUWHqJFjmezkY27iNuof\nq/7IFuUkqOdkkmYa0s0YbAIgU4t9DZJL0M7WqKDy3Ybo3JtIMVBt4OwhJNx/mh33\nc6s=\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"84ec280bcb1cc98d","not-after":"2026-11-30T11:44:19Z","not-before":"2026-11-30T10:44:14Z","prepared":"2026-11-30T10:44:19Z","request":"addon-spoke1-telemetry-l2tlm","requested":"2026-11-30T10:44:19Z","requester":"system:open-cluster-management:spoke1:a1","serial":"3586a9c19566799298d0dc0bcb262f5ec0c3f9f6","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"0ad04daa8d90a9e54802cb0f91ce49708d3c275b49c570a03073a511233906d0","uid":"6f3ca1eb-2bcd-4e31-9178-ab67aaef40b7"}}', '\x5605da6a9a700dd0008568d0f5f43d3295a0722089b7890d6692e856ab3edda2');
INSERT INTO public.entries VALUES (25, '{"seq":25,"previous":"5605da6a9a700dd0008568d0f5f43d3295a0722089b7890d6692e856ab3edda2","time":"2026-11-30T10:44:19Z","kind":"signed","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIICxzCCAmygAwIBAgIUNYapwZVmeZKY0NwLyyYvXsDD+fYwCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgODRlYzI4MGJjYjFjYzk4ZDAeFw0yNjExMzAxMDQ0MTRaFw0yNjExMzAxMTQ0MTlaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABO3BNzLyENFZPCPGXMsViScTdnmJFMcthWEt/MZhaKJCNsmMorCrrfkDCLkG2ZQC83g/we/mslhoKBCbsiE9Oqujga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFKSwgwgWo3lxgK14mO2pxJOgl0ePMB8GA1UdIwQYMBaAFITsKAvLHMmNuhmtrAUhTKUXxZ5jMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNJADBGAiEAh9eskON/EvgBE1nTfYuVZVbFDJLcrNnOasEvhtwLEQwCIQCrIl6RmHS2RJiAc4qqzPp3zOQ2HhdG+wTQZxDzKFIh3g==","serial":"3586a9c19566799298d0dc0bcb262f5ec0c3f9f6","uid":"6f3ca1eb-2bcd-4e31-9178-ab67aaef40b7"}}', '\x6d23561a92d95de39b849125b0bb9b2676f0ca67a17ff252869c39371dd3256d');
INSERT INTO public.entries VALUES (31, '{"seq":31,"previous":"f2fef9740c2a4d26ff923b5d25a3d0ff4d5ae5cc346f005f175dc96c1225c52a","time":"2026-11-30T10:44:19Z","kind":"signed","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIICkDCCAjWgAwIBAgIUNYapwc4cMtzzhe0wwwO43/xLzHwwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJU2VjcmV0IENBMB4XDTI2MTEzMDEwNDQxNFoXDTI2MTIwMTEwNDQxOVowgc0xNDAyBgNVBAoMK3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDphZGRvbjpzZWNyZXQxQzBBBgNVBAoMOnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjpzZWNyZXQxUDBOBgNVBAMMR3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjpzZWNyZXQ6YWdlbnQ6c2VjcmV0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7ZaMlZ7SyR3BWmFAYT0j8Nxbd1eJ6uzQaZA6SnyhJN4A3uQKoXC3IOyrUYBa5z2hsseUa/ptH8GGc/js/6FN+KOBqjCBpzAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwIwDAYDVR0TAQH/BAIwADAdBgNVHQ4EFgQUClQiMWwjru0wBgDxbKIDMLhyHv0wHwYDVR0jBBgwFoAU0PtBQCHzbOWJNVepWkZEU+NXAeowMgYDVR0RBCswKYInc2VjcmV0LmFkZG9uLm9wZW4tY2x1c3Rlci1tYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0kAMEYCIQCwd0PdEiKuTiw0J6L/mgP5hvqSbtWHJNcbAkjjEYKs8AIhAOdVrhQx4fyep+ypnV6YzfQ/KtyqoC+nFa4WK2nNA+CJ","serial":"3586a9c1ce1c32dcf385ed30c303b8dffc4bcc7c","uid":"344c41f7-92d1-4ba6-bd39-18b72bf31861"}}', '\x4b79d7fe13baee22ebcd38800d4ab155e069ce634583c94d5e7dee79eae3ae15');
INSERT INTO public.entries VALUES (26, '{"seq":26,"previous":"6d23561a92d95de39b849125b0bb9b2676f0ca67a17ff252869c39371dd3256d","time":"2026-11-30T10:44:19Z","kind":"intent","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"system:open-cluster-management:spoke2:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke2","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3jCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAEZCBxyqasuaaQ+1PXxR4lGuDDBpoBRbILk7PYiTY2\nDGjaYw+gvqGJrOdQQOI4PVu6E+Daiwn2lPU84NIW2ABKNaBIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0gAMEUCIQD1gF4TKJIwNM8ayT4ok2fS\nXDU4ouZAgpOyBPQhAwD8YAIgSdnf5+sPYdaXyvdkK8M3Me5D4jx32GLBEp3zY+EA\nttw=\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"84ec280bcb1cc98d","not-after":"2026-11-30T11:44:19Z","not-before":"2026-11-30T10:44:14Z","prepared":"2026-11-30T10:44:19Z","request":"addon-spoke2-telemetry-5pwtb","requested":"2026-11-30T10:44:19Z","requester":"system:open-cluster-management:spoke2:a1","serial":"3586a9c1cdcf9dff28155b486bedcecf34d8fc61","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"4430cf6e82a98ae8a1c634031223fa630a002f2b7155cce0db65a1759ee08f87","uid":"8c6a3cb6-d3b9-4a27-83d8-dcf2f6d74bcb"}}', '\xbf51c3a14067fc49d00c85a0b224824c23f22e820cc37157006fafedeb59020d');
INSERT INTO public.entries VALUES (27, '{"seq":27,"previous":"bf51c3a14067fc49d00c85a0b224824c23f22e820cc37157006fafedeb59020d","time":"2026-11-30T10:44:19Z","kind":"signed","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIICxzCCAmygAwIBAgIUNYapwc3Pnf8oFVtIa+3OzzTY/GEwCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgODRlYzI4MGJjYjFjYzk4ZDAeFw0yNjExMzAxMDQ0MTRaFw0yNjExMzAxMTQ0MTlaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABGQgccqmrLmmkPtT18UeJRrgwwaaAUWyC5Oz2Ik2Ngxo2mMPoL6hiaznUEDiOD1buhPg2osJ9pT1PODSFtgASjWjga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFK8RgXIsASHZC/2PLB6Qn8aAz5CvMB8GA1UdIwQYMBaAFITsKAvLHMmNuhmtrAUhTKUXxZ5jMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNJADBGAiEAuG6B1UWAgYxcYCNQjUgk/dv62HwMGgT6n4MNhxcDy7ICIQDWG1JBTZpEFsFLdJvZ0KamObomvvcVkE0PE9mZ2Fy6xg==","serial":"3586a9c1cdcf9dff28155b486bedcecf34d8fc61","uid":"8c6a3cb6-d3b9-4a27-83d8-dcf2f6d74bcb"}}', '\x3168fee4c410b180674ed74081bb1bb41019c75e3cf9d4ae2ac1a67d8e5e17be');
INSERT INTO public.entries VALUES (28, '{"seq":28,"previous":"3168fee4c410b180674ed74081bb1bb41019c75e3cf9d4ae2ac1a67d8e5e17be","time":"2026-11-30T10:44:19Z","kind":"intent","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"system:open-cluster-management:spoke3:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke3","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3jCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMzphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMzphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAE2HS9zoi0cVbTGO6sXREyVEBB+W5GDoV9oyGAL8wD\n6ySd0dlMYtqCWbWzUffc+L6La+aS0DW72zVvQZgFZF2eGqBIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0gAMEUCIFF86aXL/+XPsTrXincOxlgQ\np8LXiDl5L7D/CnA43cfrAiEA4jUttA4fjjTbCzUmamD7r1uSphPdiwA1HIS8pfnb\nHro=\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"84ec280bcb1cc98d","not-after":"2026-11-30T11:44:19Z","not-before":"2026-11-30T10:44:14Z","prepared":"2026-11-30T10:44:19Z","request":"addon-spoke3-telemetry-qbw2v","requested":"2026-11-30T10:44:19Z","requester":"system:open-cluster-management:spoke3:a1","serial":"3586a9c1b3442761f5afc187ea079956d8cd48d6","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"b3524ea4486ff170d923aad58951eedb3778df74832314a50d0acc9280d3cd37","uid":"306632b0-044f-4da3-8d23-0b3066678f95"}}', '\xe043b42490e653308550db604e58588ea37756706a42fba9dd3c5bb60b42a486');
INSERT INTO public.entries VALUES (29, '{"seq":29,"previous":"e043b42490e653308550db604e58588ea37756706a42fba9dd3c5bb60b42a486","time":"2026-11-30T10:44:19Z","kind":"signed","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIICxjCCAmygAwIBAgIUNYapwbNEJ2H1r8GH6geZVtjNSNYwCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgODRlYzI4MGJjYjFjYzk4ZDAeFw0yNjExMzAxMDQ0MTRaFw0yNjExMzAxMTQ0MTlaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTM6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTM6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNh0vc6ItHFW0xjurF0RMlRAQfluRg6FfaMhgC/MA+skndHZTGLaglm1s1H33Pi+i2vmktA1u9s1b0GYBWRdnhqjga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFJ9U+wGArl5At307xMpNZrWbn4flMB8GA1UdIwQYMBaAFITsKAvLHMmNuhmtrAUhTKUXxZ5jMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNIADBFAiA4tdb3Th1+ChbDk/kdKbC23GecnGdgkw5Wrjm8XyP8bAIhAIYq3U5DvK+2hdj5+DRjO9Iawa9fSTbxw+DtejYRPrdf","serial":"3586a9c1b3442761f5afc187ea079956d8cd48d6","uid":"306632b0-044f-4da3-8d23-0b3066678f95"}}', '\xc3409b18995ef6d09cd1ee2b77a370c2e9599517b96a2c5f1b4ef1f93e52e458');
INSERT INTO public.entries VALUES (30, '{"seq":30,"previous":"c3409b18995ef6d09cd1ee2b77a370c2e9599517b96a2c5f1b4ef1f93e52e458","time":"2026-11-30T10:44:19Z","kind":"intent","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"system:open-cluster-management:spoke1:a1","details":{"addon":"secret","agent":"secret","cluster":"spoke1","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIBzjCCAXUCAQAwgc0xNDAyBgNVBAoMK3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjpzZWNyZXQxQzBBBgNVBAoMOnN5c3RlbTpvcGVuLWNsdXN0\nZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjpzZWNyZXQxUDBOBgNV\nBAMMR3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tl\nMTphZGRvbjpzZWNyZXQ6YWdlbnQ6c2VjcmV0MFkwEwYHKoZIzj0CAQYIKoZIzj0D\nAQcDQgAE7ZaMlZ7SyR3BWmFAYT0j8Nxbd1eJ6uzQaZA6SnyhJN4A3uQKoXC3IOyr\nUYBa5z2hsseUa/ptH8GGc/js/6FN+KBFMEMGCSqGSIb3DQEJDjE2MDQwMgYDVR0R\nBCswKYInc2VjcmV0LmFkZG9uLm9wZW4tY2x1c3Rlci1tYW5hZ2VtZW50LmlvMAoG\nCCqGSM49BAMCA0cAMEQCIBVuMEXr5b+inlfjv4YgDX5//lVaTycH1CfZwmUqvd+g\nAiA5LAW2MbjkiGhfDqvJmv4/BJfgeXIgZNVr9tyCCuPa/A==\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"d0fb414021f36ce5","not-after":"2026-12-01T10:44:19Z","not-before":"2026-11-30T10:44:14Z","prepared":"2026-11-30T10:44:19Z","request":"addon-spoke1-secret-dllgs","requested":"2026-11-30T10:44:19Z","requester":"system:open-cluster-management:spoke1:a1","serial":"3586a9c1ce1c32dcf385ed30c303b8dffc4bcc7c","signer":"secret","signer-name":"example.com/secret","tbs":"7bacc1c6f8f86ecd717c191fcc6b708b8477829b358a220184df90bd7aa9371a","uid":"344c41f7-92d1-4ba6-bd39-18b72bf31861"}}', '\xf2fef9740c2a4d26ff923b5d25a3d0ff4d5ae5cc346f005f175dc96c1225c52a');
INSERT INTO public.entries VALUES (32, '{"seq":32,"previous":"4b79d7fe13baee22ebcd38800d4ab155e069ce634583c94d5e7dee79eae3ae15","time":"2026-11-30T10:44:19Z","kind":"intent","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"system:open-cluster-management:spoke1:a1","details":{"addon":"issuer","agent":"issuer","cluster":"spoke1","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB0DCCAXUCAQAwgc0xNDAyBgNVBAoMK3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjppc3N1ZXIxQzBBBgNVBAoMOnN5c3RlbTpvcGVuLWNsdXN0\nZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMTphZGRvbjppc3N1ZXIxUDBOBgNV\nBAMMR3N5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tl\nMTphZGRvbjppc3N1ZXI6YWdlbnQ6aXNzdWVyMFkwEwYHKoZIzj0CAQYIKoZIzj0D\nAQcDQgAEgycNzra6lQNbXhN0RWKyzerlmv1aRQMp7TyIYRmdccY3jsgeAg27MD10\nxfZVvhE+wEycRstiYJNVjh+eyg+SKaBFMEMGCSqGSIb3DQEJDjE2MDQwMgYDVR0R\nBCswKYInaXNzdWVyLmFkZG9uLm9wZW4tY2x1c3Rlci1tYW5hZ2VtZW50LmlvMAoG\nCCqGSM49BAMCA0kAMEYCIQDCewjq+DCnlZjb4MUfXYKlKoLWFzqutB3XZ5cgKytT\noAIhANTqv3+nL46ZSowwY3i4UbbeOnYfqBmKzn1QBy40jIXO\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"d50333fcbb335823","not-after":"2026-12-01T10:44:19Z","not-before":"2026-11-30T10:44:18Z","prepared":"2026-11-30T10:44:19Z","request":"addon-spoke1-issuer-kmdtx","requested":"2026-11-30T10:44:19Z","requester":"system:open-cluster-management:spoke1:a1","serial":"3586a9c105e809938209a82a8a848c702cd418b9","signer":"issuer","signer-name":"example.com/issuer","tbs":"b2f5b3c9d679e102b7b626ea3ba06356adaf05a684320314fb006262a9091830","uid":"bbea4587-0550-44a7-b524-25e77469fcb3"}}', '\x4c330fa5005c39a267134a8e4c81b0b789dfd1bf00f46b682366bd639f65784b');
INSERT INTO public.entries VALUES (33, '{"seq":33,"previous":"4c330fa5005c39a267134a8e4c81b0b789dfd1bf00f46b682366bd639f65784b","time":"2026-11-30T10:44:19Z","kind":"signed","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIICtDCCAlqgAwIBAgIUNYapwQXoCZOCCagqioSMcCzUGLkwCgYIKoZIzj0EAwIwOTE3MDUGA1UEAwwuYWRkb24tc2lnbmVyIGNsaWVudCBDQSBpc3N1ZXIgZDUwMzMzZmNiYjMzNTgyMzAeFw0yNjExMzAxMDQ0MThaFw0yNjEyMDExMDQ0MTlaMIHNMTQwMgYDVQQKDCtzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246aXNzdWVyMUMwQQYDVQQKDDpzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246aXNzdWVyMVAwTgYDVQQDDEdzeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTE6YWRkb246aXNzdWVyOmFnZW50Omlzc3VlcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIMnDc62upUDW14TdEViss3q5Zr9WkUDKe08iGEZnXHGN47IHgINuzA9dMX2Vb4RPsBMnEbLYmCTVY4fnsoPkimjgaowgacwDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFAEaFhMSrXr5hvIsmtxU7EWDTNC/MB8GA1UdIwQYMBaAFNLt1oaXa+XUbsmQJ5UtSkIENESeMDIGA1UdEQQrMCmCJ2lzc3Vlci5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNIADBFAiEAlnvjm9wdtrZJLbieARelS36Tb1jSZrB6+c2YJ3tAR7YCIDhQnG4zJKjHujUwVy+yyU8lFrSlJri3YtXVm11jlJcr","serial":"3586a9c105e809938209a82a8a848c702cd418b9","uid":"bbea4587-0550-44a7-b524-25e77469fcb3"}}', '\xa120e99d38781251d2a095a7f0c1145042ef0d7893c51276d5edb381b78f695a');
INSERT INTO public.entries VALUES (34, '{"seq":34,"previous":"a120e99d38781251d2a095a7f0c1145042ef0d7893c51276d5edb381b78f695a","time":"2026-11-30T10:44:20Z","kind":"intent","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"system:open-cluster-management:spoke2:a1","details":{"addon":"telemetry","agent":"telemetry","cluster":"spoke2","csr":"-----BEGIN CERTIFICATE REQUEST-----\nMIIB3TCCAYQCAQAwgdkxNzA1BgNVBAoMLnN5c3RlbTpvcGVuLWNsdXN0ZXItbWFu\nYWdlbWVudDphZGRvbjp0ZWxlbWV0cnkxRjBEBgNVBAoMPXN5c3RlbTpvcGVuLWNs\ndXN0ZXItbWFuYWdlbWVudDpjbHVzdGVyOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnkx\nVjBUBgNVBAMMTXN5c3RlbTpvcGVuLWNsdXN0ZXItbWFuYWdlbWVudDpjbHVzdGVy\nOnNwb2tlMjphZGRvbjp0ZWxlbWV0cnk6YWdlbnQ6dGVsZW1ldHJ5MFkwEwYHKoZI\nzj0CAQYIKoZIzj0DAQcDQgAEY4J9uvZbHNWbpCMRR8WG+pDcqmvIUhF7y/npiuKZ\nGrbJYAa004YsigD43tkIA4CbsocG0h3G0yqSodkRw8LobqBIMEYGCSqGSIb3DQEJ\nDjE5MDcwNQYDVR0RBC4wLIIqdGVsZW1ldHJ5LmFkZG9uLm9wZW4tY2x1c3Rlci1t\nYW5hZ2VtZW50LmlvMAoGCCqGSM49BAMCA0cAMEQCICt0s7d4c9iX1Wl4I6pSrfvL\nOsA0AEmtn83B532RpTlMAiAH2Qjnww0Ts/m2GGuRLIyNHfhAjSPtQBt8JaCocJIu\nJA==\n-----END CERTIFICATE REQUEST-----\n","generation":"1","issuer":"84ec280bcb1cc98d","not-after":"2026-11-30T11:44:20Z","not-before":"2026-11-30T10:44:14Z","prepared":"2026-11-30T10:44:20Z","request":"addon-spoke2-telemetry-s9j78","requested":"2026-11-30T10:44:19Z","requester":"system:open-cluster-management:spoke2:a1","serial":"3586a9c2993ea1a95a5b8ffa814b6bdce890b57b","signer":"telemetry","signer-name":"example.com/telemetry","tbs":"555dd4034cf835b97a234817aa5a1854aefad62ac97bbed3737853a75b4ba734","uid":"c9dd4a71-6e38-4d29-be1c-c94f7438a293"}}', '\x3bb7ca9d1a887a30a5d95b47172462b90e245cfa3d00f426f4bd902f77943cd1');
INSERT INTO public.entries VALUES (35, '{"seq":35,"previous":"3bb7ca9d1a887a30a5d95b47172462b90e245cfa3d00f426f4bd902f77943cd1","time":"2026-11-30T10:44:20Z","kind":"signed","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIICxjCCAmygAwIBAgIUNYapwpk+oalaW4/6gUtr3OiQtXswCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgODRlYzI4MGJjYjFjYzk4ZDAeFw0yNjExMzAxMDQ0MTRaFw0yNjExMzAxMTQ0MjBaMIHZMTcwNQYDVQQKDC5zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6YWRkb246dGVsZW1ldHJ5MUYwRAYDVQQKDD1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5MVYwVAYDVQQDDE1zeXN0ZW06b3Blbi1jbHVzdGVyLW1hbmFnZW1lbnQ6Y2x1c3RlcjpzcG9rZTI6YWRkb246dGVsZW1ldHJ5OmFnZW50OnRlbGVtZXRyeTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABGOCfbr2WxzVm6QjEUfFhvqQ3KpryFIRe8v56YrimRq2yWAGtNOGLIoA+N7ZCAOAm7KHBtIdxtMqkqHZEcPC6G6jga0wgaowDgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMCMAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFG7yd1Ax3eCDx3B80K7yzJUttcCOMB8GA1UdIwQYMBaAFITsKAvLHMmNuhmtrAUhTKUXxZ5jMDUGA1UdEQQuMCyCKnRlbGVtZXRyeS5hZGRvbi5vcGVuLWNsdXN0ZXItbWFuYWdlbWVudC5pbzAKBggqhkjOPQQDAgNIADBFAiAEdkNp/nSX3/G2lzILdJxeGmPmC0kJ5siEklxwJxb53AIhAMDPYvj159W/JkgY0okBsorD8WJlT1X/NWmu4DP++iVf","serial":"3586a9c2993ea1a95a5b8ffa814b6bdce890b57b","uid":"c9dd4a71-6e38-4d29-be1c-c94f7438a293"}}', '\x9e3835948e1b5520bcc68c9fd053b39a0e63abb802dcecf4fc6712ba8c303ba8');
INSERT INTO public.entries VALUES (36, '{"seq":36,"previous":"9e3835948e1b5520bcc68c9fd053b39a0e63abb802dcecf4fc6712ba8c303ba8","time":"2026-11-30T10:44:20Z","kind":"standing","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"ann","details":{"addon":"telemetry","change":"revoked","cluster":"spoke3","revoke-before":"2026-11-30T10:44:21Z","revoked-before":""}}', '\x87e2a7378189df514e7523f5a68ef338d5180a627251449a123ba166a0afb274');
INSERT INTO public.entries VALUES (37, '{"seq":37,"previous":"87e2a7378189df514e7523f5a68ef338d5180a627251449a123ba166a0afb274","time":"2026-11-30T10:44:20Z","kind":"authority","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"84ec280bcb1cc98d","details":{"certificate":"MIIBvDCCAWGgAwIBAgIQGddjYPoNU5g/1xucjCRy/zAKBggqhkjOPQQDAjA8MTowOAYDVQQDDDFhZGRvbi1zaWduZXIgY2xpZW50IENBIHRlbGVtZXRyeSA5ZjRjNWQwZjRjZTQ5ZTVjMB4XDTI2MTEzMDEwMzkyMFoXDTI3MTEzMDEwNDQyMFowPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgOWY0YzVkMGY0Y2U0OWU1YzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC6Ratwmb1OyB2vk9iC3w36YeRgE6MD4Jv63GttJVnxyRFXu1DHIPgCjMpJyLImJ3tJ+rxtXEvwrTE3/Hz7GttCjRTBDMA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQUn0xdD0zknly8wfncBv8/dckmcw8wEgYDVR0TAQH/BAgwBgEB/wIBADAKBggqhkjOPQQDAgNJADBGAiEA2dmyPy0QVMUqHWSKHTLqzvVYUNygOYmXkM5yICkw1O0CIQCexbPCupg1pL2pfqMfMKhYABAwxuaOB/+0L6UJN1uyrw==","id":"9f4c5d0f4ce49e5c","line":"telemetry","step":"prepared"}}', '\x79a903d91f2714df0985322f601fe752c0b93a43191e149e5b8b0e78c5e95b25');
INSERT INTO public.entries VALUES (38, '{"seq":38,"previous":"79a903d91f2714df0985322f601fe752c0b93a43191e149e5b8b0e78c5e95b25","time":"2026-11-30T10:44:20Z","kind":"anchors","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"authorities":"9f4c5d0f4ce49e5c 84ec280bcb1cc98d","config-map":"telemetry-client-ca","line":"telemetry"}}', '\x5bfb7f994970f297a10c180d5d1a9bd8f9398e0179c3169dcced3e4ce8c396f8');
INSERT INTO public.entries VALUES (39, '{"seq":39,"previous":"5bfb7f994970f297a10c180d5d1a9bd8f9398e0179c3169dcced3e4ce8c396f8","time":"2026-11-30T10:44:20Z","kind":"authority","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIIBvDCCAWGgAwIBAgIQGddjYPoNU5g/1xucjCRy/zAKBggqhkjOPQQDAjA8MTowOAYDVQQDDDFhZGRvbi1zaWduZXIgY2xpZW50IENBIHRlbGVtZXRyeSA5ZjRjNWQwZjRjZTQ5ZTVjMB4XDTI2MTEzMDEwMzkyMFoXDTI3MTEzMDEwNDQyMFowPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgOWY0YzVkMGY0Y2U0OWU1YzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC6Ratwmb1OyB2vk9iC3w36YeRgE6MD4Jv63GttJVnxyRFXu1DHIPgCjMpJyLImJ3tJ+rxtXEvwrTE3/Hz7GttCjRTBDMA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQUn0xdD0zknly8wfncBv8/dckmcw8wEgYDVR0TAQH/BAgwBgEB/wIBADAKBggqhkjOPQQDAgNJADBGAiEA2dmyPy0QVMUqHWSKHTLqzvVYUNygOYmXkM5yICkw1O0CIQCexbPCupg1pL2pfqMfMKhYABAwxuaOB/+0L6UJN1uyrw==","id":"9f4c5d0f4ce49e5c","line":"telemetry","step":"activated"}}', '\xf620ad0ff93367b1e80f0d99d25296faa58dd5564edd3c02974f02ac445df765');
INSERT INTO public.entries VALUES (40, '{"seq":40,"previous":"f620ad0ff93367b1e80f0d99d25296faa58dd5564edd3c02974f02ac445df765","time":"2026-11-30T10:44:20Z","kind":"authority","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"certificate":"MIIBuzCCAWKgAwIBAgIRAICMb5mIzPUis15UNwjvE7IwCgYIKoZIzj0EAwIwPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgODRlYzI4MGJjYjFjYzk4ZDAeFw0yNjExMjkxNDM5MTdaFw0yNzExMjkxNDQ0MTdaMDwxOjA4BgNVBAMMMWFkZG9uLXNpZ25lciBjbGllbnQgQ0EgdGVsZW1ldHJ5IDg0ZWMyODBiY2IxY2M5OGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATmtcJY4FaIbwrqwO4PioRHKDHqmmF5p22sOKN/07WtZQqymzVE+WA9UdRolu4GyjtqoRGK0SpdJCWsFko6nKaeo0UwQzAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFITsKAvLHMmNuhmtrAUhTKUXxZ5jMBIGA1UdEwEB/wQIMAYBAf8CAQAwCgYIKoZIzj0EAwIDRwAwRAIgUSzooYOIqFGzPlijHhX27z6Cbx+OEDbYLv/8Ng8Vj+UCIHYUnHkvSEA9c3ZxMnnYpnkx+z4RQAAZfIahDSrD51nT","id":"84ec280bcb1cc98d","line":"telemetry","step":"retired"}}', '\x7c95cff8d9e01db3e469b005e48f602ff904618aebd639d9e66241604eddf2f4');
INSERT INTO public.entries VALUES (41, '{"seq":41,"previous":"7c95cff8d9e01db3e469b005e48f602ff904618aebd639d9e66241604eddf2f4","time":"2026-11-30T10:44:20Z","kind":"authority","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"again","details":{"certificate":"MIIBujCCAWGgAwIBAgIQbV2QCUZGSM013mVewWS5IzAKBggqhkjOPQQDAjA8MTowOAYDVQQDDDFhZGRvbi1zaWduZXIgY2xpZW50IENBIHRlbGVtZXRyeSA4NWJjNzAwMjk5NzhmYjc0MB4XDTI2MTEzMDEwMzkyMFoXDTI3MTEzMDEwNDQyMFowPDE6MDgGA1UEAwwxYWRkb24tc2lnbmVyIGNsaWVudCBDQSB0ZWxlbWV0cnkgODViYzcwMDI5OTc4ZmI3NDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABM02pBtOP+p57RZWKTrlHaS0x8B5Y+z3qzTqaiZUyQK93dI/Mve2dAG25kLV6ubFMxY3BqqDSM+IcKzeoVja7+ejRTBDMA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQUhbxwApl4+3RjCLvR1fITiQdGnhswEgYDVR0TAQH/BAgwBgEB/wIBADAKBggqhkjOPQQDAgNHADBEAiAJqdMmUgNna53MWpE2wK9AaLu0AU54yqVnGSgggk+awAIgLtsZyVO80OabCZ0spj1W6wdRjpLPmg39OaKWPrk3x50=","id":"85bc70029978fb74","line":"telemetry","step":"prepared"}}', '\xc623137863bd66823097dbf5cb6c8107fa63366d2cd74e53bc1352c969b26965');
INSERT INTO public.entries VALUES (42, '{"seq":42,"previous":"c623137863bd66823097dbf5cb6c8107fa63366d2cd74e53bc1352c969b26965","time":"2026-11-30T10:44:20Z","kind":"anchors","epoch":2,"replica":"signer-1_d83411882c666f05","actor":"","details":{"authorities":"85bc70029978fb74 9f4c5d0f4ce49e5c 84ec280bcb1cc98d","config-map":"telemetry-client-ca","line":"telemetry"}}', '\xc2c36bff46203dc73d12af5d76677a0fea845b2c7d0947a206dfafa072d7507f');


--
-- Data for Name: fence; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.fence VALUES (1, 2, 'signer-1_d83411882c666f05');


--
-- Data for Name: latest; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.latest VALUES ('ledger', '', 'e0f543a84e5878d1488996bed1b61558', 1);
INSERT INTO public.latest VALUES ('authority', 'approved/306d7f39cbcb32d3', 'activated', 3);
INSERT INTO public.latest VALUES ('authority', '(serving)/e357aa6a5ec4931a', 'activated', 4);
INSERT INTO public.latest VALUES ('signer', 'approved', '{"signerName":"example.com/approved","addOns":["approved"],"approval":"External","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"SelfSigned"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 5);
INSERT INTO public.latest VALUES ('signer', 'asked', '{"signerName":"example.com/asked","addOns":["asked"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"Imported"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 7);
INSERT INTO public.latest VALUES ('signer', 'issuer', '{"signerName":"example.com/issuer","addOns":["issuer"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"CertManager","issuerRef":{"name":"corporate","kind":"Issuer","group":"cert-manager.io"}},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 8);
INSERT INTO public.latest VALUES ('authority', 'secret/d0fb414021f36ce5', 'activated', 9);
INSERT INTO public.latest VALUES ('signer', 'secret', '{"signerName":"example.com/secret","addOns":["secret"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"24h","maxDuration":"168h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"Imported","secretName":"of-secret"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":[]},"hostnames":[]}}', 10);
INSERT INTO public.latest VALUES ('anchors', '(serving)', 'e357aa6a5ec4931a', 11);
INSERT INTO public.latest VALUES ('anchors', 'approved', '306d7f39cbcb32d3', 12);
INSERT INTO public.latest VALUES ('signer', 'telemetry', '{"signerName":"example.com/telemetry","addOns":["telemetry"],"approval":"Automatic","registration":"Managed","identity":{"requesters":["Cluster"],"user":"system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}","groups":["system:open-cluster-management:cluster:{cluster}:addon:{addon}","system:open-cluster-management:addon:{addon}"],"dnsNames":["{addon}.addon.open-cluster-management.io"],"organizationalUnits":[]},"certificate":{"duration":"1h","maxDuration":"24h","keys":["ECDSA-P256","ECDSA-P384","Ed25519","RSA-2048","RSA-3072","RSA-4096"]},"authority":{"key":"ECDSA-P256","keyStore":{"type":"Secret"},"issuer":{"type":"SelfSigned"},"duration":"8760h","renewBefore":"2160h"},"trust":{"manifestWork":"Auto","clusterTrustBundle":"Auto"},"gateway":{"routesFrom":{"namespaces":["default"]},"hostnames":[]}}', 13);
INSERT INTO public.latest VALUES ('anchors', 'secret', 'd0fb414021f36ce5', 15);
INSERT INTO public.latest VALUES ('head-key', '', 'MCowBQYDK2VwAyEAtshMwidv1GBIBEMnG/1Llml2jqcTZLlY2KPv65IUfoE=', 18);
INSERT INTO public.latest VALUES ('trial', '', 'eb9552ae39fe1286b19b6c270c02372b0c2b14440c8df762323d6592109ec28960d98fcd7e87a275379b94e74d61f63e007375407bd37db083217040be09471d74ba8223b0d7bfe56f06bed561202ac369546e18acd5d2f6b3cac0b2edb865ad9f0ce3d59f07ad4fe010e5d7113a855f5f2ba19e38b956f46b6a83b89c6077135339164062b99bfefd9708bd7d4bd6aa810e996bbca606cbd3d3080377cc63b69c2865fd1a85d8ad914249e044f44311f47d55193b0edb43d8521e3159316004917428cca9b1803bced70009d42eedd03a89c49e380f28fd12571afd4d2a902f81fb2ad759eefe7beb0fb3c5c9fb25dd5ac17e79488dda642e6a5d7b25f6bb39e53c1d745d7deb9610d636c2908079a4868783cc4ec0e9d5e08a6c120654f1ecc889de55763ea00cf26bdc319d2560069273b3e64f6f680fee7943400eb09bec8d709624b2bb7146fbf5769469ac71562b1ab789e80844c010a2607e4ace1df815a73e60199de77b85fd0d49545ad9c4bbb4d9b3b81532002a6e63127b17833efbfe42f7ee7c216952bdd5ff7b7e3de41bbc7fa6c89c1f6beffce8827a8802b08f2d9ab6639ce37c2851ef22adafd68ef771f9ca542b3472d93808e6e8c176cabed245d0b7a0ab11abd20fe0ea27982c0946d3a0e6f82d7766c0dcb79174b41eda231980267415a98ee714b1eefdd2d913b1fab2de9fdbd8bd2c0351163ac8fc108152b01694316c49042a0395dd448ad2ea46ab6bdc1050f8ef82bfdfcbfed8bfbb4797252967eccc3730f4691467b984ace3946dbb2bcbeff507ff47a0b0f1e9636546fb7dfa1b2c2e86d5998204127ccd0850f0ee262a0764e2ff697b568fec5e522147e8feabc5f6f936725156bbf27173905c3d6a1461c42c09ab2987b72817734535e7c58c15b6bf57efef80de49a82a849b7c918f0d951a2cd190310e03177455798ac18d01e74d6c189798d06af5a5e5b6907752b04c65b3cf28c0cd7c8abeaf1081361358fce89588d6d96511ebf0639facda298cc6585ec8b2a343739188df3234ddf564b04aa7b1bd3b1bf9aaa15281962dec76ceab898b957e30f44f43f9fad73fce7efc20e0730740d0e8c0ebd650b6da9db5e03090d4ec4505461080efc19128de8bea6776a2d21ad9a2cfa662f1930fc92a1bad5cbb0b70f54910e498255b34d3a186b9022178fb47f9144cb1e0327aabe9a1823219c141aa6223e8775cb8b985fdf9a6b04f5cd357aa17909ce98b4730334867780d066f1a6e91f54c3f275dcf9985f6f721b6bc4e1b00c2ab2f5c1d2c67647882f3408ebb1b30f14cb43ef47c295d9e071975832dbc46a9ae2b0b3231627e0b3fed5b9bf28386c85593408f8d29bfe3db63fb9e56f52a477378e4e3cb8d70cd3fd865f864970ddea038de33f2a97bb5985d430be65d78ac39da473267b7b3c515a71f2c1c044e71e58c8bc389dca804f1875018b1fe56a416777f07141b55f9173ccb640b303ea605d12b83c036eb9a74d2eb2c3f5da0cd3ee5ddd0b1030f5f2dce1d9f28edf73369357bd820afa2bd46cf42d294ace2b5661c446dc533cd254e62ba679de101188d0c3dd00c1ca09fd84fd3acc72debc81e4644413709cb483788901daa74c8f81563e6b9414ae3b8bd42d71a8048d1fce085cc1f75a4ed5462be32b24a5a8f23a7d62d996c1ef7673c97b55bda0fe61e3b4cddd195a29f563043508ab93354300c0a930ca5b78fcd9c70e1961a5482a3a4c11409334924e7a989cc9443a84fb3eaeb4196a76ce369035c009ad625d55629ceb8d9e2b97b3c88c6641c1f54efd05913b3dabab4e6aa118033198b4e88ab0d1bda8273f085af5d9fdb15fc8a254a3a2dd97e0d972982eed6e8ea5ac723c7a92efc3f12279b35f3b560de033473391ecf6e7e72f06d02808a8fafd1fa853792c1d9c627c0ad0c7f447d5834b3a6e0dba5b59a0152b86a34a720284dee5cccdb9f34011e78cc79e8cc09bd8c959cf4cb148f56e90df3bb00e5bcc01bddff10b0e41a8db960b1eba6e6dafc5383fe516ace1382a03f7af921e362a51ada3816d28fb3df8ad815d2294d3df28fedc4cf824586d48f2b7bfcb38542f761c3cb6497650cba57ad7010aa6d7684ed24178f0177e501f5374f9e8e7f77ffba5e638c0d3a03b15325ca3362d3d42d8baef1fad5acfdba830f0c7ae097fe20c096c68717014adc842a554449a47cefec518eeab879b6d671c9e5bc42af1a8b154e37db4e7f1783704c4f14915386cb3e8289fe352d9851673423a8cc62fa9a905ecd93c08fc11e9721b495fef2e1fd06e0b1ea27eccd7d9b1681d0b79ed19af179aa953b6bc182951b6c72f177d46f9ec4c8db413a495db5b08ce9e7ee65dd864ebab570fdcdee98e231564aca1efa1aaab3c6dfe1e46bf21c688c3493e2432c4a6d7ba0d2289dbf25ae2cf9a95b95b13a67776c32cf3decd8e9af43ff5c196aef0534a15ee0ca871d346793520446c3ecbaec2de7be6f144c42ab8ceb1cd3976ab7a5d421072fc7d867c55e994282ac5b827de8c6984262a4bc92045cce33288631cfb06b8248f5b38ad8bf1674ef65b930526297c6cb59e49f2ada95cd6f12a3097e0648f983370696c810307705fa4793a333861d591402a753d4b0f9ab10708b38c684024382846165e4b13217e2852085a5cc85e80e7dea75545d2e16547b755363e83939061abb0a45f9523d1e9d263eea9da8097f7fc88700a5e99dcd5185cab19f50040b309872d53ef218f65584029c10eca7964ca67942673bde0c710e12f1ad905176f604b09a45f9fd9714a3b13ca7d69d47a1d5c6987ea25d34dfa3780cdb124d93a51488e6dedea1d48bb4cf4e9b0c9e7c44e6440a3a38eb4202526df8207b77f39572cf2153388be2baa0cb78fa6ae7c1fd3d289de5c870e62144054e68c29346a97e68a86a91ea06fba42cc6440ec6d1c61ca6e4e2491ef182b4c0245c8f8fc452ca19e883662538114000b29305fca784b52c0745487eeeaeae838c0b5793aa337adfbe01afee9e563964a4229c9ef53f65c056884f60623cc4cab4805d1cae1ac85262e77708242fb7ea3168dce7bd9d97dfd785b5f0f6ba3b1aaf13756f2343205bfe8310763648db92095a200d4245fffe38c4c091ad557c37d3a232a40553b1e375286c591fbf6ce269c1b6a1bc133d3590b7504299853c03d0cfdf6bdd8a1658083fa3155936241c7d6d25ab5c7a1c79b6b2fe7b5f33ec360eefc3b8a244ebf9f82968e708b799ff1b4aeb26f60c26465a0d560f919420054879f62c3540725161145cacd439fe196ff633550fdd23920d8f0762167c9b9be4170ac8f5ed25a9fbb7d6c500393ce9a2ce1ac0333f7f7335652f7a35f071110a2a8213db11f069fe947bf402a666fec7802256eb6d5ecebd2ec0df50ea514b0423e5648a73762fd62700ce99918a7108826a932d2532fe87d8482ab12d62a2b0689da6c2276c5c5b88d04870185eb6958771d3bfae85db6a2e6c839c6c959e2b4142a3fbcff02d69ee700600ecb88f2ba77a52d64ce0da5530e503a603c4f702b068ac8f3029488029976f511361d74786c00a20531d58c2df76d3c540432740d46cf7b22e5cd8e51085f54c09bab7a266cd5e8b8434233a5071bf3ce7856ec7caa025fd2fe93371d8a1d063b1667725170a6003836f0c9cec12276ff655208a64e2848903c659a7f76a65b434e5223baeb09faf17d3c0a71c5a1e3d3cef0069aede463fc63001dc4d8f3418e0115c6816fb6f874ff346e119cbb9590abe398fa5ef5961d710fa298e12860220cb3a1bfa3486910625b3d2e4791c326a8b4d695c2a1600fa6ff18fbddd8ef45926d6f5614cb4df01d082d305e53b1e9997ddd3270e7c6f0507b28b9a2152fb39991ce0f4dc595bbe1704df2ac0fb1f314eca12325cb5602f4e1914bf1c7bcd157e7d04a9c0b481beea16e65b2fd2fa7fe10d607bb6323a144a48e427b50a18f5ebc2784290ec75c97d6c79da0a3769ae9a212642f18f39f0dd38c6068d09a6e5889913c545049e83c3eb1d04961b71d92a7c099870641ccd230bb14d182696c71a3bf201207ecc96848f0810efecaa7553a4dcf02ec50ee9696b6a97f2d2c2212a26684e9c7d53711535ecb2a1f0962dfd8b4a0a7a70df92538178b3324d18ccee6605d93322e30f3c45d243be833566f00688792ea476b9e0d0057aa0e7f8af1837f75c850b209aa879b2b6ff462132980c2fb31fa105ce252441dd832c384f7dd5f6ec247441ab0cc64dafecb418e6ff488c684d5e75f2092e5575bc866746df168652f2552d16c3cfe733644595e3f6f7b57588f3b348ee7d3483145400a1babbead862b4c4e2debf58cd1b37ac5c84fce27e3fde408af4693a08d45c526cd93364cf2808c6524f5d983fa165e3f418427e551c12632d7dc90f04ff0a346abbf857e26f7787a8091d3cc68073482f55cedd2f133d78d4f29d6a65037e21b7478ad0d65116a93263dd3e2bde756de3510f811d9e11302bde3d2948b85f7be4b533130f8b822db5a5832eca524208b06384203ff8e72a04db882a93f15af10bacfbb235eb12b8a0692f80d3ddd1be5eb85e98f493455b06c9ea9cd9b2842dcffbee5ad0b852d934195abbdb57b925dea9ab313c607b64c3109eacab8010494173d57ffe92c7078c41661b7358d34b5122f231316f154007647994ba22d12c8fd394ab0fd8c0a733692ee64451802e0f6b67257ed83c35114926f24f8d7212a9b3ecd1d8108ea8a0cb4167eecc8706a7970ea7d7b2d752b5ee0ebd69c4d5ee87c5a4c851d26fb7bf2d3b4757c81209938dbefc4ce2746c466b99498a91c17532c3e674c8309129bf655dedcace14b64a64b51a7cfe28f2f8818524330a6da4dfcdec90c40fefa16801506921aa121c2417e4adfc8fc27bbbb9c110074532af75e3ba972cb8f717abad2810e254f9367faabcbfe75ce22f0f9f50df43da3edf8327343cda26e8f58c0b7b0fd592c9b8ffe924ba51c1b4aa9076e6e63bed72051bc00f23c3457f2b6650f8233793543a05144cd5735b443944e5b4426b9b80c1a740cf943db64989ee69cf51ed796ec8fe1696ffea9f7e2dee9141d94ca07236e41a7755e550d57c09b2b550d78f7a9a3d43b7dcd68b7a01c3d24544a805b343fbf73454f64de2117f77d9c3da302848282de7d8c61d4d19dbab3a27cbc0201261cfd7a0da7105442d639b85515b5028a16dd386caed0e3099321cdfe9574a10eb5e58cc07c9a7f495f79f05897d4b850f48e109f61cd12f23dfa27695564283c42943e7fd54def4940697a8642725a77d86d845f8d8f87f266c2b29eb408a14e33f85755de7b90ca8c7de17733e86b3f1c3dce1c7bd8b81d7e0c649462f07111f4300dcadbaa160c2a7d3abbd0477a1bc1f0f131a3ea6f4346031bcc512f3f1d58d11ef5ad45a9be00aa072b88b54aec990a9ae9f5f276c3282fe16eb302bf6b70095142ff00a9b5234d8f3d5d769c5acc43067187b32d386ecc36e22a7993e9b1dfac47e8bd2dbfedc3ce6930c7ede434de96d54ac3d03c9ed448ab736984c4e71ee029a57dc9379bbfb6c222858e5fc83b293b5442c18e00fe8d02bc030f9750a0568fb42dbdf734c3b8f8153ec8f6d4ea8a445f59bc0626e3610f29ab923ac77a9d4b35b7e173b633a727b5c0b90f475eddd3e868243b39102f8c76011406e1741e3c54768ec24ade7ecf710cfe83d9f91851e713346c0f2cea87be9fef90875a2de6feefc1db0cc37843fb0881971693b9bf8f3ff2bab4e2fb2ba9ae147', 0);
INSERT INTO public.latest VALUES ('authority', 'issuer/d50333fcbb335823', 'activated', 20);
INSERT INTO public.latest VALUES ('anchors', 'issuer', 'd50333fcbb335823', 23);
INSERT INTO public.latest VALUES ('revocation', 'spoke3/telemetry', '2026-11-30T10:44:21Z', 36);
INSERT INTO public.latest VALUES ('authority', 'telemetry/9f4c5d0f4ce49e5c', 'activated', 39);
INSERT INTO public.latest VALUES ('authority', 'telemetry/84ec280bcb1cc98d', 'retired', 40);
INSERT INTO public.latest VALUES ('authority', 'telemetry/85bc70029978fb74', 'prepared', 41);
INSERT INTO public.latest VALUES ('anchors', 'telemetry', '85bc70029978fb74 9f4c5d0f4ce49e5c 84ec280bcb1cc98d', 42);


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

\unrestrict QazW0PGkAaBTjnDOpw9kJhD6ZIp2tZGiobAeZULWmuUWCmDI37Av8rlpTy4ckWe

