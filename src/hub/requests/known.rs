//! The requests that the watch has shown and that are not issued, each with as much of it as there is room for.
//!
//! A requester decides how large its requests are and how many there are, so each tenant has a bounded room, and all
//! together have one. What does not fit is read again when its turn comes.

use std::collections::{HashMap, HashSet};
use std::mem::Discriminant;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use crate::hub::requests::plan;
use crate::hub::requests::signer::Outcome;

/// Bytes of requests that are kept of one tenant. OCM's agent makes at most ten requests per addon, of some 2 KiB each.
const ROOM_OF_TENANT: usize = 512 << 10;
/// Bytes of requests that are kept in all.
const ROOM: usize = 24 << 20;

/// A request that waits for something.
#[derive(Debug)]
pub(super) struct KnownRequest {
    /// Its `spec.signerName`.
    pub(super) signer_name: Arc<str>,
    /// Who must wait if it asks for too much.
    pub(super) tenant: Arc<str>,
    /// The object as the watch showed it; `None` if there was no room for it.
    pub(super) object: Option<Arc<CertificateSigningRequest>>,
    /// How often in a row the hub has looked at this version of the request with the same outcome.
    pub(super) attempts: u32,
    pub(super) last: Option<Discriminant<Outcome>>,
    pub(super) in_work: bool,
    /// Whether something that it may wait for has changed while it was in work.
    pub(super) missed: bool,
    /// Whether the request waits for something in the hub.
    pub(super) waits: bool,
    size: usize,
}

/// All of them, by name.
#[derive(Debug, Default)]
pub(super) struct KnownRequests {
    requests: HashMap<Arc<str>, KnownRequest>,
    used: HashMap<Arc<str>, usize>,
    used_in_all: usize,
}

impl KnownRequests {
    /// Keeps a request, or a newer version of it.
    pub(super) fn put(&mut self, name: &str, tenant: &str, csr: CertificateSigningRequest) {
        self.remove(name);
        let signer_name: Arc<str> = csr.spec.signer_name.as_str().into();
        let tenant: Arc<str> = tenant.into();
        let size = plan::size(&csr);
        let used = self.used.get(&tenant).copied().unwrap_or_default();
        let fits = used + size <= ROOM_OF_TENANT && self.used_in_all + size <= ROOM;
        let size = if fits { size } else { 0 };
        if fits {
            self.used.insert(Arc::clone(&tenant), used + size);
            self.used_in_all += size;
        }
        let object = fits.then(|| Arc::new(csr));
        let request = KnownRequest {
            signer_name,
            tenant,
            object,
            attempts: 0,
            last: None,
            in_work: false,
            missed: false,
            waits: false,
            size,
        };
        self.requests.insert(name.into(), request);
    }

    /// Forgets a request.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(request) = self.requests.remove(name) else { return };
        self.used_in_all -= request.size;
        if let Some(used) = self.used.get_mut(&request.tenant) {
            *used -= request.size;
            if *used == 0 {
                self.used.remove(&request.tenant);
            }
        }
    }

    /// Forgets all requests that are not among these names.
    pub(super) fn retain(&mut self, names: &HashSet<String>) {
        let gone: Vec<Arc<str>> = self.requests.keys().filter(|name| !names.contains(&***name)).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut KnownRequest> {
        self.requests.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &KnownRequest)> {
        self.requests.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut KnownRequest)> {
        self.requests.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn mk_csr(name: &str, size: usize) -> CertificateSigningRequest {
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.name = Some(name.to_owned());
        csr.spec.request = ByteString(vec![0; size]);
        csr
    }

    #[test]
    fn a_tenant_that_has_used_its_room_is_read_again_and_others_are_not() {
        let mut known = KnownRequests::default();
        for n in 0..10_000 {
            known.put(&format!("loud-{n}"), "loud", mk_csr("loud", 2_000));
        }
        known.put("quiet", "quiet", mk_csr("quiet", 2_000));
        let kept = known.iter().filter(|(_, request)| request.object.is_some()).count();
        assert!((200..300).contains(&kept), "{kept}");
        assert!(known.get_mut("quiet").unwrap().object.is_some());
        assert!(known.used_in_all <= ROOM_OF_TENANT + 3_000);
    }

    #[test]
    fn room_is_given_back() {
        let mut known = KnownRequests::default();
        for round in 0..3 {
            for n in 0..500 {
                known.put(&n.to_string(), "t", mk_csr("a", 1_000 * (round + 1)));
            }
        }
        known.retain(&HashSet::from(["7".to_owned()]));
        assert_eq!(known.iter().count(), 1);
        known.remove("7");
        assert!(known.used.is_empty() && known.used_in_all == 0);
    }
}
