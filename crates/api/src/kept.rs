//! What is kept of an object of each kind while it is read: the parts in use, in bounded memory. A client that may
//! write a kind may pad its objects to 1.5 MB with labels, annotations and fields that mean nothing here.

use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::{DeserializeGuard, DynamicObject, NotUsed, Object, PartialObjectMeta};

use super::{AddOnRoute, AddOnSigner};
use addon_signer_core::bounded::Keep;
use addon_signer_core::keep;
use addon_signer_core::names::{
    ANNOTATION_ADVANCE, ANNOTATION_AUTHORITIES, ANNOTATION_AUTHORITY_OF, ANNOTATION_IMPORT,
    ANNOTATION_REVOKE_AUTHORITY, ANNOTATION_REVOKE_BEFORE, ANNOTATION_REVOKED_BY, ANNOTATION_ROLL_BACK,
    ANNOTATION_ROTATE, ANNOTATION_SIGNER_NAME, ANNOTATION_TAINT, ANNOTATION_TRUSTS,
};

/// The longest of the texts that name an object.
const LONGEST: usize = 1024;
/// The most of an annotation: a chain of certificates, or the names of clusters.
const ANNOTATION: usize = 64 << 10;
/// The most of an annotation that requests a step of an AddOnSigner's authorities.
const REQUEST: usize = 8 << 10;
/// The most memory for the labels of an object: some 80 of them.
const LABELS: usize = 16 << 10;
/// The most memory for the specification of an AddOnSigner: more than its schema allows.
const SIGNER: usize = 96 << 10;
/// The same for an AddOnRoute: a CA of 64 KiB and 1,024 clusters fit.
const ROUTE: usize = 512 << 10;
/// The most memory for a status, which the hub writes.
const STATUS: usize = 512 << 10;
/// The most memory for each list of configurations in OCM's objects.
const CONFIGS: usize = 256 << 10;
/// How many manifests of an AddOnTemplate are read.
const MOST_MANIFESTS: usize = 1000;
/// How many entries of `metadata.managedFields` are read. Kubernetes keeps ten, and one for each program that applies.
const MANAGERS: usize = 256;
/// How many ports of a Service are read.
const SERVICE_PORTS: usize = 1000;
/// How many ports of an EndpointSlice are read (Kubernetes, `EndpointSlice.ports`: at most 100).
const PORTS: usize = 100;
/// How many endpoints of an EndpointSlice are read (Kubernetes, `EndpointSlice.endpoints`: at most 1,000).
const ENDPOINTS: usize = 1000;

/// The label that names the Service of an EndpointSlice.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A kind, or a part of one, of which this much is kept.
pub trait Kept {
    /// That which is kept.
    const KEEP: Keep;
}

/// [`Kept::KEEP`] where a reader can borrow it.
pub(crate) struct KeepOf<K>(PhantomData<K>);

impl<K: Kept> KeepOf<K> {
    pub(crate) const KEEP: &'static Keep = &K::KEEP;
}

/// Makes a struct that has an object the resource that the object is.
macro_rules! resource_by {
    ([$($generics:tt)*] $wrapper:ty, $field:ident: $object:ty) => {
        impl<$($generics)*> kube::Resource for $wrapper {
            type DynamicType = <$object as kube::Resource>::DynamicType;
            type Scope = <$object as kube::Resource>::Scope;

            fn kind(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$object as kube::Resource>::kind(of)
            }

            fn group(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$object as kube::Resource>::group(of)
            }

            fn version(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$object as kube::Resource>::version(of)
            }

            fn plural(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$object as kube::Resource>::plural(of)
            }

            fn meta(&self) -> &kube::core::ObjectMeta {
                kube::Resource::meta(&self.$field)
            }

            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                kube::Resource::meta_mut(&mut self.$field)
            }
        }
    };
}
pub(crate) use resource_by;

const METADATA: Keep = keep!(LONGEST;
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp";
    "labels" => Keep::All(LABELS),
    "annotations" => keep!(ANNOTATION;
        ANNOTATION_ADVANCE,
        ANNOTATION_AUTHORITIES,
        ANNOTATION_AUTHORITY_OF,
        ANNOTATION_IMPORT,
        ANNOTATION_REVOKE_AUTHORITY,
        ANNOTATION_REVOKE_BEFORE,
        ANNOTATION_REVOKED_BY,
        ANNOTATION_ROLL_BACK,
        ANNOTATION_ROTATE,
        ANNOTATION_SIGNER_NAME,
        ANNOTATION_TAINT,
        ANNOTATION_TRUSTS,
    ),
    "managedFields" => Keep::Each(MANAGERS, &keep!(LONGEST; "manager", "operation", "subresource", "time")),
);

