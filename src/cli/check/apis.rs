//! Checks what the API server serves, and the right to write ManifestWorks.

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation,
};
use kube::{Api, CustomResourceExt, ResourceExt};

use super::policies::WORKS;
use super::{Finding, Inspection, Verdict, unknown};
use addon_signer_api::addon_template::{ADDON_TEMPLATES, MANAGEMENT_ADDONS, TEMPLATE_VERSIONS};
use addon_signer_api::manifest_work::{MANIFEST_WORKS, WORK_GROUP, WORK_VERSION};
use addon_signer_api::ocm::ADDON_GROUP;
use addon_signer_api::status::CONDITION_TRUST_DISTRIBUTED;
use addon_signer_api::{AddOnRoute, AddOnSigner, GuardedSigner};
use addon_signer_hub::registrations::discovery::served_version;
use addon_signer_hub::registrations::registry::discover;
use addon_signer_platform::errors::explain;
use addon_signer_platform::listing::{self, Selector};
use addon_signer_platform::version::VERSION;

/// What a CRD says of each version's fields; the API server adds to the rest.
fn schemas(crd: &CustomResourceDefinition) -> Vec<(&str, Option<&CustomResourceValidation>)> {
    crd.spec.versions.iter().map(|version| (version.name.as_str(), version.schema.as_ref())).collect()
}

/// The label that decides which pods may run in a namespace.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// The ClusterRoleBinding of the right.
const WORKS_RIGHT: &str = WORKS.name;

impl Inspection {
    /// The APIs that the hub reads. Without the hub's own API there is nothing else to check.
    pub(super) async fn apis(&self) -> anyhow::Result<Vec<Finding>> {
        let signers: Api<GuardedSigner> = Api::all(self.client.clone());
        match listing::any(&signers, &Selector::all()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                bail!("the API server does not know AddOnSigner: install the chart first (docs/install.md)")
            }
            Err(error) => return Err(error).context("AddOnSigners cannot be listed"),
        }
        let mut found = vec![Finding::good("API", "the API server serves AddOnSigner v1alpha1")];
        found.push(match discover(&self.client).await {
            Ok(api) => Finding::good("API", format!("the API server serves ManagedClusterAddOn {}", api.version())),
            Err(error) => Finding::bad("API", explain(&error)),
        });
        let no_templates = "the hub treats no addon as registered by OCM's addon-manager from an AddOnTemplate";
        let management = ("ClusterManagementAddOn", ADDON_GROUP, MANAGEMENT_ADDONS);
        found.push(self.served(management, &TEMPLATE_VERSIONS, no_templates).await);
        let templates = ("AddOnTemplate", ADDON_GROUP, ADDON_TEMPLATES);
        found.push(self.served(templates, &TEMPLATE_VERSIONS, "no addon is registered from one").await);
        let works = ("ManifestWork", WORK_GROUP, MANIFEST_WORKS);
        found.push(self.served(works, &[WORK_VERSION], "none brings the trust bundle to a cluster").await);
        Ok(found)
    }

    /// Whether the CRDs are those of this version: with others, the API server drops fields or refuses objects.
    pub(super) async fn crds(&self) -> Vec<Finding> {
        let installed: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let mut found = Vec::new();
        for ours in [AddOnSigner::crd(), AddOnRoute::crd()] {
            let about = format!("CRD {}", ours.name_any());
            match installed.get(&ours.name_any()).await {
                Ok(there) if schemas(&there) == schemas(&ours) => {}
                Ok(_) => {
                    let sentence = format!(
                        "its schema is not that of version {VERSION}: upgrade the chart to this version, or use the \
                         program of the chart's version"
                    );
                    found.push(Finding::bad(about, sentence));
                }
                Err(error) => found.push(unknown(about, &error)),
            }
        }
        if found.is_empty() {
            found.push(Finding::good("CRDs", "they are those of this version"));
        }
        found
    }

    /// Whether only restricted pods may run in the namespace of the authorities' keys.
    pub(super) async fn namespace_label(&self) -> Vec<Finding> {
        let about = format!("namespace {}", self.namespace);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        vec![match namespaces.get_metadata(&self.namespace).await {
            Ok(found) if found.labels().get(POD_SECURITY).is_some_and(|level| level == "restricted") => {
                Finding::good(about, "only restricted pods may run beside the keys of the authorities")
            }
            Ok(_) => {
                let sentence = format!(
                    "privileged pods may run beside the keys of all authorities, until you `kubectl label namespace \
                     {} {POD_SECURITY}=restricted`",
                    self.namespace
                );
                Finding::new(Verdict::Unknown, about, sentence)
            }
            Err(error) => unknown(about, &error),
        }]
    }

    /// Whether the API server serves a resource in a version that the hub can read; if not, the consequence.
    async fn served(
        &self,
        (kind, group, plural): (&str, &str, &str),
        versions: &[&'static str],
        otherwise: &str,
    ) -> Finding {
        match served_version(&self.client, group, plural, versions).await {
            Ok(Some(version)) => Finding::good("API", format!("the API server serves {kind} {version}")),
            Ok(None) => {
                let versions = versions.join(" or ");
                let sentence = format!("the API server serves no {kind} in {versions}, so {otherwise}");
                Finding::new(Verdict::Unknown, "API", sentence)
            }
            Err(error) => unknown(format!("API {kind}"), &error),
        }
    }

    /// Whether a policy restricts the hub's right to write ManifestWorks, if it has that right.
    pub(super) async fn manifest_works(&self) -> Vec<Finding> {
        let about = "ManifestWorks";
        let found = match self.may_write_works().await {
            Ok(true) => self.policy(&WORKS).await.map(|lack| match lack {
                None => Finding::good(about, "the hub may write them, and a policy restricts it to its own ConfigMaps"),
                Some(lack) => Finding::bad(
                    about,
                    format!(
                        "the hub may be able to write any ManifestWork, and so anything on every cluster: {lack}: \
                         install the chart again, or delete the ClusterRoleBinding {WORKS_RIGHT}"
                    ),
                ),
            }),
            Ok(false) => self.without_right(about).await,
            Err(error) => Err(error),
        };
        vec![found.unwrap_or_else(|error| unknown(about.to_owned(), &error))]
    }

    /// Whether the ClusterRoleBinding for ManifestWorks is there for an account of the hub's namespace.
    async fn may_write_works(&self) -> kube::Result<bool> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let subjects = bindings.get_opt(WORKS_RIGHT).await?.and_then(|binding| binding.subjects).unwrap_or_default();
        Ok(subjects.iter().any(|subject| subject.namespace.as_ref() == Some(&self.namespace)))
    }

    /// A hub has the right anyway if its AddOnSigners report how far ManifestWorks have brought the trust bundle.
    async fn without_right(&self, about: &str) -> kube::Result<Finding> {
        let signers: Api<GuardedSigner> = Api::all(self.client.clone());
        let signers = listing::all(signers, Selector::all()).await?;
        let mut conditions =
            signers.into_iter().filter_map(|signer| signer.read().ok()?.status).flat_map(|it| it.conditions);
        if conditions.any(|condition| condition.type_ == CONDITION_TRUST_DISTRIBUTED) {
            let sentence = format!(
                "the hub writes them, but there is no ClusterRoleBinding {WORKS_RIGHT} for the namespace {}: check \
                 that a policy like the chart's restricts its right",
                self.namespace
            );
            return Ok(Finding::new(Verdict::Unknown, about, sentence));
        }
        Ok(Finding::good(about, "it is not installed (trust.manifestWorks)"))
    }
}
