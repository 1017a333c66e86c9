//! Decides when a Next authority may sign: on evidence that its anchor is trusted wherever it must be (invariant I5).

use std::future::pending;
use tokio::sync::watch;

use crate::authorities::trust_publisher::TrustPublisher;
use crate::distribution::steps::Distribution;
use addon_signer_api::rules::AuthorityPlan;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::exception::Exception;
use addon_signer_core::ca::lineage::{Agents, Lineage, WaitsFor};
use addon_signer_core::gateway::replicas::TrustInEffect;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_core::timestamp::Timestamp;

/// Which parties must trust a Next authority before it signs.
pub(crate) enum ActivationCheck {
    /// Lineage of an AddOnSigner: every gateway has the anchor in effect, because a gateway without it would refuse the
    /// new certificates.
    Gateways {
        /// What all gateways have in effect.
        in_effect: watch::Receiver<TrustInEffect>,
        /// The Next when the check last waited, and whether they had it in effect; `None` without a Next.
        seen: Option<(AuthorityId, Result<(), WaitsFor>)>,
    },
    /// Serving lineage: every agent has the anchor, by the rule of `ca::lineage::agents` in the core. An agent without
    /// it could no longer reach the gateway.
    Serving {
        /// When certificates expire.
        trust_publisher: TrustPublisher,
        /// How far the ManifestWorks have come.
        distributed: watch::Receiver<Distribution>,
        /// When addons were created.
        registry: SharedRegistry,
    },
    /// Lineage of the gateway's client certificate: enough time has passed for the owners of backends, or an
    /// administrator vouches for them.
    Backends,
}

impl ActivationCheck {
    /// The check of the lineage of an AddOnSigner.
    pub(crate) fn of_gateways(in_effect: watch::Receiver<TrustInEffect>) -> Self {
        Self::Gateways { in_effect, seen: None }
    }

    /// How authorities of the lineage are created now: those of the serving lineage depend on how long agents'
    /// certificates live.
    pub(super) fn plan(&self, plan: AuthorityPlan) -> AuthorityPlan {
        match self {
            Self::Gateways { .. } | Self::Backends => plan,
            Self::Serving { trust_publisher, .. } => plan.for_holders(trust_publisher.longest_life()),
        }
    }

    /// Whether the Next authority may sign, given the administrator's exceptions; if not, what it waits for.
    pub(super) fn opens(
        &self,
        lineage: &Lineage,
        exception: Option<&Exception>,
        now: Timestamp,
    ) -> Result<(), WaitsFor> {
        let Some(next) = lineage.next() else { return Ok(()) };
        match self {
            Self::Gateways { in_effect, .. } => in_effect.borrow().has(next.authority.id()),
            Self::Backends => match next.activate_after {
                None => Err(WaitsFor::Publication),
                Some(at) if at < now || exception.is_some_and(|exception| exception.is_for(&next.authority)) => Ok(()),
                Some(at) => Err(WaitsFor::Backends { at }),
            },
            Self::Serving { trust_publisher, distributed, registry } => {
                let (unknown, distribution) = (trust_publisher.last_leaf().err(), distributed.borrow().clone());
                let excepted = Exception::of(exception, &next.authority);
                registry.read(|registry| {
                    Agents { unknown, works: distribution.works(), excepted, registry }.have_next(lineage, now)
                })
            }
        }
    }

