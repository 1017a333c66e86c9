//! The patch formats RFC 7386 (merge) and RFC 6902 (JSON). Pure functions.

use serde_json::Value;

/// A patch that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatchError {
    #[error("the JSON patch is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(transparent)]
    Inapplicable(#[from] json_patch::PatchError),
}

/// The format of a patch.
#[derive(Debug, Clone, Copy)]
pub(super) enum PatchKind {
    Merge,
    Json,
}

impl PatchKind {
    /// Applies the patch to an object. If that fails, the object is unchanged.
    pub(super) fn apply(self, object: &mut Value, patch: &Value) -> Result<(), PatchError> {
        match self {
            Self::Merge => json_patch::merge(object, patch),
            Self::Json => json_patch::patch(object, &serde_json::from_value::<json_patch::Patch>(patch.clone())?)?,
        }
        Ok(())
    }
}
