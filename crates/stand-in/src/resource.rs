//! A resource that the stand-in serves.

/// The content of a column of `kubectl get`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    /// The scalar at a dotted path; `<none>` if absent.
    Path(&'static str),
    /// The number of entries of the map or list at a dotted path.
    Count(&'static str),
    /// The status of the condition of this type.
    Condition(&'static str),
    /// Its reason.
    Reason(&'static str),
    /// The state of a CSR in kube-apiserver's words, such as `Approved,Issued`.
    CsrState,
    /// The time since the timestamp at a dotted path.
    Since(&'static str),
    /// The time since an event was last seen.
    LastSeen,
    /// The kind and name of an event's object.
    Involved,
}

/// One row of the table.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    pub(super) short: &'static [&'static str],
    /// The names by which kubectl lists it among others.
    pub(super) categories: &'static [&'static str],
    pub(super) subresources: &'static [&'static str],
    /// Whether a real cluster serves it from a CustomResourceDefinition: no strategic merge, `PUT` needs a
    /// resourceVersion, `/status` keeps metadata, `metadata.generation` counts changes of the spec.
    pub(super) custom: bool,
    /// Whether `PUT` creates an object that does not exist, and needs a resourceVersion for one that does (Kubernetes'
    /// strategy of Leases: `AllowCreateOnUpdate`, not `AllowUnconditionalUpdate`).
    pub(super) upsert: bool,
    /// Whether it is served only while a CustomResourceDefinition of its name is stored.
    pub(super) on_demand: bool,
    /// Whether it only answers `create` and stores nothing.
    pub(super) review: bool,
    /// The field selectors besides `metadata.name` and `metadata.namespace`.
    pub(super) fields: &'static [&'static str],
    pub(super) columns: &'static [(&'static str, Cell)],
}