/// That of an AddOnSigner, whose authors are not all trusted to spare the hub's memory.
const SIGNER_METADATA: Keep = keep!(LONGEST;
    "name", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp";
    "labels" => Keep::All(LABELS),
    "annotations" => keep!(REQUEST;
        ANNOTATION_REVOKE_AUTHORITY,
        ANNOTATION_ROLL_BACK,
        ANNOTATION_ROTATE,
        ANNOTATION_TAINT;
        ANNOTATION_IMPORT => Keep::Scalar(ANNOTATION),
    ),
    "managedFields" => Keep::Each(MANAGERS, &keep!(LONGEST; "manager", "operation", "subresource", "time")),
);

impl<K: Kept> Kept for DeserializeGuard<K> {
    const KEEP: Keep = K::KEEP;
}

impl Kept for AddOnSigner {
    const KEEP: Keep = keep!(LONGEST; "apiVersion", "kind";
        "metadata" => SIGNER_METADATA, "spec" => Keep::All(SIGNER), "status" => Keep::All(STATUS));
}

impl Kept for AddOnRoute {
    const KEEP: Keep = keep!(LONGEST; "apiVersion", "kind";
        "metadata" => METADATA, "spec" => Keep::All(ROUTE), "status" => Keep::All(STATUS));
}

impl Kept for Service {
    const KEEP: Keep = Keep::Fields(&[
        ("metadata", keep!(LONGEST; "name", "namespace", "resourceVersion")),
        ("spec", keep!(LONGEST; "type"; "ports" => Keep::Each(SERVICE_PORTS, &SERVICE_PORT))),
    ]);
}

const SERVICE_PORT: Keep = keep!(LONGEST; "name", "port", "protocol", "appProtocol");

impl Kept for EndpointSlice {
    const KEEP: Keep = keep!(LONGEST; "addressType";
        "metadata" => keep!(LONGEST; "name", "namespace", "resourceVersion"; "labels" => keep!(LONGEST; SERVICE_NAME)),
        "endpoints" => Keep::Each(ENDPOINTS, &ENDPOINT),
        "ports" => Keep::Each(PORTS, &keep!(LONGEST; "name", "port", "protocol")),
    );
}

const ENDPOINT: Keep =
    Keep::Fields(&[("addresses", Keep::Each(1, &Keep::Scalar(LONGEST))), ("conditions", keep!(LONGEST; "ready"))]);

impl<K> Kept for PartialObjectMeta<K> {
    const KEEP: Keep = keep!(LONGEST; "apiVersion", "kind"; "metadata" => METADATA);
}

impl<P: Kept + Clone, S: Kept + Clone> Kept for Object<P, S> {
    const KEEP: Keep = keep!(LONGEST; "apiVersion", "kind";
        "metadata" => METADATA, "spec" => P::KEEP, "status" => S::KEEP);
}

impl Kept for NotUsed {
    const KEEP: Keep = Keep::Fields(&[]);
}

/// Programs read a Pod by its name, and need little of it.
impl Kept for Pod {
    const KEEP: Keep = Keep::Fields(&[("metadata", METADATA)]);
}

/// The hub reads ConfigMaps of its own namespace by name, and writes whole ones back.
impl Kept for ConfigMap {
    const KEEP: Keep = Keep::All(usize::MAX);
}

/// For OCM's objects: what ClusterManagementAddOns and AddOnTemplates specify about registration, and conditions.
impl Kept for DynamicObject {
    const KEEP: Keep = keep!(LONGEST; "apiVersion", "kind";
        "metadata" => METADATA,
        "spec" => Keep::Fields(&[
            ("supportedConfigs", Keep::All(CONFIGS)),
            ("defaultConfigs", Keep::All(CONFIGS)),
            ("installStrategy", Keep::All(CONFIGS)),
            ("registration", Keep::All(CONFIGS)),
            ("agentSpec", Keep::Fields(&[("workload", Keep::Fields(&[("manifests", MANIFESTS)]))])),
        ]),
        "status" => Keep::Fields(&[("conditions", Keep::All(CONFIGS))]),
    );
}

