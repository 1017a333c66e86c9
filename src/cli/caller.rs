//! What the API server says of the person who runs a command.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};

use addon_signer_core::timestamp::Timestamp;

/// Who asks, and when, by the API server's word.
pub(super) struct CommandUser {
    /// The name that the API server knows them by; empty where it does not say.
    pub(super) user: String,
    /// Its clock, in the whole second that it is in; `None` where it does not say.
    pub(super) now: Option<Timestamp>,
}

impl CommandUser {
    /// Asks. An API server that does not answer this is no reason not to go on: it was first served in Kubernetes 1.28.
    pub(super) async fn ask(client: &Client) -> Self {
        let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
        // Dropped, because what comes next goes to the same API server and says what is wrong with it.
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.ok();
        let now = review.as_ref().and_then(|review| review.metadata.creation_timestamp.as_ref());
        let now = now.map(|time| Timestamp::from_unix(time.0.as_second()));
        let user = review.and_then(|review| review.status?.user_info?.username).unwrap_or_default();
        Self { user, now }
    }
}
