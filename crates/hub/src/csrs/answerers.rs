//! Which signer names AddOnSigners have, and how their CSRs are answered.

use std::collections::BTreeMap;

/// By how many edits a name may differ from the one that was meant.
const MOST_EDITS: usize = 3;
/// Bytes of a signer name that is compared with others, because that takes time.
const LONGEST: usize = 128;

/// How the CSRs of one signer name are answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answerer {
    /// Whether an administrator or another program approves them.
    pub leaves_approval: bool,
    /// Why the hub does not serve the AddOnSigner, by its status.
    pub problem: Option<String>,
}

impl Answerer {
    /// What a CSR that is neither refused nor issued waits for. `said`: the condition that says why.
    pub(super) fn waits_for(&self, name: &str, is_approved: bool, message: Option<&str>) -> String {
        let step = if is_approved { "sign" } else { "answer" };
        if let Some(message) = message {
            return format!("the hub to {step} its CSR {name}: {message}");
        }
        if self.leaves_approval && !is_approved {
            return format!("an approval of its CSR {name}");
        }
        match &self.problem {
            Some(problem) => format!("the hub to {step} its CSR {name}, but {problem}"),
            None => format!("the hub to {step} its CSR {name}"),
        }
    }
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

    /// The signer name of an AddOnSigner that was probably meant by this one. A cluster must not learn the others.
    #[must_use]
    pub fn nearest(&self, signer_name: &str) -> Option<String> {
        if signer_name.len() > LONGEST {
            return None;
        }
        let may_be = self.by_name.keys().filter(|name| name.len().abs_diff(signer_name.len()) <= MOST_EDITS);
        let edits = may_be.map(|name| (strsim::damerau_levenshtein(name, signer_name), name));
        edits.filter(|(edits, _)| *edits <= MOST_EDITS).min().map(|(_, name)| name.clone())
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
        assert_eq!(all.nearest("example.org/log").as_deref(), Some("example.org/logs"));
        assert_eq!(all.nearest("logs"), None, "it may mean any of them");
        let long = format!("example.com/{}", "x".repeat(LONGEST));
        let of_long = Answerers { by_name: [(format!("{long}y"), Answerer::default())].into(), of_others: None };
        assert_eq!(of_long.nearest(&long), None, "comparing long names takes long");
        assert_eq!((all.get("logs"), Answerers::default().nearest("logs")), (None, None));
    }
}