    /// Waits until the answer of [`Self::opens`] for this Next may have changed; returns `false` if it never will
    /// again.
    pub(super) async fn changed(&mut self, next: Option<&AuthorityId>) -> bool {
        match self {
            // Changes of other authorities do not matter here.
            Self::Gateways { in_effect, seen } => {
                while in_effect.changed().await.is_ok() {
                    let now = next.map(|next| (next.clone(), in_effect.borrow_and_update().has(next)));
                    if now != *seen {
                        *seen = now;
                        return true;
                    }
                }
                false
            }
            // The reconciler checks at least every 15 seconds, which is soon enough here.
            Self::Serving { .. } | Self::Backends => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt;
    use ring::rand::SystemRandom;

    use super::*;
    use crate::distribution::steps::{Reached, TrustReport};
    use addon_signer_core::ca::authority::Authority;
    use addon_signer_core::ca::bundle::Bundle;
    use addon_signer_core::identity::AddOnKey;
    use addon_signer_core::keys::private::PrivateKey;
    use addon_signer_core::keys::public::KeyKind;
    use addon_signer_core::registry::{AddOn, AddOnFacts};
    use addon_signer_core::trust::Trust;

    const PUBLISHED: Timestamp = Timestamp::from_unix(1_800_000_000);
    const END: Timestamp = Timestamp::from_unix(1_800_090_000);

    fn key(cluster: &str) -> AddOnKey {
        AddOnKey { cluster: cluster.parse().unwrap(), addon: "telemetry".parse().unwrap() }
    }

    /// A Next whose anchor has been published, and what the check knows of these addons, each created the given number
    /// of seconds later.
    struct World {
        lineage: Lineage,
        distributed: watch::Sender<Distribution>,
        activation: ActivationCheck,
    }

    fn mk_world(addons: &[(&str, i64)]) -> World {
        let rng = SystemRandom::new();
        let mk = || {
            let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
            Authority::self_signed("gateway", &key, PUBLISHED, Duration::from_secs(1_000_000), &rng).unwrap()
        };
        let lineage = Lineage::default().begin(mk(), PUBLISHED).prepare(mk(), None, PUBLISHED);
        let lineage = lineage.hold_next_until(END, PUBLISHED);
        let registry = SharedRegistry::default();
        let made = |seconds: i64| AddOn {
            created: Timestamp::from_unix(PUBLISHED.unix() + seconds),
            ..AddOnFacts::Installed.into()
        };
        for (cluster, seconds) in addons {
            let (cluster, addon) = (cluster.parse().unwrap(), "telemetry".parse().unwrap());
            registry.write(|registry| registry.put_addon(cluster, addon, Some(made(*seconds))));
        }
        let (distributed, receiver) = watch::channel(Distribution::Off);
        let trust_publisher = TrustPublisher::new(watch::channel(Arc::default()).0, registry.clone());
        World {
            lineage,
            distributed,
            activation: ActivationCheck::Serving { trust_publisher, distributed: receiver, registry },
        }
    }

    impl World {
        /// What Next waits for, if no cluster with a ManifestWork is missing and these addons get none.
        fn opens(&self, others: &[&str], without: &str, now: Timestamp) -> Result<(), String> {
            self.show(TrustReport::new(), others);
            self.ask(without, now).map_err(|waits| waits.to_string())
        }

        fn show(&self, report: TrustReport, others: &[&str]) {
            let serving_anchors = Some(Bundle::new(vec![self.lineage.next().unwrap().authority.clone()]).unwrap());
            let reached = Distribution::Reached {
                trust: Arc::new(Trust { serving_anchors, ..Trust::default() }),
                report,
                is_whole: true,
                has_shrunk: false,
                unguarded: None,
                fresh: BTreeSet::new(),
                others: others.iter().map(|cluster| key(cluster)).collect(),
            };
            self.distributed.send_replace(reached);
        }

        fn ask(&self, without: &str, now: Timestamp) -> Result<(), WaitsFor> {
            let without = without.split_whitespace().map(|name| name.parse().unwrap()).collect();
            let text = Exception::text(self.lineage.next().unwrap().authority.id().as_str(), &without, now, "ann");
            self.activation.opens(&self.lineage, Exception::read(&text).as_ref(), now)
        }
    }

    #[test]
    fn each_next_in_a_row_is_noticed_once_gateways_trust_it() {
        let (sender, in_effect) = watch::channel(TrustInEffect::default());
        let mut activation = ActivationCheck::of_gateways(in_effect);
        let mut noticed = |trusts: &[&str], next: &str| {
            let trusts = trusts.iter().map(|id| AuthorityId::from(*id)).collect();
            sender.send_replace(TrustInEffect::of(BTreeMap::from([("gateway-1".to_owned(), trusts)])));
            activation.changed(Some(&next.into())).now_or_never()
        };
        assert_eq!(noticed(&["a", "b"], "b"), Some(true));
        assert_eq!(noticed(&["a", "b", "c"], "c"), Some(true), "although b was trusted as well when it was Next");
        assert_eq!(noticed(&["b", "c"], "c"), None, "nothing has changed for c");
    }

    #[test]
    fn without_manifest_work_last_old_certificate_is_awaited() {
        let world = mk_world(&[("c1", -86_400), ("c2", 0)]);
        let last = format!("the last certificate issued without the new anchor to expire at {END}, because");
        let names = |few: &str| Err(format!("{last} no ManifestWork brings it to {few}"));
        assert_eq!(world.opens(&[], "", PUBLISHED), Ok(()), "a ManifestWork has brought it to each");
        let both = names("c1/telemetry, c2/telemetry");
        assert_eq!(world.opens(&["c1", "c2"], "", PUBLISHED), both);
        assert_eq!(world.opens(&["c1", "c2"], "", END), both, "the last second still counts");
        assert_eq!(world.opens(&["c1", "c2"], "", END.plus(Duration::from_secs(1))), Ok(()));
        let one = names("c1/telemetry");
        assert_eq!(world.opens(&["c1", "c2"], "c2", PUBLISHED), one, "an administrator goes on without the other");
        world.distributed.send_replace(Distribution::Off);
        let off = world.ask("", END).unwrap_err().to_string();
        assert_eq!(off, format!("{last} no ManifestWork brings it to agents"));
        assert_eq!(world.ask("", END.plus(Duration::from_secs(1))), Ok(()));
    }

    #[test]
    fn a_fleet_is_counted_and_only_its_first_are_named() {
        let world = mk_world(&[]);
        world.show(BTreeMap::from([("a".parse().unwrap(), Reached::of(8, 20))]), &["hosted"]);
        let waits = world.ask("", PUBLISHED).unwrap_err();
        let sentence = format!(
            "clusters to apply the new anchor: 8 of 20 addons have it, and not yet: c10/a, c11/a, c12/a and 9 more; \
             the last certificate issued without the new anchor to expire at {END}, because no ManifestWork \
             brings it to hosted/telemetry"
        );
        assert_eq!((waits.to_string(), waits.progress()), (sentence, Some((8, 20))));
        let first: Vec<_> = waits.stragglers().into_iter().map(ToString::to_string).collect();
        assert_eq!(first, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19].map(|n| format!("c{n}/a")));
    }

    #[test]
    fn unserved_signer_is_named_beside_all_others() {
        let world = mk_world(&[]);
        let ActivationCheck::Serving { trust_publisher, .. } = &world.activation else { panic!("not serving") };
        trust_publisher.set_listed();
        trust_publisher.set_unserved(["x".to_owned()].into());
        world.show(BTreeMap::from([("a".parse().unwrap(), Reached::of(1, 2))]), &[]);
        world.distributed.send_modify(|known| {
            let Distribution::Reached { is_whole, .. } = known else { panic!("{known:?}") };
            *is_whole = false;
        });
        let waits = world.ask("", PUBLISHED).unwrap_err().to_string();
        let sentence = "the AddOnSigner x, which is not served, to be fixed or deleted; clusters to apply the new \
                        anchor: 1 of 2 addons have it, and not yet: c1/a";
        assert_eq!(waits, sentence);
    }

    #[test]
    fn addon_installed_after_anchor_publication_is_not_awaited() {
        let world = mk_world(&[("before", -1), ("soon", 60), ("after", 61)]);
        let waits = world.opens(&["before", "soon", "after", "unknown"], "", PUBLISHED).unwrap_err();
        assert!(waits.ends_with("before/telemetry, soon/telemetry, unknown/telemetry"), "{waits}");
    }
}
