//! What the API server reports about the user who runs a command.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};

use addon_signer_core::timestamp::Timestamp;

/// The user who runs the command, and the time, both by the API server.
pub(super) struct CommandUser {
    /// The user's name; empty if the API server does not report it.
    pub(super) user: String,
    /// The API server's time, in whole seconds; `None` if it does not report it.
    pub(super) now: Option<Timestamp>,
}

impl CommandUser {
    /// Asks the API server. The command continues without an answer, because Kubernetes has this API only since 1.28.
    pub(super) async fn ask(client: &Client) -> Self {
        let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
        // The error is dropped, because the next request to the same API server will report it.
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.ok();
        let now = review.as_ref().and_then(|review| review.metadata.creation_timestamp.as_ref());
        let now = now.map(|time| Timestamp::from_unix(time.0.as_second()));
        let user = review.and_then(|review| review.status?.user_info?.username).unwrap_or_default();
        Self { user, now }
    }
}
