//! AddOnRoute: where requests of agents go. It is in the namespace of the backend, so that its owner makes it; the
//! AddOnSigner that it names must let that namespace attach routes.
//!
//! The schema and its CEL rules check what the API server can check; [`crate::route_rules`] reads the rest.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function body")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use addon_signer_core::conditions::{
    CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS, REASON_NO_ENDPOINT,
};
use addon_signer_core::named;

/// A route of the gateway.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "addon-signer.io",
    version = "v1alpha1",
    kind = "AddOnRoute",
    plural = "addonroutes",
    shortname = "adr",
    category = "ocm",
    category = "addon-signer",
    namespaced,
    doc = "AddOnRoute sends requests of an AddOnSigner's agents from the gateway to a Service of its own namespace.",
    status = "AddOnRouteStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Signer", "type": "string", "jsonPath": ".spec.signer"}"#,
    printcolumn = r#"{"name": "Hosts", "type": "string", "jsonPath": ".status.hosts"}"#,
    printcolumn = r#"{"name": "Backend", "type": "string", "jsonPath": ".status.backend"}"#,
    printcolumn = r#"{"name": "Programmed", "type": "string",
                       "jsonPath": ".status.conditions[?(@.type==\"Programmed\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string",
                       "jsonPath": ".status.conditions[?(@.type==\"Programmed\")].reason"}"#,
    printcolumn = r#"{"name": "Backend Reason", "type": "string", "priority": 1,
                       "jsonPath": ".status.conditions[?(@.type==\"ResolvedRefs\")].reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AddOnRouteSpec {
    /// Name of the AddOnSigner whose agents may send requests. Its spec.gateway.routesFrom must include this namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub signer: String,
    /// Its addons whose agents may send requests. All by default.
    #[serde(default)]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub add_ons: Vec<String>,
    /// The clusters whose agents may send requests. All by default.
    #[serde(default)]
    pub clusters: RouteClusters,
    /// Host names of the gateway at which the route exists; the AddOnSigner's spec.gateway.hostnames must have each. By
    /// default, all names of the gateway that the agents may use.
    #[serde(default)]
    #[schemars(
        length(max = 16),
        inner(
            length(min = 1, max = 253),
            regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")
        )
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub hostnames: Vec<String>,
    /// Which requests: either http or grpc, never both.
    #[serde(rename = "match")]
    pub matching: RouteMatch,
    /// Where the requests go: a Service, or an address.
    pub backend: BackendSpec,
    /// Limits of these requests.
    #[serde(default)]
    pub limits: LimitsSpec,
}

/// Clusters by their names or by their ManagedClusterSets. A cluster writes its own labels, so other labels decide
/// nothing.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("!(size(self.names) > 0 && size(self.clusterSets) > 0)")
        .message("clusters must have names or clusterSets, not both")
)]
// By its path: the copies that KubeSchema makes have no `Default`.
#[serde(rename_all = "camelCase", default = "RouteClusters::default")]
pub struct RouteClusters {
    /// Names of ManagedClusters.
    #[schemars(
        length(max = 1024),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub names: Vec<String>,
    /// Names of ManagedClusterSets, instead of names. A cluster is in the set that its label
    /// cluster.open-cluster-management.io/clusterset names; no other label counts, because a cluster writes its own
    /// labels.
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub cluster_sets: Vec<String>,
}

/// Which requests a route takes: one kind of match.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("(size(self.http) > 0) != (size(self.grpc) > 0)")
        .message("match must have http or grpc, not both")
)]
#[serde(rename_all = "camelCase", default = "RouteMatch::default")]
pub struct RouteMatch {
    /// HTTP requests, by their paths.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".to_owned()]))]
    pub http: Vec<HttpMatch>,
    /// gRPC requests, by their service and methods.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["service".to_owned()]))]
    pub grpc: Vec<GrpcMatch>,
}

/// HTTP requests whose path begins with these segments.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    /// Path as the backend knows it, such as /api/v1/receive: a prefix in whole segments, without `..`, empty segments,
    /// escapes or a query. A segment {cluster} must be the caller's own cluster.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^/[A-Za-z0-9._~!$&'()*+,=:@{}/-]*$"))]
    #[x_kube(
        validation = Rule::new("!self.contains('..') && !self.contains('//')")
            .message("path must contain neither `..` nor `//`")
    )]
    pub path: String,
    /// Methods that pass.
    #[serde(default = "default_methods")]
    #[schemars(length(min = 1, max = 6))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub methods: Vec<Method>,
    /// Whether a DELETE may have a body. Each such request uses its own connection to the backend, with Connection:
    /// close. A GET or HEAD never may.
    #[serde(default)]
    pub delete_with_content: bool,
}

/// gRPC requests of a service.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcMatch {
    /// Full name of the service, such as opentelemetry.proto.collector.metrics.v1.MetricsService. match has either http
    /// or grpc, never both.
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"))]
    pub service: String,
    /// Its methods that pass, such as Export. All by default.
    #[serde(default)]
    #[schemars(length(max = 32), inner(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub methods: Vec<String>,
}

named! {
    /// HTTP methods that a route can name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "UPPERCASE")]
    #[expect(missing_docs, reason = "the names of HTTP say it")]
    pub enum Method {
        Get = "GET",
        Head = "HEAD",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
    }
    /// The method as HTTP writes it.
    pub fn as_str(self) -> &'static str;
}

