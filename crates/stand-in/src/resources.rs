//! The table of the resources that the stand-in serves: one row per resource, no code per kind.

const AGE: (&str, Cell) = ("Age", Cell::Since("metadata.creationTimestamp"));

const fn built_in(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        kind,
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
    }
}

const fn custom(group: &'static str, version: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { version, custom: true, subresources: &["status"], ..built_in(group, plural, kind) }
}

const fn review(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { namespaced: false, review: true, ..built_in(group, plural, kind) }
}

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
        namespaced: false,
        short: &["ns"],
        subresources: &["status"],
        fields: &["status.phase"],
        columns: &[("Status", Cell::Path("status.phase")), AGE],
        ..built_in("", "namespaces", "Namespace")
    },
    Resource {
        fields: &["type"],
        columns: &[("Type", Cell::Path("type")), ("Data", Cell::Count("data")), AGE],
        ..built_in("", "secrets", "Secret")
    },
    Resource {
        short: &["cm"],
        columns: &[("Data", Cell::Count("data")), AGE],
        ..built_in("", "configmaps", "ConfigMap")
    },
    Resource { short: &["sa"], ..built_in("", "serviceaccounts", "ServiceAccount") },
    Resource { short: &["svc"], subresources: &["status"], ..built_in("", "services", "Service") },
    Resource {
        short: &["po"],
        subresources: &["status"],
        fields: &["spec.nodeName", "status.phase"],
        columns: &[("Status", Cell::Path("status.phase")), AGE],
        ..built_in("", "pods", "Pod")
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
        ..built_in("certificates.k8s.io", CSR_PLURAL, "CertificateSigningRequest")
    },
    Resource {
        namespaced: false,
        on_demand: true,
        fields: &["spec.signerName"],
        columns: &[("SignerName", Cell::Path("spec.signerName"))],
        ..built_in("certificates.k8s.io", BUNDLE_PLURAL, "ClusterTrustBundle")
    },
    built_in("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    Resource {
        upsert: true,
        columns: &[("Holder", Cell::Path("spec.holderIdentity")), AGE],
        ..built_in("coordination.k8s.io", "leases", "Lease")
    },
    Resource {
        namespaced: false,
        short: &["crd", "crds"],
        subresources: &["status"],
        ..built_in("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition")
    },
    // Stored only: the rules of the chart's policies are in `policy`.
    Resource {
        namespaced: false,
        ..built_in("admissionregistration.k8s.io", POLICY_PLURAL, "ValidatingAdmissionPolicy")
    },
    Resource {
        namespaced: false,
        ..built_in("admissionregistration.k8s.io", BINDING_PLURAL, "ValidatingAdmissionPolicyBinding")
    },
    Resource {
        namespaced: false,
        subresources: &["status"],
        columns: &[("Available", Cell::Condition("Available")), AGE],
        ..built_in("apiregistration.k8s.io", "apiservices", "APIService")
    },
    Resource {
        namespaced: false,
        short: &["mcl", "mcls"],
        columns: &[
            ("Hub Accepted", Cell::Path("spec.hubAcceptsClient")),
            ("Joined", Cell::Condition("ManagedClusterJoined")),
            ("Available", Cell::Condition("ManagedClusterConditionAvailable")),
            AGE,
        ],
        ..custom("cluster.open-cluster-management.io", "v1", "managedclusters", "ManagedCluster")
    },
    Resource { on_demand: true, ..custom("work.open-cluster-management.io", "v1", "manifestworks", "ManifestWork") },
    Resource {
        short: &["mca", "mcas"],
        columns: &[
            ("Available", Cell::Condition("Available")),
            ("Registered", Cell::Condition("RegistrationApplied")),
            AGE,
        ],
        ..custom("addon.open-cluster-management.io", "v1alpha1", "managedclusteraddons", "ManagedClusterAddOn")
    },
    Resource {
        namespaced: false,
        short: &["cma"],
        ..custom("addon.open-cluster-management.io", "v1alpha1", "clustermanagementaddons", "ClusterManagementAddOn")
    },
    Resource {
        namespaced: false,
        short: &["adt"],
        columns: &[("ADDON NAME", Cell::Path("spec.addonName"))],
        ..custom("addon.open-cluster-management.io", "v1alpha1", "addontemplates", "AddOnTemplate")
    },
    Resource {
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
        ..custom("addon-signer.io", "v1alpha1", "addonsigners", "AddOnSigner")
    },
    Resource {
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
        ..custom("addon-signer.io", "v1alpha1", "addonroutes", "AddOnRoute")
    },
    review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
];

const EVENT: Resource = Resource {
    short: &["ev"],
    columns: &[
        ("Last Seen", Cell::LastSeen),
        ("Type", Cell::Path("type")),
        ("Reason", Cell::Path("reason")),
        ("Object", Cell::Involved),
        ("Message", Cell::Path("message")),
    ],
    ..built_in("", "events", "Event")
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

    /// The resource in messages, such as `secrets` or `leases.coordination.k8s.io`.
    pub(super) fn qualified(&self) -> String {
        join(self.plural, self.group)
    }

    /// The kind in messages, such as `Secret` or `Lease.coordination.k8s.io`.
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
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    pub(super) short: &'static [&'static str],
    /// The categories by which kubectl lists it with other resources.
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
