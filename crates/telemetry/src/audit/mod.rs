//! The audit log: one line per decision, on the tracing target `audit`, with the field names of `docs/audit.md`.
//!
//! [`lines`] writes the decisions as JSON, whatever the format of the ordinary log. Decisions that any client can cause
//! are [throttled](Throttle) by cause. A cause is a word defined by this program, never text that a client chose; such
//! text is only in fields of bounded length. Grants, steps of authorities and changes of eligibility are always
//! written.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::info;

use addon_signer_core::ca::serial::Serial;
use addon_signer_core::identity::{AddOnName, ClusterName, PeerIdentity};
use addon_signer_core::names::AUDIT_TARGET;
use addon_signer_core::policy::Refusal;
use addon_signer_core::registry::EligibilityChange;
use addon_signer_core::table;
use addon_signer_core::throttle::{Quota, Suppressed, Taken, Throttle};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

mod lines;

pub use lines::{Lines, Sink, lines};
pub(crate) use lines::{complain, line_of};

table! {
    /// The events of the audit log.
    pub EVENTS of &str;
    /// The hub published a certificate.
    GRANTED = "granted";
    /// The hub denied or failed a CSR.
    REFUSED = "refused";
    /// A certificate authority was created, prepared, activated, forced, rolled back, given up, tainted, revoked or
    /// removed, or awaits its revocation.
    AUTHORITY = "authority";
    /// An addon on a cluster became eligible or ineligible, or certificates were revoked.
    ELIGIBILITY = "eligibility";
    /// The gateway let a connection in.
    ADMITTED = "admitted";
    /// The gateway did not let a connection in.
    REFUSED_CONNECTION = "refused-connection";
    /// The gateway ended a connection that it had let in.
    ENDED_CONNECTION = "ended-connection";
    /// The gateway answered a request with a problem.
    REFUSED_REQUEST = "refused-request";
    /// A user asked the inventory.
    INVENTORY = "inventory";
    /// The inventory did not let a connection in.
    REFUSED_INVENTORY_CONNECTION = "refused-inventory-connection";
    /// Refusals or admissions with the same cause were counted and not written.
    SUPPRESSED = "suppressed";
}

/// A few lines show what is happening; the sum shows how often. A client without a certificate can produce some 15
/// causes: less than 100 kB in a minute.
pub const QUOTA: Quota = Quota { first: 10, window: Duration::from_secs(60) };
/// How often due sums are written.
const POLL: Duration = Duration::from_secs(1);
/// The longest text in a field, in bytes. Longer ones are cut and end in `…`.
const TEXT_MAX: usize = 256;

/// Writes decisions to the audit log. Clones share their counts.
#[derive(Debug, Clone)]
pub struct Audit(Arc<AuditState>);

#[derive(Debug)]
struct AuditState {
    clock: Clock,
    throttle: Mutex<Throttle<Cause>>,
}

/// Decisions that are counted together. The number of causes is bounded by the words defined by this program and by the
/// addons registered on the hub.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Refused(&'static str, &'static str),
    Admitted(ClusterName, AddOnName),
}

/// A certificate that was published on its CSR.
#[derive(Debug)]
pub struct Grant<'g> {
    /// The AddOnSigner, or `gateway-serving`.
    pub signer: &'g str,
    /// The CertificateSigningRequest.
    pub csr: &'g str,
    /// The requester.
    pub requester: Asker<'g>,
    /// The identity in the certificate; `None` for the gateway's own.
    pub identity: Option<&'g PeerIdentity>,
    /// The id of the authority that signed.
    pub issuer: &'g str,
    /// The serial number.
    pub serial: Serial,
    /// The last second of the certificate.
    pub not_after: Timestamp,
}

/// The requester of a CSR.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The user, as reported by the API server.
    pub user: &'a str,
    /// The user for whom it asked, if it is OCM's gRPC server.
    pub csr_user: Option<&'a str>,
}

/// The client of a connection at the gateway. A field that is unknown or unproven is `None` or empty.
#[derive(Debug, Clone)]
pub struct Caller<'c> {
    /// The address.
    pub remote: SocketAddr,
    /// The identity in the certificate.
    pub identity: Option<&'c PeerIdentity>,
    /// The AddOnSigner whose CA signed the certificate.
    pub signer: &'c str,
    /// The id of the authority that signed.
    pub issuer: &'c str,
    /// The serial number of the certificate.
    pub serial: Option<Serial>,
    /// What a certificate that is no identity says of itself.
    pub unverified: String,
}