/// Where requests go: a Service of the AddOnRoute's namespace, or an address.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("has(self.service) != has(self.address)")
        .message("backend must have service or address, not both")
)]
#[serde(rename_all = "camelCase")]
pub struct BackendSpec {
    /// A Service of this namespace. The gateway connects to the ready endpoints of its EndpointSlices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceRef>,
    /// An address and a port instead of a Service, such as 192.0.2.7:9000, inside one of the hub's --backend-addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 64), regex(pattern = r"^([0-9.]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"))]
    pub address: Option<String>,
    /// What it speaks. The CRD has the description of the type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<BackendProtocol>,
    /// How the backend proves who it is, if it speaks TLS. It has either ca or clusterTrustBundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<BackendTlsSpec>,
}

/// A port of a Service.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRef {
    /// Name of a Service of this namespace, to whose ready endpoints the gateway connects. A Service of type
    /// ExternalName is refused.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// A TCP port of the Service.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 65535").message("port must be from 1 to 65535"))]
    pub port: i32,
}

/// What the backend speaks. HTTP: HTTP/1.1. HTTPS: HTTP/1.1 or HTTP/2 over TLS, as the backend chooses. H2C: HTTP/2
/// without TLS. H2: HTTP/2 over TLS. By default what the port's appProtocol says: http or kubernetes.io/ws (HTTP),
/// https (HTTPS), kubernetes.io/h2c (H2C), grpc (H2C, with backend.tls H2), or kubernetes.io/wss (HTTP/1.1 over TLS).
/// Without appProtocol HTTP, and H2C for gRPC; with backend.tls HTTPS, and H2 for gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackendProtocol {
    /// HTTP/1.1.
    #[serde(rename = "HTTP")]
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS, as the backend chooses.
    #[serde(rename = "HTTPS")]
    Https,
    /// HTTP/2 without TLS.
    #[serde(rename = "H2C")]
    H2c,
    /// HTTP/2 over TLS.
    #[serde(rename = "H2")]
    H2,
}

/// How a backend proves who it is.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("has(self.ca) != has(self.clusterTrustBundle)")
        .message("tls must have ca or clusterTrustBundle, not both")
)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsSpec {
    /// CA certificates in PEM, one of which must have signed the backend's. tls has either ca or clusterTrustBundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub ca: Option<String>,
    /// Name of a ClusterTrustBundle with these certificates, instead of ca. A change takes effect within 15 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9.:-]*[a-z0-9])?$"))]
    pub cluster_trust_bundle: Option<String>,
    /// Name that the backend's certificate must have. By default SERVICE.NAMESPACE.svc, or the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9:]([A-Za-z0-9.:-]*[A-Za-z0-9])?$"))]
    pub server_name: Option<String>,
    /// Whether the gateway shows its client certificate to the backend. Its CA is in status.gatewayClientCA: a backend
    /// that accepts no other clients can believe the headers that name the client.
    #[serde(default)]
    pub client_certificate: bool,
}

/// What requests of a route may take.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default = "LimitsSpec::default")]
pub struct LimitsSpec {
    /// Largest body of a request, such as 64Mi. By default 64Mi; for gRPC none, because a stream may last for days.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 12), regex(pattern = r"^[1-9][0-9]{0,8}(k|M|G|T|Ki|Mi|Gi|Ti)?$"))]
    pub max_body: Option<String>,
    /// Longest time to connect to the backend, TLS included. From 1s to 1m.
    #[schemars(length(min = 2, max = 20), regex(pattern = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"))]
    #[x_kube(
        validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('1m')")
            .message("connect must be from 1s to 1m")
    )]
    pub connect: String,
    /// Longest wait until the backend's response begins; it starts again with each piece of the request. From 1s to
    /// 24h. By default 30s; for gRPC the value of idle, because the response of a stream may begin late. A WebSocket
    /// ends if its backend takes nothing for as long, but not before 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 20), regex(pattern = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"))]
    #[x_kube(
        validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')")
            .message("firstByte must be from 1s to 24h")
    )]
    pub first_byte: Option<String>,
    /// Longest time between two pieces of a body, or of a WebSocket. From 1s to 24h. A stream ends with the client's
    /// credential in any case.
    #[schemars(length(min = 2, max = 20), regex(pattern = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"))]
    #[x_kube(
        validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('24h')")
            .message("idle must be from 1s to 24h")
    )]
    pub idle: String,
    /// Most requests of this AddOnRoute at a time for one addon on one cluster. By default only the gateway's limit
    /// applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1").message("requestsPerIdentity must be at least 1"))]
    pub requests_per_identity: Option<i32>,
    /// The name that `requestsPerIdentity` had before 0.1.0, which reads both; the next version does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1").message("callsPerIdentity must be at least 1"))]
    pub calls_per_identity: Option<i32>,
}

impl Default for LimitsSpec {
    fn default() -> Self {
        Self {
            max_body: None,
            connect: "5s".to_owned(),
            first_byte: None,
            idle: "1h".to_owned(),
            requests_per_identity: None,
            calls_per_identity: None,
        }
    }
}

/// What the hub found out about an AddOnRoute.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddOnRouteStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The host names at which the route exists; * for all names of the gateway that the agents may use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hosts: String,
    /// The Service and its port, such as receive:19291, or the address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub backend: String,
    /// CA certificates in PEM, of which one has signed the client certificate that the gateway shows to the backend.
    /// Present with backend.tls.clientCertificate. The backend must accept all of them: a rotation needs two.
    #[serde(default, rename = "gatewayClientCA", skip_serializing_if = "Option::is_none")]
    pub gateway_client_ca: Option<String>,
    /// Conditions as in metav1: Accepted, ResolvedRefs and Programmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schemas::conditions")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

fn default_methods() -> Vec<Method> {
    use Method::{Delete, Get, Head, Patch, Post, Put};
    vec![Get, Head, Post, Put, Patch, Delete]
}
