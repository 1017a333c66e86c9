//! The paths of a route.

use std::fmt;
use std::str::FromStr;

use super::PathBelow;
use super::normal::{is_alike, normal_form};
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
    Text { text: String, normal: String },
    Cluster,
}

impl Segment {
    /// `None` for one that stands for the caller's cluster.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Cluster => None,
        }
    }

    /// The normal form of the text.
    fn normal(&self) -> Option<&str> {
        match self {
            Self::Text { normal, .. } => Some(normal),
            Self::Cluster => None,
        }
    }
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
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~!$&'()*+,=:@-".contains(&byte);
    let normal = normal_form(name).ok().filter(|_| !name.is_empty() && name.bytes().all(is_plain))?;
    Some(Segment::Text { text: name.to_owned(), normal: normal.into_owned() })
}

impl PathPattern {
    /// The requests of a gRPC method, or of all methods of the service. Their path is `/<service>/<method>` (gRPC over
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

    /// Whether segments begin with these, or are exactly as many.
    fn begins<T>(&self, others: &[T], is: impl Fn(&Segment, &T) -> bool) -> bool {
        let length = self.segments.len();
        let is_as_long = if self.is_exact { others.len() == length } else { others.len() >= length };
        is_as_long && self.segments.iter().zip(others).all(|(segment, other)| is(segment, other))
    }

    /// Whether it is the path of a request, whatever cluster that names.
    #[must_use]
    pub fn matches(&self, path: PathBelow<'_>) -> bool {
        self.begins(path.0, |own, of_request| match own.text() {
            Some(text) => text == of_request.decoded,
            None => !of_request.decoded.is_empty(),
        })
    }

    /// Whether some backend could take the path of a request for this one: their normal forms match. Some backends drop
    /// the last slash.
    #[must_use]
    pub fn is_alike(&self, path: PathBelow<'_>) -> bool {
        let segments = match path.0 {
            [before @ .., last] if last.normal.is_empty() => before,
            all => all,
        };
        self.begins(segments, |own, of_request| own.normal().is_none_or(|normal| is_alike(&of_request.normal, normal)))
    }

    /// Whether the segments that stand for the caller's cluster name this one.
    #[must_use]
    pub fn is_for(&self, cluster: &ClusterName, path: PathBelow<'_>) -> bool {
        let mut pairs = self.segments.iter().zip(path.0);
        pairs.all(|(segment, of_request)| *segment != Segment::Cluster || of_request.decoded == cluster.as_str())
    }

    /// Whether both have the same normal form, so that only one of them can be in effect.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let normal = self.segments.iter().map(Segment::normal);
        self.is_exact == other.is_exact && normal.eq(other.segments.iter().map(Segment::normal))
    }

    /// Whether it is at or below the other path in its normal form, but not as it is written.
    #[must_use]
    pub fn is_only_read_below(&self, other: &Self) -> bool {
        let as_written =
            |of_other: &Segment, own: &Segment| of_other.text().is_none_or(|text| own.text() == Some(text));
        let as_read = |of_other: &Segment, own: &Segment| {
            of_other.normal().is_none_or(|normal| own.normal().is_some_and(|own| is_alike(own, normal)))
        };
        other.begins(&self.segments, as_read) && !other.begins(&self.segments, as_written)
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
