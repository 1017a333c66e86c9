//! The table of the resources that the stand-in serves: one row per resource, no code per kind.

use super::resource::{Cell, Resource};

const AGE: (&str, Cell) = ("Age", Cell::Since("metadata.creationTimestamp"));

const BUILT_IN: Resource = Resource {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    namespaced: true,
    short: &[],
    categories: &[],
    subresources: &[],
    custom: false,
    upsert: false,
    on_demand: false,
    review: false,
    fields: &[],
    columns: &[AGE],
};

const CUSTOM: Resource = Resource { custom: true, subresources: &["status"], ..BUILT_IN };

/// The plural of CertificateSigningRequests; their rules are in `admission`.
pub(super) const CSR_PLURAL: &str = "certificatesigningrequests";

/// The plural of bindings of policies; their rules are in `policy`.
pub(super) const POLICY_PLURAL: &str = "validatingadmissionpolicies";
pub(super) const BINDING_PLURAL: &str = "validatingadmissionpolicybindings";

/// The plural of ClusterTrustBundles; their rules are in `checks`.
const BUNDLE_PLURAL: &str = "clustertrustbundles";

/// Every resource, in the order in which discovery lists them.
pub(super) static RESOURCES: &[Resource] = &[
    Resource {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        namespaced: false,
        short: &["ns"],
        subresources: &["status"],
        fields: &["status.phase"],
        columns: &[("Status", Cell::Path("status.phase")), AGE],
        ..BUILT_IN
    },
    Resource {
        plural: "secrets",
        singular: "secret",
        kind: "Secret",
        fields: &["type"],
        columns: &[("Type", Cell::Path("type")), ("Data", Cell::Count("data")), AGE],
        ..BUILT_IN
    },
    Resource {
        plural: "configmaps",
        singular: "configmap",
        kind: "ConfigMap",
        short: &["cm"],
        columns: &[("Data", Cell::Count("data")), AGE],
        ..BUILT_IN
    },
    Resource {
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        short: &["sa"],
        ..BUILT_IN
    },
    Resource {
        plural: "services",
        singular: "service",
        kind: "Service",
        short: &["svc"],
        subresources: &["status"],
        ..BUILT_IN
    },
    Resource {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short: &["po"],
        subresources: &["status"],
        fields: &["spec.nodeName", "status.phase"],
        columns: &[("Status", Cell::Path("status.phase")), AGE],
        ..BUILT_IN
    },
    Resource {
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ],
        ..EVENT
    },
    Resource {
        group: "events.k8s.io",
        fields: &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "reportingController",
            "type",
        ],
        ..EVENT
    },
    Resource {
        group: "certificates.k8s.io",
        plural: CSR_PLURAL,
        singular: "certificatesigningrequest",
        kind: "CertificateSigningRequest",
        namespaced: false,
        short: &["csr"],
        subresources: &["approval", "status"],
        fields: &["spec.signerName"],
        columns: &[
            AGE,
            ("SignerName", Cell::Path("spec.signerName")),
            ("Requestor", Cell::Path("spec.username")),
            ("RequestedDuration", Cell::Path("spec.expirationSeconds")),
            ("Condition", Cell::CsrState),
        ],
        ..BUILT_IN
    },
    Resource {
        group: "certificates.k8s.io",
        plural: BUNDLE_PLURAL,
        singular: "clustertrustbundle",
        kind: "ClusterTrustBundle",
        namespaced: false,
        on_demand: true,
        fields: &["spec.signerName"],
        columns: &[("SignerName", Cell::Path("spec.signerName"))],
        ..BUILT_IN
    },
    Resource {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        singular: "endpointslice",
        kind: "EndpointSlice",
        ..BUILT_IN
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        upsert: true,
        columns: &[("Holder", Cell::Path("spec.holderIdentity")), AGE],
        ..BUILT_IN
    },
    Resource {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        kind: "CustomResourceDefinition",
        namespaced: false,
        short: &["crd", "crds"],
        subresources: &["status"],
        ..BUILT_IN
    },
    // Stored only: the rules of the chart's policies are in `policy`.
    Resource {
        group: "admissionregistration.k8s.io",
        plural: POLICY_PLURAL,
        singular: "validatingadmissionpolicy",
        kind: "ValidatingAdmissionPolicy",
        namespaced: false,
        ..BUILT_IN
    },
    Resource {
        group: "admissionregistration.k8s.io",
        plural: BINDING_PLURAL,
        singular: "validatingadmissionpolicybinding",
        kind: "ValidatingAdmissionPolicyBinding",
        namespaced: false,
        ..BUILT_IN
    },
    Resource {
        group: "apiregistration.k8s.io",
        plural: "apiservices",
        singular: "apiservice",
        kind: "APIService",
        namespaced: false,
        subresources: &["status"],
        columns: &[("Available", Cell::Condition("Available")), AGE],
        ..BUILT_IN
    },
    Resource {
        group: "cluster.open-cluster-management.io",
        plural: "managedclusters",
        singular: "managedcluster",
        kind: "ManagedCluster",
        namespaced: false,
        short: &["mcl", "mcls"],
        columns: &[
            ("Hub Accepted", Cell::Path("spec.hubAcceptsClient")),
            ("Joined", Cell::Condition("ManagedClusterJoined")),
            ("Available", Cell::Condition("ManagedClusterConditionAvailable")),
            AGE,
        ],
        ..CUSTOM
    },
    Resource {
        group: "work.open-cluster-management.io",
        version: "v1",
        plural: "manifestworks",
        singular: "manifestwork",
        kind: "ManifestWork",
        on_demand: true,
        ..CUSTOM
    },
    Resource {
        group: "addon.open-cluster-management.io",
        version: "v1alpha1",
        plural: "managedclusteraddons",
        singular: "managedclusteraddon",
        kind: "ManagedClusterAddOn",
        short: &["mca", "mcas"],
        columns: &[
            ("Available", Cell::Condition("Available")),
            ("Registered", Cell::Condition("RegistrationApplied")),
            AGE,
        ],
        ..CUSTOM
    },
    Resource {
        group: "addon.open-cluster-management.io",
        version: "v1alpha1",
        plural: "clustermanagementaddons",
        singular: "clustermanagementaddon",
        kind: "ClusterManagementAddOn",
        namespaced: false,
        short: &["cma"],
        ..CUSTOM
    },
    Resource {
        group: "addon.open-cluster-management.io",
        version: "v1alpha1",
        plural: "addontemplates",
        singular: "addontemplate",
        kind: "AddOnTemplate",
        namespaced: false,
        short: &["adt"],
        columns: &[("ADDON NAME", Cell::Path("spec.addonName"))],
        ..CUSTOM
    },
    Resource {
        group: "addon-signer.io",
        version: "v1alpha1",
        plural: "addonsigners",
        singular: "addonsigner",
        kind: "AddOnSigner",
        namespaced: false,
        short: &["ads"],
        categories: &["addon-signer"],
        columns: &[
            ("Signer", Cell::Path("spec.signerName")),
            ("AddOns", Cell::Path("status.addOnList")),
            ("Ready", Cell::Condition("Ready")),
            ("Reason", Cell::Reason("Ready")),
            AGE,
        ],
        ..CUSTOM
    },
    Resource {
        group: "addon-signer.io",
        version: "v1alpha1",
        plural: "addonroutes",
        singular: "addonroute",
        kind: "AddOnRoute",
        short: &["adr"],
        categories: &["ocm", "addon-signer"],
        columns: &[
            ("Signer", Cell::Path("spec.signer")),
            ("Hosts", Cell::Path("status.hosts")),
            ("Backend", Cell::Path("status.backend")),
            ("Programmed", Cell::Condition("Programmed")),
            ("Reason", Cell::Reason("Programmed")),
            AGE,
        ],
        ..CUSTOM
    },
    Resource {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        ..REVIEW
    },
];

