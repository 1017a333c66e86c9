//! A gateway that trusts two signers: one with the golden client CA, and one with a CA that signs the fuzzer's input.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::gateway::attachment::Attachment;
use addon_signer_core::gateway::authz::{Peer, identify, unverified};
use addon_signer_core::gateway::headers::IdentityHeaders;
use addon_signer_core::gateway::route::{Clusters, Route, RouteLimits, RouteName, RouteTable};
use addon_signer_core::identity::{Convention, PeerIdentity};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::{SignerTrust, Trust};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose, PKCS_ED25519};
use ring::signature::Ed25519KeyPair;
use rustls_pki_types::CertificateDer;

use crate::{ED25519, bits, tlv};

/// 2027-01-01T00:00:00Z, when the golden certificates are valid.
pub const NOW: Timestamp = Timestamp::from_unix(1_798_761_600);
const GOLDEN_CA: &[u8] = include_bytes!("../../certs/profiles/client-ca.pem");

/// The trust of a gateway, and the key of one of its CAs.
pub struct Gateway {
    key: Ed25519KeyPair,
    issuer: Vec<u8>,
    trust: Trust,
}

impl Gateway {
    /// A gateway with a new CA.
    pub fn new() -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "fuzz");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = Authority::from_der(params.self_signed(&pair).expect("a CA").der()).expect("a CA");
        let golden = Bundle::from_pem(GOLDEN_CA).expect("the golden CA");
        let issuer = authority.subject_der().to_vec();
        let ours = Bundle::new(vec![authority]).expect("one CA");
        let signers = vec![signer("fuzz", ours), signer("golden", golden)];
        let key = Ed25519KeyPair::from_pkcs8(pair.serialized_der()).expect("the same key");
        Self { key, issuer, trust: Trust { signers, ..Trust::default() } }
    }

    /// The anchors of the CA with the key.
    pub fn anchors(&self) -> &Bundle {
        &self.trust.signers[0].client_anchors
    }

    /// A certificate of that CA with the fuzzer's bytes. `None` if there are too few bytes.
    pub fn certify(&self, data: &[u8]) -> Option<CertificateDer<'static>> {
        let (length, rest) = data.split_first_chunk::<2>()?;
        let (subject, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let (validity, extensions) = rest.split_at_checked(rest.get(1).map_or(0, |length| usize::from(*length) + 2))?;
        let public_key = tlv(0x30, &[&ED25519, &bits(&[9; 32])]);
        let version: &[u8] = &[0xa0, 3, 2, 1, 2];
        let parts = [version, &[2, 1, 1], &ED25519, &self.issuer, validity, subject, &public_key, extensions];
        let tbs = tlv(0x30, &parts);
        Some(tlv(0x30, &[&tbs, &ED25519, &bits(self.key.sign(&tbs).as_ref())]).into())
    }

    /// Whether the gateway reads an identity from the certificate. If it does, checks that the signer serves the addon.
    pub fn show(&self, leaf: &CertificateDer<'_>) -> bool {
        let _ = unverified(leaf); // of any certificate that a stranger shows
        let Ok(peer) = identify(&self.trust, leaf, NOW) else { return false };
        let convention = Convention::default();
        assert!(peer.signer.addons.contains(&peer.identity.addon));
        assert_eq!(convention.user(&peer.identity), peer.user);
        let groups = convention.groups(&peer.identity.cluster, &peer.identity.addon);
        assert!(peer.groups.iter().all(|group| groups.contains(group)));
        assert!(peer.not_after >= NOW);
        true
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Self::new()
    }
}

fn signer(name: &str, client_anchors: Bundle) -> Arc<SignerTrust> {
    Arc::new(SignerTrust {
        name: name.to_owned(),
        signer_name: format!("example.com/{name}").parse().expect("a signer name"),
        addons: BTreeSet::from(["telemetry".parse().expect("a name")]),
        convention: Convention::default(),
        client_anchors,
        renew_within: Default::default(),
        attachment: Attachment::default(),
    })
}

/// A caller of the signer with the golden CA.
pub fn mk_peer() -> Peer {
    let golden = Bundle::from_pem(GOLDEN_CA).expect("the golden CA");
    let name = "spoke1";
    let signer = signer("golden", golden);
    let identity = PeerIdentity {
        cluster: name.parse().expect("a name"),
        addon: "telemetry".parse().expect("a name"),
        agent: "telemetry".parse().expect("a name"),
    };
    Peer {
        user: signer.convention.user(&identity),
        groups: signer.convention.groups(&identity.cluster, &identity.addon),
        identity,
        signer,
        issuer: "golden".into(),
        serial: Serial::from_hex(&format!("{:040x}", 1)).expect("forty digits"),
        not_before: NOW,
        not_after: NOW,
        headers: IdentityHeaders::default(),
    }
}

/// The routes of that caller: each is another AddOnRoute, and one is a prefix of another.
pub fn mk_table() -> RouteTable {
    let mut table = RouteTable::of_signers(["golden"]);
    let second = Duration::from_secs(1);
    for path in ["/api", "/api/v1", "/push", "/t/{cluster}"] {
        let route = Route {
            name: RouteName { namespace: "ns".to_owned(), name: path.to_owned() },
            created: NOW,
            addons: Arc::new(BTreeSet::from(["telemetry".parse().expect("a name")])),
            clusters: Arc::new(Clusters::All),
            hostnames: Arc::default(),
            path: path.parse().expect("a pattern"),
            methods: BTreeSet::from(["GET".to_owned()]),
            delete_with_content: false,
            backend: Err("nowhere".to_owned()),
            limits: RouteLimits {
                max_body: 1,
                connect: second,
                first_byte: second,
                idle: second,
                requests_per_identity: None,
            },
        };
        table.add("golden", &Arc::new(route));
    }
    table
}
