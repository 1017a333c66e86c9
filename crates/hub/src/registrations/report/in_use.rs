//! Reports about the AddOnTemplates in use.

use std::collections::{BTreeMap, BTreeSet};

use addon_signer_api::rules::SignerConfig;
use addon_signer_core::identity::AddOnName;
use addon_signer_core::list::few;
use addon_signer_core::policy::RequesterKind;
use addon_signer_core::templates::{Naming, TemplatedAddOns};

/// How many sentences a message has at most; there may be thousands.
const EXAMPLES: usize = 3;
/// The longest name of a Secret (RFC 1123 subdomain).
const SECRET_MAX: usize = 253;
/// The longest signer name of an AddOnTemplate with pods: the addon-manager mounts the certificate as the volume
/// `cert-<signer name>`, whose name is an RFC 1123 label (OCM `pkg/addon/templateagent/decorator.go`).
const MOUNTED_MAX: usize = 63 - "cert-".len();

/// AddOnTemplates that single ManagedClusterAddOns name for their cluster.
pub(super) type Overrides = BTreeMap<AddOnName, BTreeSet<String>>;

/// Sentences about addons with templates.
#[derive(Default)]
pub(super) struct InUse {
    /// Their templates name the signer.
    pub(super) named: Vec<String>,
    /// Their templates do not name the signer, and they may make their own CSRs.
    pub(super) asking: Vec<String>,
    /// An administrator must change a template.
    pub(super) lacking: Vec<String>,
}

/// A sentence for each addon with templates: whether they name the signer, and what to do if not.
pub(super) fn in_use(config: &SignerConfig, templated: &TemplatedAddOns, overrides: &Overrides) -> InUse {
    let signer_name = &config.rules.signer_name;
    let may_ask = config.rules.requesters.contains(&RequesterKind::AddOn);
    let custom =
        format!("{{type: CustomSigner, customSigner: {{signerName: {signer_name}, signingCA: {{name: not-used}}}}}}");
    let InUse { mut named, mut asking, mut lacking } = InUse::default();
    let none = BTreeSet::new();
    for addon in &config.rules.addons {
        let overrides = overrides.get(addon).unwrap_or(&none);
        let Some(naming) = templated.naming(addon, signer_name, overrides, may_ask) else { continue };
        let manager = format!("OCM's addon-manager registers the addon {addon}");
        match naming {
            Naming::Everywhere(names) => {
                named.push(format!("{manager} and names this signer (AddOnTemplate {}).", few(&names)));
            }
            Naming::Asking(names) => asking.push(format!(
                "AddOnTemplate {} does not name this signer, so the agents of the addon {addon} must make their \
                 requests with the addon's own hub identity (`requesters` in the chart's values grants the right).",
                few(&names)
            )),
            Naming::Missing(names) if may_ask => lacking.push(format!(
                "{manager}, and AddOnTemplate {} neither names this signer nor gives the addon a hub identity to make \
                 CSRs with: add {custom} to its spec.registration, or {{type: KubeClient}} if the agents make \
                 their own CSRs.",
                few(&names)
            )),
            Naming::Missing(names) => lacking.push(format!(
                "{manager}, and AddOnTemplate {} does not name this signer: add {custom} to its spec.registration; or, \
                 if the addon's agents make their own CSRs, as addon-signer-agent does, add AddOn to \
                 spec.identity.requesters.",
                few(&names)
            )),
            Naming::OwnUser(names) => lacking.push(format!(
                "{manager}, and AddOnTemplate {} names this signer with a subject.user, which is the same on every \
                 cluster, so that requests are refused: remove `subject` from its customSigner.",
                few(&names)
            )),
            Naming::NotThere(names) => {
                lacking.push(format!("{manager}, and AddOnTemplate {} does not exist.", few(&names)));
            }
            Naming::NoTemplate => lacking.push(format!(
                "{manager}, and its ClusterManagementAddOn names no AddOnTemplate: name one that has this signer in \
                 spec.registration."
            )),
        }
    }
    InUse { named: at_most(named), asking: at_most(asking), lacking: at_most(lacking) }
}

/// A sentence for each addon whose templates name the signer although the signer does not serve it.
pub(super) fn not_served(config: &SignerConfig, templated: &TemplatedAddOns, overrides: &Overrides) -> Vec<String> {
    let none = BTreeSet::new();
    let others = templated.addons.keys().filter(|addon| !config.rules.addons.contains(*addon));
    let sentences = others.filter_map(|addon| {
        let overrides = overrides.get(addon).unwrap_or(&none);
        let naming = templated.naming_it(addon, &config.rules.signer_name, overrides);
        (!naming.is_empty()).then(|| {
            format!(
                "AddOnTemplate {} names this signer for the addon {addon}, which is not one of its addOns, so every \
                 request is denied: add {addon} to spec.addOns, or remove the signer from the template.",
                few(naming.keys())
            )
        })
    });
    at_most(sentences.collect())
}

/// A sentence for each addon whose names, which OCM derives from the signer's name, Kubernetes refuses. `ours` are
/// those whose registrations the hub writes.
pub(super) fn too_long(
    config: &SignerConfig,
    templated: &TemplatedAddOns,
    overrides: &Overrides,
    ours: &[&AddOnName],
) -> Vec<String> {
    let signer_name = &config.rules.signer_name;
    let length = signer_name.as_str().len();
    let none = BTreeSet::new();
    let sentences = config.rules.addons.iter().filter_map(|addon| {
        let naming = templated.naming_it(addon, signer_name, overrides.get(addon).unwrap_or(&none));
        let mounting = naming.iter().filter(|(_, template)| template.has_pods).map(|(name, _)| name);
        let mounting: Vec<&String> = mounting.collect();
        // OCM `pkg/registration/spoke/addon/configuration.go`
        let secret = format!("{addon}-{signer_name}-client-cert").len();
        let is_kept = !naming.is_empty() || ours.contains(&addon);
        if is_kept && secret > SECRET_MAX {
            Some(format!(
                "OCM's agents cannot keep the certificates of the addon {addon}: the name of the Secret would have \
                 {secret} characters, and may have {SECRET_MAX}. Create an AddOnSigner with a shorter signerName."
            ))
        } else if !mounting.is_empty() && length > MOUNTED_MAX {
            Some(format!(
                "The pods of AddOnTemplate {} are refused on every cluster: the addon-manager gives them a volume \
                 cert-<signerName>, and this signerName has {length} characters instead of at most {MOUNTED_MAX}. \
                 Create an AddOnSigner with a shorter signerName.",
                few(mounting)
            ))
        } else {
            None
        }
    });
    at_most(sentences.collect())
}

/// The first few sentences, and the number of the others.
fn at_most(mut sentences: Vec<String>) -> Vec<String> {
    let more = sentences.len().saturating_sub(EXAMPLES);
    sentences.truncate(EXAMPLES);
    if more > 0 {
        sentences.push(format!("The same is true of {more} more addons."));
    }
    sentences
}