impl Caller<'_> {
    fn serial(&self) -> String {
        self.serial.map(|serial| serial.to_string()).unwrap_or_default()
    }

    /// A client known only by its address, and what its certificate says of itself.
    pub fn stranger(remote: SocketAddr, unverified: String) -> Self {
        Self { remote, identity: None, signer: "", issuer: "", serial: None, unverified }
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self::new(Clock::default())
    }
}

impl Audit {
    /// An audit log that takes its times from this clock.
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(AuditState { clock, throttle: Mutex::new(Throttle::new(QUOTA)) }))
    }

    /// Logs that a certificate was published on its CSR.
    pub fn granted(&self, grant: &Grant<'_>) {
        let Grant { signer, requester, issuer, serial, not_after, .. } = *grant;
        let [cluster, addon, agent] = names(grant.identity);
        let time = self.now();
        let csr = bounded(grant.csr);
        let csr_user = bounded(requester.csr_user.unwrap_or_default());
        let requester = bounded(requester.user);
        let serial = serial.to_string();
        let not_after = not_after.to_string();
        info!(
            target: AUDIT_TARGET,
            time, event = GRANTED, signer, csr, requester, csr_user, cluster, addon, agent, issuer, serial, not_after
        );
    }

    /// Logs that a CSR was refused.
    pub fn refused(&self, signer: &str, csr: &str, requester: Asker<'_>, refusal: &Refusal) {
        let cause = refusal.reason();
        if self.admit(Cause::Refused(REFUSED, cause)) {
            let time = self.now();
            let csr = bounded(csr);
            let csr_user = bounded(requester.csr_user.unwrap_or_default());
            let requester = bounded(requester.user);
            let rule = refusal.rule();
            let detail = bounded(&refusal.to_string());
            info!(target: AUDIT_TARGET, time, event = REFUSED, signer, csr, requester, csr_user, rule, cause, detail);
        }
    }

    /// Logs that an authority was created, prepared, activated, forced, rolled back, tainted, revoked or removed.
    pub fn authority(&self, lineage: &str, id: &str, step: &'static str) {
        info!(target: AUDIT_TARGET, time = self.now(), event = AUTHORITY, lineage, authority = id, step);
    }

    /// An addon on a cluster became eligible or ineligible, or certificates were revoked.
    pub fn eligibility(&self, change: &EligibilityChange) {
        let time = self.now();
        let cause = change.cause.map_or("", |cause| cause.reason());
        let cluster = change.cluster.as_str();
        let addon = change.addon.as_str();
        let revocation = change.change.revocation();
        let revoke_before = revocation.map(|revocation| revocation.before.to_string()).unwrap_or_default();
        let asked_by = bounded(revocation.map_or("", |revocation| &revocation.by));
        let change = change.change.name();
        info!(target: AUDIT_TARGET, time, event = ELIGIBILITY, cluster, addon, change, cause, revoke_before, asked_by);
    }

    /// Logs that a connection was admitted.
    pub fn admitted(&self, caller: &Caller<'_>, identity: &PeerIdentity) {
        if self.admit(Cause::Admitted(identity.cluster.clone(), identity.addon.clone())) {
            let Caller { signer, issuer, .. } = *caller;
            let serial = caller.serial();
            let [cluster, addon, agent] = names(Some(identity));
            let time = self.now();
            let remote = caller.remote.to_string();
            info!(
                target: AUDIT_TARGET,
                time, event = ADMITTED, remote, cluster, addon, agent, signer, issuer, serial
            );
        }
    }

    /// Logs that a connection was refused.
    pub fn refused_connection(&self, caller: &Caller<'_>, cause: &'static str, detail: &dyn Display) {
        self.connection(REFUSED_CONNECTION, caller, cause, detail);
    }

    /// Logs that an admitted connection was ended, because its peer lost trust or eligibility, or its certificate
    /// expired or was revoked.
    pub fn ended_connection(&self, caller: &Caller<'_>, cause: &'static str, detail: &dyn Display) {
        self.connection(ENDED_CONNECTION, caller, cause, detail);
    }

    fn connection(&self, event: &'static str, caller: &Caller<'_>, cause: &'static str, detail: &dyn Display) {
        if self.admit(Cause::Refused(event, cause)) {
            let Caller { signer, issuer, .. } = *caller;
            let serial = caller.serial();
            let [cluster, addon, agent] = names(caller.identity);
            let time = self.now();
            let remote = caller.remote.to_string();
            let detail = bounded(&detail.to_string());
            let unverified = bounded(&caller.unverified);
            info!(
                target: AUDIT_TARGET,
                time, event, remote, cluster, addon, agent, signer, issuer, serial, cause, detail, unverified
            );
        }
    }

    /// Logs that the gateway answered a request with a problem.
    pub fn refused_request(
        &self,
        caller: &Caller<'_>,
        method: &str,
        path: &str,
        cause: &'static str,
        detail: &dyn Display,
    ) {
        let event = REFUSED_REQUEST;
        if self.admit(Cause::Refused(event, cause)) {
            let Caller { signer, issuer, .. } = *caller;
            let serial = caller.serial();
            let [cluster, addon, agent] = names(caller.identity);
            let time = self.now();
            let remote = caller.remote.to_string();
            let detail = bounded(&detail.to_string());
            let method = bounded(method);
            let path = bounded(path);
            info!(
                target: AUDIT_TARGET,
                time, event, remote, cluster, addon, agent, signer, issuer, serial, method, path, cause, detail
            );
        }
    }

    /// Logs that the API server asked the inventory for a user. `request` is the path and query, `status` the code of
    /// the response. Not throttled, because the API server forwards only requests of users with the right to read.
    pub fn inventory(&self, user: &str, request: &str, status: u16) {
        let time = self.now();
        let user = bounded(user);
        let request = bounded(request);
        info!(target: AUDIT_TARGET, time, event = INVENTORY, user, request, status);
    }

    /// Logs that a connection to the inventory got no handshake: its client is not the API server's front proxy.
    pub fn refused_inventory_connection(&self, remote: SocketAddr, cause: &'static str, detail: &dyn Display) {
        let event = REFUSED_INVENTORY_CONNECTION;
        if self.admit(Cause::Refused(event, cause)) {
            let time = self.now();
            let remote = remote.to_string();
            let detail = bounded(&detail.to_string());
            info!(target: AUDIT_TARGET, time, event, remote, cause, detail);
        }
    }

    /// Writes the sums that are due, once a second until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(POLL);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.write_due();
        }
    }

    /// Writes the sums of the windows that have ended.
    pub fn write_due(&self) {
        let due = self.0.throttle.lock().ended(self.0.clock.now());
        due.iter().for_each(|sum| self.suppressed(sum));
    }

    /// Writes all sums at the end of the process, so that no count is lost.
    pub fn write_all(&self) {
        let all = self.0.throttle.lock().all();
        all.iter().for_each(|sum| self.suppressed(sum));
    }

    fn admit(&self, cause: Cause) -> bool {
        let Taken { write, before } = self.0.throttle.lock().take(&cause, self.0.clock.now());
        before.iter().for_each(|sum| self.suppressed(sum));
        write
    }

    fn suppressed(&self, sum: &Suppressed<Cause>) {
        let (of, cause, cluster, addon) = match &sum.cause {
            Cause::Refused(event, cause) => (*event, *cause, "", ""),
            Cause::Admitted(cluster, addon) => (ADMITTED, "", cluster.as_str(), addon.as_str()),
        };
        let time = self.now();
        let since = sum.since.to_string();
        let count = sum.count;
        info!(target: AUDIT_TARGET, time, event = SUPPRESSED, of, cause, cluster, addon, since, count);
    }

    fn now(&self) -> String {
        self.0.clock.now().to_string()
    }
}

/// Cluster, addon and agent; empty without an identity.
pub(crate) fn names(identity: Option<&PeerIdentity>) -> [&str; 3] {
    identity.map_or([""; 3], |id| [id.cluster.as_str(), id.addon.as_str(), id.agent.as_str()])
}

/// Cuts text that a client chose to [`TEXT_MAX`] bytes.
pub(crate) fn bounded(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_MAX);
    text.get(..end)
        .filter(|start| start.len() < text.len())
        .map_or_else(|| text.to_owned(), |start| format!("{start}…"))
}

#[cfg(test)]
mod tests;
