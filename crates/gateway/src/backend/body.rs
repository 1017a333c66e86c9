//! The body of a backend's response, whatever its protocol is.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::task::AbortHandle;

use super::connect::Io;
use super::http1::Http1Body;
use super::http2::Http2Body;
use crate::upload::BodyError;
use addon_signer_core::gateway::headers;

/// The body of a response over HTTP/1.1 or HTTP/2.
pub(crate) enum BackendBody {
    One(Http1Body),
    Two(Http2Body),
}

impl BackendBody {
    /// The connection after an upgrade, and what was read of the new protocol.
    pub(crate) fn into_io(self) -> Option<(Io, Bytes)> {
        match self {
            Self::One(body) => body.into_io(),
            Self::Two(_) => None,
        }
    }

    /// Aborts the rest of the upload, if that has a task of its own.
    pub(crate) fn upload(&self) -> Option<AbortHandle> {
        match self {
            Self::One(_) => None,
            Self::Two(body) => body.upload(),
        }
    }
}

impl Body for BackendBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match self.get_mut() {
            Self::One(body) => Pin::new(body).poll_frame(cx),
            Self::Two(body) => Pin::new(body).poll_frame(cx),
        };
        frame.map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                headers::strip_answer_trailers(trailers);
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::One(body) => body.is_end_stream(),
            Self::Two(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::One(body) => body.size_hint(),
            Self::Two(_) => SizeHint::default(),
        }
    }
}
