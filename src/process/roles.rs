//! What a process of the hub does: sign, serve the gateway, or both.

use std::fmt;
use std::str::FromStr;

/// The roles of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Roles {
    /// Signer and gateway in one process.
    #[default]
    Both,
    /// Only the signer. It holds the keys of the authorities and the ledger; no agent reaches it.
    Signer,
    /// Only the gateway. It holds no key but its own, and no ledger.
    Gateway,
}

impl Roles {
    /// Whether the process signs.
    pub fn has_signer(self) -> bool {
        self != Self::Gateway
    }

    /// Whether the process serves the gateway.
    pub fn has_gateway(self) -> bool {
        self != Self::Signer
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles: Vec<&str> = text.split(',').map(str::trim).collect();
        roles.sort_unstable();
        match roles[..] {
            ["gateway", "signer"] => Ok(Self::Both),
            ["signer"] => Ok(Self::Signer),
            ["gateway"] => Ok(Self::Gateway),
            _ => Err("the roles are signer, gateway, or both as signer,gateway".to_owned()),
        }
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "signer,gateway",
            Self::Signer => "signer",
            Self::Gateway => "gateway",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_in_any_order() {
        for roles in [Roles::Both, Roles::Signer, Roles::Gateway] {
            assert_eq!(roles.to_string().parse(), Ok(roles));
        }
        assert_eq!("gateway, signer".parse(), Ok(Roles::Both));
        for wrong in ["", "hub", "signer,signer", "signer,gateway,hub"] {
            assert!(wrong.parse::<Roles>().is_err(), "{wrong}");
        }
    }
}
