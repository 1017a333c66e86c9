//! What is known of one line of authorities now.

use std::sync::Arc;

use crate::hub::authorities::stored::StoredLine;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::line::Line;

/// A line that can be used.
#[derive(Debug)]
pub struct ReadyLine {
    /// What was persisted, with the key that signs.
    pub stored: StoredLine,
    /// Its anchors.
    pub bundle: Bundle,
    /// What its rotation waits for.
    pub waiting: Option<String>,
}

impl ReadyLine {
    /// The authorities and their states.
    pub fn line(&self) -> &Line {
        &self.stored.line
    }
}

/// What is known of a line now.
#[derive(Debug, Clone)]
pub enum LineState {
    /// Nothing was read yet.
    Starting,
    /// It signs.
    Ready(Arc<ReadyLine>),
    /// It must not sign. What was trusted stays trusted.
    Broken {
        /// CamelCase.
        reason: &'static str,
        /// One sentence.
        message: String,
        /// What was read before.
        last: Option<Arc<ReadyLine>>,
    },
}

impl LineState {
    /// The line, if it may sign.
    pub fn ready(&self) -> Option<&Arc<ReadyLine>> {
        match self {
            Self::Ready(ready) => Some(ready),
            Self::Starting | Self::Broken { .. } => None,
        }
    }

    /// The line as it was last read, whether it may sign or not.
    pub fn last(&self) -> Option<&Arc<ReadyLine>> {
        match self {
            Self::Ready(ready) => Some(ready),
            Self::Broken { last, .. } => last.as_ref(),
            Self::Starting => None,
        }
    }
}