const MANIFESTS: Keep = Keep::Each(MOST_MANIFESTS, &keep!(LONGEST; "kind"));

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Guarded, Lenient};

    fn padded(kind: &str, content: Value) -> String {
        let labels: serde_json::Map<String, Value> =
            (0..20_000).map(|at| (format!("padding.example/{at}"), "x".repeat(40).into())).collect();
        let mut object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "a", "labels": labels } });
        object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        object.to_string()
    }

    #[test]
    fn padding_costs_nothing_and_is_told_where_it_matters() {
        let spec = json!({ "spec": { "signerName": "a.b/c", "addOns": ["t"] } });
        let signer: Guarded<AddOnSigner> = serde_json::from_str(&padded("AddOnSigner", spec)).unwrap();
        let kept: usize = signer.labels().iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(kept < LABELS, "{kept}");
        assert_eq!(signer.read().unwrap_err(), "it is larger than the hub reads: mind its labels");
        let namespace: Lenient<PartialObjectMeta<AddOnSigner>> =
            serde_json::from_str(&padded("Namespace", json!({}))).unwrap();
        assert!(namespace.decode_error.is_some(), "a selector may ask for a label that was not read");
        let service: Guarded<Service> =
            serde_json::from_str(&padded("Service", json!({ "spec": { "ports": [{ "port": 80 }] } }))).unwrap();
        assert_eq!(service.object.0.unwrap().spec.unwrap().ports.unwrap().len(), 1);
    }

    /// What is missing in `METADATA` or `SIGNER_METADATA` is dropped, and nobody would notice.
    #[test]
    fn annotations_that_request_something_are_kept() {
        let object = |of: &str| {
            let rows = addon_signer_core::names::LABELS.iter();
            let requests = rows.filter(|row| row.more[0] == "annotation" && row.more[1].contains(of));
            let annotations: serde_json::Map<_, _> = requests.map(|row| (row.value.to_owned(), "x".into())).collect();
            assert!(annotations.len() > 3, "{annotations:?}");
            let spec = json!({ "signerName": "a.b/c", "addOns": ["t"] });
            json!({ "metadata": { "name": "a", "annotations": annotations }, "spec": spec })
        };
        let (of_signer, of_map) = (object("AddOnSigner, or"), object("ConfigMap of the gateway"));
        let signer: Guarded<AddOnSigner> = serde_json::from_value(of_signer.clone()).unwrap();
        assert_eq!(json!(signer.annotations()), of_signer["metadata"]["annotations"]);
        let map: Lenient<PartialObjectMeta<ConfigMap>> = serde_json::from_value(of_map.clone()).unwrap();
        assert_eq!(json!(map.annotations()), of_map["metadata"]["annotations"]);
    }

    /// A watch cannot continue from an object without a version.
    #[test]
    fn every_kind_keeps_its_version() {
        fn version<K: serde::de::DeserializeOwned + ResourceExt>() -> Option<String> {
            let metadata = json!({ "name": "a", "resourceVersion": "7" });
            let object = json!({ "metadata": metadata, "spec": {} });
            serde_json::from_value::<K>(object).unwrap().resource_version()
        }
        let versions = [
            version::<Guarded<AddOnSigner>>(),
            version::<Guarded<AddOnRoute>>(),
            version::<Guarded<Service>>(),
            version::<Guarded<EndpointSlice>>(),
            version::<Lenient<ConfigMap>>(),
            version::<Lenient<Pod>>(),
            version::<Lenient<DynamicObject>>(),
            version::<Lenient<PartialObjectMeta<Pod>>>(),
            version::<Lenient<Object<NotUsed, NotUsed>>>(),
        ];
        assert_eq!(versions, [const { Some("7") }; 9].map(|version| version.map(str::to_owned)));
    }

    #[test]
    fn slices_are_read_up_to_what_kubernetes_allows() {
        let ports: Vec<Value> = (0..20_000).map(|at| json!({ "name": format!("p{at}"), "port": 1 })).collect();
        let slice = json!({ "endpoints": [{ "addresses": ["10.0.0.1", "10.0.0.2"] }], "ports": ports });
        let slice: Guarded<EndpointSlice> = serde_json::from_str(&padded("EndpointSlice", slice)).unwrap();
        let slice = slice.object.0.unwrap();
        assert_eq!((slice.ports.unwrap().len(), slice.endpoints.unwrap()[0].addresses.len()), (PORTS, 1));
    }
}
