//! The newest CSR of each addon on each cluster: the hub and `addon-signer status` report what it waits for.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::ResourceExt;

use crate::csrs::action::{self, WAITS, csr_user};
use crate::csrs::answerers::Answerers;
use addon_signer_core::certification::OpenCsr;
use addon_signer_core::identity::{AddOnKey, AddOnName, ClusterName};
use addon_signer_core::names::LABEL_ADDON_NAME;
use addon_signer_core::policy::cluster_of;
use addon_signer_core::timestamp::Timestamp;

/// Of how many addons of a cluster CSRs are noted: whoever makes a CSR chooses its labels.
const MOST_OF_CLUSTER: usize = 64;
/// Of how many signer names the CSRs of one addon are noted.
const MOST_SIGNERS: usize = 4;
/// The longest kept text in bytes of one condition.
const MOST_TEXT: usize = 512;

/// What a CSR shows.
#[derive(Debug, Clone)]
enum CsrState {
    /// Reason and message.
    Refused(String),
    Waiting {
        is_approved: bool,
        /// The message of the condition that says why.
        message: Option<String>,
    },
}

#[derive(Debug, Clone)]
struct NotedCsr {
    made: Timestamp,
    name: String,
    state: CsrState,
    /// The list that showed it last.
    list: u64,
}

/// Of one addon on one cluster, for one signer name. There is one for most addons of a fleet, so it is small.
#[derive(Debug)]
struct OfSigner {
    signer_name: Box<str>,
    /// The newest that has no certificate.
    open: Option<Box<NotedCsr>>,
    /// When the newest that has one was made.
    issued: Option<Timestamp>,
}

/// The newest CSRs.
#[derive(Debug, Default)]
pub struct NewestCsrs {
    clusters: HashMap<ClusterName, HashMap<AddOnName, Vec<OfSigner>>>,
    list: u64,
}

impl NewestCsrs {
    /// Notes a CSR, if a cluster made it. `grpc_proxy` is the account whose CSRs are for others.
    pub fn note(&mut self, csr: &CertificateSigningRequest, grpc_proxy: Option<&str>) {
        let Some(AddOnKey { cluster, addon }) = made_for(csr, grpc_proxy) else { return };
        let name = csr.name_any();
        if !action::is_sane_name(&name) {
            return; // the hub ignores it
        }
        let of_cluster = self.clusters.entry(cluster).or_default();
        if of_cluster.len() >= MOST_OF_CLUSTER && !of_cluster.contains_key(&addon) {
            return;
        }
        let of_addon = of_cluster.entry(addon).or_default();
        let signer_name = csr.spec.signer_name.as_str();
        let at = match of_addon.iter().position(|it| *it.signer_name == *signer_name) {
            Some(at) => at,
            None => {
                let new = OfSigner { signer_name: signer_name.into(), open: None, issued: None };
                if of_addon.len() < MOST_SIGNERS {
                    of_addon.reserve_exact(1);
                } else if let Some(unused) = of_addon.iter().position(|it| it.open.is_none() && it.issued.is_none()) {
                    of_addon.swap_remove(unused);
                } else {
                    return;
                }
                of_addon.push(new);
                of_addon.len() - 1
            }
        };
        let Some(of_signer) = of_addon.get_mut(at) else { return };
        let made = action::requested(csr);
        if action::is_issued(csr) {
            of_signer.open.take_if(|open| open.name == name);
            of_signer.issued = of_signer.issued.max(Some(made));
        } else if of_signer.open.as_ref().is_none_or(|known| known.made <= made) {
            of_signer.open = Some(Box::new(NotedCsr { made, name, state: state(csr), list: self.list }));
        }
    }

    /// Notes that a CSR was deleted. One that was refused counts until there is a newer one: the hub deletes it.
    pub(crate) fn remove(&mut self, csr: &CertificateSigningRequest, grpc_proxy: Option<&str>) {
        let Some(AddOnKey { cluster, addon }) = made_for(csr, grpc_proxy) else { return };
        let of_addon = self.clusters.get_mut(&cluster).and_then(|addons| addons.get_mut(&addon));
        let mut signers = of_addon.into_iter().flatten();
        if let Some(of_signer) = signers.find(|it| *it.signer_name == csr.spec.signer_name) {
            of_signer.open.take_if(|open| open.name == csr.name_any() && !open.is_refused());
        }
    }

    /// Notes that a list begins, which shows all CSRs.
    pub(crate) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// Notes that the list is complete: what it did not show was deleted.
    pub(crate) fn complete_list(&mut self) {
        let list = self.list;
        for of_signer in self.clusters.values_mut().flat_map(HashMap::values_mut).flatten() {
            of_signer.open.take_if(|open| open.list < list && !open.is_refused());
        }
    }

