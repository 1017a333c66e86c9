//! Field numbers of the kinds that are read.

/// The type of a field, and how JSON shows it.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Text,
    Number,
    Bool,
    Bytes,
    Time,
    Message(&'static [Field]),
    Texts,
    Messages(&'static [Field]),
    TextMap,
    BytesMap,
    /// A map to lists of strings (`ExtraValue`).
    ListMap,
}

/// Field number, JSON name, type.
pub(super) type Field = (u64, &'static str, Type);

const OWNER: &[Field] = &[
    (1, "kind", Type::Text),
    (3, "name", Type::Text),
    (4, "uid", Type::Text),
    (5, "apiVersion", Type::Text),
    (6, "controller", Type::Bool),
    (7, "blockOwnerDeletion", Type::Bool),
];

const META: &[Field] = &[
    (1, "name", Type::Text),
    (2, "generateName", Type::Text),
    (3, "namespace", Type::Text),
    (5, "uid", Type::Text),
    (6, "resourceVersion", Type::Text),
    (7, "generation", Type::Number),
    (8, "creationTimestamp", Type::Time),
    (9, "deletionTimestamp", Type::Time),
    (11, "labels", Type::TextMap),
    (12, "annotations", Type::TextMap),
    (13, "ownerReferences", Type::Messages(OWNER)),
    (14, "finalizers", Type::Texts),
];

const CSR_SPEC: &[Field] = &[
    (1, "request", Type::Bytes),
    (2, "username", Type::Text),
    (3, "uid", Type::Text),
    (4, "groups", Type::Texts),
    (5, "usages", Type::Texts),
    (6, "extra", Type::ListMap),
    (7, "signerName", Type::Text),
    (8, "expirationSeconds", Type::Number),
];

const CSR_CONDITION: &[Field] = &[
    (1, "type", Type::Text),
    (2, "reason", Type::Text),
    (3, "message", Type::Text),
    (4, "lastUpdateTime", Type::Time),
    (5, "lastTransitionTime", Type::Time),
    (6, "status", Type::Text),
];

const ATTRIBUTES: &[Field] = &[
    (1, "namespace", Type::Text),
    (2, "verb", Type::Text),
    (3, "group", Type::Text),
    (4, "version", Type::Text),
    (5, "resource", Type::Text),
    (6, "subresource", Type::Text),
    (7, "name", Type::Text),
];

/// The kinds that are read.
pub(super) const KINDS: &[(&str, &[Field])] = &[
    (
        "Namespace",
        &[
            (1, "metadata", Type::Message(META)),
            (2, "spec", Type::Message(&[(1, "finalizers", Type::Texts)])),
            (3, "status", Type::Message(&[(1, "phase", Type::Text)])),
        ],
    ),
    (
        "Secret",
        &[
            (1, "metadata", Type::Message(META)),
            (2, "data", Type::BytesMap),
            (3, "type", Type::Text),
            (4, "stringData", Type::TextMap),
            (5, "immutable", Type::Bool),
        ],
    ),
    (
        "ConfigMap",
        &[
            (1, "metadata", Type::Message(META)),
            (2, "data", Type::TextMap),
            (3, "binaryData", Type::BytesMap),
            (4, "immutable", Type::Bool),
        ],
    ),
    ("ServiceAccount", &[(1, "metadata", Type::Message(META)), (4, "automountServiceAccountToken", Type::Bool)]),
    (
        "CertificateSigningRequest",
        &[
            (1, "metadata", Type::Message(META)),
            (2, "spec", Type::Message(CSR_SPEC)),
            (
                3,
                "status",
                Type::Message(&[(1, "conditions", Type::Messages(CSR_CONDITION)), (2, "certificate", Type::Bytes)]),
            ),
        ],
    ),
    ("SelfSubjectReview", &[(1, "metadata", Type::Message(META))]),
    (
        "SelfSubjectAccessReview",
        &[
            (1, "metadata", Type::Message(META)),
            (2, "spec", Type::Message(&[(1, "resourceAttributes", Type::Message(ATTRIBUTES))])),
        ],
    ),
    (
        "DeleteOptions",
        &[
            (2, "preconditions", Type::Message(&[(1, "uid", Type::Text), (2, "resourceVersion", Type::Text)])),
            (4, "propagationPolicy", Type::Text),
            (5, "dryRun", Type::Texts),
        ],
    ),
];
