//! Flags about the issuers of authorities.

use addon_signer_api::authority::AuthoritySource;
use addon_signer_api::cert_manager::{CERT_MANAGER_GROUP, IssuerRef};
use clap::Args;

/// What replaces the flags that this version no longer has.
const NO_VAULT: &str = "the hub asks Vault only through cert-manager; see docs/runbooks/company-root.md";

/// Flags of an earlier version, which asked Vault itself.
#[derive(Debug, Clone, Args)]
pub struct VaultArgs {
    #[arg(long, env = "ADDON_SIGNER_VAULT_ADDRESS", hide = true, value_parser = no_vault)]
    vault_address: Option<String>,
    #[arg(long, env = "ADDON_SIGNER_VAULT_CA", hide = true, value_parser = no_vault)]
    vault_ca: Option<String>,
    #[arg(long, env = "ADDON_SIGNER_VAULT_ROLE", hide = true, value_parser = no_vault)]
    vault_role: Option<String>,
    #[arg(long, env = "ADDON_SIGNER_VAULT_AUTH", hide = true, value_parser = no_vault)]
    vault_auth: Option<String>,
    #[arg(long, env = "ADDON_SIGNER_VAULT_TOKEN", hide = true, value_parser = no_vault)]
    vault_token: Option<String>,
}

fn no_vault(_: &str) -> Result<String, &'static str> {
    Err(NO_VAULT)
}

/// The issuer of the authorities of the gateway's certificate.
pub(super) fn issuer(text: &str) -> Result<AuthoritySource, String> {
    match text.split_once(':') {
        None if text == "SelfSigned" => Some(AuthoritySource::SelfSigned),
        None if text == "Imported" => Some(AuthoritySource::Request),
        Some(("Imported", secret)) if !secret.is_empty() => Some(AuthoritySource::Secret(secret.to_owned())),
        Some(("CertManager", issuer)) => issuer_ref(issuer).map(AuthoritySource::CertManager),
        Some(("Vault", _)) => return Err(NO_VAULT.to_owned()),
        _ => None,
    }
    .ok_or_else(|| "not SelfSigned, Imported, Imported:SECRET or CertManager:KIND/NAME".to_owned())
}

fn issuer_ref(text: &str) -> Option<IssuerRef> {
    let (kind, name) = text.split_once('/')?;
    let (kind, group) = kind.split_once('.').unwrap_or((kind, CERT_MANAGER_GROUP));
    let is_named = ![kind, group, name].contains(&"") && !name.contains('/');
    is_named.then(|| IssuerRef { name: name.to_owned(), kind: kind.to_owned(), group: group.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_of_cert_manager_has_a_kind_and_a_name() {
        let read = |text: &str| match issuer(text) {
            Ok(AuthoritySource::CertManager(IssuerRef { name, kind, group })) => Some([kind, group, name]),
            _ => None,
        };
        let expected = |parts: [&str; 3]| Some(parts.map(str::to_owned));
        assert_eq!(read("CertManager:ClusterIssuer/a"), expected(["ClusterIssuer", "cert-manager.io", "a"]));
        assert_eq!(read("CertManager:X.example.com/a.b"), expected(["X", "example.com", "a.b"]));
        for bad in [
            "CertManager",
            "CertManager:",
            "CertManager:a",
            "CertManager:/a",
            "CertManager:Issuer/",
            "CertManager:Issuer./a",
            "CertManager:Issuer/a/b",
            "Imported:",
            "SelfSigned:a",
        ] {
            assert!(issuer(bad).is_err(), "{bad}");
        }
        assert_eq!(issuer("Vault:pki"), Err(NO_VAULT.to_owned()));
    }
}
