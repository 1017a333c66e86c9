//! The anchors that the hub publishes now, as other agents' CSRs show: the hub writes them on each CSR together with
//! the certificate. An agent that cannot verify the gateway learns here whether its anchors are outdated or a stranger
//! answers at the gateway's address. Kubernetes keeps an issued CSR for an hour.

use serde_json::Value;

use addon_signer_core::bounded::Keep;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::names::ANNOTATION_TRUST_BUNDLE;
use addon_signer_core::timestamp::Timestamp;

/// How many CSRs of a signer the agent reads at once.
pub(crate) const SOME: u32 = 20;
/// How many such pages it reads at most: all agents of a fleet may do so at the same time.
pub(crate) const SOME_PAGES: usize = 5;
/// What the agent reads of them.
pub(crate) static PUBLISHED: Keep = Keep::Fields(&[
    ("metadata", Keep::Fields(&[("continue", Keep::Scalar(16 << 10))])),
    ("items", Keep::Each(SOME as usize, &REQUEST)),
]);
static REQUEST: Keep = Keep::Fields(&[
    (
        "metadata",
        Keep::Fields(&[
            ("creationTimestamp", Keep::Scalar(64)),
            ("annotations", Keep::Fields(&[(ANNOTATION_TRUST_BUNDLE, Keep::Scalar(256 << 10))])),
        ]),
    ),
    ("status", Keep::Fields(&[("certificate", Keep::Scalar(64 << 10))])),
]);

/// The anchors that came with a certificate; the newest is the greatest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Published {
    requested: Timestamp,
    is_other: bool,
}

impl Published {
    /// The newest one of a page ([`PUBLISHED`]), and whether its anchors differ from those with the digest `known`.
    pub(crate) fn newest(page: &Value, known: &str) -> Option<Self> {
        let requests = page.get("items").and_then(Value::as_array).into_iter().flatten();
        requests.filter_map(|request| Self::read(request, known)).max()
    }

    fn read(request: &Value, known: &str) -> Option<Self> {
        let text = |pointer| request.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        text("/status/certificate")?;
        let requested = Timestamp::from_rfc3339(text("/metadata/creationTimestamp")?)?;
        let annotations = request.pointer("/metadata/annotations")?;
        let bundle = Bundle::from_pem(annotations.get(ANNOTATION_TRUST_BUNDLE)?.as_str()?.as_bytes()).ok()?;
        Some(Self { requested, is_other: bundle.digest() != known })
    }

    /// Whether these are other anchors, of a CSR that was made after `signed`.
    pub(crate) fn replaces(&self, signed: Timestamp) -> bool {
        self.is_other && self.requested >= signed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::bounded;
    use addon_signer_core::ca::authority::Authority;
    use addon_signer_core::keys::private::PrivateKey;
    use addon_signer_core::keys::public::KeyKind;
    use ring::rand::SystemRandom;
    use serde_json::json;
    use std::time::Duration;

    fn mk_bundle(name: &str) -> Bundle {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let year = Duration::from_secs(365 * 86_400);
        Bundle::new(vec![Authority::self_signed(name, &key, Timestamp::from_unix(0), year, &rng).unwrap()]).unwrap()
    }

    fn mk_request(second: i64, certificate: &str, bundle: &Bundle) -> Value {
        json!({
            "metadata": {
                "creationTimestamp": Timestamp::from_unix(second).to_string(),
                "annotations": { ANNOTATION_TRUST_BUNDLE: bundle.pem() },
                "finalizers": vec!["a/a"; 100_000],
            },
            "spec": { "request": "UEVN" },
            "status": { "certificate": certificate },
        })
    }

    fn newest(requests: &[Value], known: &Bundle) -> Option<Published> {
        let page = json!({ "items": requests });
        let kept = bounded::read(page, &PUBLISHED).unwrap();
        assert!(!kept.is_cut && kept.value.pointer("/items/0/spec").is_none());
        Published::newest(&kept.value, &known.digest())
    }

    #[test]
    fn only_anchors_of_an_issued_newer_request_replace() {
        let signed = 1_000;
        let [own, other] = ["own", "other"].map(mk_bundle);
        let replaces = |requests: &[Value]| {
            newest(requests, &own).is_some_and(|found| found.replaces(Timestamp::from_unix(signed)))
        };
        let newer = mk_request(signed, "UEVN", &other);
        assert!(replaces(std::slice::from_ref(&newer)));
        assert!(!replaces(&[mk_request(signed - 1, "UEVN", &other)]), "older than the certificate");
        assert!(!replaces(&[mk_request(signed, "UEVN", &own)]), "the same anchors");
        assert!(!replaces(&[newer.clone(), mk_request(signed + 1, "UEVN", &own)]), "the newest counts");
        assert!(replaces(&[newer, mk_request(signed, "UEVN", &own)]), "in the same second the other ones");
        assert_eq!(newest(&[mk_request(signed, "", &other)], &own), None, "nobody has signed");
        assert_eq!(newest(&[json!({ "metadata": {}, "status": { "certificate": "UEVN" } })], &own), None);
    }
}