const REVIEW: Resource = Resource { namespaced: false, review: true, ..BUILT_IN };

const EVENT: Resource = Resource {
    plural: "events",
    singular: "event",
    kind: "Event",
    short: &["ev"],
    columns: &[
        ("Last Seen", Cell::LastSeen),
        ("Type", Cell::Path("type")),
        ("Reason", Cell::Path("reason")),
        ("Object", Cell::Involved),
        ("Message", Cell::Path("message")),
    ],
    ..BUILT_IN
};

/// The fields of an event that have different names in its two API versions, the name in `v1` first
/// (k8s.io/kubernetes `pkg/apis/events/v1/conversion.go`). Events are stored in the form of `v1`.
pub(super) const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

impl Resource {
    /// Finds a resource by the parts of its URL.
    pub(super) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    /// `v1` or `group/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `secrets` or `leases.coordination.k8s.io`, as messages name a resource.
    pub(super) fn qualified(&self) -> String {
        join(self.plural, self.group)
    }

    /// `Secret` or `Lease.coordination.k8s.io`, as messages name a kind.
    pub(super) fn qualified_kind(&self) -> String {
        join(self.kind, self.group)
    }

    /// Whether this is the CSR resource.
    pub(super) fn is_csr(&self) -> bool {
        self.plural == CSR_PLURAL
    }

    /// Whether this is the resource of trust bundles.
    pub(super) fn is_bundle(&self) -> bool {
        self.plural == BUNDLE_PLURAL
    }

    /// Whether `/status` exists. If it does, a write to the main resource does not change the status.
    pub(super) fn has_status(&self) -> bool {
        self.subresources.contains(&"status")
    }

    /// Whether the form in which objects are shown differs from the stored one.
    pub(super) fn is_converted_event(&self) -> bool {
        self.group == "events.k8s.io"
    }

    /// The verbs of the resource, as discovery prints them.
    pub(super) fn verbs(&self) -> &'static [&'static str] {
        if self.review {
            return &["create"];
        }
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    }
}

fn join(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
