//! Lineages of authorities: what is stored, the step that the evidence allows, and the state of all lineages together.
//!
//! `reconciler` takes the steps of one lineage, `asked` reads what administrators request, `activation` has the
//! evidence for the next step, `versions` watches which versions of the objects the API server has, `store` reads and
//! writes the Secret (`stored`) and the ConfigMap, which `lineage_names` names, `state` has what is known of a lineage,
//! `supply` gets authorities from outside, `trust_publisher` computes what the gateway must trust, and
//! `lineage_report` writes what administrators read.

use std::time::Duration;

use hyper::Request;
use hyper::header::DATE;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;

use addon_signer_api::rules::AuthorityPlan;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::timestamp::Timestamp;

pub(crate) mod activation;
pub mod asked;
pub mod lineage_names;
pub mod lineage_report;
pub(crate) mod reconciler;
pub(crate) mod state;
pub mod store;
pub(crate) mod stored;
pub mod supply;
pub(crate) mod trust_publisher;
pub(crate) mod versions;

/// How long a new authority of the gateway's client certificate waits after its anchor is in the statuses of
/// AddOnRoutes. By then the owners of backends must trust it; they do not report that, so the hub cannot know.
pub const BACKENDS_TRUST_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// After this time every gateway that serves trusts what an AddOnSigner's status has: a gateway that has not heard from
/// the API server for ten minutes refuses all clients, and notices that within a minute.
pub(crate) const GATEWAYS_TRUST_AFTER: Duration = Duration::from_secs(11 * 60);

/// How authorities of the gateway's lineages are created, how long they are valid, and how long before they expire they
/// are replaced. Those of the serving lineage also depend on how long agents' certificates live:
/// [`AuthorityPlan::for_holders`] adds the time that a new authority waits.
pub const GATEWAY_PLAN: AuthorityPlan = AuthorityPlan {
    key: KeyKind::EcdsaP256,
    duration: Duration::from_secs(365 * 86_400),
    renew_before: Duration::from_secs(90 * 86_400),
    // After it a new authority for backends has 37 days left, and waits BACKENDS_TRUST_AFTER of them.
    deferral: Duration::from_secs(90 * 86_400 / 4),
};

/// The API server's time, if the response has it.
pub(crate) async fn server_time(client: &Client) -> Result<Option<Timestamp>, kube::Error> {
    let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
    // Every response has the time, even a refusal.
    let answer = client.send(request).await?;
    Ok(answer.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(read))
}

/// Reads the time of RFC 9110, section 5.6.7, which is one of RFC 2822 in GMT.
fn read(date: &str) -> Option<Timestamp> {
    let date = rfc2822::parse(date).ok()?;
    Some(Timestamp::from_unix(date.timestamp().as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Timestamp::from_unix(784_111_777)));
        assert_eq!(read("soon"), None);
    }
}
