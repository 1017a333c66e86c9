//! What a gateway without a signer in its process trusts, read from the status of an AddOnSigner. Only the hub may
//! write that status. What is read is checked again, because a mistake here would let strangers in.

use crate::rules::{InvalidField, SignerConfig};
use crate::signer::AddOnSigner;
use crate::status::{AuthorityState, AuthorityStatus};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::bundle::{Bundle, BundleError};
use addon_signer_core::ca::lineage::MOST_AUTHORITIES;
use addon_signer_core::trust::SignerTrust;

/// Why the authorities in a status cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    /// There are more authorities than a lineage can have.
    #[error("there are {0} authorities, more than a lineage can have")]
    TooMany(usize),
    /// A certificate cannot be read, or is not that of an authority.
    #[error("the certificate of the authority {0} cannot be used: {1}")]
    Unusable(String, BundleError),
    /// Other authorities have a certificate, and this one has none.
    #[error("the authority {0} has no certificate, and others have")]
    Missing(String),
    /// The id does not follow from the certificate's key.
    #[error("the certificate of the authority {0} is that of another one")]
    OfAnother(String),
}

/// The trust bundle of these authorities. `None` if the status has no certificate of any: they are not to be trusted.
///
/// # Errors
/// The first [`AuthoritiesError`]. Then none of the authorities may be used: a bundle that lacks one of them would lock
/// out the agents of that one.
pub fn bundle(authorities: &[AuthorityStatus]) -> Result<Option<Bundle>, AuthoritiesError> {
    if authorities.len() > MOST_AUTHORITIES {
        return Err(AuthoritiesError::TooMany(authorities.len()));
    }
    if authorities.iter().all(|authority| authority.certificate.is_none()) {
        return Ok(None);
    }
    let mut found = Vec::new();
    for AuthorityStatus { id, certificate, .. } in authorities {
        let pem = certificate.as_ref().ok_or_else(|| AuthoritiesError::Missing(id.clone()))?;
        let unusable = |error| AuthoritiesError::Unusable(id.clone(), error);
        let one = Bundle::from_pem(pem.as_bytes()).map_err(unusable)?;
        match one.authorities() {
            [authority] if authority.id().as_str() == id => found.push(authority.clone()),
            _ => return Err(AuthoritiesError::OfAnother(id.clone())),
        }
    }
    Ok(Bundle::new(found).ok()) // it is not empty
}

/// The one that signs.
#[must_use]
pub fn active(authorities: &[AuthorityStatus]) -> Option<AuthorityId> {
    let active = authorities.iter().find(|authority| authority.state == AuthorityState::Active)?;
    Some(active.id.as_str().into())
}

/// Why the gateway trusts nothing new because of an AddOnSigner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTrusted {
    /// The object is not in effect; the hub ignores it too.
    #[error(transparent)]
    Spec(#[from] InvalidField),
    /// The authorities that the hub wrote cannot be used; what was trusted before stays.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
}

