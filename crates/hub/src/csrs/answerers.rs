//! Which signer names AddOnSigners have, and how their CSRs are answered.

use std::collections::BTreeMap;

/// How the CSRs of one signer name are answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answerer {
    /// Whether an administrator or another program approves them.
    pub leaves_approval: bool,
    /// Why the hub does not serve the AddOnSigner, by its status.
    pub problem: Option<String>,
}

/// How the CSRs of each signer name are answered.
#[derive(Debug, Default)]
pub struct Answerers {
    /// By signer name.
    pub by_name: BTreeMap<String, Answerer>,
    /// For all other signer names, while not all AddOnSigners are known.
    pub of_others: Option<Answerer>,
}

impl Answerers {
    /// How the CSRs of this signer name are answered; `None` if no AddOnSigner has it.
    #[must_use]
    pub fn get(&self, signer_name: &str) -> Option<&Answerer> {
        self.by_name.get(signer_name).or(self.of_others.as_ref())
    }

    /// The signer name of an AddOnSigner that is most like this one.
    #[must_use]
    pub fn nearest(&self, signer_name: &str) -> Option<String> {
        let names = self.by_name.keys();
        names.min_by_key(|name| strsim::damerau_levenshtein(name, signer_name)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_with_the_fewest_edits() {
        let names = ["example.com/telemetry", "example.com/metrics", "example.org/logs"];
        let by_name = names.map(|name| (name.to_owned(), Answerer::default())).into();
        let all = Answerers { by_name, of_others: None };
        assert_eq!(all.nearest("example.com/telemtery").as_deref(), Some("example.com/telemetry"));
        assert_eq!(all.nearest("logs").as_deref(), Some("example.org/logs"));
        assert_eq!((all.get("logs"), Answerers::default().nearest("logs")), (None, None));
    }
}
