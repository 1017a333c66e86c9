//! Pending CSRs from the watch; their objects are kept only within a memory budget.
//!
//! A requester decides how large and how many its CSRs are, so each tenant has a budget, and all together have one. An
//! object that does not fit is read again when its turn comes. Of a tenant with too many CSRs, some are not known at
//! all; once half of the others are done, a new list finds more of them.

use std::collections::HashMap;
use std::mem::{Discriminant, take};
use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client, ResourceExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use crate::csrs::action;
use crate::csrs::signer::Outcome;
use addon_signer_api::request::BoundedCsr;

/// Budget of one tenant's CSRs in bytes. OCM's agent makes at most ten CSRs per addon, of some 2 KiB each.
const ROOM_OF_TENANT: usize = 512 << 10;
/// How many CSRs of one tenant are known. Each needs up to a kilobyte for its names, even if its object is not kept.
const MOST_OF_TENANT: usize = 2_000;
/// Budget of all CSRs in bytes.
const ROOM: usize = 24 << 20;

/// A CSR that waits for something.
#[derive(Debug)]
pub(super) struct KnownCsr {
    /// Its `spec.signerName`.
    pub(super) signer_name: Arc<str>,
    /// The tenant that the rate limits apply to.
    pub(super) tenant: Arc<str>,
    /// The object as the watch showed it; `None` if it did not fit.
    pub(super) object: Option<Arc<CertificateSigningRequest>>,
    /// How often in a row the hub has handled this version of the CSR with the same outcome.
    pub(super) attempts: u32,
    pub(super) last: Option<Discriminant<Outcome>>,
    pub(super) in_work: bool,
    /// Whether anything that it may wait for has changed while it was in work.
    pub(super) missed: bool,
    /// Whether the CSR waits for something in the hub.
    pub(super) waits: bool,
    /// When it was first seen.
    pub(super) seen: Instant,
    size: usize,
    /// The last list that may have shown it.
    list: u64,
}

/// The usage of one tenant.
#[derive(Debug, Default)]
struct Tenant {
    requests: usize,
    bytes: usize,
    /// Whether it has unknown CSRs.
    has_more: bool,
}

/// All of them, by name.
#[derive(Debug, Default)]
pub(super) struct KnownCsrs {
    requests: HashMap<Arc<str>, KnownCsr>,
    tenants: HashMap<Arc<str>, Tenant>,
    used_in_all: usize,
    /// The number of the newest list.
    list: u64,
    wants_list: bool,
}

impl KnownCsrs {
    /// Keeps a CSR, or a newer version of it. Returns whether it is known now.
    pub(super) fn put(&mut self, name: &str, tenant: &str, csr: CertificateSigningRequest) -> bool {
        let seen = self.requests.get(name).map_or_else(Instant::now, |request| request.seen);
        self.remove(name);
        let known = self.tenants.get_key_value(tenant);
        let tenant: Arc<str> = known.map_or_else(|| tenant.into(), |(tenant, _)| Arc::clone(tenant));
        let of_tenant = self.tenants.entry(Arc::clone(&tenant)).or_default();
        if of_tenant.requests >= MOST_OF_TENANT {
            if !std::mem::replace(&mut of_tenant.has_more, true) {
                warn!(
                    requester = &*tenant,
                    known = MOST_OF_TENANT,
                    "A requester has more CSRs than the hub keeps track of"
                );
            }
            return false;
        }
        let size = action::size(&csr);
        let fits = of_tenant.bytes + size <= ROOM_OF_TENANT && self.used_in_all + size <= ROOM;
        let size = if fits { size } else { 0 };
        of_tenant.requests += 1;
        of_tenant.bytes += size;
        self.used_in_all += size;
        let request = KnownCsr {
            signer_name: csr.spec.signer_name.as_str().into(),
            tenant,
            object: fits.then(|| Arc::new(csr)),
            attempts: 0,
            last: None,
            in_work: false,
            missed: false,
            waits: false,
            seen,
            size,
            list: self.list,
        };
        self.requests.insert(name.into(), request);
        true
    }