/// What the gateway may trust because of this AddOnSigner; `None` for nothing: the hub does not serve it, or not yet.
/// It serves the addons that the specification names and the status confirms as its own.
pub fn signer_trust(object: &AddOnSigner) -> Result<Option<SignerTrust>, NotTrusted> {
    let SignerConfig { rules, attachment, .. } = SignerConfig::read(&object.spec, None)?;
    let Some(status) = &object.status else { return Ok(None) };
    let Some(client_anchors) = bundle(&status.authorities)? else { return Ok(None) };
    let renew_within = status.authorities.iter().filter_map(|authority| {
        let seconds = u32::try_from(authority.renew_within?).ok()?; // one that is out of range tells nobody to renew
        Some((authority.id.as_str().into(), seconds))
    });
    let renew_within = renew_within.collect();
    let owned = rules.addons.into_iter().filter(|addon| status.add_ons.contains(addon.as_str()));
    Ok(Some(SignerTrust {
        name: object.metadata.name.clone().unwrap_or_default(),
        signer_name: rules.signer_name,
        addons: owned.collect(),
        convention: rules.convention,
        client_anchors,
        renew_within,
        attachment,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ring::rand::SystemRandom;
    use serde_json::json;

    use super::*;
    use crate::status::AddOnSignerStatus;
    use addon_signer_core::ca::authority::Authority;
    use addon_signer_core::keys::private::PrivateKey;
    use addon_signer_core::keys::public::KeyKind;
    use addon_signer_core::timestamp::Timestamp;

    fn mk_authority() -> Authority {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let now = Timestamp::from_unix(1_800_000_000);
        Authority::self_signed("telemetry", &key, now, Duration::from_secs(86_400), &rng).unwrap()
    }

    fn mk_status(authority: &Authority, state: AuthorityState) -> AuthorityStatus {
        let at = Timestamp::from_unix(0);
        AuthorityStatus {
            tainted: false,
            to_revoke: false,
            renew_within: None,
            id: authority.id().to_string(),
            state,
            not_before: at,
            not_after: at,
            last_leaf_expires: None,
            certificate: Some(authority.pem()),
        }
    }

    fn mk_signer(authorities: Vec<AuthorityStatus>) -> AddOnSigner {
        let spec = json!({"signerName": "example.com/telemetry", "addOns": ["logs", "telemetry"]});
        let mut signer = AddOnSigner::new("telemetry", serde_json::from_value(spec).unwrap());
        let add_ons = ["telemetry".to_owned(), "traces".to_owned()].into();
        signer.status = Some(AddOnSignerStatus { add_ons, authorities, ..AddOnSignerStatus::default() });
        signer
    }

    #[test]
    fn addons_are_those_of_the_specification_and_the_status() {
        let (next, active) = (mk_authority(), mk_authority());
        let authorities = vec![mk_status(&next, AuthorityState::Next), mk_status(&active, AuthorityState::Active)];
        let trust = signer_trust(&mk_signer(authorities)).unwrap().unwrap();
        assert_eq!(trust.addons.iter().map(|addon| addon.as_str()).collect::<Vec<_>>(), ["telemetry"]);
        assert_eq!(trust.client_anchors, Bundle::new(vec![next, active]).unwrap());
    }

    #[test]
    fn invalid_spec_and_missing_certificates_mean_no_trust() {
        let authority = mk_authority();
        let authorities = vec![mk_status(&authority, AuthorityState::Active)];
        let mut invalid = mk_signer(authorities.clone());
        invalid.spec.identity.user = "{cluster}".to_owned();
        assert!(matches!(signer_trust(&invalid), Err(NotTrusted::Spec(_))));
        let without = vec![AuthorityStatus { certificate: None, ..authorities[0].clone() }];
        assert_eq!(signer_trust(&mk_signer(without)), Ok(None));
        assert_eq!(signer_trust(&AddOnSigner { status: None, ..mk_signer(authorities) }), Ok(None));
    }

    #[test]
    fn authorities_are_used_only_if_all_of_them_are_what_they_say() {
        let (one, other) = (mk_authority(), mk_authority());
        let good = mk_status(&one, AuthorityState::Active);
        let with = |certificate: String| AuthorityStatus { certificate: Some(certificate), ..good.clone() };
        let refused = |bad: AuthorityStatus| bundle(&[mk_status(&other, AuthorityState::Old), bad]).unwrap_err();
        let of_another = AuthoritiesError::OfAnother(good.id.clone());
        assert_eq!(refused(with(other.pem())), of_another);
        assert_eq!(refused(with(one.pem() + &other.pem())), of_another, "two certificates");
        for bad in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(refused(with(bad.to_owned())), AuthoritiesError::Unusable(..)), "{bad:?}");
        }
        let missing = AuthoritiesError::Missing(good.id.clone());
        assert_eq!(refused(AuthorityStatus { certificate: None, ..good.clone() }), missing);
        assert!(bundle(&vec![good.clone(); MOST_AUTHORITIES]).is_ok());
        assert_eq!(bundle(&vec![good; MOST_AUTHORITIES + 1]), Err(AuthoritiesError::TooMany(MOST_AUTHORITIES + 1)));
    }

    #[test]
    fn active_authority_is_the_one_that_signs() {
        let (next, signs) = (mk_authority(), mk_authority());
        let authorities = [mk_status(&next, AuthorityState::Next), mk_status(&signs, AuthorityState::Active)];
        assert_eq!(active(&authorities).as_ref(), Some(signs.id()));
        assert_eq!(active(&[]), None);
    }
}