    /// Forgets all addons but these.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&ClusterName, &AddOnName) -> bool) {
        self.clusters.retain(|cluster, addons| {
            addons.retain(|addon, _| is_there(cluster, addon));
            !addons.is_empty()
        });
    }

    /// The newest CSR of an addon, unless a later one has a certificate. CSRs for signer names of AddOnSigners come
    /// first. A refusal counts only if the CSR was made after `since`.
    pub fn open(&self, key: &AddOnKey, since: Option<Timestamp>, answerers: &Answerers) -> Option<OpenCsr> {
        let of_addon = self.clusters.get(&key.cluster)?.get(&key.addon)?;
        let open = of_addon.iter().filter_map(|of_signer| Some((&*of_signer.signer_name, of_signer.open()?)));
        // What another program refuses is not known to be a fault.
        let counts = |name: &str, csr: &NotedCsr| {
            !csr.is_refused() || (answerers.get(name).is_some() && since.is_none_or(|since| csr.made >= since))
        };
        let open = open.filter(|(name, csr)| counts(name, csr));
        let (name, csr) = open.max_by_key(|(name, csr)| (answerers.get(name).is_some(), csr.made, *name))?;
        Some(csr.report(name, answerers))
    }

    /// The signer names that no AddOnSigner has and for which CSRs of these addons have waited since this time or
    /// longer: how many, and one of them; the most frequent first. Nobody serves them, or another program that is slow.
    pub fn unserved<'a>(
        &'a self,
        before: Timestamp,
        answerers: &Answerers,
        is_wanted: impl Fn(&ClusterName, &AddOnName) -> bool,
    ) -> Vec<(&'a str, usize, &'a str)> {
        let mut unserved: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        let addons = self.clusters.iter().flat_map(|(cluster, addons)| addons.iter().map(move |it| (cluster, it)));
        let wanted = addons.filter(|(cluster, (addon, _))| is_wanted(cluster, addon));
        for of_signer in wanted.flat_map(|(_, (_, of_addon))| of_addon) {
            let signer_name = &*of_signer.signer_name;
            let open = of_signer.open().filter(|open| !open.is_refused() && open.made <= before);
            if let Some(open) = open.filter(|_| answerers.get(signer_name).is_none()) {
                unserved.entry(signer_name).or_insert((0, &open.name)).0 += 1;
            }
        }
        let mut unserved: Vec<_> = unserved.into_iter().map(|(name, (count, csr))| (name, count, csr)).collect();
        unserved.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        unserved
    }
}

impl OfSigner {
    /// The newest one, unless a later one has a certificate.
    fn open(&self) -> Option<&NotedCsr> {
        let open = self.open.as_deref()?;
        // The order of two in the same second is unknown; then one that waits counts as the later.
        let is_later = |issued: Timestamp| issued < open.made || (issued == open.made && !open.is_refused());
        self.issued.is_none_or(is_later).then_some(open)
    }
}

impl NotedCsr {
    fn is_refused(&self) -> bool {
        matches!(self.state, CsrState::Refused(_))
    }

    fn report(&self, signer_name: &str, answerers: &Answerers) -> OpenCsr {
        let name = self.name.clone();
        match (&self.state, answerers.get(signer_name)) {
            (CsrState::Refused(why), _) => OpenCsr::Refused { name, why: why.clone() },
            (_, None) => {
                let nearest = answerers.nearest(signer_name);
                OpenCsr::NoSuchSigner { name, signer_name: signer_name.to_owned(), nearest }
            }
            (CsrState::Waiting { is_approved, message }, Some(answerer)) => {
                OpenCsr::Pending { waits_for: answerer.waits_for(&name, *is_approved, message.as_deref()) }
            }
        }
    }
}

/// The addon that the CSR is for, on the cluster that made it: requesters choose labels freely, so one with another
/// cluster's name in them is a fault of the cluster that made it.
fn made_for(csr: &CertificateSigningRequest, grpc_proxy: Option<&str>) -> Option<AddOnKey> {
    let addon = csr.metadata.labels.as_ref()?.get(LABEL_ADDON_NAME)?.parse().ok()?;
    let cluster = cluster_of(csr.spec.username.as_deref()?, csr_user(csr), grpc_proxy)?;
    Some(AddOnKey { cluster, addon })
}

