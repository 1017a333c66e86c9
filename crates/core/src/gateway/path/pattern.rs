//! The paths of a route.

use std::fmt;
use std::str::FromStr;

use super::PathBelow;
use super::reading::Reading;
use crate::identity::ClusterName;

/// The segment of a route that stands for the caller's cluster.
const CLUSTER: &str = "{cluster}";

/// Text that is not the path of a route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the path of a route: write segments after slashes, without `.` and `..`, empty segments, escapes, \
     parameters or a query; {{cluster}} may stand for a whole segment"
)]
pub struct PatternError(String);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text { text: String, reading: Reading },
    Cluster,
}

/// All paths that begin with these segments, or exactly one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    segments: Vec<Segment>,
    is_exact: bool,
}

impl FromStr for PathPattern {
    type Err = PatternError;

    /// Reads a prefix such as `/api/v1` or `/tenants/{cluster}`. A trailing slash changes nothing.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        let refused = || PatternError(text.to_owned());
        let rest = text.strip_prefix('/').ok_or_else(refused)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let names = rest.split('/').filter(|_| !rest.is_empty());
        let segments = names.map(segment).collect::<Option<_>>().ok_or_else(refused)?;
        Ok(Self { segments, is_exact: false })
    }
}

fn segment(name: &str) -> Option<Segment> {
    if name == CLUSTER {
        return Some(Segment::Cluster);
    }
    let reading = Reading::of_route(name);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~!$&'()*+,=:@-".contains(&byte);
    let has_form = !reading.is_empty() && name.bytes().all(is_plain);
    has_form.then(|| Segment::Text { text: name.to_owned(), reading })
}

impl PathPattern {
    /// The calls of a gRPC method, or of all methods of the service. Their path is `/<service>/<method>` (gRPC over
    /// HTTP/2, "Requests").
    ///
    /// # Errors
    /// A name has characters that no gRPC name has.
    pub fn grpc(service: &str, method: Option<&str>) -> Result<Self, PatternError> {
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte));
        let names: Vec<&str> = std::iter::once(service).chain(method).collect();
        let segments: Option<Vec<Segment>> = names.iter().map(|name| segment(name).filter(|_| is_name(name))).collect();
        let segments = segments.ok_or_else(|| PatternError(names.join("/")))?;
        Ok(Self { segments, is_exact: method.is_some() })
    }

    /// How many segments it has: the longer one of two decides.
    #[must_use]
    pub fn length(&self) -> usize {
        self.segments.len()
    }

    /// Whether one of the segments stands for the caller's cluster.
    #[must_use]
    pub fn names_cluster(&self) -> bool {
        self.segments.contains(&Segment::Cluster)
    }

    /// Whether it is the path of a call, whatever cluster that names.
    #[must_use]
    pub fn matches(&self, path: PathBelow<'_>) -> bool {
        let is_as_long = path.decoded.len() == self.segments.len() || !self.is_exact;
        let mut pairs = self.segments.iter().zip(path.decoded);
        is_as_long
            && path.decoded.len() >= self.segments.len()
            && pairs.all(|(segment, other)| match segment {
                Segment::Text { text, .. } => text == other,
                Segment::Cluster => !other.is_empty(),
            })
    }

    /// Whether some backend could take the path of a call for this one.
    #[must_use]
    pub fn may_match(&self, path: PathBelow<'_>) -> bool {
        let trailing = path.readings.iter().rev().take_while(|segment| segment.is_empty()).count();
        let is_as_long = path.readings.len() - trailing == self.segments.len() || !self.is_exact;
        let mut pairs = self.segments.iter().zip(path.readings);
        is_as_long
            && path.readings.len() >= self.segments.len()
            && pairs.all(|(segment, other)| match segment {
                Segment::Text { reading, .. } => other.may_be(reading),
                Segment::Cluster => !other.is_empty(),
            })
    }

    /// Whether the segments that stand for the caller's cluster name this one.
    #[must_use]
    pub fn is_for(&self, cluster: &ClusterName, path: PathBelow<'_>) -> bool {
        let mut pairs = self.segments.iter().zip(path.decoded);
        pairs.all(|(segment, other)| *segment != Segment::Cluster || other == cluster.as_str())
    }

    /// Whether some backend could take each path of one pattern for a path of the other, so that only one of them can
    /// be in effect.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let same = |(one, other): (&Segment, &Segment)| match (one, other) {
            (Segment::Text { reading: one, .. }, Segment::Text { reading: other, .. }) => one == other,
            (Segment::Cluster, Segment::Cluster) => true,
            _ => false,
        };
        self.length() == other.length()
            && self.is_exact == other.is_exact
            && self.segments.iter().zip(&other.segments).all(same)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return f.write_str("/");
        }
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Text { text, .. } => write!(f, "/{text}"),
            Segment::Cluster => write!(f, "/{CLUSTER}"),
        })
    }
}