    /// Forgets a CSR.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(request) = self.requests.remove(name) else { return };
        self.used_in_all -= request.size;
        if let Some(of_tenant) = self.tenants.get_mut(&request.tenant) {
            of_tenant.bytes -= request.size;
            of_tenant.requests -= 1;
            self.wants_list |= of_tenant.requests <= MOST_OF_TENANT / 2 && take(&mut of_tenant.has_more);
            if of_tenant.requests == 0 {
                self.tenants.remove(&request.tenant);
            }
        }
    }

    /// Notes that a list begins, which shows all CSRs.
    pub(super) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// Forgets all CSRs that the list did not show.
    pub(super) fn complete_list(&mut self) {
        let gone: Vec<_> =
            self.requests.iter().filter(|(_, known)| known.list < self.list).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.remove(&name);
        }
    }

    /// Whether a new list would show unknown CSRs that would fit now. Returns `true` once.
    pub(super) fn wants_list(&mut self) -> bool {
        take(&mut self.wants_list)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut KnownCsr> {
        self.requests.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &KnownCsr)> {
        self.requests.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut KnownCsr)> {
        self.requests.iter_mut()
    }
}

/// How many CSRs are read at once, of all clusters: each may need 27 MB while it is read.
const AT_ONCE: usize = 2;

/// Reads a few CSRs at a time.
#[derive(Clone)]
pub(super) struct Rereads {
    api: Api<BoundedCsr>,
    places: Arc<Semaphore>,
}

impl Rereads {
    pub(super) fn new(client: &Client) -> Self {
        Self { api: Api::all(client.clone()), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The object of a CSR: `kept`, or else what the API server has; `None` if it is no longer such a CSR.
    pub(super) async fn object(
        &self,
        kept: Option<Arc<CertificateSigningRequest>>,
        name: &str,
        signer_name: &str,
    ) -> Result<Option<Arc<CertificateSigningRequest>>, kube::Error> {
        if kept.is_some() {
            return Ok(kept);
        }
        // The semaphore is never closed, so a permit becomes free.
        let _place = self.places.acquire().await.ok(); // no error: the semaphore is never closed
        let found = self.api.get_opt(name).await?.map(action::trimmed);
        Ok(found.filter(|csr| csr.name_any() == name && csr.spec.signer_name == signer_name).map(Arc::new))
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
    fn tenant_out_of_room_is_reread_and_others_are_not() {
        let mut known = KnownCsrs::default();
        for n in 0..MOST_OF_TENANT {
            assert!(known.put(&format!("loud-{n}"), "loud", mk_csr("loud", 2_000)));
        }
        known.put("quiet", "quiet", mk_csr("quiet", 2_000));
        let kept = known.iter().filter(|(_, request)| request.object.is_some()).count();
        assert!((200..300).contains(&kept), "{kept}");
        assert!(known.get_mut("quiet").unwrap().object.is_some());
        assert!(known.used_in_all <= ROOM_OF_TENANT + 3_000);
    }

    #[test]
    fn overfull_tenant_is_relisted_once_half_its_requests_settle() {
        let mut known = KnownCsrs::default();
        for n in 0..10 * MOST_OF_TENANT {
            assert_eq!(known.put(&format!("loud-{n}"), "loud", mk_csr("loud", 100)), n < MOST_OF_TENANT);
        }
        assert!(known.put("loud-7", "loud", mk_csr("loud", 100)), "a newer version of one that is known");
        assert!(known.put("quiet", "quiet", mk_csr("quiet", 100)));
        assert_eq!((known.iter().count(), known.tenants.len()), (MOST_OF_TENANT + 1, 2));
        for n in 0..MOST_OF_TENANT / 2 {
            assert!(!known.wants_list(), "{n}");
            known.remove(&format!("loud-{n}"));
        }
        assert!(known.wants_list(), "once");
        assert!(!known.wants_list(), "once");
        assert!(known.put("loud-19999", "loud", mk_csr("loud", 100)));
    }

    #[test]
    fn room_is_given_back() {
        let mut known = KnownCsrs::default();
        for round in 0..3 {
            known.begin_list();
            for n in 0..500 {
                known.put(&n.to_string(), "t", mk_csr("a", 1_000 * (round + 1)));
            }
        }
        known.begin_list();
        known.put("7", "t", mk_csr("a", 1_000));
        known.complete_list();
        assert_eq!(known.iter().count(), 1);
        known.remove("7");
        assert!(known.tenants.is_empty());
        assert!(known.used_in_all == 0);
        assert!(!known.wants_list());
    }
}