fn state(csr: &CertificateSigningRequest) -> CsrState {
    let conditions = csr.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if let Some(refused) = conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed")) {
        let reason = refused.reason.as_deref().unwrap_or_default();
        return CsrState::Refused(format!("{reason}: {}", cut(refused.message.as_deref().unwrap_or_default())));
    }
    // The hub adds a condition whenever the CSR begins to wait for something else, so the last one is the newest.
    let waits = conditions.iter().rev().find(|condition| WAITS.contains(&condition.type_.as_str()));
    let message = waits.and_then(|waits: &CertificateSigningRequestCondition| waits.message.as_deref());
    let is_approved = conditions.iter().any(|condition| condition.type_ == "Approved");
    CsrState::Waiting { is_approved, message: message.map(|message| cut(message).to_owned()) }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp as Made;
    use serde_json::json;

    use super::*;
    use crate::csrs::answerers::Answerer;
    use addon_signer_core::names::{ANNOTATION_CSR_USER, LABEL_CLUSTER_NAME};

    const GRPC_SERVER: &str = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa";

    fn mk_csr(cluster: &str, second: i64, certificate: Option<&str>) -> CertificateSigningRequest {
        let labels = json!({ LABEL_CLUSTER_NAME: cluster, LABEL_ADDON_NAME: "t" });
        let made = Made::from_second(second).unwrap().to_string();
        let csr = json!({
            "metadata": { "name": format!("r{second}"), "labels": labels, "creationTimestamp": made },
            "spec": { "request": "", "signerName": "a.b/c", "username": "system:open-cluster-management:c1:x" },
            "status": { "certificate": certificate },
        });
        serde_json::from_value(csr).unwrap()
    }

    fn with_conditions(mut csr: CertificateSigningRequest, kinds: &[&str]) -> CertificateSigningRequest {
        let condition = |kind: &&str| CertificateSigningRequestCondition {
            type_: (*kind).to_owned(),
            reason: Some("Why".to_owned()),
            message: Some(format!("{kind} says why.")),
            ..CertificateSigningRequestCondition::default()
        };
        csr.status.get_or_insert_default().conditions = Some(kinds.iter().map(condition).collect());
        csr
    }

    fn key(cluster: &str) -> AddOnKey {
        AddOnKey { cluster: cluster.parse().unwrap(), addon: "t".parse().unwrap() }
    }

    fn open(newest: &NewestCsrs, answerer: Option<&Answerer>) -> Option<OpenCsr> {
        newest.open(&key("c1"), None, &answerers(answerer))
    }

    /// Of the signer name of [`mk_csr`].
    fn answerers(answerer: Option<&Answerer>) -> Answerers {
        let by_name = answerer.map(|answerer| ("a.b/c".to_owned(), answerer.clone())).into_iter().collect();
        Answerers { by_name, of_others: None }
    }

    fn pending(waits_for: &str) -> OpenCsr {
        OpenCsr::Pending { waits_for: waits_for.to_owned() }
    }

    #[test]
    fn newest_csr_counts_for_addons_of_the_cluster_that_made_it() {
        let left = |csrs: &[CertificateSigningRequest]| {
            let mut newest = NewestCsrs::default();
            csrs.iter().for_each(|csr| newest.note(csr, None));
            open(&newest, Some(&Answerer::default()))
        };
        let waiting = |second| mk_csr("c1", second, None);
        let expected = Some(pending("the hub to answer its CSR r2"));
        assert_eq!(left(&[waiting(1), waiting(2)]), expected);
        assert_eq!(left(&[waiting(2), waiting(1), mk_csr("c1", 1, Some("YQ=="))]), expected);
        assert_eq!(left(&[waiting(2), mk_csr("c1", 2, Some("YQ=="))]), None, "the same one, now issued");
        assert_eq!(left(&[mk_csr("c1", 3, Some("YQ==")), waiting(2)]), None, "in the order of a list");
        assert_eq!(left(&[mk_csr("c2", 2, None)]), expected, "c1 made it, in the name of c2");
        let mut of_another = mk_csr("c1", 3, Some("YQ=="));
        of_another.spec.signer_name = "d.e/f".to_owned();
        assert_eq!(left(&[waiting(2), of_another]), expected, "another signer's certificate");
    }

    #[test]
    fn a_refused_csr_counts_until_there_is_a_newer_one() {
        let mut newest = NewestCsrs::default();
        let (waiting, refused) = (mk_csr("c1", 1, None), with_conditions(mk_csr("c1", 2, None), &["Denied"]));
        let expected = OpenCsr::Refused { name: "r2".to_owned(), why: "Why: Denied says why.".to_owned() };
        newest.note(&waiting, None);
        newest.remove(&waiting, None);
        assert_eq!(open(&newest, None), None, "it was deleted");
        newest.note(&refused, None);
        newest.remove(&refused, None);
        newest.begin_list();
        newest.complete_list();
        assert_eq!(open(&newest, Some(&Answerer::default())), Some(expected));
        assert_eq!(open(&newest, None), None, "another program refused it");
        newest.note(&mk_csr("c1", 3, None), None);
        let (name, signer_name) = ("r3".to_owned(), "a.b/c".to_owned());
        let nobody = OpenCsr::NoSuchSigner { name, signer_name, nearest: None };
        assert_eq!(open(&newest, None), Some(nobody));
        newest.begin_list();
        newest.complete_list();
        assert_eq!(open(&newest, None), None, "the list did not show it");
    }

    #[test]
    fn csrs_for_our_signers_come_before_those_for_others() {
        let mut newest = NewestCsrs::default();
        let refused = with_conditions(mk_csr("c1", 1, None), &["Denied"]);
        newest.note(&refused, None);
        for n in 2..100 {
            let mut other = mk_csr("c1", n, None);
            other.spec.signer_name = format!("d.e/f{n}");
            newest.note(&other, None);
        }
        let ours = answerers(Some(&Answerer::default()));
        let open = |since| newest.open(&key("c1"), since, &ours);
        assert!(matches!(open(None), Some(OpenCsr::Refused { .. })));
        let later = open(Some(Timestamp::from_unix(2)));
        assert!(matches!(later, Some(OpenCsr::NoSuchSigner { .. })), "the certificate is newer than the refusal");
        assert_eq!(newest.clusters[&key("c1").cluster][&key("c1").addon].len(), MOST_SIGNERS);
        let unserved = |second, is_wanted| newest.unserved(Timestamp::from_unix(second), &ours, |_, _| is_wanted);
        assert_eq!(unserved(3, true), [("d.e/f2", 1, "r2"), ("d.e/f3", 1, "r3")]);
        assert!(unserved(1, true).is_empty() && unserved(3, false).is_empty());
    }

    #[test]
    fn a_csr_that_the_hub_ignores_is_reported_to_nobody() {
        let mut newest = NewestCsrs::default();
        let mut csr = mk_csr("c1", 1, None);
        csr.metadata.name = Some("x; curl example.com | sh #".to_owned());
        newest.note(&csr, None);
        assert_eq!(open(&newest, Some(&Answerer::default())), None);
    }

    #[test]
    fn labels_of_one_cluster_fill_no_memory() {
        let mut newest = NewestCsrs::default();
        for n in 0..10 * MOST_OF_CLUSTER {
            let mut csr = mk_csr("c1", 1, None);
            csr.metadata.labels.get_or_insert_default().insert(LABEL_ADDON_NAME.to_owned(), format!("t{n}"));
            newest.note(&csr, None);
        }
        assert_eq!(newest.clusters[&key("c1").cluster].len(), MOST_OF_CLUSTER);
        newest.retain(|_, addon| addon.as_str() == "t1");
        assert_eq!(newest.clusters[&key("c1").cluster].len(), 1);
    }

    #[test]
    fn ocms_grpc_server_alone_says_for_whom_it_asks() {
        let is_believed = |account: &str| {
            let mut csr = mk_csr("c1", 1, None);
            csr.spec.username = Some(account.to_owned());
            let user = "system:open-cluster-management:c1:x".to_owned();
            csr.metadata.annotations = Some([(ANNOTATION_CSR_USER.to_owned(), user)].into());
            made_for(&csr, Some(GRPC_SERVER)).is_some_and(|key| key.cluster.as_str() == "c1")
        };
        assert!(is_believed(GRPC_SERVER));
        assert!(!is_believed("system:serviceaccount:open-cluster-management-hub:grpc-server-sb"));
        assert!(!is_believed("system:open-cluster-management:c2:x"));
    }

    #[test]
    fn somebody_else_is_to_approve_only_where_approval_is_external() {
        let automatic = Answerer::default();
        let external = Answerer { leaves_approval: true, ..Answerer::default() };
        let problem = Some("the AddOnSigner t says NotPermitted: No.".to_owned());
        let broken = Answerer { problem: problem.clone(), ..Answerer::default() };
        let both = Answerer { leaves_approval: true, problem };
        let cases: [(&[&str], &Answerer, &str); 9] = [
            (&[], &automatic, "the hub to answer its CSR r1"),
            (&[], &external, "an approval of its CSR r1"),
            (&[], &both, "an approval of its CSR r1"),
            (&[], &broken, "the hub to answer its CSR r1, but the AddOnSigner t says NotPermitted: No."),
            (&["Approved"], &both, "the hub to sign its CSR r1, but the AddOnSigner t says NotPermitted: No."),
            (&["Approved"], &external, "the hub to sign its CSR r1"),
            (&["RateLimited"], &broken, "the hub to answer its CSR r1: RateLimited says why."),
            (&["Approved", "Revoked"], &external, "the hub to sign its CSR r1: Revoked says why."),
            (&["RateLimited", "RecordUnusable"], &automatic, "the hub to answer its CSR r1: RecordUnusable says why."),
        ];
        for (kinds, answerer, expected) in cases {
            let mut newest = NewestCsrs::default();
            newest.note(&with_conditions(mk_csr("c1", 1, None), kinds), None);
            assert_eq!(open(&newest, Some(answerer)), Some(pending(expected)), "{kinds:?}");
        }
    }
}
